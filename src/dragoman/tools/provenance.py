"""On which sources an answer rests, as far as the server says so.

The policy: sources are taken from `_meta["dragoman.dev/sources"]` if the server declares them there,
else from its structured content: an object with a `source` (an object with title, locator, url, or a
plain name) and perhaps a date of its own. What names a source but holds no such key is left alone: a
guess would be worse than silence. Order is kept, repetitions are dropped, and the search is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from dragoman.model import SourceRef

META_KEY = "dragoman.dev/sources"
MAX_SOURCES = 50
MAX_NODES = 10_000

_SOURCE_KEYS = ("source", "citation")
_TITLES = ("title", "name", "source", "citation")
_LOCATORS = ("locator", "section", "article", "page")
_URLS = ("url", "uri", "link", "href")
_UPDATED = ("updated", "updated_at", "updatedAt", "last_updated", "lastModified", "last_modified", "date")


def find_sources(structured: object, meta: Mapping[str, Any] | None = None) -> list[SourceRef]:
    """Return the sources that a result names, in their order, each once."""
    declared = (meta or {}).get(META_KEY)
    if isinstance(declared, list | tuple):
        entries = cast("list[object]", declared)
        found = [_from_object(_fields(entry), None) for entry in entries]
    else:
        found = _search(structured)
    unique = dict.fromkeys(source for source in found if source is not None)
    return list(unique)[:MAX_SOURCES]


def _search(structured: object) -> list[SourceRef | None]:
    found: list[SourceRef | None] = []
    waiting: list[object] = [structured]
    for _ in range(MAX_NODES):
        if not waiting:
            break
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(reversed(cast("list[object]", node)))
        elif isinstance(node, Mapping):
            fields = _fields(cast("object", node))
            named = next((key for key in _SOURCE_KEYS if fields.get(key)), None)
            if named is not None:
                found.append(_from_value(fields[named], fields))
            waiting.extend(reversed([value for key, value in fields.items() if key != named]))
    return found


def _from_value(value: object, around: Mapping[str, Any]) -> SourceRef | None:
    if isinstance(value, str):
        # The title of a record is not the title of its source; its address and place are.
        return SourceRef(
            title=value,
            locator=_first(around, _LOCATORS),
            url=_first(around, _URLS),
            updated=_first(around, _UPDATED),
        )
    return _from_object(_fields(value), around)


def _from_object(fields: Mapping[str, Any], around: Mapping[str, Any] | None) -> SourceRef | None:
    title, url = _first(fields, _TITLES), _first(fields, _URLS)
    if not title and not url:
        return None
    return SourceRef(
        title=title or url,
        locator=_first(fields, _LOCATORS),
        url=url,
        updated=_first(fields, _UPDATED) or _first(around or {}, _UPDATED),
    )


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    return ""


def _fields(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
