"""Edits in a TOML text that touch nothing but the one entry they are about.

Tables and their keys are edited as lines, so that comments, blank lines and other entries stay byte for
byte. What stands inside a value (an inline table, an array) is left to tomlkit. A comment between two
lines of an entry belongs to the entry; one before or after it does not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import tomlkit

from dragoman.config.positions import TOML_MARK, resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dragoman.config.positions import Pointer

_PART = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|("(?:[^"\\\n]|\\.)*")|'([^'\n]*)')[ \t]*(\.)?""")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _Statement:
    """One or more whole lines: a header, a key with its value, or nothing but a comment or blank."""

    start: int
    end: int
    kind: Literal["table", "array", "key", "other"]
    pointer: Pointer = ()


def put(text: str, pointer: Pointer, value: Any) -> str:
    """Set the value at a pointer; what is missing on the way is made.

    An integer at the end that is one past an array's last table appends a table.
    """
    statements = list(_statements(text))
    own = [item for item in statements if _begins(item.pointer, pointer) and item.kind != "other"]
    if any(item.kind == "key" and _begins(pointer, item.pointer) for item in statements):
        return _put_inside(text, pointer, value)
    if not isinstance(value, dict):
        return _put_key(text, statements, pointer, value)
    newline = "\r\n" if "\r\n" in text else "\n"
    block = _block(pointer, cast("dict[str, Any]", value), newline)
    if own:
        at = own[0].start
        return text[:at] + block + _cut(text, own, statements, joins_blanks=False)[at:]
    return _insert(text, statements, pointer, block, newline)


def remove(text: str, pointer: Pointer) -> str:
    """Take the table, the array's table or the key at a pointer out."""
    statements = list(_statements(text))
    keys = [item.pointer for item in statements if item.kind == "key" and item.pointer != pointer]
    if any(_begins(pointer, key) for key in keys):
        return _remove_inside(text, pointer)
    own = [item for item in statements if _begins(item.pointer, pointer) and item.kind != "other"]
    if not own:
        raise _nothing(pointer)
    return _cut(text, own, statements)


def _statements(text: str) -> Iterator[_Statement]:
    """Cut a text into its statements, each with the pointer of what it defines."""
    table: Pointer = ()
    counts: dict[Pointer, int] = {}
    for start, end in _line_groups(text):
        line = text[start:end].lstrip(" \t")
        if not line.strip() or line.startswith("#"):
            yield _Statement(start, end, "other", table)
        elif line.startswith("[["):
            path = resolved(_dotted(line[2:]), counts)
            counts[path] = counts.get(path, -1) + 1
            table = (*path, counts[path])
            yield _Statement(start, end, "array", table)
        elif line.startswith("["):
            table = resolved(_dotted(line[1:]), counts)
            yield _Statement(start, end, "table", table)
        else:
            yield _Statement(start, end, "key", (*table, *_dotted(line)))


