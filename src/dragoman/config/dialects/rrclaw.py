"""RRClaw: `[mcp.servers.NAME]` tables in TOML; `sse` also means Streamable HTTP, tried first."""

from __future__ import annotations

from dragoman.config.dialect import Dialect, key_table, under
from dragoman.config.dialects.sections import PLAIN, SHELL_LIKE

_KEYS = (
    "transport",
    *PLAIN,
    "allowed_tools",
    "enabled",
    "fallback",
    "required",
    "lazy",
)

DIALECT = Dialect(
    name="rrclaw",
    title="RRClaw",
    find=under("mcp", "servers"),
    keys=key_table(*_KEYS, type="transport", timeout="call"),
    style=SHELL_LIKE,
    sse_is_http=True,
    empty_allows_all=True,
    container=("mcp", "servers"),
    writes={name: name for name in _KEYS} | {"call": "timeout"},
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)
