"""Claude Desktop: an `mcpServers` map of child processes in strict JSON; no variables, no addresses."""

from __future__ import annotations

from dragoman.config.dialect import Dialect, Place, key_table, under
from dragoman.config.expand import NONE

DIALECT = Dialect(
    name="claude-desktop",
    title="Claude Desktop",
    places=(
        Place("~/Library/Application Support/Claude/claude_desktop_config.json", "user", platform="darwin"),
        Place("${APPDATA}/Claude/claude_desktop_config.json", "user", platform="win32"),
        Place("${XDG_CONFIG_HOME:-~/.config}/Claude/claude_desktop_config.json", "user", platform="linux"),
    ),
    find=under("mcpServers"),
    keys=key_table("command", "args", "env", "url", "headers", type="transport"),
    style=NONE,
    writes={"command": "command", "args": "args", "env": "env"},
    remote_types={"stdio": ""},
)
