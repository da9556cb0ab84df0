"""Parse text into a document: plain data, and the line of each key.

JSON is read leniently (comments, trailing commas), TOML and YAML by their parsers; YAML tags that
build anything but plain data are refused. Whatever the text is, the outcome is a `Document` or a
`ConfigSyntaxError` with a line where one is known, which never quotes a value. Size, depth and number
of values are bounded. Half a character (a lone surrogate) becomes U+FFFD: no output could hold it.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from dragoman.errors import ConfigSyntaxError
from dragoman.struct import HIDDEN, Struct, field
from dragoman.visible import spelled_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAME = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=", re.MULTILINE)
_QUOTED = re.compile(
    r"""[ \t]*(?:"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"|'(?P<single>[^']*)')[ \t]*(?:\#[^\n]*)?$""",
    re.MULTILINE | re.DOTALL,
)
_BARE = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"[ \t]\#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def parse_env(text: str) -> dict[str, str]:
    """Return the variables of an env file; lines that are not assignments are skipped."""
    return {name: value for name, value, _ in _assignments(text)}


def env_lines(text: str) -> dict[str, int]:
    """Return the line of each variable's last assignment."""
    return {name: line for name, _, line in _assignments(text)}


def _assignments(text: str) -> Iterator[tuple[str, str, int]]:
    text = text.replace("\r\n", "\n")
    line, counted, position = 1, 0, 0
    while assignment := _NAME.search(text, position):
        name_at = assignment.start(1)
        line, counted = line + text.count("\n", counted, name_at), name_at
        value, position = _value(text, assignment.end())
        yield assignment[1], value, line


def _value(text: str, start: int) -> tuple[str, int]:
    """Return the value that begins at an offset, and where it ends."""
    if quoted := _QUOTED.match(text, start):
        double, single = quoted["double"], quoted["single"]
        if double is None:
            return single, quoted.end()
        return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), double), quoted.end()
    bare = _BARE.match(text, start)
    rest = bare[0] if bare else ""
    return _COMMENT.sub("", rest, count=1).strip(" \t\r"), start + len(rest)


Pointer: TypeAlias = tuple[str | int, ...]

DEPTH = 7
"""Deeper keys are given the line of their nearest indexed ancestor."""

