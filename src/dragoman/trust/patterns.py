"""Patterns over a call's arguments: where to look, and what the values there have to look like.

Globs are matched case-sensitively, and `*` also crosses `/`. Regular expressions are searched for by an
engine that takes linear time and knows neither look-around nor back-references; a pattern that needs them is
refused when it is read. A value that is too long to be matched cannot be vouched for: it meets every
condition that forbids, and none that permits.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_PATTERN_CHARS = 1_000
MAX_VALUE_CHARS = 100_000
MAX_VALUES = 10_000
"""More values than that are not looked at; the call counts as one that cannot be vouched for."""
_MAX_DEPTH = 50
_REGEX_BYTES = 1_000_000

Way: TypeAlias = Literal["glob", "path", "regex"]


class UnmatchableError(Exception):
    """A value is too long, or there are too many: it cannot be said whether they match."""


@dataclass(frozen=True, slots=True)
class ValuePattern:
    """One pattern for values: a glob, a glob for paths, or a regular expression."""

    way: Way
    text: str

    def matches(self, value: str) -> bool:
        """Tell whether a value has this form.

        Raises:
            UnmatchableError: The value is too long to say.
        """
        if len(value) > MAX_VALUE_CHARS:
            raise UnmatchableError
        match self.way:
            case "glob":
                return value == self.text or fnmatchcase(value, self.text)
            case "path":
                plain = plain_path(value)
                return plain == self.text or fnmatchcase(plain, self.text)
            case "regex":
                return bool(_regex(self.text).is_valid(value))


@dataclass(frozen=True, slots=True)
class ArgumentPattern:
    """Where values stand among the arguments, and the patterns of which one has to match."""

    place: tuple[str, ...]
    """Keys and indexes; `*` stands for any."""
    patterns: Sequence[ValuePattern]

    def matches(self, arguments: Mapping[str, Any], *, permits: bool) -> bool:
        """Tell whether the condition is met.

        Args:
            arguments: The call's.
            permits: Whether the rule permits: then every value there has to match, and there has to be one;
                else a single one is enough.
        """
        try:
            hits = [
                any(one.matches(text) for one in self.patterns) for text in texts_at(arguments, self.place)
            ]
        except UnmatchableError:
            return not permits
        return bool(hits) and all(hits) if permits else any(hits)

    def __str__(self) -> str:
        where = self.place[0] if len(self.place) == 1 else "/" + "/".join(self.place)
        return f"{where}={'|'.join(pattern.text for pattern in self.patterns)}"


def plain_path(value: str) -> str:
    """Return a path without `..`, `.` and doubled slashes, and with slashes of one kind."""
    text = value.removeprefix("file://").replace("\\", "/")
    return re.sub(r"\A//+", "/", posixpath.normpath(text)) if text else ""


def texts_at(arguments: object, place: Sequence[str]) -> Iterator[str]:
    """Yield every value at a place, and every value inside what stands there, as text.

    Raises:
        UnmatchableError: There are too many of them, or they are too deep.
    """
    found = [arguments]
    for step in place:
        found = [inner for value in found for inner in _step(value, step)]
        if len(found) > MAX_VALUES:
            raise UnmatchableError
    count = 0
    level = found
    for _ in range(_MAX_DEPTH):
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict | list | tuple):
                deeper += _children(cast("object", value))
            else:
                count += 1
                yield value if isinstance(value, str) else json.dumps(value, default=repr)
        if count + len(deeper) > MAX_VALUES:
            raise UnmatchableError
        if not deeper:
            return
        level = deeper
    raise UnmatchableError


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value).values())
    return list(cast("list[object]", value))


def _step(value: object, step: str) -> list[object]:
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        # A key that is really called `*` is among the values as well.
        return list(table.values()) if step == "*" else [table[step]] if step in table else []
    if isinstance(value, list | tuple):
        items = list(cast("list[object]", value))
        if step == "*":
            return items
        return [items[int(step)]] if step.isdecimal() and len(step) < 7 and int(step) < len(items) else []
    return []


def read_place(text: str) -> tuple[str, ...]:
    """Read `path`, or a JSON pointer such as `/files/*/path`."""
    if not text.startswith("/"):
        return (text,)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def read_patterns(data: object) -> list[ValuePattern]:
    """Read a glob, `{"glob": …}`, `{"path": …}`, `{"regex": …}`, or a list of them.

    Raises:
        ValueError: It is none of these; the message says what is wrong.
    """
    items = cast("list[object]", data) if isinstance(data, list) else [data]
    if not items:
        msg = "it is an empty list"
        raise ValueError(msg)
    return [_pattern(item) for item in items]


def _pattern(item: object) -> ValuePattern:
    way, text = "glob", item
    if isinstance(item, dict):
        table = cast("dict[str, object]", item)
        if len(table) != 1 or next(iter(table)) not in ("glob", "path", "regex"):
            msg = "a pattern is a text, or an object with one key: `glob`, `path` or `regex`"
            raise ValueError(msg)
        way, text = next(iter(table.items()))
    elif isinstance(item, bool | int | float):
        text = json.dumps(item)
    if not isinstance(text, str) or not text:
        msg = "a pattern has to be a text that is not empty"
        raise ValueError(msg)
    if len(text) > MAX_PATTERN_CHARS:
        msg = f"a pattern has at most {MAX_PATTERN_CHARS} characters"
        raise ValueError(msg)
    if way == "regex":
        _regex(text)
    return ValuePattern(cast("Way", way), plain_path(text) if way == "path" else text)


@lru_cache(maxsize=256)
def _regex(pattern: str) -> Any:
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES)
    try:
        return jsonschema_rs.validator_for(
            {"type": "string", "pattern": pattern}, pattern_options=options, offline=True
        )
    except ValueError:
        msg = f"`{pattern}` is no regular expression that can be matched in linear time"
        raise ValueError(msg) from None
