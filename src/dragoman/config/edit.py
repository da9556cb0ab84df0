"""Changes to one entry of a JSON or TOML document that leave the rest of the text as it is.

Comments, order, indentation, line ends and all other entries stay byte for byte. Every change is checked: the
new text is parsed and must give exactly the intended data, else the change is refused.
"""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.config.dialect import NOT_A_MAP, NOT_SERVERS, local_part
from dragoman.config.documents import TOML_MARK, dotted, parse, resolved
from dragoman.config.entries import build
from dragoman.errors import ConfigError, InvalidSpecError
from dragoman.model import Stdio
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dragoman.config.dialect import Dialect, Entry
    from dragoman.config.documents import Document, Format, Pointer

_MARKS = frozenset({NOT_A_MAP, NOT_SERVERS})
_PORTABLE = ("mcpServers",)
"""The key that most programs read in a JSON file."""
_CONTAINERS: Sequence[tuple[str, ...]] = (_PORTABLE, ("servers",), ("mcp_servers",), ("mcp", "servers"))


def entry_named(
    document: Document, dialect: Dialect, root: str, name: str, pointer: str = ""
) -> Entry | None:
    """Return the entry with that name, and with that dotted pointer if one is given."""
    shared = list(dialect.find(document, root))
    if pointer:
        entries = [*local_part(dialect, document, root)[0], *shared]
        return next(
            (entry for entry in entries if (entry.name, dotted(entry.pointer)) == (name, pointer)), None
        )
    return next((entry for entry in shared if entry.name == name), None)


def slot(document: Document, dialect: Dialect, root: str, name: str) -> Pointer:
    """Return the pointer of the entry with that name; a new one goes to the other entries of the file."""
    present = entry_named(document, dialect, root, name)
    if present is not None:
        return present.pointer
    for entry in dialect.find(document, root):
        if not _MARKS & entry.fields.keys():
            return _next(document, entry.pointer[:-1], name)
    for container in (tuple(dialect.container), *_CONTAINERS):
        if isinstance(value_at(document.data, container), dict | list):
            pointer = _next(document, container, name)
            if _is_read(document, dialect, root, pointer, name):
                return pointer
    portable = (*_PORTABLE, name)
    if document.format == "json" and _is_read(document, dialect, root, portable, name):
        return portable
    return (*dialect.container, 0 if dialect.as_list else name)


def _is_read(document: Document, dialect: Dialect, root: str, pointer: Pointer, name: str) -> bool:
    """Return whether the dialect would read an entry at this pointer."""
    probe = placed(document.data, pointer, {"name": name, "command": "probe"})
    return entry_named(document.replace(data=probe), dialect, root, name) is not None


def put(document: Document, pointer: Pointer, value: Any) -> Document:
    """Return the document with a value set at a pointer.

    Raises:
        ConfigError: The document cannot be changed this way.
    """
    _check_format(document)
    put_text = put_json if document.format == "json" else put_toml
    try:
        text = put_text(document.text, pointer, value)
    except ValueError as error:
        raise _refused(document, pointer, str(error)) from None
    return _checked(document, text, pointer, placed(document.data, pointer, value))


def remove(document: Document, pointer: Pointer) -> Document:
    """Return the document without the value at a pointer.

    Raises:
        ConfigError: The document cannot be changed this way.
    """
    wanted = copy.deepcopy(document.data)
    try:
        del value_at(wanted, pointer[:-1])[pointer[-1]]
        _check_format(document)
        text = (remove_json if document.format == "json" else remove_toml)(document.text, pointer)
    except (KeyError, IndexError, TypeError):
        raise _refused(document, pointer, "there is nothing to remove") from None
    except ValueError as error:
        raise _refused(document, pointer, str(error)) from None
    return _checked(document, text, pointer, wanted)


def insert(document: Document, pointer: Pointer, value: Any) -> Document:
    """Return the document with an item put before the one at a pointer into a list.

    Raises:
        ConfigError: The document cannot be changed this way.
    """
    _check_format(document)
    wanted = copy.deepcopy(document.data)
    value_at(wanted, pointer[:-1]).insert(pointer[-1], value)
    insert_text = insert_json if document.format == "json" else insert_toml
    try:
        text = insert_text(document.text, pointer, value)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _refused(document, pointer, str(error)) from None
    return _checked(document, text, pointer, wanted)


def placed(data: Any, pointer: Pointer, value: Any) -> Any:
    """Return a copy of data with a value set at a pointer."""
    if not pointer:
        return value
    part, rest = pointer[0], pointer[1:]
    if isinstance(part, int):
        items = list(cast("list[Any]", data)) if isinstance(data, list) else []
        old = items[part] if part < len(items) else None
        return [*items[:part], placed(old, rest, value), *items[part + 1 :]]
    table = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return {**table, part: placed(table.get(part), rest, value)}


