"""On which line each key of a JSON or TOML text stands.

The parsers of the standard library keep no positions, so these two scan the text once more. Both
expect a text that its parser has accepted, and index a few levels only: enough for `file:line` in an
error, cheap on a large file.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

Pointer: TypeAlias = tuple[str | int, ...]

DEPTH = 7
"""Deeper keys are given the line of their nearest indexed ancestor."""

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]', re.DOTALL)


def json_lines(text: str) -> dict[Pointer, int]:
    """Return the line of every key and list item of a JSON text without comments."""
    lines: dict[Pointer, int] = {}
    line = 1
    path: list[str | int] = []
    expects_key: list[bool] = []
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        match token[0]:
            case "\n":
                line += 1
            case "{":
                _note_item(lines, path, expects_key, line)
                path.append("")
                expects_key.append(True)
            case "[":
                _note_item(lines, path, expects_key, line)
                path.append(0)
                expects_key.append(False)
            case "}" | "]":
                path.pop()
                expects_key.pop()
            case ",":
                last = path[-1]
                if isinstance(last, int):
                    path[-1] = last + 1
                else:
                    expects_key[-1] = True
            case '"' if expects_key and expects_key[-1]:
                path[-1] = json.loads(token)
                expects_key[-1] = False
                if len(path) <= DEPTH:
                    lines[tuple(path)] = line
            case '"':
                _note_item(lines, path, expects_key, line)
            case _:
                pass
    return lines


def _note_item(lines: dict[Pointer, int], path: list[str | int], expects_key: list[bool], line: int) -> None:
    in_list = bool(path) and isinstance(path[-1], int) and not expects_key[-1]
    if in_list and len(path) <= DEPTH:
        lines.setdefault(tuple(path), line)


_TOML_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_TOML_DOTTED = rf"{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*"
_TOML_STATEMENT = re.compile(
    rf"[ \t]*(?:\[\[[ \t]*(?P<array>{_TOML_DOTTED})[ \t]*\]\]"
    rf"|\[[ \t]*(?P<table>{_TOML_DOTTED})[ \t]*\]"
    rf"|(?P<key>{_TOML_DOTTED})[ \t]*=)"
)
_TOML_PART = re.compile(_TOML_KEY)
_TOML_SKIP = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""+|\'\'\'.*?\'\'\'+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]''',
    re.DOTALL,
)


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
            base = _resolve(_dotted(match["array"]), counts)
            counts[base] = counts.get(base, -1) + 1
            table = (*base, counts[base])
            lines.setdefault(base, line)
            lines[table] = line
        elif match["table"]:
            table = _resolve(_dotted(match["table"]), counts)
            _note_path(lines, table, line)
        else:
            _note_path(lines, table + _dotted(match["key"]), line)
    return lines


def _toml_statements(text: str) -> Iterator[tuple[int, int]]:
    """Yield the line and the offset of each line that begins a statement."""
    yield 1, 0
    line, depth = 1, 0
    for match in _TOML_SKIP.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
            if depth == 0:
                yield line, match.end()
        elif token in "[{":
            depth += 1
        elif token in "]}":
            depth = max(0, depth - 1)
        else:
            line += token.count("\n")


def _dotted(text: str) -> tuple[str, ...]:
    parts: list[str] = []
    for part in _TOML_PART.findall(text):
        if part.startswith('"'):
            parts.append(json.loads(part) if "\\U" not in part else part[1:-1])
        else:
            parts.append(part.strip("'"))
    return tuple(parts)


def _resolve(path: tuple[str, ...], counts: dict[Pointer, int]) -> Pointer:
    """Put the current index of every array of tables on the way into a path."""
    resolved: Pointer = ()
    for position, part in enumerate(path):
        resolved = (*resolved, part)
        if resolved in counts and position < len(path) - 1:
            resolved = (*resolved, counts[resolved])
    return resolved


def _note_path(lines: dict[Pointer, int], path: Pointer, line: int) -> None:
    for length in range(1, min(len(path), DEPTH) + 1):
        lines.setdefault(path[:length], line)
