"""The legal assistant: servers in environment variables, `LEGAL_MCP_*`; milliseconds.

`LEGAL_MCP_SERVER_URL`, `_TRANSPORT`, `_TIMEOUT` and `_FALLBACK` describe the server `legal`;
`LEGAL_MCP_<NAME>_SERVER_URL` and so on describe more. With the transport `stdio` the URL is a command
line. The values are literal: whoever set them has already expanded what was to be expanded.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import Dialect, Entry, key_table
from dragoman.config.expand import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document

_SUFFIXES = {"SERVER_URL": "server_url", "TRANSPORT": "transport", "TIMEOUT": "timeout", "FALLBACK": "fallback"}


def finder(prefix: str) -> Any:
    """Return the function that finds the servers of one prefix."""
    pattern = re.compile(
        rf"{re.escape(prefix)}_MCP_(?:(?P<server>[A-Z0-9_]+)_)??(?P<key>{'|'.join(_SUFFIXES)})"
    )

    def find(document: Document, _root: str) -> Iterable[Entry]:
        env = cast("dict[str, str]", document.data) if isinstance(document.data, dict) else {}
        entries: dict[str, Entry] = {}
        for variable in sorted(env):
            match = pattern.fullmatch(variable)
            value = env[variable]
            if match is None or not isinstance(value, str) or not value.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
                continue
            name = (match["server"] or prefix).lower()
            stem = variable.removesuffix(match["key"])
            entry = entries.setdefault(name, Entry(name, {}, document, (f"{stem}SERVER_URL",)))
            entry.fields[_SUFFIXES[match["key"]]] = value.strip()
        return list(entries.values())

    return find


def translate(entry: Entry) -> None:
    """Decide what the URL is: an address, or with `stdio` a command line."""
    fields = entry.fields
    value = fields.get("server_url")
    if not isinstance(value, str):
        return
    transport = str(fields.get("transport", "")).strip().lower()
    is_address = value.lower().startswith(("http://", "https://"))
    if transport == "stdio" or (not transport and not is_address):
        try:
            words = shlex.split(value)
        except ValueError:
            words = [value]
        entry.move("server_url", "command", words)
    else:
        entry.move("server_url", "url")
    fallback = fields.get("fallback")
    if isinstance(fallback, str):
        fields["fallback"] = [name.strip().lower() for name in fallback.split(",") if name.strip()]


DIALECT = Dialect(
    name="legal",
    title="legal assistant (environment)",
    find=finder("LEGAL"),
    translate=translate,
    keys=key_table("command", "url", "transport", "fallback", timeout="call", unit="ms"),
    style=NONE,
)
