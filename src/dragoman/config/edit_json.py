"""Edits in a JSON text, with or without comments, that touch nothing but the one value they are about.

Comments, order, indentation, trailing commas and line ends stay as they are. A member that is added after
another one gives that one a comma where the text has no trailing commas. A text that does not scan, or a
path that leads through something that is no object, is a `ValueError`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.config.positions import Pointer

_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE_REST = re.compile(r"(?:[ \t]+|//[^\r\n]*|/\*[^\n]*?\*/)*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,:\[\]{}\"/]+")
_INDENT = re.compile(r"\n([ \t]+)\S")
_LONGEST_LIST = 88


@dataclass(frozen=True, slots=True)
class _Node:
    """A value and where it stands: `text[start:end]`."""

    start: int
    end: int
    opening: str
    """`{`, `[`, or nothing for a plain value."""
    members: Sequence[_Member] = ()


@dataclass(frozen=True, slots=True)
class _Member:
    """A member of an object or an item of a list; its comma is the offset behind it, if it has one."""

    key: str | int
    start: int
    value: _Node
    comma: int | None


def put(text: str, pointer: Pointer, value: Any) -> str:
    """Set the value at a pointer; what is missing on the way is made.

    An integer at the end that is one past a list's last item appends to the list.
    """
    text = text if text.strip() else "{}\n"
    node, depth = _walk(text, pointer)
    if depth == len(pointer):
        shown = _dump(value, _unit(text), _line_indent(text, node.start), _newline(text))
        return text[: node.start] + shown + text[node.end :]
    for part in reversed(pointer[depth + 1 :]):
        value = {str(part): value}
    if not node.opening:
        if text[node.start : node.end] != "null":
            raise _not_a_container(pointer[:depth])
        made = {str(pointer[depth]): value}
        shown = _dump(made, _unit(text), _line_indent(text, node.start), _newline(text))
        return text[: node.start] + shown + text[node.end :]
    return _append(text, node, pointer[depth], value)


def remove(text: str, pointer: Pointer) -> str:
    """Take the member or the item at a pointer out, wherever it stands twice both times."""
    parent, depth = _walk(text, pointer[:-1])
    if depth < len(pointer) - 1 or _find(parent, pointer[-1]) is None:
        msg = f"there is nothing at `{'.'.join(map(str, pointer))}`"
        raise ValueError(msg)
    text = _cut(text, parent, pointer[-1])
    parent, _ = _walk(text, pointer[:-1])
    while parent.opening == "{" and _find(parent, pointer[-1]) is not None:
        text = _cut(text, parent, pointer[-1])
        parent, _ = _walk(text, pointer[:-1])
    return text


def _walk(text: str, pointer: Pointer) -> tuple[_Node, int]:
    """Return the deepest value there is on a path, and how many parts of the path led to it."""
    node = _scan(text)
    for depth, part in enumerate(pointer):
        member = _find(node, part)
        if member is None:
            return node, depth
        node = member.value
    return node, len(pointer)


def _find(node: _Node, part: str | int) -> _Member | None:
    """Return a member by its key; where a key stands twice, the last one counts."""
    return next((member for member in reversed(node.members) if member.key == part), None)


def _scan(text: str) -> _Node:
    node = _value(text, _skip(text, 0), 0)
    if _skip(text, node.end) != len(text):
        raise _broken(text, node.end)
    return node


def _value(text: str, at: int, depth: int) -> _Node:
    opening = text[at : at + 1]
    if opening in ("{", "["):
        if depth > 200:
            raise _broken(text, at)
        return _container(text, at, depth)
    match = (_STRING if opening == '"' else _SCALAR).match(text, at)
    if match is None:
        raise _broken(text, at)
    return _Node(at, match.end(), "")


def _container(text: str, start: int, depth: int) -> _Node:
    opening = text[start]
    closing = "}" if opening == "{" else "]"
    members: list[_Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        if members and members[-1].comma is None:
            raise _broken(text, at)
        first, key = at, cast("str | int", len(members))
        if opening == "{":
            match = _STRING.match(text, at)
            colon = _skip(text, match.end()) if match else at
            if match is None or text[colon : colon + 1] != ":":
                raise _broken(text, at)
            key = json.loads(match[0])
            at = _skip(text, colon + 1)
        value = _value(text, at, depth + 1)
        at = _skip(text, value.end)
        comma = at if text[at : at + 1] == "," else None
        members.append(_Member(key, first, value, comma))
        at = at if comma is None else _skip(text, comma + 1)
    return _Node(start, at + 1, opening, members)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _append(text: str, node: _Node, key: str | int, value: Any) -> str:
    """Put a new member behind the last one."""
    if isinstance(key, int) != (node.opening == "["):
        raise _not_a_container((key,))
    newline, unit = _newline(text), _unit(text)
    outer = _line_indent(text, node.start)
    last = node.members[-1] if node.members else None
    inner = outer + unit if last is None else _own_indent(text, last, outer + unit)
    label = "" if isinstance(key, int) else f"{_compact(key)}: "
    if last is None:
        kept = text[node.start + 1 : node.end - 1].rstrip()
        body = f"{kept}{newline}{inner}{label}{_dump(value, unit, inner, newline)}{newline}{outer}"
        return text[: node.start + 1] + body + text[node.end - 1 :]
    behind = last.value.end if last.comma is None else last.comma + 1
    if "\n" not in text[node.start : last.start]:
        comma = ", " if last.comma is None else " "
        tail = "" if last.comma is None else ","
        return f"{text[:behind]}{comma}{label}{_compact(value)}{tail}{text[behind:]}"
    rest = _LINE_REST.match(text, behind)
    at = rest.end() if rest else behind
    at = behind if not text[behind:at].strip() else at
    comma, tail = (",", "") if last.comma is None else ("", ",")
    member = f"{newline}{inner}{label}{_dump(value, unit, inner, newline)}{tail}"
    close = "" if "\n" in text[at : node.end] else f"{newline}{outer}"
    after = text[at:].lstrip(" \t") if close else text[at:]
    return f"{text[: last.value.end]}{comma}{text[last.value.end : at]}{member}{close}{after}"


def _cut(text: str, node: _Node, key: str | int) -> str:
    member = _find(node, key)
    if member is None:
        raise _broken(text, node.start)
    index = node.members.index(member)
    is_last = index == len(node.members) - 1
    end = member.value.end if member.comma is None else member.comma + 1
    line_start = text.rfind("\n", 0, member.start) + 1
    own_line = not text[line_start : member.start].strip() and line_start > node.start
    rest = _LINE_REST.match(text, end)
    line_end = rest.end() if rest else end
    line_end += text[line_end : line_end + 2] == "\r\n"
    start = member.start
    if own_line and text[line_end : line_end + 1] == "\n":
        start, end = line_start, line_end + 1
    elif not is_last:
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    result = text[:start] + text[end:]
    before = node.members[index - 1] if index else None
    if is_last and member.comma is None and before and before.comma is not None:
        gap = text[before.comma + 1 : start]
        result = text[: before.comma] + (gap if gap.strip() or "\n" in gap else "") + text[end:]
    if len(node.members) == 1:
        inside = result[node.start + 1 : node.end - 1 - (end - start)]
        if not inside.strip():
            return result[: node.start + 1] + result[node.end - 1 - (end - start) :]
    return result


def _unit(text: str) -> str:
    """Return the indentation of one level, as the text has it; two spaces where it has none."""
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _own_indent(text: str, member: _Member, otherwise: str) -> str:
    """Return the indentation of a member that begins its line."""
    before = text[text.rfind("\n", 0, member.start) + 1 : member.start]
    return otherwise if before.strip() else before


def _dump(value: Any, unit: str, indent: str, newline: str) -> str:
    """Write a value as people do: an object takes several lines, a short list of plain values one."""
    inner = indent + unit
    if isinstance(value, dict) and value:
        items = cast("dict[str, Any]", value).items()
        lines = [f"{_compact(key)}: {_dump(item, unit, inner, newline)}" for key, item in items]
        return f"{{{newline}{inner}" + f",{newline}{inner}".join(lines) + f"{newline}{indent}}}"
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        flat = not any(isinstance(item, dict | list) for item in items)
        if not flat or len(_compact(value)) > _LONGEST_LIST:
            lines = [_dump(item, unit, inner, newline) for item in items]
            return f"[{newline}{inner}" + f",{newline}{inner}".join(lines) + f"{newline}{indent}]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _broken(text: str, at: int) -> ValueError:
    return ValueError(f"the text is not understood at line {text.count(chr(10), 0, at) + 1}")


def _not_a_container(pointer: Pointer) -> ValueError:
    return ValueError(f"`{'.'.join(map(str, pointer))}` is neither an object nor a list of servers")
