"""LM Studio: `mcpServers` in `~/.lmstudio/mcp.json`, in Cursor's notation; a URL alone is enough.

Assumed: it has no variables, since its documentation shows none and its own examples write values out.
"""

from __future__ import annotations

from dragoman.config.dialect import Dialect, Place, key_table, under
from dragoman.config.expand import NONE

DIALECT = Dialect(
    name="lm-studio",
    title="LM Studio",
    places=(Place("~/.lmstudio/mcp.json", "user"), Place("~/.cache/lm-studio/mcp.json", "user")),
    combine="first",
    find=under("mcpServers"),
    keys=key_table("command", "args", "env", "url", "headers"),
    style=NONE,
    untyped_url="both",
    writes={"command": "command", "args": "args", "env": "env", "url": "url", "headers": "headers"},
    remote_types={"stdio": "", "http": "", "sse": ""},
)