def _check_format(document: Document) -> None:
    if document.format not in ("json", "toml"):
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
    """Drop empty containers on a path: TOML has none after their last table is removed."""
    if not pointer or not isinstance(data, dict):
        return data
    table = dict(cast("dict[str, Any]", data))
    inner = _without_empty(table.pop(str(pointer[0]), None), pointer[1:])
    return table if inner in ({}, [], None) else {**table, str(pointer[0]): inner}


def written(value: Any, how: Format) -> str:
    """Return a value on one line, as a file of this format has it."""
    return _toml_value(value) if how == "toml" else _one_line_json(value)


def value_at(data: Any, pointer: Pointer) -> Any:
    """Return the value at a pointer; None if a key on the way is missing."""
    for part in pointer:
        if isinstance(part, int):
            data = cast("list[Any]", data)[part]
        else:
            data = cast("dict[str, Any]", data).get(part) if isinstance(data, dict) else None
    return data


def _next(document: Document, container: Pointer, name: str) -> Pointer:
    found = value_at(document.data, container)
    return (*container, len(cast("list[Any]", found)) if isinstance(found, list) else name)


def _refused(document: Document, pointer: Pointer | str, why: str) -> ConfigError:
    return ConfigError(
        f"the file is left as it is: {why}",
        source=document.source,
        pointer=pointer if isinstance(pointer, str) else dotted(pointer),
        hint="change it by hand",
    )


def reworded(
    document: Document,
    dialect: Dialect,
    root: str,
    name: str,
    *,
    pointer: str,
    change: Callable[[Stdio], Stdio],
) -> Document:
    """Return the document with one argument of a server's command changed.

    Args:
        document: The file.
        dialect: The dialect of the file.
        root: The project's directory.
        name: The server.
        pointer: The dotted pointer of its entry.
        change: Returns the command with exactly one argument changed.

    Raises:
        ConfigError: It cannot be changed in this file.
    """
    before = _command(document, dialect, root, name, pointer)
    found = entry_named(document, dialect, root, name, pointer)
    if before is None or found is None:
        raise _refused(document, pointer, f"server `{name}` has no command there")
    wanted = change(before)
    words = [(old, new) for old, new in zip(before.args, wanted.args, strict=True) if old != new]
    if not words:
        return document
    ((old, new),) = words
    for place, text in _texts(value_at(document.data, found.pointer), found.pointer):
        if old not in text:
            continue
        pattern = rf"(?<!\S){re.escape(old)}(?!\S)"
        changed = put(document, place, re.sub(pattern, lambda _: new, text, count=1))
        if _command(changed, dialect, root, name, pointer) == wanted:
            return changed
    raise _refused(document, pointer, f"the word `{old}` is not found in it as it is used")


def _command(document: Document, dialect: Dialect, root: str, name: str, pointer: str) -> Stdio | None:
    found = entry_named(document, dialect, root, name, pointer)
    try:
        transport = None if found is None else build(found, dialect, "user").transport
    except InvalidSpecError:
        return None
    return transport if isinstance(transport, Stdio) else None


