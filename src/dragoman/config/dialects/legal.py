"""The legal assistant: servers in environment variables, `LEGAL_MCP_*`; milliseconds.

`LEGAL_MCP_SERVER_URL`, `_TRANSPORT`, `_TIMEOUT` and `_FALLBACK` describe the server `legal`;
`LEGAL_MCP_<NAME>_SERVER_URL` and so on describe more. With the transport `stdio` the URL is a command
line. The values are literal: whoever set them has already expanded what was to be expanded.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from dragoman.config.dialect import Dialect, Entry, key_table
from dragoman.config.dialects.sections import table_at
from dragoman.config.expand import NONE
from dragoman.model import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dragoman.config.documents import Document

_KEYS = ("SERVER_URL", "TRANSPORT", "TIMEOUT", "FALLBACK")


def finder(prefix: str) -> Callable[[Document, str], Iterable[Entry]]:
    """Return the function that finds the servers of one prefix."""
    pattern = re.compile(rf"{re.escape(prefix)}_MCP_(?:(?P<server>[A-Z0-9_]+)_)??(?P<key>{'|'.join(_KEYS)})")

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
                spellings = {each.lower(): f"{stem}{each}" for each in _KEYS}
                entries[stem] = Entry(name, {}, document, (variable,), beside=True, spellings=spellings)
            entries[stem].fields[key] = value.strip()
            if key == "server_url":
                entries[stem].pointer = (variable,)
        unnamed = entries.get(f"{prefix}_MCP_")
        if unnamed and "server_url" not in unnamed.fields:
            # Templates of env files often come with a time-out filled in and the address left empty.
            del entries[f"{prefix}_MCP_"]
        return list(entries.values())

    return find


def translate(entry: Entry) -> None:
    """Decide what the URL is: an address, or with `stdio` a command line."""
    fields = entry.fields
    fallback = fields.get("fallback")
    if isinstance(fallback, str):
        fields["fallback"] = [name.strip().lower() for name in fallback.split(",") if name.strip()]
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
        message = "no transport given, and this is no address: it is taken as a command line"
        entry.notes.append(Note(code="transport", key=entry.spellings["server_url"], message=message))
    try:
        words = shlex.split(value)
    except ValueError:
        entry.problems.append(("server_url", "the command line has a quote or a backslash without its end"))
        words = [value]
    entry.move("server_url", "command", words)


DIALECT = Dialect(
    name="legal",
    title="legal assistant (environment)",
    find=finder("LEGAL"),
    translate=translate,
    keys=key_table("command", "url", "transport", "fallback", timeout="call", unit="ms"),
    style=NONE,
)
