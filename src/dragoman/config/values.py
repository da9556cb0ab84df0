"""Read single values of an entry: each has the right type, is converted with a note, or is a problem.

A null equals an absent key, except in `env`, where it removes a variable.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.config.documents import dotted
from dragoman.model import Note
from dragoman.model.server import server_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.config.dialect import Dialect, Entry
    from dragoman.config.documents import Pointer

_FORBIDDEN = ("\0", "\r", "\n")


class EntryReader:
    """Collects what is wrong and what was assumed while one entry is read."""

    def __init__(self, entry: Entry, dialect: Dialect) -> None:
        self.problems: list[str] = []
        self.notes: list[Note] = []
        self.lines: dict[str, int] = {}
        """The line of each field that was read, where it stands in the entry's own file."""
        self.culprit: Entry = entry
        """The entry that the first problem is in: another one only after a merge by field."""
        self.pointer: Pointer = entry.place()
        """Where the first problem is."""
        self.line: int | None = None
        self._entry = entry
        self._spellings: dict[str, str] = {}
        for spelling, key in dialect.keys.items():
            self._spellings.setdefault(key.field, spelling)

    def name(self, field: str, spelling: str) -> None:
        """Remember how the entry spells a field."""
        self._spellings[field] = spelling
        self._note_line(field, spelling)

    def spelling(self, field: str) -> str:
        """Return how the entry spells a field."""
        return self._spellings.get(field, field)

    def problem(self, field: str, message: str, inner: str | int | None = None) -> None:
        """Record why the entry cannot be used."""
        keys = self._keys(field, inner) if field else ()
        line = self._entry.line(*keys)
        where = f"`{dotted(self._entry.written(*keys))}`" if keys else ""
        if where and line:
            where += f" (line {line})"
        self.problems.append(f"{where}: {message}" if where else message)
        if len(self.problems) == 1:
            self.culprit, self.pointer, self.line = self._entry.owner(*keys), self._entry.place(*keys), line

    def _keys(self, field: str, inner: str | int | None) -> tuple[str | int, ...]:
        return (self.spelling(field),) if inner is None else (self.spelling(field), inner)

    def _note_line(self, field: str, *keys: str | int) -> None:
        line = self._entry.line(*keys)
        if line is not None and self._entry.owner(*keys).document is self._entry.document:
            self.lines[field] = line

    def note(self, code: Any, key: str, message: str, *, meant: str = "") -> None:
        """Record an assumption about a key, which is named as the file spells it."""
        line = self._entry.line(key) if meant else None
        spelling = self._entry.spellings.get(key, key)
        self.notes.append(Note(code=code, key=spelling, message=message, meant=meant, line=line))

    def text(
        self, field: str, value: object, *, required: str = "", inner: str | int | None = None
    ) -> str | None:
        """Return a text; an absent one is `None`, and a problem where one is required."""
        if value is None:
            if required:
                self.problem("", required)
            return None
        if not isinstance(value, str):
            self._unexpected(field, "a text", value, inner)
            return None
        if "\0" in value:
            self.problem(field, "it contains a NUL character", inner)
            return None
        if required and not value.strip():
            self.problem("", required)
            return None
        return value

    def boolean(self, field: str, value: object, *, inner: str | None = None) -> bool | None:
        """Return a truth value."""
        if value is None or isinstance(value, bool):
            return value
        self._unexpected(field, "true or false", value, inner)
        return None

    def count(self, field: str, value: object, *, inner: str | None = None) -> int | None:
        """Return a whole number above zero."""
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self._unexpected(field, "a whole number above zero", value, inner)
        return None

    def choice(
        self, field: str, value: object, choices: Sequence[str], *, inner: str | None = None
    ) -> str | None:
        """Return one of a few words."""
        if value is None:
            return None
        if isinstance(value, str) and value in choices:
            return value
        self._unexpected(field, f"one of {', '.join(choices)}", value, inner)
        return None

    def mapping(self, field: str, value: object) -> dict[str, Any]:
        """Return an object; an absent one is empty."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._unexpected(field, "an object", value)
        return {}

    def strings(self, field: str, value: object, *, inner: str | None = None) -> list[str] | None:
        """Return a list of texts; numbers are converted; an absent one is empty."""
        if value is None:
            return []
        if not isinstance(value, list):
            self._unexpected(field, "a list of texts", value, inner)
            return None
        found: list[str] = []
        for index, item in enumerate(cast("list[object]", value)):
            text = self._scalar(field, item, index if inner is None else inner)
            if text is None:
                return None
            found.append(text)
            if inner is None:
                self._note_line(f"{field}.{index}", self.spelling(field), index)
        return found

    def one_or_many(self, field: str, value: object) -> list[str] | None:
        """Return a list of strings that may be written as one string; an absent one is empty."""
        return self.strings(field, [value] if isinstance(value, str) else value)

    def texts(self, field: str, value: object, *, header: bool = False) -> dict[str, str] | None:
        """Return an object of texts; numbers are converted, a null is left out."""
        found = self.environment(field, value)
        if found is None:
            return None
        kept = {name: text for name, text in found.items() if text is not None}
        if header:
            for name, text in kept.items():
                if not name.strip() or any(mark in name + text for mark in _FORBIDDEN):
                    self.problem(field, "a header's name or value is empty or contains a line break", name)
                    return None
        return kept

    def environment(self, field: str, value: object) -> dict[str, str | None] | None:
        """Return an object of strings in which a null removes the key."""
        if value is not None and not isinstance(value, dict):
            self._unexpected(field, "an object of texts", value)
            return None
        found: dict[str, str | None] = {}
        for name, item in cast("dict[str, object]", value or {}).items():
            if not name or "\0" in name or (field == "env" and "=" in name):
                self.problem(field, "a variable's name is empty, or contains `=` or a NUL character")
                return None
            text = None if item is None else self._scalar(field, item, name)
            if text is None and item is not None:
                return None
            found[name] = text
            self._note_line(f"{field}.{name}", self.spelling(field), name)
        return found

    def _scalar(self, field: str, item: object, inner: str | int) -> str | None:
        if isinstance(item, bool):
            key = dotted(self._entry.written(self.spelling(field), inner))
            self.note("type", key, f"{str(item).lower()} is passed as a string")
            return str(item).lower()
        if isinstance(item, int | float):
            return str(item)
        if item is None:
            self._unexpected(field, "a text", item, inner)
            return None
        return self.text(field, item, inner=inner)

    def _unexpected(self, field: str, wanted: str, value: object, inner: str | int | None = None) -> None:
        self.problem(field, f"expected {wanted}, not {shown(value, private=_is_private(field))}", inner)


def _is_private(field: str) -> bool:
    """Return whether the value of a field may be a secret, which no error shows."""
    key = server_keys().get(field)
    return key is not None and key.is_private


def shown(value: object, *, private: bool = False) -> str:
    """Describe a value that is not what was expected, without giving a private one away."""
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
        case bool():
            return str(value).lower()
        case int() | float():
            return "a number" if private else f"the number {value}"
        case _:
            return "a text" if private else f"{value!r:.60}"


Unit: TypeAlias = Literal["s", "ms", "unknown"]
"""What a plain number means; `unknown` where hosts disagree about the same key."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PIECE = re.compile(r"(?<!\d)(\d++(?:\.\d++)?)\s*+(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PIECE.pattern}\s*)+")

