"""otter: `[mcp]` and `[[mcp.servers]]` in TOML (or `[[mcp_servers]]`); durations such as "30s"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.config.dialect import Dialect, Entry, Patch, entries_at, key_table
from dragoman.config.dialects.sections import PLAIN, SHELL_LIKE, settings_patch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document

_KEYS = (
    "transport",
    *PLAIN,
    "enabled",
    "reconnect",
    "max_concurrency",
    "allowed_tools",
    "denied_tools",
    "fallback",
    "required",
    "lazy",
)


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the servers of both spellings."""
    return [*entries_at(document, ("mcp", "servers")), *entries_at(document, ("mcp_servers",))]


def patch(document: Document, _root: str) -> Patch:
    """Read the `[mcp]` table."""
    return settings_patch(document, ("mcp",))


DIALECT = Dialect(
    name="otter",
    title="otter",
    find=find,
    patch=patch,
    keys=key_table(*_KEYS, type="transport", timeout="call", connect_timeout="connect"),
    style=SHELL_LIKE,
    container=("mcp", "servers"),
    as_list=True,
    writes={name: name for name in _KEYS} | {"call": "timeout", "connect": "connect_timeout"},
    write_unit="text",
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)
