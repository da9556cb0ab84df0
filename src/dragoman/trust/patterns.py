"""Patterns for a call's arguments: which values to check, and what they must match.

Globs are case-sensitive, and `*` also matches `/`. Regular expressions run in an engine with linear time and
without look-around and back-references; a pattern that needs them is rejected when it is read.

A server may interpret one value in several ways: a `file:` URL as a path, `%65` as `e`, `1.0` as `1`, a
character in composed or decomposed form, a text up to its first NUL, a URL as browsers repair it. A condition
of a `deny` or `ask` matches if one of these readings matches, a condition of an `allow` only if all do. Keys
of objects are checked like values. For `deny` and `ask`, JSON inside a string is checked too, and so are the
words that many servers accept as true and false. A value that is too long to check matches every `deny` and
`ask` condition, and no `allow` condition.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.parse import unquote

from dragoman.struct import Struct
from dragoman.visible import is_visible, visible_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_PATTERN_CHARS = 1_000
MAX_VALUE_CHARS = 100_000
MAX_VALUES = 10_000
"""Values checked per condition; with more, no `allow` matches and every `deny` and `ask` does."""
_MAX_DEPTH = 50
_MAX_DECODED = 3
"""How often `%25` is decoded: some servers decode more than once."""
_MAX_ESCAPES = 2_000
_MAX_MARKS = 30
"""Marks on one character, as in Unicode's stream-safe format: sorting more takes quadratic time."""
_REGEX_BYTES = 1_000_000

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]+):")
_DRIVE = re.compile(r"/[A-Za-z]:(?=/|\Z)")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_NUMBER = re.compile(r"[+-]?\d(?:_?\d){0,99}(?:\.\d{0,100})?(?:[eE][+-]?\d{1,3})?\Z")
_WORDS = {
    "true": frozenset({"true", "1", "yes", "on", "y", "t"}),
    "false": frozenset({"false", "0", "no", "off", "n", "f"}),
}
"""Strings that servers accept as true and false."""
_BREAKS = str.maketrans("", "", "\t\r\n")
_EDGES = "".join(map(chr, range(0x21)))
"""Characters that browsers strip from both ends of a URL."""
_DOTS = str.maketrans("\u3002\uff0e\uff61", "...")
_ENCODED_DOT = re.compile("%2e", re.IGNORECASE)
_DEVICE = re.compile(r"\A//[?.]/(?:UNC/)?", re.IGNORECASE)
_WEB_PORTS = {"http": "80", "ws": "80", "https": "443", "wss": "443", "ftp": "21"}
_SLASHES = "/\\"
_SCHEME_CHARS = 200
"""Length of the beginning of a text that is searched for an encoded scheme."""

Way: TypeAlias = Literal["glob", "path", "regex", "literal"]


class UnmatchableError(Exception):
    """A value is too long, or there are too many, to decide whether they match."""


