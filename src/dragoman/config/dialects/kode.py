"""kode: `mcpServers` in `~/.kode.json` and `./.kode.json`, also `.mcp.json` and `.mcprc`.

The global file also holds each project's own servers under `projects`, by its directory; those are
the strongest. HTTP and SSE fall back to each other.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from dragoman.config.dialect import Dialect, Entry, entries_at, key_table
from dragoman.config.dialects.sections import PLAIN, SHELL_LIKE, table_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document

_KEYS = (
    *PLAIN,
    "enabled",
    "disabled",
    "allowed_tools",
    "denied_tools",
    "fallback",
    "required",
    "lazy",
)


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the file's servers; a `.mcprc` may be the bare map."""
    if PurePath(document.source).name != ".mcprc" or "mcpServers" in table_at(document, ()):
        return entries_at(document, ("mcpServers",))
    return [entry for entry in entries_at(document, ()) if not entry.name.startswith("$")]


DIALECT = Dialect(
    name="kode",
    title="kode",
    find=find,
    per_project=("rejectedMcprcServers",),
    keys=key_table(*_KEYS, type="transport", transport="transport", timeout="call"),
    style=SHELL_LIKE,
    either_kind=True,
    dropped={
        "headersHelper": "a command that prints headers is never run",
        "authToken": "it belongs to the editor's own connection",
    },
    writes={name: name for name in _KEYS} | {"call": "timeout", "transport": "type"},
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)
