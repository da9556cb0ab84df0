"""dragoman's own format, in TOML, JSON or YAML; also what a file of no known host is read as.

Entries stand under `mcp.servers`, `mcpServers` or `servers`, as a map or as a list with names. Plain
numbers are seconds. The usual spellings that hosts have for a key are understood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.config.dialect import (
    Dialect,
    Entry,
    FileSettings,
    Meaning,
    bare_map,
    entries_at,
    settings_patch,
    table_at,
)
from dragoman.model import Settings
from dragoman.model.keys import keys
from dragoman.model.server import server_keys
from dragoman.trust.limits import read_limits
from dragoman.trust.policy import read_policy
from dragoman.trust.toolsets import read_toolsets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.config.documents import Document


def _table() -> dict[str, Meaning]:
    """Return every spelling of a server's keys; those of a key in a table stand beside the table."""
    table: dict[str, Meaning] = {}
    for place, key in server_keys().items():
        names = key.spellings if "." in place else (key.name, *key.spellings)
        unit = "s" if key.form == "seconds" else None
        table |= {name: Meaning(field=key.field, unit=unit) for name in names if key.in_files}
        table |= {name: Meaning(field=key.field, unit="ms") for name in key.milliseconds}
        table |= {key.opposite: Meaning(field=key.opposite)} if key.opposite else {}
    return table


KEYS = _table()
_WRITTEN = {place: key.name for place, key in server_keys().items() if "." not in place and key.in_files}
_PATHS = (("mcp", "servers"), ("mcpServers",), ("servers",), ("mcp_servers",))


def find(document: Document, _root: str) -> Iterable[Entry]:
    """Find entries under each of the usual keys, or in the document itself."""
    data = document.data
    if isinstance(data, list):
        return entries_at(document, ())
    return [entry for path in _PATHS for entry in entries_at(document, path)] or bare_map(document)


def patch(document: Document, _root: str) -> FileSettings:
    """Read the `mcp` table's own keys, the rules for calls and the limits among them."""
    found = settings_patch(document, ("mcp",))
    table = table_at(document, ("mcp",))
    said = {name: table[name] for name in ("policy", "limits", "toolsets") if table.get(name) is not None}
    problems = [*found.problems]
    if "policy" in said:
        read = read_policy(said["policy"], scope="user")
        problems += [(("mcp", "policy"), text) for text in read.problems]
    if "limits" in said:
        problems += [(("mcp", "limits"), text) for text in read_limits(said["limits"])[1]]
    if "toolsets" in said:
        problems += [(("mcp", "toolsets"), text) for text in read_toolsets(said["toolsets"])[1]]
    return found.replace(said={**found.said, **said}, problems=problems)


DRAGOMAN = Dialect(
    name="dragoman",
    title="dragoman",
    find=find,
    patch=patch,
    keys=KEYS,
    dropped={
        "autoApprove": "approval is decided by dragoman's own policy",
        "alwaysAllow": "approval is decided by dragoman's own policy",
    },
    container=("mcp", "servers"),
    also_in=_PATHS,
    settings=[("mcp", name) for name in keys(Settings)],
    writes=_WRITTEN,
    remote_types={"stdio": "stdio", "http": "http", "sse": "sse"},
)


MCP_JSON = DRAGOMAN.replace(
    name="mcp-json",
    title="portable mcp.json",
    keys={
        spelling: key.replace(unit="unknown") if spelling == "timeout" else key
        for spelling, key in KEYS.items()
    },
    container=("mcpServers",),
    # Other hosts read the type under this name only.
    writes={**_WRITTEN, "transport": "type"},
)
