"""Roo Code: `mcpServers` in `.roo/mcp.json` and in the editor's storage; seconds; a URL needs a type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.config.dialect import Dialect, Place, key_table, under
from dragoman.config.dialects.sections import PLAIN, SAME
from dragoman.config.expand import Style

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

_LONGEST_TIMEOUT = 3600
_FILE = "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"


def translate(entry: Entry) -> None:
    """Refuse a time-out that this host refuses."""
    timeout = entry.fields.get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        return
    if not 1 <= timeout <= _LONGEST_TIMEOUT:
        entry.problems.append(("timeout", f"this host takes 1 to {_LONGEST_TIMEOUT} seconds only"))


DIALECT = Dialect(
    name="roo",
    title="Roo Code",
    places=(
        Place("${workspaceFolder}/.roo/mcp.json", "project"),
        Place(f"${{XDG_CONFIG_HOME:-~/.config}}/{_FILE}", "user", platform="linux"),
        Place(f"~/Library/Application Support/{_FILE}", "user", platform="darwin"),
        Place(f"${{APPDATA}}/{_FILE}", "user", platform="win32"),
    ),
    find=under("mcpServers"),
    translate=translate,
    keys=key_table(
        *PLAIN,
        "disabled",
        type="transport",
        timeout="call",
        disabledTools="denied_tools",
    ),
    style=Style(env_prefix=True, places=frozenset({"workspaceFolder"})),
    untyped_url="error",
    dropped={
        "alwaysAllow": "approval is decided by dragoman's own policy",
        "watchPaths": "watching a server's sources is for its developers",
    },
    writes={
        **SAME,
        "transport": "type",
        "disabled": "disabled",
        "denied_tools": "disabledTools",
        "call": "timeout",
    },
    remote_types={"stdio": "stdio", "http": "streamable-http", "sse": "sse"},
)
