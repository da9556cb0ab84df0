"""Find the sources of an answer, as declared by the server or its configuration.

The first of these that finds something wins:

1. `_meta["dragoman.dev/sources"]`, of the result or of one of its blocks: the server declares them.
2. The pointers of the server's configuration (`attribution`): JSON pointers in which `*` matches every
   item of an array or every value of an object. Values found by several pointers belong together if their `*`
   matched the same items; a pointer with fewer `*` applies to everything below. If structured content has no
   match, the text is searched, if it is JSON.
3. Structured content: an object with a `source` (an object with title, locator, url, or a plain name) and
   optionally a date; also the resources in the result, and links with a modification date. A link alone is
   not a source.
4. Citations: an object that names a `law` and an article, in structured content or in a text that is JSON.

The configuration's `updated` may also be the name of a field, or a date: it applies to whatever was found.
For a server whose answers all need a source, the server itself is the source of an answer that names none;
its date is the one that the answer has, else the configured one.

Anything else is ignored: a guess would be worse than no source. Order is kept, duplicates are dropped, and
the search is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.model import SourceRef
from dragoman.tools.result.render import ANNOTATIONS, DETAILS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dragoman.model import Part

META_KEY = "dragoman.dev/sources"
MAX_SOURCES = 50
MAX_NODES = 10_000
MAX_CHARS = 500
"""Longest value of one field of a source."""
MAX_JSON_CHARS = 1_000_000
"""A longer text is not read as JSON."""

_SOURCE_KEYS = ("source", "citation")
_TITLES = ("title", "name", "source", "citation")
_LAWS = ("law", "statute", "act")
_QUOTED_LAWS = tuple(f'"{key}"' for key in _LAWS)
_ARTICLES = ("article_no", "article", "articleNo", "section", "clause")
_LOCATORS = ("locator", *_ARTICLES, "page")
_URLS = ("url", "uri", "link", "href")
_UPDATED = ("updated", "updated_at", "updatedAt", "last_updated", "lastModified", "last_modified", "date")
_OWN_DATES = _UPDATED[:-1]
"""Without `date`: in an answer that names no source, that may be the date of anything."""
_IN_FORCE = (*_UPDATED, "effective_date", "effectiveDate", "publish_date", "published")

_NOT_A_FIELD = "/0123456789"
"""How a pointer and a date begin."""
_Place: TypeAlias = "tuple[int | str, ...]"
"""The items that the `*` of a pointer matched."""


def find_sources(
    structured: object,
    meta: Mapping[str, Any] | None = None,
    *,
    parts: Sequence[Part] = (),
    attribution: Mapping[str, str] | None = None,
    default: str = "",
) -> list[SourceRef]:
    """Return the sources that a result names, in their order, each once.

    Args:
        structured: The result's structured content.
        meta: The result's `_meta`.
        parts: Its pieces.
        attribution: Pointers by what they lead to: `source`, `title`, `locator`, `url`, `updated`.
        default: The title of the source of an answer that names none; empty if it needs none.
    """
    pointers = dict(attribution or {})
    dated = pointers.pop("updated", "")
    dates = (dated,) if dated and dated[0] not in _NOT_A_FIELD else ()
    if dated.startswith("/"):
        pointers["updated"] = dated
    found = _declared(meta or {}, parts)
    if not found and pointers:
        found = _pointed(structured, parts, pointers)
    if not found:
        found = [*_search(structured, partial(_named_source, dates)), *map(_from_part, parts)]
    if not any(found):
        found = _search(structured, partial(_citation, dates))
    if not any(found) and any(part.kind == "text" and _may_cite(part.text) for part in parts):
        found = _search(_from_texts(parts), partial(_citation, dates))
    unique = list(dict.fromkeys(source for source in found if source is not None))[:MAX_SOURCES]
    if default and not unique:
        unique = [SourceRef(title=_short(default), updated=_own_date(structured, parts))]
    if dated and not all(source.updated for source in unique):
        date = dated if not (dates or "updated" in pointers) else _only_date(structured, parts, dated)
        unique = [source if source.updated else source.replace(updated=_short(date)) for source in unique]
    return unique


def _only_date(structured: object, parts: Sequence[Part], place: str) -> str:
    """Return the date at a pointer, or of a field, if the whole answer has just one."""
    found: set[str] = set()
    for data in (structured, _from_texts(parts)):
        values = _follow(data, place).values() if place.startswith("/") else _values(data, place)
        found |= {word for value in values if (word := _word(value))}
    return found.pop() if len(found) == 1 else ""


def _own_date(structured: object, parts: Sequence[Part]) -> str:
    """Return the date that an answer has for itself, if it has just one."""
    found = {_first(_fields(part.meta.get(ANNOTATIONS)), _UPDATED) for part in parts}
    for field in _OWN_DATES:
        found.add(_only_date(structured, parts, field))
    found.discard("")
    return found.pop() if len(found) == 1 else ""


def _values(data: object, field: str) -> list[object]:
    """Return the values that a field has anywhere in some data."""
    found: list[object] = []

    def read(fields: Mapping[str, Any]) -> None:
        if field in fields:
            found.append(fields[field])

    _search(data, read)
    return found


def _declared(meta: Mapping[str, Any], parts: Sequence[Part]) -> list[SourceRef | None]:
    found: list[SourceRef | None] = []
    for fields in (meta, *(part.meta for part in parts if META_KEY in part.meta)):
        entries = fields.get(META_KEY)
        if isinstance(entries, list | tuple):
            found += [_from_object(_fields(entry), None) for entry in cast("list[object]", entries)]
    return [source for source in found if source is not None]


def _from_part(part: Part) -> SourceRef | None:
    """Return what a resource or a dated link says about itself."""
    updated = _first(_fields(part.meta.get(ANNOTATIONS)), _UPDATED)
    is_source = part.kind == "resource" or (part.kind == "link" and updated)
    if not is_source or not part.uri:
        return None
    details = _fields(part.meta.get(DETAILS))
    # The text of a resource is its content, that of a link its title.
    title = _first(details, ("title", "name")) or (part.text if part.kind == "link" else "")
    url = _short(part.uri)
    return SourceRef(title=_short(title) or url, url=url, updated=updated)


def _pointed(
    structured: object, parts: Sequence[Part], pointers: Mapping[str, str]
) -> list[SourceRef | None]:
    for data in (structured, _from_texts(parts)):
        if data is not None and (found := _records(data, pointers)):
            return found
    return []


def _from_texts(parts: Sequence[Part]) -> object:
    """Return what the texts say as JSON; several, one for each record, are an array."""
    read: list[object] = []
    for part in parts:
        if part.kind == "text" and len(part.text) <= MAX_JSON_CHARS and part.text.lstrip()[:1] in ("{", "["):
            try:
                read.append(json.loads(part.text))
            except (ValueError, RecursionError):
                continue
    return read[0] if len(read) == 1 else read or None


def _records(data: object, pointers: Mapping[str, str]) -> list[SourceRef | None]:
    found = {key: _follow(data, pointer) for key, pointer in pointers.items()}
    leading = next((key for key in ("source", "title", "url") if found.get(key)), None)
    if leading is None:
        return []
    records: list[SourceRef | None] = []
    for place, value in list(found[leading].items())[:MAX_SOURCES]:
        said = {key: _nearest(values, place) for key, values in found.items()}
        whole = _from_object(_fields(value), None)
        title = _word(said.get("title")) or _word(said.get("source"))
        url = _word(said.get("url")) or (whole.url if whole else "")
        title = title or (whole.title if whole else "") or url
        if title:
            locator = _word(said.get("locator")) or (whole.locator if whole else "")
            updated = _word(said.get("updated")) or (whole.updated if whole else "")
            records.append(SourceRef(title=title, locator=locator, url=url, updated=updated))
    return records


def _nearest(values: Mapping[_Place, object], place: _Place) -> object:
    """Return what was found at a place, or at the nearest one that holds it."""
    for end in range(len(place), -1, -1):
        if place[:end] in values:
            return values[place[:end]]
    return None


def _follow(data: object, pointer: str) -> dict[_Place, object]:
    """Return everything that a pointer leads to, by the items that were taken for its `*`."""
    found: dict[_Place, object] = {(): data}
    visited = 0
    for step in pointer.strip().lstrip("/").split("/"):
        below: dict[_Place, object] = {}
        for place, node in found.items():
            for key, member in _members(node, step):
                visited += 1
                if visited > MAX_NODES:
                    return {}
                below[(*place, key) if step == "*" else place] = member
        found = below
    return found


def _members(node: object, step: str) -> Iterable[tuple[int | str, object]]:
    """Return the members of a node that one step of a pointer leads to."""
    name = step.replace("~1", "/").replace("~0", "~")
    if isinstance(node, Mapping):
        fields = cast("Mapping[str, object]", node)
        return fields.items() if step == "*" else [(name, fields[name])] if name in fields else ()
    if not isinstance(node, list | tuple):
        return ()
    items = cast("Sequence[object]", node)
    if step == "*":
        return enumerate(items)
    index = int(name) if name.isdecimal() and len(name) < 9 else len(items)
    return [(index, items[index])] if index < len(items) else ()


def _search(
    data: object, read: Callable[[Mapping[str, Any]], tuple[str, SourceRef | None] | None]
) -> list[SourceRef | None]:
    """Return what a reader finds in every object of some data; what it read is not searched again."""
    found: list[SourceRef | None] = []
    waiting: list[object] = [data]
    for _ in range(MAX_NODES):
        if not waiting:
            break
        node = waiting.pop()
        if isinstance(node, list | tuple):
            waiting.extend(reversed(cast("list[object]", node)))
        elif isinstance(node, Mapping):
            fields = _fields(cast("object", node))
            taken, source = read(fields) or ("", None)
            found += [source] if taken else []
            waiting.extend(reversed([value for key, value in fields.items() if key != taken]))
    return found


def _named_source(dates: tuple[str, ...], fields: Mapping[str, Any]) -> tuple[str, SourceRef | None] | None:
    named = next((key for key in _SOURCE_KEYS if fields.get(key)), None)
    return None if named is None else (named, _from_value(fields[named], fields, dates))


def may_have_sources(parts: Sequence[Part]) -> bool:
    """Return whether parts may name sources; most are plain texts, which do not."""
    return any(part.kind != "text" or part.meta or _may_cite(part.text) for part in parts)


def _may_cite(text: str) -> bool:
    """Return whether a text is worth reading as JSON: most are not, and reading costs."""
    return '"' in text and any(key in text for key in _QUOTED_LAWS)


def _citation(dates: tuple[str, ...], fields: Mapping[str, Any]) -> tuple[str, SourceRef | None] | None:
    key = next((key for key in _LAWS if isinstance(fields.get(key), str)), None)
    article = _first(fields, _ARTICLES)
    if key is None or not article or not fields[key].strip():
        return None
    updated = _first(fields, (*dates, *_IN_FORCE))
    return key, SourceRef(
        title=_short(fields[key]), locator=article, url=_first(fields, _URLS), updated=updated
    )


def _from_value(value: object, around: Mapping[str, Any], dates: tuple[str, ...]) -> SourceRef | None:
    if isinstance(value, str):
        if not value.strip():
            return None
        # The title of a record is not the title of its source; its address and place are.
        return SourceRef(
            title=_short(value),
            locator=_first(around, _LOCATORS),
            url=_first(around, _URLS),
            updated=_first(around, (*dates, *_UPDATED)),
        )
    return _from_object(_fields(value), around, dates)


def _from_object(
    fields: Mapping[str, Any], around: Mapping[str, Any] | None, dates: tuple[str, ...] = ()
) -> SourceRef | None:
    title, url = _first(fields, _TITLES), _first(fields, _URLS)
    if not title and not url:
        return None
    return SourceRef(
        title=title or url,
        locator=_first(fields, _LOCATORS),
        url=url,
        updated=_first(fields, (*dates, *_UPDATED)) or _first(around or {}, (*dates, *_UPDATED)),
    )


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((word for key in keys if (word := _word(fields.get(key)))), "")


def _word(value: object) -> str:
    if isinstance(value, str):
        return _short(value)
    return _short(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _short(text: str) -> str:
    """Return a text on one line, and no longer than a source needs."""
    return " ".join(text[: 4 * MAX_CHARS].split())[:MAX_CHARS]


def _fields(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
