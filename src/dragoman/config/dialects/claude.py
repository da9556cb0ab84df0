"""Claude Code: `.mcp.json` in the project, `~/.claude.json` for the user and for each project.

A URL needs a type; `timeout` is in milliseconds and ignored below a second, as that host does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.config import dialect
from dragoman.config.dialect import Dialect, Place, key_table, under
from dragoman.config.templates import NONE, VariableSyntax
from dragoman.model import Note

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

_LEAST_TIMEOUT_MS = 1000


def translate(entry: Entry) -> None:
    """Rewrite `oauth`, and leave a time-out below a second out."""
    timeout = entry.fields.get("timeout")
    if isinstance(timeout, int | float) and 0 < timeout < _LEAST_TIMEOUT_MS and timeout is not True:
        message = f"{timeout} ms is below a second, which this host ignores"
        entry.set_aside("timeout", Note(code="unit", key="timeout", message=message))
    dialect.rename(entry)


CLAUDE_CODE = Dialect(
    name="claude-code",
    title="Claude Code",
    places=(
        Place("${workspaceFolder}/.mcp.json", "project"),
        Place("${CLAUDE_CONFIG_DIR:-~}/.claude.json", "user"),
    ),
    find=under("mcpServers"),
    per_project=("disabledMcpServers", "disabledMcpjsonServers"),
    translate=translate,
    keys=key_table(
        "command",
        "args",
        "env",
        "inherit_env",
        "url",
        "headers",
        type="transport",
        timeout="call",
        oauth="auth",
        unit="ms",
    ),
    style=VariableSyntax(
        braces=True,
        defaults=True,
        default_if_empty=False,
        renamed={"CLAUDE_PROJECT_DIR": "${workspaceFolder}"},
    ),
    untyped_url="error",
    dropped={
        "headersHelper": "a command that prints headers is never run; put the header in `headers`",
        "alwaysLoad": "which tools are loaded is the agent's own choice",
    },
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "url": "url",
        "headers": "headers",
        "transport": "type",
        "call": "timeout",
    },
    write_unit="ms",
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


CLAUDE_DESKTOP = Dialect(
    name="claude-desktop",
    title="Claude Desktop",
    places=(
        Place("~/Library/Application Support/Claude/claude_desktop_config.json", "user", platform="darwin"),
        Place("${APPDATA}/Claude/claude_desktop_config.json", "user", platform="win32"),
        Place("${XDG_CONFIG_HOME:-~/.config}/Claude/claude_desktop_config.json", "user", platform="linux"),
    ),
    find=under("mcpServers"),
    keys=key_table("command", "args", "env", "inherit_env", "url", "headers", type="transport"),
    style=NONE,
    writes={"command": "command", "args": "args", "env": "env"},
    remote_types={"stdio": ""},
)