def _texts(value: Any, place: Pointer) -> Iterator[tuple[Pointer, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _texts(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _texts(inner, (*place, index))


_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_LINE_REST = re.compile(r"(?:[ \t]+|//[^\r\n]*|/\*[^\n]*?\*/)*")
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SCALAR = re.compile(r"[^\s,:\[\]{}\"/]+")
_INDENT = re.compile(r"\n([ \t]+)\S")
_LONGEST_LIST = 88


class _JsonNode(Struct):
    """A value: `text[start:end]`."""

    start: int
    end: int
    opening: str
    """`{`, `[`, or empty for a plain value."""
    members: Sequence[_JsonMember] = ()


class _JsonMember(Struct):
    """A member of an object or an item of a list, and the offset of the comma after it, if there is one."""

    key: str | int
    start: int
    value: _JsonNode
    comma: int | None


def put_json(text: str, pointer: Pointer, value: Any) -> str:
    """Return a JSON text with the value at a pointer set; missing containers are created.

    An index one past the end of a list appends to the list.

    Raises:
        ValueError: The text is not JSON, or the pointer leads through a plain value.
    """
    text = text if text.strip() else "{}\n"
    node, depth = _walk(text, pointer)
    if depth == len(pointer):
        shown = _json_text(value, _unit(text), _line_indent(text, node.start), _newline(text))
        return text[: node.start] + shown + text[node.end :]
    for part in reversed(pointer[depth + 1 :]):
        value = {str(part): value}
    if not node.opening:
        if text[node.start : node.end] != "null":
            raise _not_a_container(pointer[:depth])
        made = {str(pointer[depth]): value}
        shown = _json_text(made, _unit(text), _line_indent(text, node.start), _newline(text))
        return text[: node.start] + shown + text[node.end :]
    return _append(text, node, pointer[depth], value)


def insert_json(text: str, pointer: Pointer, value: Any) -> str:
    """Return a JSON text with an item put before the one at a pointer.

    Raises:
        ValueError: The text is not JSON, or there is nothing at the pointer.
    """
    node, _ = _walk(text, pointer[:-1])
    member = _find(node, pointer[-1])
    if member is None:
        raise _not_a_container(pointer)
    shown, gap = _one_line_json(value), ", "
    if "\n" in text[node.start : member.start]:
        indent, newline = _own_indent(text, member, ""), _newline(text)
        shown, gap = _json_text(value, _unit(text), indent, newline), f",{newline}{indent}"
    return f"{text[: member.start]}{shown}{gap}{text[member.start :]}"


def remove_json(text: str, pointer: Pointer) -> str:
    """Return a JSON text without the member or item at a pointer; a key that is there twice goes twice.

    Raises:
        ValueError: The text is not JSON, or there is nothing at the pointer.
    """
    parent, depth = _walk(text, pointer[:-1])
    if depth < len(pointer) - 1 or _find(parent, pointer[-1]) is None:
        msg = f"there is nothing at `{'.'.join(map(str, pointer))}`"
        raise ValueError(msg)
    text = _cut_member(text, parent, pointer[-1])
    parent, _ = _walk(text, pointer[:-1])
    while parent.opening == "{" and _find(parent, pointer[-1]) is not None:
        text = _cut_member(text, parent, pointer[-1])
        parent, _ = _walk(text, pointer[:-1])
    return text


def _walk(text: str, pointer: Pointer) -> tuple[_JsonNode, int]:
    """Return the deepest existing value on a path, and how many parts of the path lead to it."""
    node = _scan(text)
    for depth, part in enumerate(pointer):
        member = _find(node, part)
        if member is None:
            return node, depth
        node = member.value
    return node, len(pointer)


def _find(node: _JsonNode, part: str | int) -> _JsonMember | None:
    """Return a member by its key; the last one if a key is there twice."""
    return next((member for member in reversed(node.members) if member.key == part), None)


def _scan(text: str) -> _JsonNode:
    node = _scan_value(text, _skip(text, 0), 0)
    if _skip(text, node.end) != len(text):
        raise _broken(text, node.end)
    return node


def _scan_value(text: str, at: int, depth: int) -> _JsonNode:
    opening = text[at : at + 1]
    if opening in ("{", "["):
        if depth > 200:
            raise _broken(text, at)
        return _container(text, at, depth)
    match = (_STRING if opening == '"' else _SCALAR).match(text, at)
    if match is None:
        raise _broken(text, at)
    return _JsonNode(at, match.end(), "")


def _container(text: str, start: int, depth: int) -> _JsonNode:
    opening = text[start]
    closing = "}" if opening == "{" else "]"
    members: list[_JsonMember] = []
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
        value = _scan_value(text, at, depth + 1)
        at = _skip(text, value.end)
        comma = at if text[at : at + 1] == "," else None
        members.append(_JsonMember(key, first, value, comma))
        at = at if comma is None else _skip(text, comma + 1)
    return _JsonNode(start, at + 1, opening, members)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _append(text: str, node: _JsonNode, key: str | int, value: Any) -> str:
    """Add a member after the last one, which gets a comma if it has none."""
    if isinstance(key, int) != (node.opening == "["):
        raise _not_a_container((key,))
    newline, unit = _newline(text), _unit(text)
    outer = _line_indent(text, node.start)
    last = node.members[-1] if node.members else None
    inner = outer + unit if last is None else _own_indent(text, last, outer + unit)
    label = "" if isinstance(key, int) else f"{_one_line_json(key)}: "
    if last is None:
        kept = text[node.start + 1 : node.end - 1].rstrip()
        body = f"{kept}{newline}{inner}{label}{_json_text(value, unit, inner, newline)}{newline}{outer}"
        return text[: node.start + 1] + body + text[node.end - 1 :]
    behind = last.value.end if last.comma is None else last.comma + 1
    if "\n" not in text[node.start : last.start]:
        comma = ", " if last.comma is None else " "
        tail = "" if last.comma is None else ","
        return f"{text[:behind]}{comma}{label}{_one_line_json(value)}{tail}{text[behind:]}"
    rest = _LINE_REST.match(text, behind)
    at = rest.end() if rest else behind
    at = behind if not text[behind:at].strip() else at
    comma, tail = (",", "") if last.comma is None else ("", ",")
    member = f"{newline}{inner}{label}{_json_text(value, unit, inner, newline)}{tail}"
    close = "" if "\n" in text[at : node.end] else f"{newline}{outer}"
    after = text[at:].lstrip(" \t") if close else text[at:]
    return f"{text[: last.value.end]}{comma}{text[last.value.end : at]}{member}{close}{after}"


def _cut_member(text: str, node: _JsonNode, key: str | int) -> str:
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
    """Return the text's indentation of one level; two spaces if it has none."""
    match = _INDENT.search(text)
    return match[1] if match else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _own_indent(text: str, member: _JsonMember, default: str) -> str:
    """Return the indentation of a member that begins its line; else the default."""
    before = text[text.rfind("\n", 0, member.start) + 1 : member.start]
    return default if before.strip() else before


def _json_text(value: Any, unit: str, indent: str, newline: str) -> str:
    """Write a value: an object takes several lines, a short list of plain values one."""
    inner = indent + unit
    if isinstance(value, dict) and value:
        items = cast("dict[str, Any]", value).items()
        lines = [f"{_one_line_json(key)}: {_json_text(item, unit, inner, newline)}" for key, item in items]
        return f"{{{newline}{inner}" + f",{newline}{inner}".join(lines) + f"{newline}{indent}}}"
    if isinstance(value, list) and value:
        items = cast("list[Any]", value)
        flat = not any(isinstance(item, dict | list) for item in items)
        if not flat or len(_one_line_json(value)) > _LONGEST_LIST:
            lines = [_json_text(item, unit, inner, newline) for item in items]
            return f"[{newline}{inner}" + f",{newline}{inner}".join(lines) + f"{newline}{indent}]"
    return _one_line_json(value)


def _one_line_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _broken(text: str, at: int) -> ValueError:
    return ValueError(f"the text is not understood at line {text.count(chr(10), 0, at) + 1}")


def _not_a_container(pointer: Pointer) -> ValueError:
    return ValueError(f"`{'.'.join(map(str, pointer))}` is neither an object nor a list of servers")


#
# Tables and new keys are edited as lines. tomlkit counts the comment before a table as the end of the table
# above it: it would remove that comment together with the table above, and add a key below it. What is inside
# a value (an inline table, an array) is left to tomlkit. A comment between two lines of an entry belongs to
# the entry; one before or after it does not.


_PART = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|("(?:[^"\\\n]|\\.)*")|'([^'\n]*)')[ \t]*(\.)?""")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class _TomlStatement(Struct):
    """One or more whole lines: a header, a key with its value, or a comment or blank line (`other`)."""

    start: int
    end: int
    kind: Literal["table", "array", "key", "other"]
    pointer: Pointer = ()


def put_toml(text: str, pointer: Pointer, value: Any) -> str:
    """Return a TOML text with the value at a pointer set; missing tables are created.

    An index one past an array's last table appends a table.

    Raises:
        ValueError: The table of a plain value does not exist, or the value has a null.
    """
    statements = list(_statements(text))
    own = [item for item in statements if _begins(item.pointer, pointer) and item.kind != "other"]
    if any(item.kind == "key" and _begins(pointer, item.pointer) for item in statements):
        return _put_inside(text, pointer, value)
    if not isinstance(value, dict):
        return _put_key(text, statements, pointer, value)
    newline = _newline(text)
    block = _toml_table(pointer, cast("dict[str, Any]", value), newline)
    if own:
        at = own[0].start
        return text[:at] + block + _cut_statements(text, own, statements, joins_blanks=False)[at:]
    return _insert(text, statements, pointer, block, newline)


def insert_toml(text: str, pointer: Pointer, value: Any) -> str:
    """Return a TOML text with an item put before the one at a pointer: a table of an array, or a value.

    Raises:
        ValueError: The value has a null.
    """
    statements = list(_statements(text))
    at = next((n for n, one in enumerate(statements) if (one.kind, one.pointer) == ("array", pointer)), None)
    if at is None:
        import tomlkit

        document = tomlkit.parse(text)
        node: Any = document
        for part in pointer[:-1]:
            node = node[part]
        node.insert(pointer[-1], _inline(value))
        return tomlkit.dumps(document)
    # The comment above a table belongs to it.
    while (
        at
        and statements[at - 1].kind == "other"
        and text[statements[at - 1].start :].lstrip().startswith("#")
    ):
        if not text[statements[at - 1].start : statements[at - 1].end].strip():
            break
        at -= 1
    newline, start = _newline(text), statements[at].start
    block = _toml_table(pointer, value, newline)
    return f"{text[:start]}{block}{newline}{text[start:]}"


def remove_toml(text: str, pointer: Pointer) -> str:
    """Return a TOML text without the table, the array's table or the key at a pointer.

    Raises:
        ValueError: There is nothing at the pointer.
    """
    statements = list(_statements(text))
    keys = [item.pointer for item in statements if item.kind == "key" and item.pointer != pointer]
    if any(_begins(pointer, key) for key in keys):
        return _remove_inside(text, pointer)
    own = [item for item in statements if _begins(item.pointer, pointer) and item.kind != "other"]
    if not own:
        raise _no_table(pointer)
    return _cut_statements(text, own, statements)


def _statements(text: str) -> Iterator[_TomlStatement]:
    """Split a text into its statements, each with the pointer of what it defines."""
    table: Pointer = ()
    counts: dict[Pointer, int] = {}
    for start, end in _line_groups(text):
        line = text[start:end].lstrip(" \t")
        if not line.strip() or line.startswith("#"):
            yield _TomlStatement(start, end, "other", table)
        elif line.startswith("[["):
            path = resolved(_toml_path(line[2:]), counts)
            counts[path] = counts.get(path, -1) + 1
            table = (*path, counts[path])
            yield _TomlStatement(start, end, "array", table)
        elif line.startswith("["):
            table = resolved(_toml_path(line[1:]), counts)
            yield _TomlStatement(start, end, "table", table)
        else:
            yield _TomlStatement(start, end, "key", (*table, *_toml_path(line)))


def _line_groups(text: str) -> Iterator[tuple[int, int]]:
    """Yield the bounds of lines; all lines of one value are one group."""
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


def _toml_path(text: str) -> tuple[str, ...]:
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


def _cut_statements(
    text: str,
    own: Sequence[_TomlStatement],
    statements: Sequence[_TomlStatement],
    *,
    joins_blanks: bool = True,
) -> str:
    """Remove statements, the comments between two of them, and one of two blank lines that meet."""
    gone = set(own)
    before: _TomlStatement | None = None
    between: list[_TomlStatement] = []
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


def _insert(
    text: str, statements: Sequence[_TomlStatement], pointer: Pointer, block: str, newline: str
) -> str:
    """Insert a block after the last of its siblings, or at the end."""
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


def _put_key(text: str, statements: Sequence[_TomlStatement], pointer: Pointer, value: Any) -> str:
    """Add a plain key to its table."""
    headers = [item for item in statements if item.kind in ("table", "array")]
    header = next((item for item in headers if item.pointer == pointer[:-1]), None)
    if header is None:
        raise _no_table(pointer[:-1])
    at = header.end
    for item in statements[statements.index(header) + 1 :]:
        if item.kind in ("table", "array"):
            break
        at = item.end if item.kind == "key" else at
    newline = _newline(text)
    gap = "" if text[:at].endswith("\n") else newline
    return f"{text[:at]}{gap}{_toml_key(pointer[-1])} = {_toml_value(value)}{newline}{text[at:]}"


def _put_inside(text: str, pointer: Pointer, value: Any) -> str:
    import tomlkit

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
    import tomlkit

    document = tomlkit.parse(text)
    node: Any = document
    try:
        for part in pointer[:-1]:
            node = node[part]
        del node[pointer[-1]]
    except (KeyError, IndexError):
        raise _no_table(pointer) from None
    return tomlkit.dumps(document)


def _inline(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    import tomlkit

    table = tomlkit.inline_table()
    for key, item in cast("dict[str, Any]", value).items():
        table.append(key, _inline(item))
    return table


def _toml_table(pointer: Pointer, value: dict[str, Any], newline: str) -> str:
    names = ".".join(_toml_key(part) for part in pointer if isinstance(part, str))
    header = f"[[{names}]]" if isinstance(pointer[-1], int) else f"[{names}]"
    lines = [header, *(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items())]
    return "".join(f"{line}{newline}" for line in lines)


def _toml_key(part: str | int) -> str:
    name = str(part)
    return name if _BARE.fullmatch(name) else _toml_text(name)


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    """Write a value on one line."""
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        inside = ", ".join(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in items)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in cast("list[Any]", value)) + "]"
    if isinstance(value, int | float):
        return repr(value)
    msg = "TOML has no null"
    raise ValueError(msg)


def _no_table(pointer: Pointer) -> ValueError:
    return ValueError(f"the table `{'.'.join(map(str, pointer))}` does not exist")
