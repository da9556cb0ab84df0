"""Cursor: `mcpServers` in `~/.cursor/mcp.json` and `.cursor/mcp.json`; a URL alone is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import Dialect, Place, key_table, under
from dragoman.config.expand import Style

if TYPE_CHECKING:
    from dragoman.config.dialect import Entry

_AUTH = {"CLIENT_ID": "client_id", "CLIENT_SECRET": "client_secret"}


def translate(entry: Entry) -> None:
    """Rename the keys of `auth`."""
    auth = entry.fields.get("auth")
    if isinstance(auth, dict):
        table = cast("dict[str, Any]", auth)
        entry.fields["auth"] = {_AUTH.get(key, key): value for key, value in table.items()}
        entry.spellings.update({f"auth.{name}": f"auth.{key}" for key, name in _AUTH.items()})


DIALECT = Dialect(
    name="cursor",
    title="Cursor",
    places=(Place("${workspaceFolder}/.cursor/mcp.json", "project"), Place("~/.cursor/mcp.json", "user")),
    find=under("mcpServers"),
    translate=translate,
    keys=key_table(
        "command", "args", "env", "cwd", "url", "headers", "auth", envFile="env_file", type="transport"
    ),
    style=Style(env_prefix=True, places=True),
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "env_file": "envFile",
        "url": "url",
        "headers": "headers",
        "transport": "type",
    },
    remote_types={"stdio": "stdio", "http": "", "sse": ""},
)
