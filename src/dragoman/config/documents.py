"""Text becomes a document: plain data, and the line on which each key stands.

JSON is read leniently (comments, trailing commas), TOML and YAML by their parsers; YAML tags that
build anything but plain data are refused. Whatever the text is, the outcome is a `Document` or a
`ConfigSyntaxError` with a line where one is known. Size, depth and number of values are bounded.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass, field
from datetime import date, time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.config.positions import DEPTH, Pointer, json_lines, toml_lines
from dragoman.errors import ConfigSyntaxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import yaml

Format: TypeAlias = Literal["json", "toml", "yaml", "env"]

MAX_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 1_000_000
MAX_INTEGER_BITS = 1024


@dataclass(frozen=True, slots=True)
class Document:
    """One configuration file, read: plain data and where each key of it stands."""

    source: str
    format: Format
    data: Any
    text: str = field(repr=False, default="")
    duplicates: tuple[Pointer, ...] = ()
    """Keys that stand twice in one object; the last one counts."""
    _lines: dict[Pointer, int] = field(repr=False, default_factory=dict[Pointer, int])

    def line(self, pointer: Pointer) -> int | None:
        """Return the line of a key, or of the nearest thing around it."""
        if not self._lines and self.text:
            self._lines.update(_LINES[self.format](self.text))
        for length in range(len(pointer), 0, -1):
            if pointer[:length] in self._lines:
                return self._lines[pointer[:length]]
        return None


def dotted(pointer: Pointer) -> str:
    """Write a pointer as people do: `mcpServers.files.args.0`."""
    return ".".join(str(part) for part in pointer)


def parse(text: str, source: str, format: Format) -> Document:  # noqa: A002 -- the noun of the whole module
    """Read a text.

    Raises:
        ConfigSyntaxError: The text is not valid in that format, or is beyond the bounds.
    """
    if len(text) > MAX_BYTES:
        msg = f"the file is larger than {MAX_BYTES // 2**20} MiB"
        raise ConfigSyntaxError(msg, source=source)
    try:
        return _PARSERS[format](text, source)
    except RecursionError:
        msg = "the file is nested too deeply"
        raise ConfigSyntaxError(msg, source=source) from None


def environment(env: Mapping[str, str], source: str = "environment") -> Document:
    """Return the environment as a document."""
    return Document(source, "env", dict(env))


def _parse_json(text: str, source: str) -> Document:
    if not text.strip():
        return Document(source, "json", {}, text)
    duplicates: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            seen: set[str] = set()
            duplicates.extend(key for key, _ in items if key in seen or seen.add(key))
        return result

    try:
        data = json.loads(text, object_pairs_hook=pairs)
    except ValueError:
        duplicates.clear()
        plain = without_comments(text)
        try:
            data = json.loads(plain, object_pairs_hook=pairs)
        except json.JSONDecodeError as error:
            msg = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]} (column {error.colno})"
            raise ConfigSyntaxError(msg, source=source, line=error.lineno) from None
        except ValueError as error:
            msg = f"not valid JSON: {error}"
            raise ConfigSyntaxError(msg, source=source) from None
    return Document(source, "json", _plain(data, source), text, tuple((key,) for key in duplicates))


_JSONC = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")


def without_comments(text: str) -> str:
    """Blank out comments and trailing commas; every other character keeps its place."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else _NOT_NEWLINE.sub(" ", match[0])

    return _TRAILING.sub(blank, _JSONC.sub(blank, text))


_TOML_LINE = re.compile(r"\(at line (\d+)")


def _parse_toml(text: str, source: str) -> Document:
    try:
        data = tomllib.loads(text)
    except ValueError as error:
        place = _TOML_LINE.search(str(error))
        msg = f"not valid TOML: {error}"
        raise ConfigSyntaxError(msg, source=source, line=int(place[1]) if place else None) from None
    return Document(source, "toml", _plain(data, source), text)


def _parse_yaml(text: str, source: str) -> Document:
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        msg = f"not valid YAML: {error.problem or error.context or 'unknown problem'}"
        raise ConfigSyntaxError(msg, source=source, line=mark.line + 1 if mark else None) from None
    except (yaml.YAMLError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        # The constructors of PyYAML let foreign exceptions through: `!!int "x"`, impossible dates, a
        # mapping as a key.
        msg = f"not valid YAML: {error}"
        raise ConfigSyntaxError(msg, source=source) from None
    return Document(source, "yaml", _plain({} if data is None else data, source), text)


def _yaml_lines(text: str) -> dict[Pointer, int]:
    import yaml

    lines: dict[Pointer, int] = {}

    def walk(node: yaml.Node | None, path: Pointer) -> None:
        if node is None or len(path) >= DEPTH or len(lines) > MAX_VALUES:
            return
        if isinstance(node, yaml.MappingNode):
            for key, value in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
                inner = (*path, str(key.value))
                lines.setdefault(inner, key.start_mark.line + 1)
                walk(value, inner)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(cast("list[yaml.Node]", node.value)):
                lines.setdefault((*path, index), value.start_mark.line + 1)
                walk(value, (*path, index))

    walk(cast("yaml.Node | None", yaml.compose(text, Loader=yaml.SafeLoader)), ())
    return lines


def _parse_env(text: str, source: str) -> Document:
    from dragoman.config.dotenv import parse_env

    return environment(parse_env(text), source)


def _plain(data: object, source: str) -> Any:
    """Copy data as JSON-like values, within bounds; aliases of YAML become copies."""
    count = 0

    def copy(value: object, depth: int) -> Any:
        nonlocal count
        count += 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            msg = "the file is nested too deeply" if depth > MAX_DEPTH else "the file holds too many values"
            raise ConfigSyntaxError(msg, source=source)
        if isinstance(value, dict):
            items = cast("dict[object, object]", value).items()
            return {_key(key): copy(item, depth + 1) for key, item in items}
        if isinstance(value, list | tuple | set):
            return [copy(item, depth + 1) for item in cast("list[object]", value)]
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            msg = f"a number has more than {MAX_INTEGER_BITS} bits"
            raise ConfigSyntaxError(msg, source=source)
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, date | time):
            return value.isoformat()
        msg = f"a value of the kind `{type(value).__name__}` has no place in a configuration"
        raise ConfigSyntaxError(msg, source=source)

    return copy(data, 0)


def _key(key: object) -> str:
    if isinstance(key, bool) or key is None:
        return str(key).lower()
    return str(key)


_PARSERS = {"json": _parse_json, "toml": _parse_toml, "yaml": _parse_yaml, "env": _parse_env}
_LINES = {
    "json": lambda text: json_lines(without_comments(text)),
    "toml": toml_lines,
    "yaml": _yaml_lines,
    "env": lambda _: {},
}
