"""Patterns over a call's arguments: where to look, and what the values there have to look like.

Globs are matched case-sensitively, and `*` also crosses `/`. Regular expressions are searched for by an
engine that takes linear time and knows neither look-around nor back-references; a pattern that needs them is
refused when it is read.

One value can be read in several ways: a `file:` address as a path, `%65` as `e`, `1.0` as `1`, a character
in two compositions, a text up to its first NUL. A condition that forbids is met if one of these readings
matches, one that permits only if all of them do. The keys of objects are looked at as well as their values. A
value that is too long to be matched meets every condition that forbids, and none that permits.
"""

from __future__ import annotations

import json
import posixpath
import re
import unicodedata
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_PATTERN_CHARS = 1_000
MAX_VALUE_CHARS = 100_000
MAX_VALUES = 10_000
"""More values than that are not looked at; the call counts as one that cannot be vouched for."""
_MAX_DEPTH = 50
_MAX_DECODED = 3
"""How often `%25` is decoded: some servers decode more than once."""
_MAX_ESCAPES = 2_000
_MAX_MARKS = 30
"""Marks on one character, as in Unicode's stream-safe format: more take quadratic time to be put in order."""
_REGEX_BYTES = 1_000_000

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):")
_DRIVE = re.compile(r"/[A-Za-z]:(?=/|\Z)")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?\Z")
_BREAKS = str.maketrans("", "", "\t\r\n")

Way: TypeAlias = Literal["glob", "path", "regex", "literal"]


class UnmatchableError(Exception):
    """A value is too long, or there are too many: it cannot be said whether they match."""


@dataclass(frozen=True, slots=True)
class ValuePattern:
    """One pattern for values: a glob, a glob for paths, a regular expression, or a number or truth value."""

    way: Way
    text: str

    def matches(self, value: object, *, permits: bool) -> bool:
        """Return whether a value has this form.

        Args:
            value: Anything that is not an object or a list.
            permits: Whether every reading of it has to have this form; else one is enough.

        Raises:
            UnmatchableError: The value is too long to say.
        """
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
            raise UnmatchableError
        if self.way == "literal":
            return self._equals(value, permits=permits)
        if permits and isinstance(value, str) and "\0" in value:
            return False
        hits = (self._fits(reading) for reading in _readings(value, self.way, permits=permits))
        return all(hits) if permits else any(hits)

    def _equals(self, value: object, *, permits: bool) -> bool:
        if isinstance(value, str):
            return not permits and self.text in (value.strip().lower(), _number_text(value.strip()))
        return _text(value) == self.text

    def _fits(self, reading: str) -> bool:
        if self.way == "regex":
            return bool(_regex(self.text).is_valid(reading))
        return any(reading == form or fnmatchcase(reading, form) for form in _forms(self.text, self.way))


@dataclass(frozen=True, slots=True)
class ArgumentPattern:
    """Where values stand among the arguments, and the patterns of which one has to match."""

    place: tuple[str, ...]
    """Keys and indexes; `*` stands for any."""
    patterns: Sequence[ValuePattern]

    def matches(self, arguments: Mapping[str, Any], *, permits: bool) -> bool:
        """Return whether the condition is met.

        Args:
            arguments: The call's.
            permits: Whether the rule permits: then every value there has to match, and there has to be one;
                else a single one is enough.
        """
        try:
            hits = [
                any(one.matches(value, permits=permits) for one in self.patterns)
                for value in values_at(arguments, self.place)
            ]
            if not permits or all(hits):
                hits += [
                    any(one.matches(key, permits=permits) for one in self.patterns)
                    for key in _keys_on_the_way(arguments, self.place)
                    if not permits or not _PLAIN_KEY.match(key)
                ]
        except UnmatchableError:
            return not permits
        return bool(hits) and all(hits) if permits else any(hits)

    def __str__(self) -> str:
        where = self.place[0] if len(self.place) == 1 else "/" + "/".join(self.place)
        return f"{where}={'|'.join(pattern.text for pattern in self.patterns)}"


def plain_path(value: str) -> str:
    """Return a path, or that of a `file:` URL, without `..`, `.` and doubled slashes, all of one kind."""
    text = value.replace("\\", "/")
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() == "file":
        text = text[scheme.end() :]
        if text.startswith("//"):
            # What stands here is a host, `localhost` as a rule.
            text = f"/{text[2:].partition('/')[2]}"
        text = _unescaped(text).replace("\\", "/")
    if not text:
        return ""
    plain = re.sub(r"\A//+", "/", posixpath.normpath(text))
    return plain[1:] if _DRIVE.match(plain) else plain


