"""One word of a server's command, put in another's place, and nothing else of its file.

The words stand where the host wants them: in a list, in a list that begins with the program, or all in one
text. So every place where the word stands is tried, and that one counts which gives exactly the command that
is wanted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.config import edit
from dragoman.config.entries import build
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import Stdio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dragoman.config.dialect import Dialect
    from dragoman.config.documents import Document
    from dragoman.config.positions import Pointer


def reworded(
    document: Document,
    dialect: Dialect,
    root: str,
    name: str,
    *,
    pointer: str,
    change: Callable[[Stdio], Stdio],
) -> Document:
    """Return the document in which a server has the command that `change` makes of its own.

    Args:
        document: The file.
        dialect: How it is read.
        root: The project's directory.
        name: The server.
        pointer: Where its entry stands, dotted.
        change: Gives the command with exactly one other argument.

    Raises:
        ConfigError: It cannot be changed in this file; nothing is wrong with that.
    """
    before = _command(document, dialect, root, name, pointer)
    found = edit.entry_named(document, dialect, root, name, pointer)
    if before is None or found is None:
        raise _refused(document, pointer, f"server `{name}` has no command there")
    wanted = change(before)
    words = [(old, new) for old, new in zip(before.args, wanted.args, strict=True) if old != new]
    if not words:
        return document
    ((old, new),) = words
    for place, text in _texts(_at(document.data, found.pointer), found.pointer):
        if old not in text:
            continue
        pattern = rf"(?<!\S){re.escape(old)}(?!\S)"
        changed = edit.put(document, place, re.sub(pattern, lambda _: new, text, count=1))
        if _command(changed, dialect, root, name, pointer) == wanted:
            return changed
    raise _refused(document, pointer, f"the word `{old}` is not found in it as it is used")


def _command(document: Document, dialect: Dialect, root: str, name: str, pointer: str) -> Stdio | None:
    found = edit.entry_named(document, dialect, root, name, pointer)
    try:
        transport = None if found is None else build(found, dialect, "user").transport
    except InvalidSpecError:
        return None
    return transport if isinstance(transport, Stdio) else None


def _at(data: Any, pointer: Pointer) -> Any:
    for part in pointer:
        data = data[part]
    return data


def _texts(value: Any, place: Pointer) -> Iterator[tuple[Pointer, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _texts(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _texts(inner, (*place, index))


def _refused(document: Document, pointer: str, why: str) -> ConfigError:
    msg = f"the file is left as it is: {why}"
    return ConfigError(msg, source=document.source, pointer=pointer, hint="change it by hand")
