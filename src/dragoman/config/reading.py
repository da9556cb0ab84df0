"""Reading single values of an entry: each has the right type, is converted with a note, or is a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.model import Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.config.dialect import Dialect, Entry

_FORBIDDEN = ("\0", "\r", "\n")
_PRIVATE = frozenset({"args", "auth", "env", "headers", "url"})
"""Fields whose values may be secrets: an error never shows them."""


class Reader:
    """Collects what is wrong and what was assumed while one entry is read."""

    def __init__(self, entry: Entry, dialect: Dialect) -> None:
        self.problems: list[str] = []
        self.notes: list[Note] = []
        self.lines: dict[str, int] = {}
        """The line of each field that was read."""
        self.first_key: tuple[str, ...] = ()
        self.first_line: int | None = None
        self._entry = entry
        self._spellings = {key.field: spelling for spelling, key in reversed(dialect.keys.items())}

    def name(self, field: str, spelling: str) -> None:
        """Remember how the entry spells a field."""
        self._spellings[field] = spelling
        line = self._entry.line(spelling)
        if line is not None:
            self.lines[field] = line

    def spelling(self, field: str) -> str:
        """Return how the entry spells a field."""
        return self._spellings.get(field, field)

    def problem(self, field: str, message: str, inner: str | int | None = None) -> None:
        """Record why the entry cannot be used."""
        written = self._entry.spellings.get(self.spelling(field), self.spelling(field)) if field else ""
        keys = [written] if written else []
        if inner is not None:
            keys.append(str(inner))
        line = self._entry.line(*keys) if keys else self._entry.line()
        where = f"`{'.'.join(keys)}`" if keys else ""
        if where and line:
            where += f" (line {line})"
        self.problems.append(f"{where}: {message}" if where else message)
        if len(self.problems) == 1:
            self.first_key, self.first_line = tuple(keys), line

    def note(self, code: Any, key: str, message: str) -> None:
        """Record an assumption."""
        self.notes.append(Note(code=code, key=key, message=message))

    def text(
        self, field: str, value: object, *, required: str = "", inner: str | int | None = None
    ) -> str | None:
        """Return a text; an absent one is `None`, and a problem where one is required."""
        if value is None:
            if required:
                self.problem("", required)
            return None
        if not isinstance(value, str):
            self.problem(field, f"expected a text, not {shown(value, private=field in _PRIVATE)}", inner)
            return None
        if "\0" in value:
            self.problem(field, "it contains a NUL character", inner)
            return None
        if required and not value.strip():
            self.problem("", required)
            return None
        return value

    def boolean(self, field: str, value: object) -> bool | None:
        """Return a truth value."""
        if value is None or isinstance(value, bool):
            return value
        self.problem(field, f"expected true or false, not {shown(value, private=field in _PRIVATE)}")
        return None

    def count(self, field: str, value: object, *, inner: str | None = None) -> int | None:
        """Return a whole number above zero."""
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self.problem(field, f"expected a whole number above zero, not {shown(value, private=field in _PRIVATE)}", inner)
        return None

    def choice(self, field: str, value: object, choices: Sequence[str]) -> str | None:
        """Return one of a few words."""
        if value is None:
            return None
        if isinstance(value, str) and value in choices:
            return value
        self.problem(field, f"expected one of {', '.join(choices)}, not {shown(value, private=field in _PRIVATE)}")
        return None

    def mapping(self, field: str, value: object) -> dict[str, Any]:
        """Return an object; an absent one is empty."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self.problem(field, f"expected an object, not {shown(value, private=field in _PRIVATE)}")
        return {}

    def strings(self, field: str, value: object) -> list[str] | None:
        """Return a list of texts; numbers are converted."""
        if not isinstance(value, list):
            self.problem(field, f"expected a list of texts, not {shown(value, private=field in _PRIVATE)}")
            return None
        found: list[str] = []
        for index, item in enumerate(cast("list[object]", value)):
            text = self._scalar(field, item, index)
            if text is None:
                return None
            found.append(text)
        return found

    def one_or_many(self, field: str, value: object) -> list[str] | None:
        """Return a list of texts that may be written as one text; an absent one is empty."""
        if value is None:
            return []
        return [value] if isinstance(value, str) else self.strings(field, value)

    def texts(self, field: str, value: object, *, header: bool = False) -> dict[str, str] | None:
        """Return an object of texts; numbers are converted, a null is left out."""
        found = self.environment(field, value)
        if found is None:
            return None
        kept = {name: text for name, text in found.items() if text is not None}
        if header:
            for name, text in kept.items():
                if not name.strip() or any(mark in name + text for mark in _FORBIDDEN):
                    self.problem(field, "a header's name or value is empty or has a line break in it", name)
                    return None
        return kept

    def environment(self, field: str, value: object) -> dict[str, str | None] | None:
        """Return an object of texts in which a null means `take it away`."""
        if value is not None and not isinstance(value, dict):
            self.problem(field, f"expected an object of texts, not {shown(value, private=field in _PRIVATE)}")
            return None
        found: dict[str, str | None] = {}
        for name, item in cast("dict[str, object]", value or {}).items():
            if not name or "\0" in name or (field == "env" and "=" in name):
                self.problem(field, f"{name!r:.60} cannot be the name of a variable")
                return None
            text = None if item is None else self._scalar(field, item, name)
            if text is None and item is not None:
                return None
            found[name] = text
            line = self._entry.line(self.spelling(field), name)
            if line is not None:
                self.lines[f"{field}.{name}"] = line
        return found

    def _scalar(self, field: str, item: object, inner: str | int) -> str | None:
        if isinstance(item, bool):
            self.note("type", f"{self.spelling(field)}.{inner}", f"{str(item).lower()} is passed on as a text")
            return str(item).lower()
        if isinstance(item, int | float):
            return str(item)
        return self.text(field, item if item is not None else [], inner=inner)


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