def _line_groups(text: str) -> Iterator[tuple[int, int]]:
    """Yield the bounds of lines; the lines of a value that takes several are one group."""
    start = depth = 0
    for match in TOML_MARK.finditer(text):
        mark = match[0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth = max(0, depth - 1)
        elif mark == "\n" and depth == 0:
            yield start, match.end()
            start = match.end()
    if start < len(text):
        yield start, len(text)


def _dotted(text: str) -> tuple[str, ...]:
    parts: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        bare, basic, literal, dot = match.groups()
        parts.append(_unquoted(basic) if basic is not None else bare if bare is not None else literal)
        at = match.end()
        if not dot:
            break
    return tuple(parts)


def _unquoted(basic: str) -> str:
    import tomllib

    return next(iter(tomllib.loads(f"{basic}=0")))


def _begins(pointer: Pointer, prefix: Pointer) -> bool:
    return pointer[: len(prefix)] == prefix


def _cut(
    text: str, own: Sequence[_Statement], statements: Sequence[_Statement], *, joins_blanks: bool = True
) -> str:
    """Take statements out, with what stands between two of them, and one of two blank lines that meet."""
    gone = set(own)
    before: _Statement | None = None
    between: list[_Statement] = []
    for item in statements:
        if item.kind == "other":
            between.append(item)
            continue
        if before in gone and item in gone:
            gone.update(between)
        before, between = item, []
    kept: list[str] = []
    cut = False
    for item in statements:
        line = text[item.start : item.end]
        if item in gone:
            cut = joins_blanks
            continue
        if not (cut and not line.strip() and (not kept or not kept[-1].strip())):
            kept.append(line)
        cut = cut and not line.strip()
    return "".join(kept)


def _insert(text: str, statements: Sequence[_Statement], pointer: Pointer, block: str, newline: str) -> str:
    """Put a block behind the last of its siblings, or at the end."""
    for length in range(len(pointer) - 1, 0, -1):
        owner = pointer[:length]
        siblings = [item for item in statements if item.kind != "other" and _begins(item.pointer, owner)]
        if siblings:
            break
    else:
        siblings = []
    at = siblings[-1].end if siblings else len(text)
    head, tail = text[:at], text[at:]
    if head and not head.endswith("\n"):
        head += newline
    gap = newline if head.strip() and not head.endswith(newline * 2) else ""
    rest = newline if tail.strip() and not tail.startswith(("\n", "\r\n")) else ""
    return f"{head}{gap}{block}{rest}{tail}"


def _put_key(text: str, statements: Sequence[_Statement], pointer: Pointer, value: Any) -> str:
    """Add a plain key to the table that its pointer names."""
    headers = [item for item in statements if item.kind in ("table", "array")]
    header = next((item for item in headers if item.pointer == pointer[:-1]), None)
    if header is None:
        raise _nothing(pointer[:-1])
    at = header.end
    for item in statements[statements.index(header) + 1 :]:
        if item.kind in ("table", "array"):
            break
        at = item.end if item.kind == "key" else at
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if text[:at].endswith("\n") else newline
    return f"{text[:at]}{gap}{_key(pointer[-1])} = {_value(value)}{newline}{text[at:]}"


def _put_inside(text: str, pointer: Pointer, value: Any) -> str:
    document = tomlkit.parse(text)
    node: Any = document
    for depth, part in enumerate(pointer[:-1]):
        if isinstance(part, str) and part not in node:
            node[part] = tomlkit.array() if isinstance(pointer[depth + 1], int) else tomlkit.inline_table()
        node = node[part]
    last = pointer[-1]
    fitting = _inline(value)
    if isinstance(last, int) and last >= len(node):
        node.append(fitting)
    else:
        node[last] = fitting
    return tomlkit.dumps(document)


def _remove_inside(text: str, pointer: Pointer) -> str:
    document = tomlkit.parse(text)
    node: Any = document
    try:
        for part in pointer[:-1]:
            node = node[part]
        del node[pointer[-1]]
    except (KeyError, IndexError):
        raise _nothing(pointer) from None
    return tomlkit.dumps(document)


def _inline(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    table = tomlkit.inline_table()
    for key, item in cast("dict[str, Any]", value).items():
        table.append(key, _inline(item))
    return table


def _block(pointer: Pointer, value: dict[str, Any], newline: str) -> str:
    names = ".".join(_key(part) for part in pointer if isinstance(part, str))
    header = f"[[{names}]]" if isinstance(pointer[-1], int) else f"[{names}]"
    lines = [header, *(f"{_key(key)} = {_value(item)}" for key, item in value.items())]
    return "".join(f"{line}{newline}" for line in lines)


def _key(part: str | int) -> str:
    name = str(part)
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        inside = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in items)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in cast("list[Any]", value)) + "]"
    if isinstance(value, int | float):
        return repr(value)
    msg = "TOML has no null"
    raise ValueError(msg)


def _nothing(pointer: Pointer) -> ValueError:
    return ValueError(f"there is no table `{'.'.join(map(str, pointer))}`")
