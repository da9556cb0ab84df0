"""ExcelManus: `mcp.json` with a list of servers, or with an `mcpServers` map; seconds.

An entry of a list says its transport; that of a map may leave it to be seen from its other keys.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING

from dragoman.config.dialect import (
    PLAIN,
    SHELL_LIKE,
    Dialect,
    Entry,
    FileSettings,
    entries_at,
    key_table,
    settings_patch,
    switches,
    table_at,
    under,
)
from dragoman.config.templates import NONE, VariableSyntax
from dragoman.model import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dragoman.config.documents import Document


def find_excelmanus(document: Document, _root: str) -> Iterable[Entry]:
    """Find the list, bare or under `servers` or `mcpServers`, or the map."""
    if isinstance(document.data, list):
        return entries_at(document, ())
    return entries_at(document, ("mcpServers",)) or entries_at(document, ("servers",))


_EXCELMANUS_KEYS = (
    "transport",
    *PLAIN,
    "enabled",
    "allowed_tools",
    "fallback",
    "required",
)

EXCELMANUS = Dialect(
    name="excelmanus",
    title="ExcelManus",
    combine="first",
    find=find_excelmanus,
    keys=key_table(*_EXCELMANUS_KEYS, type="transport", timeout="call"),
    listed_need_transport=True,
    style=VariableSyntax(braces=True, bare=True, defaults=True),
    dropped={
        "autoApprove": "approval is decided by dragoman's own policy",
        "stateDir": "dragoman keeps no state for a server",
        "state_dir": "dragoman keeps no state for a server",
    },
    container=("mcpServers",),
    also_in=[("servers",)],
    writes={name: name for name in _EXCELMANUS_KEYS} | {"call": "timeout"},
    remote_types={"stdio": "stdio", "http": "streamable_http", "sse": "sse"},
)


_KODE_KEYS = (
    *PLAIN,
    "enabled",
    "disabled",
    "allowed_tools",
    "denied_tools",
    "fallback",
    "required",
    "lazy",
)


def find_kode(document: Document, _root: str) -> Iterable[Entry]:
    """Find the file's servers; a `.mcprc` may be the bare map."""
    if PurePath(document.source).name != ".mcprc" or "mcpServers" in table_at(document, ()):
        return entries_at(document, ("mcpServers",))
    return [entry for entry in entries_at(document, ()) if not entry.name.startswith("$")]