class ValuePattern(Struct):
    """One pattern for values: a glob, a glob for paths, a regular expression, a number or a boolean."""

    way: Way
    text: str

    def matches(self, value: object, *, permits: bool) -> bool:
        """Return whether a value matches.

        Args:
            value: Anything but an object or a list.
            permits: Whether every reading of the value must match; else one is enough.

        Raises:
            UnmatchableError: The value is too long to check.
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
            given = value.strip().lower()
            return not permits and (self.text == _number_text(given) or given in _WORDS.get(self.text, ()))
        return _text(value) == self.text

    def _fits(self, reading: str) -> bool:
        if self.way == "regex":
            return bool(_regex(self.text).is_valid(reading))
        return any(reading == form or fnmatchcase(reading, form) for form in _forms(self.text, self.way))


class ArgumentPattern(Struct):
    """A place in the arguments, and the patterns of which one must match there."""

    place: tuple[str, ...]
    """Keys and indexes; `*` matches any."""
    patterns: Sequence[ValuePattern]

    def matches(self, arguments: Mapping[str, Any], *, permits: bool) -> bool:
        """Return whether the condition is met.

        Args:
            arguments: The call's arguments.
            permits: Whether the rule is an `allow`: then at least one value must be there, and all of them
                must match; else one match is enough.
        """
        try:
            hits = [
                any(one.matches(value, permits=permits) for one in self.patterns)
                for value in values_at(arguments, self.place, unpacks=not permits)
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
    """Return a path, or the path of a `file:` URL, without `..`, `.` and repeated slashes."""
    text = value.replace("\\", "/")
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() == "file":
        text = text[scheme.end() :]
        if text.startswith("//"):
            # This part is a host, usually `localhost`.
            text = f"/{text[2:].partition('/')[2]}"
        text = _unescaped(text).replace("\\", "/")
    if not text:
        return ""
    plain = re.sub(r"\A//+", "/", posixpath.normpath(text))
    return plain[1:] if _DRIVE.match(plain) else plain


def plain_uri(value: str) -> str:
    """Return a URL in normal form: scheme and host in lower case, decoded, without `..` in its path.

    Raises:
        UnmatchableError: It has too much to decode.
    """
    return _plain_uri(_decoded(value)[-1])


def _plain_uri(value: str) -> str:
    scheme = _SCHEME.match(value)
    if scheme is None:
        return value
    name, rest = scheme[1].lower(), value[scheme.end() :]
    if name == "file":
        path = plain_path(value)
        return f"file://{path if path.startswith('/') else f'/{path}'}"
    if name in _WEB_PORTS:
        # Browsers read any number of slashes and backslashes here as two slashes.
        rest = f"//{rest.lstrip(_SLASHES)}"
    if not rest.startswith("//"):
        return f"{name}:{rest}"
    path, mark, query = rest[2:].partition("?")
    host, slash, path = path.replace("\\", "/").partition("/")
    host = host.lower()
    if name in _WEB_PORTS:
        host = _plain_host(host, _WEB_PORTS[name])
    # Browsers read an encoded dot as a dot. Without dots, slashes stay as they are.
    path = _ENCODED_DOT.sub(".", path)
    if "/." in f"/{path}":
        ends = "/" if path.endswith(("/", "/.", "/..")) else ""
        path = posixpath.normpath(f"/{path}").lstrip("/") + ends
    return f"{name}://{host}{slash}{path}{mark}{query}"


def _plain_host(authority: str, usual_port: str) -> str:
    """Return the host of a URL without the parts that do not change where it leads."""
    host, colon, port = authority.rpartition("@")[2].translate(_DOTS).partition(":")
    if host.startswith("["):
        return f"{host}{colon}{port}"
    port = port.lstrip("0")
    return host.rstrip(".") if port in ("", usual_port) else f"{host.rstrip('.')}:{port}"


def values_at(arguments: object, place: Sequence[str], *, unpacks: bool = False) -> Iterator[object]:
    """Yield every value at a place, and every key and value inside it.

    Args:
        arguments: The call's arguments.
        place: Keys and indexes; `*` matches any.
        unpacks: Whether to look into JSON inside strings.

    Raises:
        UnmatchableError: There are too many values, or they are nested too deeply.
    """
    found = [arguments]
    for step in place:
        found = [inner for value in found for inner in _step(_unpacked(value) if unpacks else value, step)]
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
                if unpacks and (inside := _unpacked(value)) is not value:
                    deeper.append(inside)
        if count + len(deeper) > MAX_VALUES:
            raise UnmatchableError
        if not deeper:
            return
        level = deeper
    raise UnmatchableError


def _unpacked(value: object) -> object:
    """Return the value of a string that is JSON; anything else unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
        return value
    if len(value) > MAX_VALUE_CHARS:
        raise UnmatchableError
    found = _parsed(value)
    return value if found is None else found


@lru_cache(maxsize=32)
def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise UnmatchableError from None
    except ValueError:
        return None


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return [*table, *table.values()]
    return list(cast("list[object]", value))


def _keys_on_the_way(arguments: object, place: Sequence[str]) -> Iterator[str]:
    """Yield the keys that a `*` of a place matches."""
    found = [arguments]
    for step in place:
        if step == "*":
            for value in found:
                if isinstance(value, dict):
                    yield from (key for key in cast("dict[object, object]", value) if isinstance(key, str))
        found = [inner for value in found for inner in _step(value, step)]


def _text(value: object) -> str:
    """Return a value that is not a string as a string; equal numbers give equal strings."""
    if isinstance(value, float) and math.isfinite(value):
        return _number_text(repr(value))
    try:
        return json.dumps(value, default=repr)
    except ValueError:  # a number with thousands of digits
        raise UnmatchableError from None


