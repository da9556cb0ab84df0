"""Kiro: `mcpServers` in `.kiro/settings/mcp.json`, the user's own, and in files of agents; milliseconds.

An agent's `tools` name what it may use, as `@server` or `@server/tool`; a server of its file gets those of
its own. Assumed: `${env:VAR}` works beside `${VAR}`, as in the program that Kiro's terminal grew out of, and
both only in `env` and `headers`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import PLAIN, Dialect, Entry, Place, entries_at, key_table, names_at, table_at
from dragoman.config.templates import VariableSyntax

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document

_HOST_AND_PORT = re.compile(r"(?:localhost|127\.0\.0\.1)?:(\d{1,5})")


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the servers; in an agent's file, with the tools that it may use."""
    entries = entries_at(document, ("mcpServers",))
    tools = names_at(table_at(document, ()), "tools")
    if tools is None or "*" in tools:
        return entries
    for entry in entries:
        own, prefix = f"@{entry.name}", f"@{entry.name}/"
        if own not in tools and entry.name:
            entry.fields["allowed_tools"] = [
                tool.removeprefix(prefix) for tool in tools if tool.startswith(prefix)
            ]
    return entries


def translate(entry: Entry) -> None:
    """Gather the login; a redirect that is only a port is where the answer is waited for."""
    dialect.rename(entry)
    dialect.gather(entry, {"oauthScopes": "scopes"})
    oauth = entry.fields.get("oauth")
    if isinstance(oauth, dict):
        table = cast("dict[str, Any]", oauth)
        redirect = table.get("redirect_uri")
        match = _HOST_AND_PORT.fullmatch(redirect) if isinstance(redirect, str) else None
        if match is not None:
            del table["redirect_uri"]
            table["callback_port"] = int(match[1])
            entry.spellings["oauth.callback_port"] = "oauth.redirectUri"


KIRO = Dialect(
    name="kiro",
    title="Kiro",
    places=(
        Place("${workspaceFolder}/.kiro/agents/*.json", "project"),
        Place("~/.kiro/agents/*.json", "user"),
        Place("${workspaceFolder}/.kiro/settings/mcp.json", "project"),
        Place("~/.kiro/settings/mcp.json", "user"),
    ),
    find=find,
    translate=translate,
    keys=key_table(
        *PLAIN,
        "disabled",
        "allowed_tools",
        type="transport",
        timeout="call",
        disabledTools="denied_tools",
        oauth="auth",
        unit="ms",
    ),
    style=VariableSyntax(braces=True, env_prefix=True),
    expanded=frozenset({"env", "headers"}),
    untyped_url="http",
    dropped={"autoApprove": "approval is decided by dragoman's own policy"},
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "url": "url",
        "headers": "headers",
        "disabled": "disabled",
        "denied_tools": "disabledTools",
    },
    remote_types={"stdio": "", "http": ""},
)


AMAZON_Q = KIRO.replace(
    name="amazon-q",
    title="Amazon Q Developer CLI",
    places=(
        Place("${workspaceFolder}/.amazonq/cli-agents/*.json", "project"),
        Place("~/.aws/amazonq/cli-agents/*.json", "user"),
        Place("${workspaceFolder}/.amazonq/mcp.json", "project"),
        Place("~/.aws/amazonq/mcp.json", "user"),
    ),
    style=VariableSyntax(env_prefix=True),
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "url": "url",
        "headers": "headers",
        "transport": "type",
        "disabled": "disabled",
        "call": "timeout",
    },
    write_unit="ms",
    remote_types={"stdio": "", "http": "http"},
)
