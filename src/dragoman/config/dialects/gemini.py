"""Gemini CLI: `mcpServers` in `settings.json`; milliseconds; `httpUrl` before `url` before `command`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import (
    PLAIN,
    SAME,
    Dialect,
    FileSettings,
    Place,
    key_table,
    names_at,
    table_at,
    under,
)
from dragoman.config.templates import VariableSyntax
from dragoman.model import Note

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry
    from dragoman.config.documents import Document


def patch(document: Document, _root: str) -> FileSettings:
    """Honour `mcp.allowed` and `mcp.excluded`."""
    table = table_at(document, ("mcp",))
    return FileSettings(
        said={
            "only_servers": names_at(table, "allowed"),
            "without_servers": names_at(table, "excluded"),
        },
        places={"only_servers": ("mcp", "allowed"), "without_servers": ("mcp", "excluded")},
    )


def translate(entry: Entry) -> None:
    """Choose between the ways to reach the server as this host does, and rewrite `oauth`."""
    fields = entry.fields
    if "httpUrl" in fields:
        fields["type"] = "http"
        entry.spellings["type"] = "httpUrl"
        if "url" in fields:
            entry.set_aside("url", Note(code="conflict", key="url", message="`httpUrl` wins over `url`"))
        entry.move("httpUrl", "url")
    if "url" in fields and "command" in fields:
        message = "a URL wins over a command in this host"
        entry.set_aside("command", Note(code="conflict", key="command", message=message))
    dialect.rename(entry)
    oauth = fields.get("oauth")
    if isinstance(oauth, dict):
        table = cast("dict[str, Any]", oauth)
        table.setdefault("mode", "auto" if table.pop("enabled", True) is False else "oauth")


GEMINI = Dialect(
    name="gemini",
    title="Gemini CLI",
    places=(
        Place(
            "${GEMINI_CLI_SYSTEM_SETTINGS_PATH:-/etc/gemini-cli/settings.json}", "system", platform="linux"
        ),
        Place(
            "${GEMINI_CLI_SYSTEM_SETTINGS_PATH:-/Library/Application Support/GeminiCli/settings.json}",
            "system",
            platform="darwin",
        ),
        Place("${workspaceFolder}/.gemini/settings.json", "project"),
        Place("${GEMINI_CLI_HOME:-~}/.gemini/settings.json", "user"),
    ),
    find=under("mcpServers"),
    settings=[("mcp", "allowed"), ("mcp", "excluded")],
    patch=patch,
    translate=translate,
    keys=key_table(
        *PLAIN,
        "description",
        oauth="auth",
        type="transport",
        timeout="call",
        includeTools="allowed_tools",
        excludeTools="denied_tools",
        unit="ms",
    ),
    style=VariableSyntax(braces=True, bare=True, defaults=True, default_if_empty=False),
    untyped_url="both",
    dropped={
        "trust": "it skips that host's approval; dragoman's own policy decides",
        "tcp": "plain TCP is not supported",
        "authProviderType": "a login through that host's own cloud account",
        "targetAudience": "a login through that host's own cloud account",
        "targetServiceAccount": "a login through that host's own cloud account",
    },
    writes={
        **SAME,
        "transport": "type",
        "description": "description",
        "call": "timeout",
        "allowed_tools": "includeTools",
        "denied_tools": "excludeTools",
    },
    write_unit="ms",
    remote_types={"stdio": "", "http": "http", "sse": "sse"},
)