def _number_text(text: str) -> str:
    """Return a number in a string in normal form; anything else unchanged."""
    if not _NUMBER.match(text):
        return text
    from decimal import Decimal  # late: few rules are about numbers

    plain = format(Decimal(text), "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return plain if plain.strip("-0") else "0"


def _readings(value: object, way: Way, *, permits: bool) -> list[str]:
    """Return all readings of a value that a server may use."""
    if not isinstance(value, str):
        plain = _text(value)
        return [plain] if permits or not isinstance(value, float | bool) else [plain, repr(value)]
    forms = _normalised(value)
    if not permits:
        forms[:0] = [value]
    found: dict[str, None] = {}
    if way == "path":
        for form in forms:
            for decoded in _decoded(form):
                for one in _cleaned(decoded):
                    found.update(dict.fromkeys(_paths(one, permits=permits)))
        return list(found)
    if not permits:
        found[_number_text(value.strip())] = None
        if value.startswith("/"):
            found[_plain_uri(f"file://{value}")] = None
    for form in forms:
        found[form] = None
        if not permits:
            found.update(dict.fromkeys(_cleaned(form)))
        if not _is_address(_unescaped(_cleaned(form[:_SCHEME_CHARS])[-1]), widely=not permits):
            continue
        for decoded in _decoded(form):
            for one in _cleaned(decoded):
                found[_plain_uri(one)] = None
                if not permits:
                    found.update(dict.fromkeys(_shortened(one)))
    return list(found)


def _cleaned(text: str) -> list[str]:
    """Return a text, and the text without characters that some programs ignore."""
    found = [text]
    if "\0" in text:
        found += [text.partition("\0")[0], text.replace("\0", "")]
    if not text.isprintable() or text[:1] == " " or text[-1:] == " ":
        found.append(text.strip(_EDGES).translate(_BREAKS))
    if not is_visible(text):
        found.append(visible_part(found[-1]))
    return found


def _shortened(address: str) -> Iterator[str]:
    """Yield a URL without its fragment and, for a file, without its query."""
    short = address.partition("#")[0]
    scheme = _SCHEME.match(address)
    if scheme is not None and scheme[1].lower() == "file":
        short = short.partition("?")[0]
    if short != address:
        yield _plain_uri(short)


def _is_address(text: str, *, widely: bool) -> bool:
    scheme = _SCHEME.match(text)
    if scheme is None:
        return False
    known = scheme[1].lower() == "file" or scheme[1].lower() in _WEB_PORTS
    return widely or known or text[scheme.end() :].startswith("//")


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
    plain = plain_path(text)
    yield plain
    slashed = text.replace("\\", "/")
    if (device := _DEVICE.match(slashed)) is not None:
        yield plain_path(slashed[device.end() :])
    scheme = _SCHEME.match(slashed)
    if scheme is not None and scheme[1].lower() == "file":
        rest = slashed[scheme.end() :]
        host = rest[2:].partition("/")[0].lower() if rest.startswith("//") else ""
        if permits and host not in ("", "localhost"):
            # A path on another machine, or something that imitates one.
            yield f"//{host}"
        short = plain_path(re.split(r"[?#]", text, maxsplit=1)[0])
        yield short
        if not permits and not rest.startswith("/"):
            yield f"/{short}"


def _decoded(text: str) -> list[str]:
    """Return a text, and its results of repeated percent-decoding until nothing changes.

    Raises:
        UnmatchableError: It is encoded more often than any legitimate text.
    """
    found = [text]
    while "%" in found[-1] and (more := _unescaped(found[-1])) != found[-1]:
        if len(found) > _MAX_DECODED:
            raise UnmatchableError
        found.append(more)
    return found


def _unescaped(text: str) -> str:
    if text.count("%") > _MAX_ESCAPES:
        raise UnmatchableError
    return unquote(text)


@lru_cache(maxsize=1024)
def _forms(pattern: str, way: Way) -> tuple[str, ...]:
    """Return the equivalent spellings of a pattern."""
    forms = [pattern, *_normalised(pattern), _number_text(pattern)]
    if way == "path":
        forms = [plain_path(form) for form in forms]
    elif _SCHEME.match(pattern):
        forms += [_plain_uri(form) for form in forms]
    return tuple(dict.fromkeys(forms))


def _step(value: object, step: str) -> list[object]:
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        # A key that is literally `*` is also found this way.
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
        ValueError: It is not a valid pattern; the message says why.
    """
    items = cast("list[object]", data) if isinstance(data, list) else [data]
    if not items:
        msg = "the list is empty"
        raise ValueError(msg)
    return [_pattern(item) for item in items]


def _pattern(item: object) -> ValuePattern:
    way, text = "glob", item
    if isinstance(item, dict):
        table = cast("dict[str, object]", item)
        if len(table) != 1 or next(iter(table)) not in ("glob", "path", "regex"):
            msg = "a pattern must be a string, or an object with one key: `glob`, `path` or `regex`"
            raise ValueError(msg)
        way, text = next(iter(table.items()))
    elif isinstance(item, bool | int | float):
        way, text = "literal", _text(item)
    if not isinstance(text, str) or not text:
        msg = "a pattern must be a non-empty string"
        raise ValueError(msg)
    if len(text) > MAX_PATTERN_CHARS:
        msg = f"a pattern must not exceed {MAX_PATTERN_CHARS} characters"
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
        msg = f"`{pattern}` is not a regular expression that can be matched in linear time"
        raise ValueError(msg) from None
