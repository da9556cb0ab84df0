"""ExcelManus: `mcp.json` with a list of servers, or with an `mcpServers` map; seconds.

An entry of a list says its transport; that of a map may leave it to be seen from its other keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.config.dialect import Dialect, Entry, entries_at, key_table
from dragoman.config.dialects.sections import PLAIN
from dragoman.config.expand import Style

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find the list, bare or under `servers` or `mcpServers`, or the map."""
    if isinstance(document.data, list):
        return entries_at(document, ())
    return entries_at(document, ("mcpServers",)) or entries_at(document, ("servers",))


_KEYS = (
    "transport",
    *PLAIN,
    "enabled",
    "allowed_tools",
    "fallback",
    "required",
)

DIALECT = Dialect(
    name="excelmanus",
    title="ExcelManus",
    combine="first",
    find=find,
    keys=key_table(*_KEYS, type="transport", timeout="call"),
    listed_need_transport=True,
    style=Style(braces=True, bare=True, defaults=True),
    dropped={
        "autoApprove": "approval is decided by dragoman's own policy",
        "stateDir": "dragoman keeps no state for a server",
        "state_dir": "dragoman keeps no state for a server",
    },
    container=("mcpServers",),
    writes={name: name for name in _KEYS} | {"call": "timeout"},
    remote_types={"stdio": "stdio", "http": "streamable_http", "sse": "sse"},
)