KODE = Dialect(
    name="kode",
    title="kode",
    find=find_kode,
    per_project=("rejectedMcprcServers",),
    keys=key_table(*_KODE_KEYS, type="transport", transport="transport", timeout="call"),
    style=SHELL_LIKE,
    either_kind=True,
    needs_args=True,
    dropped={
        "headersHelper": "a command that prints headers is never run",
        "authToken": "it belongs to the editor's own connection",
    },
    writes={name: name for name in _KODE_KEYS} | {"call": "timeout", "transport": "type"},
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


_OTTER_KEYS = (
    "transport",
    *PLAIN,
    "enabled",
    "reconnect",
    "max_concurrency",
    "allowed_tools",
    "denied_tools",
    "fallback",
    "required",
    "lazy",
)


def find_otter(document: Document, _root: str) -> Iterable[Entry]:
    """Find the servers of both spellings."""
    return [*entries_at(document, ("mcp", "servers")), *entries_at(document, ("mcp_servers",))]


def patch_otter(document: Document, _root: str) -> FileSettings:
    """Read the `[mcp]` table."""
    return settings_patch(document, ("mcp",))


OTTER = Dialect(
    name="otter",
    title="otter",
    find=find_otter,
    patch=patch_otter,
    keys=key_table(*_OTTER_KEYS, type="transport", timeout="call", connect_timeout="connect"),
    style=SHELL_LIKE,
    container=("mcp", "servers"),
    also_in=[("mcp_servers",)],
    settings=[("mcp", key) for key in switches()],
    as_list=True,
    writes={name: name for name in _OTTER_KEYS} | {"call": "timeout", "connect": "connect_timeout"},
    write_unit="text",
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


_RRCLAW_KEYS = (
    "transport",
    *PLAIN,
    "allowed_tools",
    "enabled",
    "fallback",
    "required",
    "lazy",
)

RRCLAW = Dialect(
    name="rrclaw",
    title="RRClaw",
    find=under("mcp", "servers"),
    keys=key_table(*_RRCLAW_KEYS, type="transport", timeout="call"),
    style=SHELL_LIKE,
    sse_is_http=True,
    empty_allows_all=True,
    container=("mcp", "servers"),
    writes={name: name for name in _RRCLAW_KEYS} | {"call": "timeout"},
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


VARIABLES = ("SERVER_URL", "TRANSPORT", "TIMEOUT", "FALLBACK", "INHERIT_ENV", "UPDATED", "HEALTH_INTERVAL")
"""What the variables of a server end with."""


def finder(prefix: str) -> Callable[[Document, str], Iterable[Entry]]:
    """Return the function that finds the servers of one prefix."""
    pattern = re.compile(
        rf"{re.escape(prefix)}_MCP_(?:(?P<server>[A-Z0-9_]+)_)??(?P<key>{'|'.join(VARIABLES)})"
    )

    def find(document: Document, _root: str) -> Iterable[Entry]:
        env = table_at(document, ())
        entries: dict[str, Entry] = {}
        for variable in sorted(env):
            match, value = pattern.fullmatch(variable), env[variable]
            if match is None or not isinstance(value, str) or not value.strip():
                continue
            stem, key = variable.removesuffix(match["key"]), match["key"].lower()
            if stem not in entries:
                name = (match["server"] or prefix).lower()
                spellings = {each.lower(): f"{stem}{each}" for each in VARIABLES}
                entries[stem] = Entry(name, {}, document, (variable,), flat=True, spellings=spellings)
            entries[stem].fields[key] = value.strip()
            if key == "server_url":
                entries[stem].pointer = (variable,)
        unnamed = entries.get(f"{prefix}_MCP_")
        if unnamed and "server_url" not in unnamed.fields:
            # Templates of env files often come with a time-out filled in and the address left empty.
            del entries[f"{prefix}_MCP_"]
        names = {entry.name for entry in entries.values()}
        for entry in entries.values():
            if "fallback" in entry.fields:
                entry.fields["fallback"] = _fallback(entry.fields["fallback"], names)
        return list(entries.values())

    return find


def _fallback(text: str, servers: set[str]) -> list[str] | dict[str, list[str]]:
    """Read `desk, cases` or `search_cases=local_cases, desk`; the names of servers ignore case here.

    What stands alone beside items with `=` is for every other tool.
    """
    by_tool: dict[str, list[str]] = {}
    for item in filter(None, (word.strip() for word in text.split(","))):
        tool, separator, name = (word.strip() for word in item.rpartition("="))
        names = by_tool.setdefault(tool if separator else "*", [])
        names.append(name.lower() if name.lower() in servers else name)
    return by_tool["*"] if list(by_tool) == ["*"] else by_tool


def translate(entry: Entry) -> None:
    """Decide what the URL is: an address, or with `stdio` a command line."""
    fields = entry.fields
    inherit = fields.get("inherit_env")
    if isinstance(inherit, str) and inherit not in ("safe", "all"):
        fields["inherit_env"] = [name.strip() for name in inherit.split(",") if name.strip()]
    if "updated" in fields:
        # A date, or the field of an answer that holds one: for servers that do not name it as usual.
        entry.spellings["attribution"] = entry.spellings["attribution.updated"] = entry.spellings["updated"]
        fields["attribution"] = {"updated": fields.pop("updated")}
    value = fields.get("server_url")
    if not isinstance(value, str):
        entry.problems.append(("server_url", "it is not set, although other variables of this server are"))
        return
    transport = str(fields.get("transport", "")).strip().lower()
    is_address = "://" in value.partition(" ")[0]
    if transport != "stdio" and (transport or is_address):
        entry.move("server_url", "url")
        return
    if not transport:
        message = "no transport given, and this is not a URL: it is used as a command line"
        entry.notes.append(Note(code="transport", key=entry.spellings["server_url"], message=message))
    try:
        words = shlex.split(value)
    except ValueError:
        entry.problems.append(("server_url", "the command line has a quote or a backslash without its end"))
        words = [value]
    entry.move("server_url", "command", words)


LEGAL = Dialect(
    name="legal",
    title="legal assistant (environment)",
    find=finder("LEGAL"),
    translate=translate,
    keys=key_table(
        *("command", "url", "transport", "fallback", "inherit_env", "attribution"),
        timeout="call",
        health_interval="health_check_interval",
        unit="ms",
    ),
    style=NONE,
)
