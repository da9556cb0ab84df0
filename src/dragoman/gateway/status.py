"""The status of a gateway's servers, for `GET /status` and `dragoman status --of`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.trust.sanitizing import for_remote

if TYPE_CHECKING:
    from dragoman.manager.manager import McpManager


def status_rows(mcp: McpManager) -> list[dict[str, Any]]:
    """Return the state of each server, in the form of `dragoman status --json`; no path, no secret."""
    rows: list[dict[str, Any]] = []
    for name, status in sorted(mcp.status().items()):
        is_ready = status.state.value == "ready"
        rows.append(
            {
                "name": name,
                "state": status.state.value,
                "transport": status.transport,
                "protocol_version": status.protocol_version,
                "server_name": status.server_name,
                "server_version": status.server_version,
                "tools": status.tools,
                "last_error": None if is_ready or not status.last_error else for_remote(status.last_error),
                "error_code": None if is_ready else status.error_code,
                "retry_in": None if status.retry_in is None else round(status.retry_in, 1),
            }
        )
    return rows
