"""Cline: `mcpServers` in one file for every editor; flat entries, or nested under `transport`; seconds.

A URL without a type is SSE. `oauth` holds that host's tokens and is never taken over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import PLAIN, SAME, Dialect, Place, key_table, under
from dragoman.config.templates import VariableSyntax
from dragoman.model import Note

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

_LONGEST_TIMEOUT = 3600
_FILE = "cline_mcp_settings.json"
_OLD = f"globalStorage/saoudrizwan.claude-dev/settings/{_FILE}"


def translate(entry: Entry) -> None:
    """Lift a nested transport, hold the time-out within that host's bounds, and rewrite the login."""
    fields = entry.fields
    nested = fields.get("transport")
    if isinstance(nested, dict):
        del fields["transport"]
        for key, value in cast("dict[str, Any]", nested).items():
            if fields.get(key) is None:
                fields[key] = value
                entry.spellings[key] = f"transport.{key}"
            else:
                message = "it also stands beside `transport`, which this is in; this is not used"
                entry.notes.append(Note(code="conflict", key=f"transport.{key}", message=message))
    timeout = fields.get("timeout")
    if isinstance(timeout, int | float) and not isinstance(timeout, bool):
        held = min(max(timeout, 1), _LONGEST_TIMEOUT)
        if held != timeout:
            fields["timeout"] = held
            message = f"this host makes it {held} s: it takes 1 to {_LONGEST_TIMEOUT} s"
            entry.notes.append(Note(code="unit", key="timeout", message=message))
    dialect.forget(entry, "oauth")
    dialect.rename(entry, key="oauthClient")


CLINE = Dialect(
    name="cline",
    title="Cline",
    places=(
        Place("${CLINE_MCP_SETTINGS_PATH}", "user"),
        Place(f"${{CLINE_DATA_DIR}}/settings/{_FILE}", "user"),
        Place(f"${{CLINE_DIR:-~/.cline}}/data/settings/{_FILE}", "user"),
        Place("~/.cline/mcp.json", "user"),
        Place(f"${{XDG_CONFIG_HOME:-~/.config}}/Code/User/{_OLD}", "user", platform="linux"),
        Place(f"~/Library/Application Support/Code/User/{_OLD}", "user", platform="darwin"),
        Place(f"${{APPDATA}}/Code/User/{_OLD}", "user", platform="win32"),
        Place(f"~/Documents/Cline/MCP/{_FILE}", "user"),
    ),
    combine="first",
    find=under("mcpServers"),
    translate=translate,
    keys=key_table(
        *PLAIN,
        "disabled",
        type="transport",
        transportType="transport",
        timeout="call",
        oauthClient="auth",
    ),
    style=VariableSyntax(env_prefix=True),
    untyped_url="sse",
    dropped={
        "autoApprove": "approval is decided by dragoman's own policy",
        "metadata": "where it was installed from means nothing here",
        "remoteConfigured": "it says that an organisation gave the entry to that host",
    },
    writes={
        **SAME,
        "transport": "type",
        "disabled": "disabled",
        "call": "timeout",
    },
    remote_types={"stdio": "stdio", "http": "streamableHttp", "sse": "sse"},
)


_ROO_LONGEST_TIMEOUT = 3600
_ROO_FILE = "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"


def translate_roo(entry: Entry) -> None:
    """Refuse a time-out that this host refuses."""
    timeout = entry.fields.get("timeout")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        return
    if not 1 <= timeout <= _ROO_LONGEST_TIMEOUT:
        entry.problems.append(("timeout", f"this host takes 1 to {_ROO_LONGEST_TIMEOUT} seconds only"))


ROO = Dialect(
    name="roo",
    title="Roo Code",
    places=(
        Place("${workspaceFolder}/.roo/mcp.json", "project"),
        Place(f"${{XDG_CONFIG_HOME:-~/.config}}/{_ROO_FILE}", "user", platform="linux"),
        Place(f"~/Library/Application Support/{_ROO_FILE}", "user", platform="darwin"),
        Place(f"${{APPDATA}}/{_ROO_FILE}", "user", platform="win32"),
    ),
    find=under("mcpServers"),
    translate=translate_roo,
    keys=key_table(
        *PLAIN,
        "disabled",
        type="transport",
        timeout="call",
        disabledTools="denied_tools",
    ),
    style=VariableSyntax(env_prefix=True, places=frozenset({"workspaceFolder"})),
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
