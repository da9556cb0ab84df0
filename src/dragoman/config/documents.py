"""Text becomes a document: plain data, and the line on which each key stands.

JSON is read leniently (comments, trailing commas), TOML and YAML by their parsers; YAML tags that
build anything but plain data are refused. Whatever the text is, the outcome is a `Document` or a
`ConfigSyntaxError` with a line where one is known, which never quotes a value. Size, depth and number
of values are bounded. Half a character (a lone surrogate) becomes U+FFFD: no output could hold it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.config.positions import DEPTH, TOML_TEXT, Pointer, json_lines, json_repeats, toml_lines
from dragoman.errors import ConfigSyntaxError

if TYPE_CHECKING:
    from collections.abc import Mapping

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


@dataclass(frozen=True, slots=True)
class Document:
    """One configuration file, read: plain data and where each key of it stands."""

    source: str
    format: Format
    data: Any = field(repr=False)
    text: str = field(repr=False, default="")
    repeats: Mapping[Pointer, int] = field(default_factory=dict[Pointer, int])
    """Keys that stand twice in one object, and the line of each's last appearance, which counts."""
    _lines: dict[Pointer, int] = field(repr=False, default_factory=dict[Pointer, int])

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
    return ".".join(printable(str(part)) for part in pointer)


def printable(text: str) -> str:
    """Escape control characters: what a file says must not steer a terminal or forge a log line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


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
        msg = f"not valid YAML: {printable(error.problem or error.context or 'unknown problem')}"
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
    from dragoman.config.dotenv import parse_env

    return Document(source, "env", parse_env(text), text)


def _json_lines(text: str) -> dict[Pointer, int]:
    return json_lines(without_comments(text))


def _env_lines(text: str) -> dict[Pointer, int]:
    from dragoman.config.dotenv import env_lines

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
        raise refuse(pointer, f"a value of the kind `{type(value).__name__}` has no place in a configuration")

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
