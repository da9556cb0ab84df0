"""Windsurf: `mcpServers` in `mcp_config.json`; an address stands under `serverUrl`, and has no type.

Assumed: its three transports have no key, so a path that ends in /sse is tried as SSE first. `disabled` and
`disabledTools` are written by its window and are not in its documentation; they are read, and never written.
"""

from __future__ import annotations

from dragoman.config.dialect import Dialect, Place, key_table, under
from dragoman.config.expand import Spelling, Style

FILE = Spelling(
    "${file:",
    "}",
    kind="input",
    prefix="file:",
    loss="a value is not read from another file: it is asked for, as the input `file:PATH`",
)

DIALECT = Dialect(
    name="windsurf",
    title="Windsurf",
    places=(
        Place("~/.codeium/windsurf/mcp_config.json", "user"),
        Place("~/.codeium/windsurf-next/mcp_config.json", "user"),
        Place("~/.codeium/mcp_config.json", "user"),
    ),
    find=under("mcpServers"),
    keys=key_table(
        "command",
        "args",
        "env",
        "headers",
        "disabled",
        serverUrl="url",
        url="url",
        disabledTools="denied_tools",
    ),
    style=Style(env_prefix=True, spellings=(FILE,)),
    dropped={"alwaysAllow": "approval is decided by dragoman's own policy"},
    writes={"command": "command", "args": "args", "env": "env", "url": "serverUrl", "headers": "headers"},
    remote_types={"stdio": "", "http": "", "sse": ""},
)
