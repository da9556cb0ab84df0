"""On which line each key of a JSON or TOML text stands.

The parsers of the standard library keep no positions, so these two scan the text once more. Both
expect a text that its parser has accepted, and index a few levels only: enough for `file:line` in an
error, cheap on a large file.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    for line, start in _toml_statements(text):
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
            _note_path(lines, table + _dotted(match["key"]), line)
    return lines


def _toml_statements(text: str) -> Iterator[tuple[int, int]]:
    """Yield the line and the offset of each line that begins a statement."""
    yield 1, 0
    line, depth = 1, 0
    for match in TOML_MARK.finditer(text):
        found = match[0]
        if found == "\n":
            line += 1
            if depth == 0:
                yield line, match.end()
        elif found in "[{":
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
