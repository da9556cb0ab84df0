"""Continue: a list `mcpServers` in `config.yaml` and in block files; also JSON files of other hosts.

`connectionTimeout` is in milliseconds, but that host's own recipes write seconds: below 1000 it is taken as
seconds, with a note. `${{ secrets.X }}` is the variable X here; the `.env` files that Continue looks in are
not read. A JSON file may also be one entry that is named after the file, or a Claude Code file; of the latter
only this project's servers are taken, where Continue takes those of all projects.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from dragoman.config import dialect
from dragoman.config.dialect import PLAIN, Dialect, Entry, Meaning, Place, entries_at, key_table, table_at
from dragoman.config.templates import Spelling, VariableSyntax
from dragoman.model import Note
from dragoman.visible import spelled_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document

_HOME = "${CONTINUE_GLOBAL_DIR:-~/.continue}"
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the list or the map of servers, or the one server that a JSON file is."""
    entries = entries_at(document, ("mcpServers",))
    whole = table_at(document, ())
    if not entries and ("command" in whole or "url" in whole):
        return [Entry(PurePath(document.source).stem, dict(whole), document, ())]
    for entry in entries:
        if not entry.name and isinstance(entry.fields.get("uses"), str):
            entry.name = entry.fields["uses"]
    return entries


def translate(entry: Entry) -> None:
    """Take the request options apart, and choose between a command and a URL as this host does."""
    fields = entry.fields
    if "uses" in fields:
        entry.problems.append(("uses", "a block of Continue's hub is not fetched; write its server down"))
    if "command" in fields and "url" in fields:
        entry.set_aside("url", Note(code="conflict", key="url", message="a command wins in this host"))
    if entry.document.format == "json" and isinstance(fields.get("env"), dict):
        env = cast("dict[str, object]", fields["env"])
        fields["env"] = {
            name: _BRACED.sub(r"${{ secrets.\1 }}", value) if isinstance(value, str) else value
            for name, value in env.items()
        }
    options = fields.get("requestOptions")
    if isinstance(options, dict):
        del fields["requestOptions"]
        _spread(entry, cast("dict[str, Any]", options))
    key = fields.get("apiKey")
    if isinstance(key, str) and "command" not in fields:
        del fields["apiKey"]
        dialect.add_header(entry, "apiKey", value=f"Bearer {key}")


def _spread(entry: Entry, options: dict[str, Any]) -> None:
    """Turn request options into headers and certificates; the rest is kept and named."""
    tls: dict[str, Any] = {}
    rest: dict[str, Any] = {}

    def put(name: str, value: object, key: str) -> None:
        tls[name] = value
        entry.spellings[f"tls.{name}"] = f"requestOptions.{key}"

    for key, value in options.items():
        match key, value:
            case "headers", _:
                entry.fields["headers"] = value
                entry.spellings["headers"] = "requestOptions.headers"
            case "verifySsl", _:
                put("verify", value, key)
            case "caBundlePath", str():
                put("ca", value, key)
            case "caBundlePath", [str() as only]:
                put("ca", only, key)
            case "clientCertificate", {"cert": str() as cert, "key": str() as own}:
                put("cert", cert, f"{key}.cert")
                put("key", own, f"{key}.key")
                if "passphrase" in value:
                    rest[key] = {"passphrase": value["passphrase"]}
            case _:
                rest[key] = value
    if any(value is not True for value in tls.values()):
        entry.fields["tls"] = tls
        entry.spellings["tls"] = "requestOptions"
    if rest:
        reasons = [f"`{spelled_out(key)}`: {_LOST.get(key, 'this means nothing here')}" for key in rest]
        entry.fields["requestOptions"] = rest
        entry.set_aside(
            "requestOptions", Note(code="unused", key="requestOptions", message="; ".join(reasons))
        )


_LOST = {
    "timeout": "it is for requests to models",
    "caBundlePath": "several bundles cannot be named: put the certificates into one file",
    "clientCertificate": "a key with a passphrase cannot be read: `tls` takes a plain one",
    "proxy": "a proxy is taken from the environment",
    "noProxy": "a proxy is taken from the environment",
}


CONTINUE = Dialect(
    name="continue",
    title="Continue",
    places=(
        Place("${workspaceFolder}/.continue/mcpServers/*.yaml", "project"),
        Place("${workspaceFolder}/.continue/mcpServers/*.yml", "project"),
        Place("${workspaceFolder}/.continue/mcpServers/*.json", "project"),
        Place(f"{_HOME}/config.yaml", "user"),
        Place(f"{_HOME}/mcpServers/*.yaml", "user"),
        Place(f"{_HOME}/mcpServers/*.yml", "user"),
        Place(f"{_HOME}/mcpServers/*.json", "user"),
    ),
    find=find,
    per_project=(),
    translate=translate,
    keys=key_table(
        *PLAIN,
        "tls",
        type="transport",
        connectionTimeout=Meaning(field="connect", unit="unknown"),
    ),
    style=VariableSyntax(
        spellings=(Spelling("${{ secrets.", " }}"), Spelling("${{ inputs.", " }}", kind="input")),
    ),
    untyped_url="both",
    dropped={
        "apiKey": "a command gets no token; put it into `env`",
        "serverName": "the name of a server in Continue's own list",
        "faviconUrl": "a picture for that host's window",
        "sourceFile": "where that host found the entry",
        "uses": "a block of Continue's hub",
        "with": "values for a block of Continue's hub",
    },
    container=("mcpServers",),
    as_list=True,
    writes={
        "command": "command",
        "args": "args",
        "env": "env",
        "cwd": "cwd",
        "url": "url",
        "headers": "requestOptions.headers",
        "transport": "type",
        "connect": "connectionTimeout",
    },
    write_unit="ms",
    remote_types={"stdio": "stdio", "http": "streamable-http", "sse": "sse"},
)
