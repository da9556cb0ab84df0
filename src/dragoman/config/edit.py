"""Where an entry stands or would stand in a document, and changes to that one entry.

Every change is checked before anybody sees it: the new text is parsed again and has to give exactly the
data that was meant, else the change is refused and the text stays as it was.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from dragoman.config.dialect import NOT_A_MAP, NOT_SERVERS, local_part
from dragoman.config.documents import dotted, parse
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from dragoman.config.dialect import Dialect, Entry
    from dragoman.config.documents import Document
    from dragoman.config.positions import Pointer

_MARKS = frozenset({NOT_A_MAP, NOT_SERVERS})
_PORTABLE = ("mcpServers",)
"""Where most programs look in a JSON file."""
_CONTAINERS: Sequence[tuple[str, ...]] = (_PORTABLE, ("servers",), ("mcp_servers",), ("mcp", "servers"))


def entry_named(
    document: Document, dialect: Dialect, root: str, name: str, pointer: str = ""
) -> Entry | None:
    """Return the entry of that name, and of that dotted pointer where one is given."""
    shared = list(dialect.find(document, root))
    if pointer:
        entries = [*local_part(dialect, document, root)[0], *shared]
        return next(
            (entry for entry in entries if (entry.name, dotted(entry.pointer)) == (name, pointer)), None
        )
    return next((entry for entry in shared if entry.name == name), None)


def slot(document: Document, dialect: Dialect, root: str, name: str) -> Pointer:
    """Return where the entry of that name stands; a new one stands with the others of the file."""
    present = entry_named(document, dialect, root, name)
    if present is not None:
        return present.pointer
    for entry in dialect.find(document, root):
        if not _MARKS & entry.fields.keys():
            return _next(document, entry.pointer[:-1], name)
    for container in (tuple(dialect.container), *_CONTAINERS):
        if isinstance(_at(document.data, container), dict | list):
            pointer = _next(document, container, name)
            if _is_read(document, dialect, root, pointer, name):
                return pointer
    portable = (*_PORTABLE, name)
    if document.format == "json" and _is_read(document, dialect, root, portable, name):
        return portable
    return (*dialect.container, 0 if dialect.as_list else name)


def _is_read(document: Document, dialect: Dialect, root: str, pointer: Pointer, name: str) -> bool:
    """Tell whether the dialect would see an entry there."""
    probe = placed(document.data, pointer, {"name": name, "command": "probe"})
    return entry_named(replace(document, data=probe), dialect, root, name) is not None


def put(document: Document, pointer: Pointer, value: Any) -> Document:
    """Set the value at a pointer; the result is the changed document.

    Raises:
        ConfigError: The document cannot be changed this way; nothing is wrong with it.
    """
    try:
        text = _editor(document).put(document.text, pointer, value)
    except ValueError as error:
        raise _refused(document, pointer, str(error)) from None
    return _checked(document, text, pointer, placed(document.data, pointer, value))


def remove(document: Document, pointer: Pointer) -> Document:
    """Take the value at a pointer out; the result is the changed document.

    Raises:
        ConfigError: The document cannot be changed this way; nothing is wrong with it.
    """
    wanted = copy.deepcopy(document.data)
    try:
        del _at(wanted, pointer[:-1])[pointer[-1]]
        text = _editor(document).remove(document.text, pointer)
    except (KeyError, IndexError, TypeError):
        raise _refused(document, pointer, "there is nothing to remove") from None
    except ValueError as error:
        raise _refused(document, pointer, str(error)) from None
    return _checked(document, text, pointer, wanted)


def placed(data: Any, pointer: Pointer, value: Any) -> Any:
    """Return data with a value set at a pointer; the given data stays as it is."""
    if not pointer:
        return value
    part, rest = pointer[0], pointer[1:]
    if isinstance(part, int):
        items = list(cast("list[Any]", data)) if isinstance(data, list) else []
        old = items[part] if part < len(items) else None
        return [*items[:part], placed(old, rest, value), *items[part + 1 :]]
    table = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return {**table, part: placed(table.get(part), rest, value)}


def _editor(document: Document) -> ModuleType:
    if document.format == "json":
        from dragoman.config import edit_json

        return edit_json
    if document.format == "toml":
        from dragoman.config import edit_toml

        return edit_toml
    msg = f"{document.format.upper()} files are read but not changed"
    raise ConfigError(msg, source=document.source, hint="change it by hand, or name a JSON or TOML file")


def _checked(document: Document, text: str, pointer: Pointer, wanted: Any) -> Document:
    try:
        changed = parse(text, document.source, document.format)
    except ConfigError as error:
        raise _refused(document, pointer, error.message) from None
    if _without_empty(changed.data, pointer) != _without_empty(wanted, pointer):
        raise _refused(document, pointer, "the change would touch something else")
    return changed


def _without_empty(data: Any, pointer: Pointer) -> Any:
    """Forget empty containers on a path: TOML has none once their last table is gone."""
    if not pointer or not isinstance(data, dict):
        return data
    table = dict(cast("dict[str, Any]", data))
    inner = _without_empty(table.pop(str(pointer[0]), None), pointer[1:])
    return table if inner in ({}, [], None) else {**table, str(pointer[0]): inner}


def _at(data: Any, pointer: Pointer) -> Any:
    for part in pointer:
        if isinstance(part, int):
            data = cast("list[Any]", data)[part]
        else:
            data = cast("dict[str, Any]", data).get(part) if isinstance(data, dict) else None
    return data


def _next(document: Document, container: Pointer, name: str) -> Pointer:
    found = _at(document.data, container)
    return (*container, len(cast("list[Any]", found)) if isinstance(found, list) else name)


def _refused(document: Document, pointer: Pointer, why: str) -> ConfigError:
    return ConfigError(
        f"the file is left as it is: {why}",
        source=document.source,
        pointer=dotted(pointer),
        hint="change it by hand",
    )
