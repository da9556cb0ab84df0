"""Env files: `NAME=value` lines, as Docker and the dotenv tools write them. Nothing is expanded or run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """Return the variables of an env file; lines that are no assignment are passed over."""
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
