"""The status of a gateway's servers: `GET /status`, and how to ask for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from dragoman.errors import ConfigError, DragomanError
from dragoman.struct import Report
from dragoman.trust.addresses import is_loopback, split_url
from dragoman.trust.encoding import encoded
from dragoman.trust.sanitizing import for_remote

if TYPE_CHECKING:
    from dragoman.manager.manager import McpManager

SECONDS = 10.0


class ServerReading(Report, kw_only=True):
    """What a gateway says about one server; no path, no secret."""

    name: str
    state: str
    transport: str = ""
    protocol_version: str | None = None
    server_name: str | None = None
    server_version: str | None = None
    tools: int | None = None
    last_error: str | None = None
    error_code: str | None = None
    retry_in: float | None = None


def status_rows(mcp: McpManager) -> list[dict[str, Any]]:
    """Return the state of each server, in the form of `dragoman status --json`."""
    rows: list[ServerReading] = []
    for _, status in sorted(mcp.status().items()):
        is_ready = status.state.value == "ready"
        rows.append(
            ServerReading.of(
                status,
                last_error=None if is_ready or not status.last_error else for_remote(status.last_error),
                error_code=None if is_ready else status.error_code,
                retry_in=None if status.retry_in is None else round(status.retry_in, 1),
            )
        )
    return encoded(rows)


async def read_status(address: str, token: str = "") -> list[ServerReading]:
    """Ask a running gateway for the state of its servers.

    Args:
        address: Where it is, with or without `/mcp`.
        token: What it wants as `Authorization: Bearer …`.

    Raises:
        ConfigError: This is not an address that a token may be sent to.
        DragomanError: It does not answer, or refuses.
    """
    from dragoman.server.oauth.safe_fetch import Fetcher, FetchError

    parts = split_url(address if "://" in address else f"http://{address}")
    if parts is None or parts.scheme not in ("http", "https") or not parts.host:
        msg = f"`{address}` is not the address of a gateway"
        raise ConfigError(msg, hint="write it as `serve` prints it: http://127.0.0.1:8000/mcp")
    if token and parts.scheme == "http" and not is_loopback(parts.host):
        msg = f"the token is not sent to `{parts.host}` over plain http, where others can read it"
        raise ConfigError(msg, hint="use https")
    root = parts.path.rstrip("/").removesuffix("/mcp")
    url = f"{parts.scheme}://{parts.netloc}{root}/status"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with asyncio.timeout(SECONDS):
            answer = await Fetcher("gateway").fetch("GET", url, headers=headers, configured=True)
        if answer.status in (401, 403):
            msg = f"the gateway at {parts.netloc} refused the token"
            raise DragomanError(msg, hint="set DRAGOMAN_TOKEN to the token that `serve` printed")
        rows = answer.document().get("servers")
    except (FetchError, TimeoutError, ValueError) as exc:
        msg = f"no gateway answered at {parts.netloc}: {exc or 'it took too long'}"
        raise DragomanError(msg, hint="start one: dragoman serve --http 8000") from exc
    try:
        return msgspec.convert(rows, list[ServerReading])
    except msgspec.ValidationError as exc:
        msg = f"what answered at {parts.netloc} is not a gateway of dragoman"
        raise DragomanError(msg, hint="give the address that `dragoman serve --http` printed") from exc
