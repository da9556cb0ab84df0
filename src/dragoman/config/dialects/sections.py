"""Pieces that several dialects share: plain keys, texts, tables of settings, lists of names, maps of entries.

They read documents; what an entry means is its dialect's own affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import Entry, Patch, entries_at
from dragoman.config.durations import seconds
from dragoman.config.expand import Style
from dragoman.config.reading import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dragoman.config.documents import Document
    from dragoman.config.positions import Pointer

SHELL_LIKE = Style(braces=True, defaults=True)
"""`${VAR}` and `${VAR:-default}`, where an empty value counts as unset."""

PLAIN = ("command", "args", "env", "cwd", "url", "headers")
"""What most hosts spell as we do."""
SAME = {key: key for key in PLAIN}


def table_at(document: Document, path: Sequence[str]) -> dict[str, Any]:
    """Return the object at a path, or an empty one where there is none."""
    found: object = document.data
    for part in path:
        if not isinstance(found, dict):
            return {}
        found = cast("dict[str, Any]", found).get(part)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def each_text(value: object, change: Callable[[str], str]) -> object:
    """Return a value in which every text, however deep, is changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [each_text(item, change) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: each_text(item, change) for key, item in cast("dict[str, object]", value).items()}
    return value


def bare_map(document: Document) -> list[Entry]:
    """Find entries in a document that is itself the map of servers."""
    values = [value for key, value in table_at(document, ()).items() if not key.startswith("$")]
    if not all(isinstance(value, dict) for value in values):
        return []
    if not any(_ENTRY_KEYS & cast("dict[str, Any]", value).keys() for value in values):
        return []
    return [entry for entry in entries_at(document, ()) if not entry.name.startswith("$")]


def wrapped_or_bare(document: Document, _root: str) -> list[Entry]:
    """Find the map `mcpServers`, or take the document for it."""
    wrapped = "mcpServers" in table_at(document, ())
    return entries_at(document, ("mcpServers",)) if wrapped else bare_map(document)


_ENTRY_KEYS = frozenset({"command", "url", "serverUrl", "httpUrl"})


def names_at(table: dict[str, Any], key: str) -> list[str] | None:
    """Return a list of names, or `None` where the key is absent or no such list."""
    value = table.get(key)
    if not isinstance(value, list):
        return None
    return [name for name in cast("list[object]", value) if isinstance(name, str)]


def settings_patch(document: Document, path: Sequence[str]) -> Patch:
    """Read `enabled`, `auto_reload`, `call_log`, `health_check_interval` and `naming` from a table."""
    table = table_at(document, path)
    problems: list[tuple[Pointer, str]] = []
    found = table_at(document, path[:-1]).get(path[-1])
    if found is not None and not isinstance(found, dict):
        problems.append((tuple(path), f"expected a table, not {shown(found)}"))

    def boolean(key: str) -> bool | None:
        value = table.get(key)
        if value is None or isinstance(value, bool):
            return value
        problems.append(((*path, key), f"expected true or false, not {shown(value)}"))
        return None

    interval: float | None = None
    if "health_check_interval" in table:
        try:
            interval = seconds(table["health_check_interval"], "s")
        except ValueError as error:
            problems.append(((*path, "health_check_interval"), str(error)))
    naming = table.get("naming")
    if naming is not None and (not isinstance(naming, str) or "{tool}" not in naming):
        problems.append(((*path, "naming"), "expected a text with {tool} in it, such as {server}__{tool}"))
        naming = None
    return Patch(
        enabled=boolean("enabled"),
        auto_reload=boolean("auto_reload"),
        call_log=boolean("call_log"),
        health_check_interval=interval,
        naming=naming,
        places={key: (*path, key) for key in table},
        problems=problems,
    )
