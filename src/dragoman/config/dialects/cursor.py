"""Cursor: `mcpServers` in `~/.cursor/mcp.json` and `.cursor/mcp.json`; a URL alone is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import PLAIN, Dialect, Place, key_table, under
from dragoman.config.templates import NONE, Spelling, VariableSyntax

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


CURSOR = Dialect(
    name="cursor",
    title="Cursor",
    places=(Place("${workspaceFolder}/.cursor/mcp.json", "project"), Place("~/.cursor/mcp.json", "user")),
    find=under("mcpServers"),
    translate=translate,
    keys=key_table(*PLAIN, "auth", envFile="env_file", type="transport"),
    style=VariableSyntax(env_prefix=True, places=True),
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


WINDSURF_FILE = Spelling(
    "${file:",
    "}",
    kind="input",
    prefix="file:",
    loss="a value is not read from another file: it is asked for, as the input `file:PATH`",
)

WINDSURF = Dialect(
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
        "inherit_env",
        "args",
        "env",
        "headers",
        "disabled",
        serverUrl="url",
        url="url",
        disabledTools="denied_tools",
    ),
    style=VariableSyntax(env_prefix=True, spellings=(WINDSURF_FILE,)),
    dropped={"alwaysAllow": "approval is decided by dragoman's own policy"},
    writes={"command": "command", "args": "args", "env": "env", "url": "serverUrl", "headers": "headers"},
    remote_types={"stdio": "", "http": "", "sse": ""},
)


LM_STUDIO = Dialect(
    name="lm-studio",
    title="LM Studio",
    places=(Place("~/.lmstudio/mcp.json", "user"), Place("~/.cache/lm-studio/mcp.json", "user")),
    combine="first",
    find=under("mcpServers"),
    keys=key_table("command", "args", "env", "inherit_env", "url", "headers"),
    style=NONE,
    untyped_url="both",
    writes={"command": "command", "args": "args", "env": "env", "url": "url", "headers": "headers"},
    remote_types={"stdio": "", "http": "", "sse": ""},
)