UNKNOWN_UNIT_LIMIT = 1000
"""Of a number in an unknown unit: from here on it is milliseconds, below it is seconds."""


def seconds(value: object, unit: Unit) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: It is not a positive, finite duration; the message says what was expected.
    """
    number = _number(value)
    if number is None:
        text = str(value).strip().lower()
        if not isinstance(value, str) or not _WHOLE.fullmatch(text):
            msg = f'expected a duration such as 30, "30s" or "500ms", not {shown(value)}'
            raise ValueError(msg)
        result = sum(float(amount) * _SECONDS[suffix] for amount, suffix in _PIECE.findall(text))
    elif unit == "unknown":
        result = number / 1000 if number >= UNKNOWN_UNIT_LIMIT else number
    else:
        result = number * _SECONDS[unit]
    if not math.isfinite(result) or result <= 0:
        msg = f"expected a duration above zero, not {shown(value)}"
        raise ValueError(msg)
    return result


def is_plain(value: object) -> bool:
    """Return whether a duration is a bare number, so that its unit had to be assumed."""
    return _number(value) is not None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None


_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmg]?i?)b?", re.IGNORECASE)


def size_in_bytes(value: object) -> int:
    """Return a size in bytes; `MB` is a million of them, `MiB` is 1024 KiB.

    Raises:
        ValueError: It is not a size above zero; the message says what was expected.
    """
    found: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        unit = _UNITS.get(match[2].lower())
        found = None if unit is None else int(float(match[1]) * unit)
    if found is None or found <= 0:
        msg = f'expected a size in bytes above zero, such as 16777216 or "64MiB", not {shown(value)}'
        raise ValueError(msg)
    return found