def plain_uri(value: str) -> str:
    """Return an address in one spelling: scheme and host in lower case, decoded, without `..` in its path.

    Raises:
        UnmatchableError: There is too much in it to decode.
    """
    scheme = _SCHEME.match(value)
    if scheme is None:
        return value
    name = scheme[1].lower()
    if name == "file":
        path = plain_path(value)
        return f"file://{path if path.startswith('/') else f'/{path}'}"
    rest = _decoded(value[scheme.end() :])[-1]
    if not rest.startswith("//"):
        return f"{name}:{rest}"
    host, slash, path = rest[2:].partition("/")
    path, mark, query = path.partition("?")
    # Where a path has no dots in it, its slashes are left as they are.
    if "/." in f"/{path}":
        ends = "/" if path.endswith(("/", "/.", "/..")) else ""
        path = posixpath.normpath(f"/{path}").lstrip("/") + ends
    return f"{name}://{host.lower()}{slash}{path}{mark}{query}"


def values_at(arguments: object, place: Sequence[str]) -> Iterator[object]:
    """Yield every value at a place, and every key and value inside what stands there.

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
                yield value
        if count + len(deeper) > MAX_VALUES:
            raise UnmatchableError
        if not deeper:
            return
        level = deeper
    raise UnmatchableError


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return [*table, *table.values()]
    return list(cast("list[object]", value))


def _keys_on_the_way(arguments: object, place: Sequence[str]) -> Iterator[str]:
    """Yield the keys that a `*` of a place stands for."""
    found = [arguments]
    for step in place:
        if step == "*":
            for value in found:
                if isinstance(value, dict):
                    yield from (key for key in cast("dict[object, object]", value) if isinstance(key, str))
        found = [inner for value in found for inner in _step(value, step)]


def _text(value: object) -> str:
    """Return a value that is not a text as one: equal numbers give equal texts."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    try:
        return json.dumps(value, default=repr)
    except ValueError:  # a number of thousands of digits
        raise UnmatchableError from None


def _number_text(text: str) -> str:
    """Return a number that is written as a text in the one way; anything else as it is."""
    if not _NUMBER.match(text):
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return text if "." not in text and "e" not in text.lower() else _text(number)


def _readings(value: object, way: Way, *, permits: bool) -> list[str]:
    """Return all that a value may be taken for by what gets it."""
    if not isinstance(value, str):
        plain = _text(value)
        return [plain] if permits or not isinstance(value, float) else [plain, repr(value)]
    forms = _normalised(value)
    if not permits:
        forms[:0] = [value]
        if not value.isascii():
            forms.append("".join(char for char in value if unicodedata.category(char) != "Cf"))
        if "\0" in value:
            forms += [value.partition("\0")[0], value.replace("\0", "")]
        if (joined := value.translate(_BREAKS).strip()) != value:
            forms.append(joined)
    found: dict[str, None] = {}
    for form in forms:
        if way == "path":
            found.update(dict.fromkeys(_paths(form, permits=permits)))
        else:
            found[form] = None
            if not permits or _is_address(form):
                found[plain_uri(form)] = None
    return list(found)


def _is_address(text: str) -> bool:
    scheme = _SCHEME.match(text)
    if scheme is None:
        return False
    return scheme[1].lower() == "file" or text[scheme.end() :].startswith(("//", "\\\\"))


def _normalised(text: str) -> list[str]:
    if text.isascii():
        return [text]
    marks = 0
    for char in text:
        marks = marks + 1 if char > "\u02ff" and unicodedata.combining(char) else 0
        if marks > _MAX_MARKS:
            raise UnmatchableError
    if unicodedata.is_normalized("NFKC", text):
        return [text]
    found = list(dict.fromkeys(unicodedata.normalize(form, text) for form in ("NFC", "NFKC")))
    if len(found[-1]) > MAX_VALUE_CHARS:
        raise UnmatchableError
    return found


def _paths(text: str, *, permits: bool) -> Iterator[str]:
    for decoded in _decoded(text):
        yield plain_path(decoded)
        scheme = _SCHEME.match(decoded)
        if scheme is not None and scheme[1].lower() == "file":
            rest = decoded[scheme.end() :].replace("\\", "/")
            host = rest[2:].partition("/")[0].lower() if rest.startswith("//") else ""
            if permits and host not in ("", "localhost"):
                # It is another machine's path, or something that is made to look like one.
                yield f"//{host}"
            yield plain_path(re.split(r"[?#]", decoded, maxsplit=1)[0])


def _decoded(text: str) -> list[str]:
    """Return a text as it is, and percent-decoded as often as that changes it."""
    found = [text]
    while "%" in found[-1] and len(found) <= _MAX_DECODED and (more := _unescaped(found[-1])) != found[-1]:
        found.append(more)
    return found


def _unescaped(text: str) -> str:
    if text.count("%") > _MAX_ESCAPES:
        raise UnmatchableError
    return unquote(text)


@lru_cache(maxsize=1024)
def _forms(pattern: str, way: Way) -> tuple[str, ...]:
    """Return the ways in which a pattern may be written."""
    forms = [pattern, *_normalised(pattern), _number_text(pattern)]
    if way == "path":
        forms = [plain_path(form) for form in forms]
    elif _SCHEME.match(pattern):
        forms += [plain_uri(form) for form in forms]
    return tuple(dict.fromkeys(forms))


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
        way, text = "literal", _text(item)
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
