"""opencode: `mcp` in `opencode.json`; a command is one list; milliseconds; layers merge key by key.

`timeout` covers a connection up to its first listing. The second form of the file has `mcp.servers`, a table
of time-outs and snake case; both forms are read, the first is written. A remote server is tried as Streamable
HTTP, then as SSE. The globs of the file's `tools` count for servers of the same file. Only the project's own
file is read, not those above it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import (
    Dialect,
    Entry,
    Meaning,
    Place,
    each_text,
    entries_at,
    key_table,
    table_at,
    under,
)
from dragoman.config.templates import Spelling, VariableSyntax, spelled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.dialect import Entry
    from dragoman.config.documents import Document

_OF_AN_ENTRY = frozenset({"type", "command", "url"})
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the servers of either form, with what the file says about their tools and time-outs."""
    mcp = table_at(document, ("mcp",))
    servers = mcp.get("servers")
    if isinstance(servers, dict) and not _OF_AN_ENTRY & cast("dict[str, Any]", servers).keys():
        entries = entries_at(document, ("mcp", "servers"))
        shared = mcp.get("timeout")
        if isinstance(shared, dict):
            for entry in entries:
                own = entry.fields.get("timeout")
                if own is None or isinstance(own, dict):
                    entry.fields["timeout"] = {
                        **cast("dict[str, Any]", shared),
                        **cast("dict[str, Any]", own or {}),
                    }
    else:
        entries = entries_at(document, ("mcp",))
    switches = table_at(document, ("tools",))
    for entry in entries:
        _switch_tools(entry, switches)
    return entries


def _switch_tools(entry: Entry, switches: dict[str, Any]) -> None:
    """Turn the globs that switch tools of this server, which are called `server_tool` there, into lists."""
    prefix = f"{_NOT_IN_NAMES.sub('_', entry.name)}_"
    named: dict[str, bool] = {}
    for glob, on in switches.items():
        whole = f"{glob[:-1]}_*" if glob == f"{prefix[:-1]}*" else glob
        if isinstance(on, bool) and entry.name and whole.startswith(prefix):
            named[whole.removeprefix(prefix)] = on
    allowed = [name for name, on in named.items() if on]
    denied = [name for name, on in named.items() if not on]
    if allowed and "*" in denied:
        denied.remove("*")
        entry.fields["allowed_tools"] = allowed
    if denied:
        entry.fields["denied_tools"] = denied


def translate(entry: Entry) -> None:
    """Take a table of time-outs apart, and rewrite the login."""
    fields = entry.fields
    timeout = fields.get("timeout")
    if isinstance(timeout, dict):
        del fields["timeout"]
        for key, value in cast("dict[str, Any]", timeout).items():
            fields[f"timeout.{key}"] = value
    if fields.get("enabled") is False and not _OF_AN_ENTRY & fields.keys():
        entry.problems.append(("enabled", "it switches a server off that none of these files has"))
    dialect.switch(entry)
    dialect.rename(entry, {**dialect.CAMEL_CASE, "scope": "scopes"})


OPENCODE = Dialect(
    name="opencode",
    title="opencode",
    places=(
        *(
            Place(f"{folder}/opencode.{ending}", "system", platform=platform)
            for platform, folder in (
                ("linux", "/etc/opencode"),
                ("darwin", "/Library/Application Support/opencode"),
                ("win32", "${ProgramData}/opencode"),
            )
            for ending in ("jsonc", "json")
        ),
        Place("${workspaceFolder}/.opencode/opencode.jsonc", "project"),
        Place("${workspaceFolder}/.opencode/opencode.json", "project"),
        Place("${workspaceFolder}/opencode.jsonc", "project"),
        Place("${workspaceFolder}/opencode.json", "project"),
        Place("${OPENCODE_CONFIG}", "user"),
        Place("${XDG_CONFIG_HOME:-~/.config}/opencode/opencode.json", "user"),
        Place("${XDG_CONFIG_HOME:-~/.config}/opencode/opencode.jsonc", "user"),
    ),
    combine="fields",
    find=find,
    translate=translate,
    keys=key_table(
        "command",
        "cwd",
        "inherit_env",
        "url",
        "headers",
        "enabled",
        "disabled",
        "allowed_tools",
        "denied_tools",
        environment="env",
        type="transport",
        timeout="connect",
        oauth="auth",
        unit="ms",
    )
    | {
        "timeout.startup": Meaning(field="connect", unit="ms"),
        "timeout.request": Meaning(field="call", unit="ms"),
    },
    style=VariableSyntax(
        spellings=(
            Spelling("{env:", "}"),
            Spelling(
                "{file:",
                "}",
                kind="input",
                prefix="file:",
                loss="a value is not read from another file: it is asked for, as the input `file:PATH`",
            ),
        )
    ),
    untyped_url="both",
    either_kind=True,
    container=("mcp",),
    writes={
        "command": "command",
        "env": "environment",
        "cwd": "cwd",
        "url": "url",
        "headers": "headers",
        "transport": "type",
        "enabled": "enabled",
        "connect": "timeout",
    },
    write_unit="ms",
    remote_types={"stdio": "local", "http": "remote", "sse": "remote"},
    command_is_list=True,
)