_JSON_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\],\n]|[^\s{}\[\],:"]+', re.DOTALL)


def json_lines(text: str) -> dict[Pointer, int]:
    """Return the line of every key and list item of a JSON text without comments."""
    return {pointer: line for pointer, line, _ in _json_places(text)}


def json_repeats(text: str) -> dict[Pointer, int]:
    """Return the keys that stand twice in one object, each with the line of its last appearance."""
    return {pointer: line for pointer, line, repeated in _json_places(text) if repeated}


def _json_places(text: str) -> Iterator[tuple[Pointer, int, bool]]:
    """Yield every key and list item with its line, and whether its object has had that key before."""
    line = 1
    path: list[str | int] = []
    keys: list[set[str]] = []
    expects_key = False
    for match in _JSON_TOKEN.finditer(text):
        found = match[0]
        if found == "\n":
            line += 1
        elif found in "}]":
            path.pop()
            keys.pop()
            expects_key = False
        elif found == ",":
            last = path[-1]
            if isinstance(last, int):
                path[-1] = last + 1
            else:
                expects_key = True
        elif expects_key:
            key: str = json.loads(found)
            path[-1], expects_key = key, False
            if len(path) <= DEPTH:
                yield tuple(path), line, key in keys[-1]
            keys[-1].add(key)
        else:
            if path and isinstance(path[-1], int) and len(path) <= DEPTH:
                yield tuple(path), line, False
            if found in "{[":
                path.append("" if found == "{" else 0)
                keys.append(set())
                expects_key = found == "{"


_TOML_KEY = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_TOML_DOTTED = rf"{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*"
_TOML_STATEMENT = re.compile(
    rf"[ \t]*(?:\[\[[ \t]*(?P<array>{_TOML_DOTTED})[ \t]*\]\]"
    rf"|\[[ \t]*(?P<table>{_TOML_DOTTED})[ \t]*\]"
    rf"|(?P<key>{_TOML_DOTTED})[ \t]*=)"
)
_TOML_PART = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?""")
# A text without an end is taken as far as it can go, so that no character is looked at twice.
TOML_TEXT = (
    r'''"""(?:[^\\"]|\\.|"(?!""))*+(?:"""+)?|\'\'\'(?:[^']|'(?!\'\'))*+(?:\'\'\'+)?|"(?:[^"\\\n]|\\.)*+"?'''
    r"""|'[^'\n]*+'?"""
)
TOML_MARK = re.compile(rf"{TOML_TEXT}|\#[^\n]*+|[\[\]{{}}\n]", re.DOTALL)
"""What decides where a statement ends: a text or a comment as a whole, a bracket, a line break."""


def toml_lines(text: str) -> dict[Pointer, int]:
    """Return the line of every table and key of a TOML text."""
    lines: dict[Pointer, int] = {}
    table: Pointer = ()
    counts: dict[Pointer, int] = {}
    items: dict[int, list[int]] = {}
    keys: dict[int, Pointer] = {}
    for line, start in _toml_statements(text, items):
        match = _TOML_STATEMENT.match(text, start)
        if match is None:
            continue
        if match["array"]:
            base = resolved(_dotted(match["array"]), counts)
            counts[base] = counts.get(base, -1) + 1
            table = (*base, counts[base])
            lines.setdefault(base, line)
            lines[table] = line
        elif match["table"]:
            table = resolved(_dotted(match["table"]), counts)
            _note_path(lines, table, line)
        else:
            keys[start] = table + _dotted(match["key"])
            _note_path(lines, keys[start], line)
    for start, pointer in keys.items():
        for index, line in enumerate(items.get(start, ())):
            lines.setdefault((*pointer, index), line)
    return lines


def _toml_statements(text: str, items: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    """Yield the line and the offset of each line that begins a statement.

    Args:
        text: The TOML text.
        items: Gets the lines of the inline tables in a list, by the offset of its statement.
    """
    yield 1, 0
    line, depth, start = 1, 0, 0
    for match in TOML_MARK.finditer(text):
        found = match[0]
        if found == "\n":
            line += 1
            if depth == 0:
                start = match.end()
                yield line, start
        elif found in "[{":
            if found == "{" and depth == 1:
                items.setdefault(start, []).append(line)
            depth += 1
        elif found in "]}":
            depth -= 1
        else:
            line += found.count("\n")


def _dotted(text: str) -> tuple[str, ...]:
    parts: list[str] = _TOML_PART.findall(text)
    return tuple(tomllib.loads(f"key={part}")["key"] if part[0] in "\"'" else part for part in parts)


def resolved(path: tuple[str, ...], counts: dict[Pointer, int]) -> Pointer:
    """Put the current index of every array of tables on the way into a path."""
    found: Pointer = ()
    for position, part in enumerate(path):
        found = (*found, part)
        if found in counts and position < len(path) - 1:
            found = (*found, counts[found])
    return found


def _note_path(lines: dict[Pointer, int], path: Pointer, line: int) -> None:
    for length in range(1, min(len(path), DEPTH) + 1):
        lines.setdefault(path[:length], line)


Format: TypeAlias = Literal["json", "toml", "yaml", "env"]

_MIB = 1024 * 1024
MAX_BYTES = 32 * _MIB
"""Of a file of the user's: some hosts keep their whole history beside the servers."""
MAX_PROJECT_BYTES = _MIB
"""Of a file that came with a project."""
MAX_SLOW_BYTES: Mapping[str, int] = {"toml": 4 * _MIB, "yaml": _MIB // 4, "env": 4 * _MIB}
"""Of formats whose parsers take their time."""
MAX_DEPTH = 64
MAX_VALUES = 200_000
MAX_KEY_CHARS = 4_096
MAX_INTEGER_BITS = 1024


class Document(Struct):
    """One configuration file, read: plain data and where each key of it stands."""

    source: str
    format: Format
    data: Annotated[Any, HIDDEN]
    text: Annotated[str, HIDDEN] = ""
    repeats: Mapping[Pointer, int] = field(default_factory=dict[Pointer, int])
    """Keys that stand twice in one object, and the line of each's last appearance, which counts."""
    _lines: Annotated[dict[Pointer, int], HIDDEN] = field(default_factory=dict[Pointer, int])

    def line(self, pointer: Pointer) -> int | None:
        """Return the line of a key, or of the nearest thing around it."""
        if not self._lines and self.text:
            self._lines.update(_LINES[self.format](self.text))
        for length in range(len(pointer), 0, -1):
            if pointer[:length] in self._lines:
                return self._lines[pointer[:length]]
        # A file may be one entry as a whole, which begins where the file does.
        return 1 if not pointer and self.text else None


def dotted(pointer: Pointer) -> str:
    """Write a pointer as people do: `mcpServers.files.args.0`."""
    return ".".join(spelled_out(str(part)) for part in pointer)


def parse(text: str, source: str, format: Format) -> Document:  # noqa: A002 -- the noun of the whole module
    """Read a text.

    Raises:
        ConfigSyntaxError: The text is not valid in that format, or is beyond the bounds.
    """
    limit = min(MAX_BYTES, MAX_SLOW_BYTES.get(format, MAX_BYTES))
    if len(text) > limit:
        raise ConfigSyntaxError(too_large(limit), source=source)
    try:
        return _PARSERS[format](text, source)
    except RecursionError:
        msg = f"the file is nested too deeply: more than {MAX_DEPTH} levels"
        raise ConfigSyntaxError(msg, source=source) from None


def too_large(limit: int) -> str:
    """Return the error for a file with more bytes than are read."""
    return f"the file is larger than {f'{limit // _MIB} MiB' if limit >= _MIB else f'{limit // 1024} KiB'}"


def environment(env: Mapping[str, str], source: str = "environment") -> Document:
    """Return the environment as a document."""
    return Document(source, "env", dict(env))


def _parse_json(text: str, source: str) -> Document:
    if not text.strip():
        return Document(source, "json", {}, text)
    repeated = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        result = dict(items)
        repeated = repeated or len(result) != len(items)
        return result

    try:
        data = json.loads(text, object_pairs_hook=pairs)
    except ValueError:
        repeated = False
        try:
            data = json.loads(without_comments(text), object_pairs_hook=pairs)
        except json.JSONDecodeError as error:
            msg = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]} (column {error.colno})"
            raise ConfigSyntaxError(msg, source=source, line=error.lineno) from None
        except ValueError:
            msg = "not valid JSON: a number has too many digits"
            raise ConfigSyntaxError(msg, source=source) from None
    repeats = json_repeats(without_comments(text)) if repeated else {}
    return _document(source, "json", data, text, repeats)


# One without an end goes on to the end of the text, so that no character is looked at twice.
_JSON_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_JSONC = re.compile(rf"{_JSON_STRING}|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING = re.compile(rf"{_JSON_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """Blank out comments and trailing commas; every other character keeps its place."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else _NOT_NEWLINE.sub(" ", match[0])

    return _TRAILING.sub(blank, _JSONC.sub(blank, text))


_TOML_LINE = re.compile(r"\(at line (\d+)")


_TOML_LONG_KEY = re.compile(rf"""(?<![\w".-])(?:(?:[A-Za-z0-9_-]++|"")[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}""")
_TOML_TEXT = re.compile(rf"""{TOML_TEXT}|\#[^\n]*+""", re.DOTALL)


def _refuse_long_keys(text: str, source: str) -> None:
    """Refuse a key of too many parts before it is parsed: that takes the square of their number."""
    if text.count(".") < MAX_DEPTH:
        return
    bare = _TOML_TEXT.sub(lambda match: '""' if match[0][0] != "#" else "", text)
    if _TOML_LONG_KEY.search(bare):
        msg = f"the file is nested too deeply: a key has more than {MAX_DEPTH} parts"
        raise ConfigSyntaxError(msg, source=source)


def _parse_toml(text: str, source: str) -> Document:
    import tomllib

    _refuse_long_keys(text, source)
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        place = _TOML_LINE.search(str(error))
        line = (
            int(place[1]) if place else _line_at(text, len(text)) if "end of document" in str(error) else None
        )
        what = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "a number has too many digits"
        msg = f"not valid TOML: {what}"
        raise ConfigSyntaxError(msg, source=source, line=line) from None
    return _document(source, "toml", data, text)


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _parse_yaml(text: str, source: str) -> Document:
    import yaml

    from dragoman.config.yaml_nodes import load

    try:
        data, repeats = load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        msg = f"not valid YAML: {spelled_out(error.problem or error.context or 'unknown problem')}"
        raise ConfigSyntaxError(
            msg, source=source, line=_line_at(text, mark.index) if mark else None
        ) from None
    except yaml.reader.ReaderError as error:
        msg = f"not valid YAML: the character U+{error.character:04X} is not allowed"
        raise ConfigSyntaxError(msg, source=source, line=_line_at(text, error.position)) from None
    return _document(source, "yaml", {} if data is None else data, text, repeats)


def _yaml_lines(text: str) -> dict[Pointer, int]:
    from dragoman.config.yaml_nodes import lines

    return lines(text)


def _parse_env(text: str, source: str) -> Document:
    return Document(source, "env", parse_env(text), text)


def _json_lines(text: str) -> dict[Pointer, int]:
    return json_lines(without_comments(text))


def _env_lines(text: str) -> dict[Pointer, int]:
    return {(name,): line for name, line in env_lines(text).items()}


def _document(
    source: str,
    format: Format,  # noqa: A002 -- as in `parse`
    data: object,
    text: str,
    repeats: Mapping[Pointer, int] | None = None,
) -> Document:
    """Make a document of JSON-like values, within bounds; aliases of YAML become copies."""
    count = 0

    def refuse(pointer: Pointer, msg: str) -> ConfigSyntaxError:
        line = Document(source, format, None, text).line(pointer)
        return ConfigSyntaxError(msg, source=source, pointer=dotted(pointer[:DEPTH]), line=line)

    def copy(value: object, pointer: Pointer) -> Any:
        nonlocal count
        count += 1
        if len(pointer) > MAX_DEPTH:
            raise refuse(pointer, f"the file is nested too deeply: more than {MAX_DEPTH} levels")
        if count > MAX_VALUES:
            raise refuse(pointer, f"the file holds more than {MAX_VALUES:,} values")
        if isinstance(value, dict):
            items = [(_key(key), item) for key, item in cast("dict[object, object]", value).items()]
            if any(len(key) > MAX_KEY_CHARS for key, _ in items):
                raise refuse(pointer, f"a key has more than {MAX_KEY_CHARS:,} characters")
            return {key: copy(item, (*pointer, key)) for key, item in items}
        if isinstance(value, list | tuple | set):
            return [copy(item, (*pointer, at)) for at, item in enumerate(cast("list[object]", value))]
        if isinstance(value, str):
            return _whole(value)
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            raise refuse(pointer, f"a number has more than {MAX_INTEGER_BITS} bits")
        if value is None or isinstance(value, bool | int | float):
            return value
        if hasattr(value, "isoformat"):  # a date or a time of TOML or YAML
            return str(cast("Any", value).isoformat())
        raise refuse(pointer, f"a value of type `{type(value).__name__}` is not allowed in a configuration")

    return Document(source, format, copy(data, ()), text, repeats or {})


def _key(key: object) -> str:
    if key is None:
        return "null"
    return str(key).lower() if isinstance(key, bool) else _whole(str(key))


def _whole(text: str) -> str:
    """Replace lone surrogates, which JSON can spell but no encoding can write."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_PARSERS = {"json": _parse_json, "toml": _parse_toml, "yaml": _parse_yaml, "env": _parse_env}
_LINES = {
    "json": _json_lines,
    "toml": toml_lines,
    "yaml": _yaml_lines,
    "env": _env_lines,
}
