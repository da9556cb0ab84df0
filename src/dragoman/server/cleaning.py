"""Results for the SDK's session: what it would choke on is mended or taken out.

The session refuses a result for want of a field that says only what is usual: that is filled in. It validates
a whole page of tools at once, and compiles output schemas in Python. So an entry that is no tool is left out,
an input schema gets the object at its top that the protocol demands, and output schemas go. The raw entries
stay with us: what an agent sees, and what results are checked against, comes from them.
"""

from __future__ import annotations

from typing import Any, cast

_USUAL = {"resultType": "complete"}
_USUAL_OF_KEPT = {**_USUAL, "ttlMs": 0, "cacheScope": "private"}
"""Of what a client may keep for a while."""


def completed(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Fill in what a modern result must say and this one does not: that it is final, and not to be kept."""
    usual = _USUAL_OF_KEPT if method.endswith(("/list", "/read")) else _USUAL
    return result if usual.keys() <= result.keys() else {**usual, **result}


def clean_listing(page: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Split a page of `tools/list` into the raw entries for us and a page for the session."""
    listed = page.get("tools")
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    raw = [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]
    cleaned = [entry for entry in map(_clean, raw) if entry is not None]
    rest = {key: value for key, value in page.items() if key not in ("tools", "nextCursor")}
    cursor = page.get("nextCursor")
    if isinstance(cursor, str):
        rest["nextCursor"] = cursor
    return raw, {**rest, "tools": cleaned}


def _clean(entry: dict[str, Any]) -> dict[str, Any] | None:
    name = entry.get("name")
    if not isinstance(name, str):
        return None
    schema = entry.get("inputSchema")
    fields = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    cleaned: dict[str, Any] = {"name": name, "inputSchema": {**fields, "type": "object"}}
    if not isinstance(fields.get("properties", {}), dict):
        cleaned["inputSchema"] = {"type": "object"}
    return cleaned