# What has no end is taken up to the end of the text, so that no character is looked at twice.
_OPERATOR = re.compile(
    r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*+)(?P<operator>:\?|\?|-)(?:(?P<word>[^}]*+)\}|[^}]*+)"
)
_KNOWN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(:-.*)?", re.DOTALL)
_BRACED = re.compile(r"\$\{(?:([^}]*+)\}|[^}]*+)")
_TEXTS = ("command", "args", "env", "url", "headers", "oauth_client_id", "oauth_client_secret")

CRUSH_SYNTAX = VariableSyntax(
    braces=True,
    bare=True,
    defaults=True,
    spellings=(
        Spelling(
            "$(",
            ")",
            kind="input",
            prefix="output of ",
            loss="a command in a value is never run: what it prints is asked for, as an input",
        ),
    ),
)


def translate_crush(entry: Entry) -> None:
    """Rewrite what only a shell knows, refuse what cannot be rewritten, and gather the login."""
    fields = entry.fields
    for key in _TEXTS:
        if key in fields:
            fields[key] = each_text(fields[key], lambda text, key=key: _plainer(text, key, entry))
    dialect.forget(entry, "oauth_token")
    dialect.switch(entry)
    dialect.gather(
        entry,
        {
            "oauth_client_id": "client_id",
            "oauth_client_secret": "client_secret",
            "oauth_callback_port": "callback_port",
        },
    )


def _plainer(text: str, key: str, entry: Entry) -> str:
    """Write `${V:?text}` as `${V}`, which fails too where V is unset, and `${V-text}` as `${V:-text}`."""
    known = sum(1 for _, spelling, _name in spelled(text, CRUSH_SYNTAX) if spelling.opening == "$(")
    if text.count("$(") != known or "`" in text:
        entry.problems.append((key, "a command in a value is never run, and this one cannot be asked for"))

    def reference(match: re.Match[str]) -> str:
        if match["word"] is None:
            return match[0]
        default = f":-{match['word']}" if match["operator"] == "-" else ""
        return f"${{{match['name']}{default}}}"

    plain = _OPERATOR.sub(reference, text)
    bodies = (match[1] for match in _BRACED.finditer(plain))
    if not all(_KNOWN.fullmatch(body) for body in bodies if body is not None):
        entry.problems.append((key, "only `${NAME}`, `${NAME:-text}` and `${NAME:?text}` are known here"))
    return plain


CRUSH = Dialect(
    name="crush",
    title="Crush",
    places=(
        Place("${workspaceFolder}/.crush.json", "project"),
        Place("${workspaceFolder}/crush.json", "project"),
        Place("${XDG_CONFIG_HOME:-~/.config}/crush/crush.json", "user"),
        Place("${LOCALAPPDATA}/crush/crush.json", "user", platform="win32"),
    ),
    combine="fields",
    find=under("mcp"),
    translate=translate_crush,
    keys=key_table(
        "command",
        "inherit_env",
        "args",
        "env",
        "url",
        "headers",
        "disabled",
        type="transport",
        timeout="connect",
        enabled_tools="allowed_tools",
        disabled_tools="denied_tools",
        oauth="auth",
    ),
    style=CRUSH_SYNTAX,
    untyped_url="http",
    empty_allows_all=True,
    container=("mcp",),
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "url": "url",
        "headers": "headers",
        "transport": "type",
        "disabled": "disabled",
        "allowed_tools": "enabled_tools",
        "denied_tools": "disabled_tools",
        "connect": "timeout",
    },
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)
