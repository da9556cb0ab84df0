"""Schemas so plain that a look tells they are valid, and arguments so plain that a look tells they fit.

Most tools have such a schema, and most calls such arguments. What is told here need not be asked of the
validator, which takes some 8 MiB and longer to load than a small server takes to start. Only a yes counts,
and it is never given for what the validator refuses; a no says that the validator has to be asked.
"""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DEPTH = 24
MAX_FIELDS = 200
"""Arguments with more fields than this are for the validator, which bounds its own work."""
_LARGE = 2**53
_TYPES: dict[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    # Not every float is a number that JSON has.
    "number": frozenset({int}),
    "boolean": frozenset({bool}),
    "null": frozenset({type(None)}),
    "object": frozenset(),
    "array": frozenset(),
}
"""What a value of Python's surely is, by the name that a schema gives it."""
_DIALECTS = frozenset(
    {
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
_REMARKS = frozenset({"title", "description", "default", "format", "examples", "deprecated", "$comment"})
"""Keywords that decide about no value."""


def is_plain(schema: object) -> bool:
    """Tell whether this is surely a valid schema: well-known keywords only, each with a fitting value."""
    if type(schema) is not dict:
        return False
    fields = cast("dict[str, Any]", schema)
    if (dialect := fields.get("$schema")) is not None:
        if type(dialect) is not str or dialect.rstrip("#") not in _DIALECTS:
            return False
        fields = {word: value for word, value in fields.items() if word != "$schema"}
    return _is_schema(fields, MAX_DEPTH)


class Glance:
    """What the arguments of one tool may be, as far as a glance at each of them tells."""

    __slots__ = ("_kinds", "_required")

    def __init__(self, kinds: Mapping[str, frozenset[type]], required: frozenset[str]) -> None:
        self._kinds = kinds
        self._required = required

    @classmethod
    def of(cls, schema: object) -> Self | None:
        """Read a schema; returns nothing where it takes more than a glance."""
        if not is_plain(schema):
            return None
        fields = cast("dict[str, Any]", schema)
        if fields.get("type") != "object" or not fields.keys() <= _TOP:
            return None
        kinds = {name: _kinds(inner) for name, inner in fields.get("properties", {}).items()}
        return cls(kinds, frozenset(fields.get("required", ())))

    def fits(self, value: object) -> bool:
        """Tell whether a value surely fits."""
        if type(value) is not dict:
            return False
        fields = cast("dict[str, object]", value)
        if len(fields) > MAX_FIELDS:
            return False
        get = self._kinds.get
        for name, member in fields.items():
            kinds = get(name)
            # A field without a property of its own may be forbidden, or bound by `additionalProperties`.
            if kinds is None or type(member) not in kinds:
                return False
        return self._required <= fields.keys()


_TOP = _REMARKS | {"type", "properties", "required", "additionalProperties", "$schema"}


def _kinds(schema: Any) -> frozenset[type]:
    """Return the types whose every value fits a plain schema; those of which only some do are left out."""
    if type(schema) is not dict:
        return frozenset()
    fields = cast("dict[str, Any]", schema)
    words = fields.keys() - _REMARKS
    if words == {"type"}:
        named = fields["type"]
        names = cast("list[str]", named) if type(named) is list else [cast("str", named)]
        return frozenset[type]().union(*(_TYPES[name] for name in names))
    if words == {"anyOf"}:
        return frozenset[type]().union(*map(_kinds, fields["anyOf"]))
    return frozenset()


def _is_schema(schema: object, depth: int) -> bool:
    if type(schema) is bool:
        return True
    if type(schema) is not dict or depth == 0:
        return False
    for word, value in cast("dict[str, object]", schema).items():
        check = _WORDS.get(word)
        if check is None or not check(value, depth - 1):
            return False
    return True


def _is_text(value: object, _: int = 0) -> bool:
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_flag(value: object, _: int) -> bool:
    return type(value) is bool


def _is_count(value: object, _: int) -> bool:
    return type(value) is int and 0 <= value < _LARGE


def _is_number(value: object, _: int) -> bool:
    return (type(value) is int and abs(value) < _LARGE) or (type(value) is float and isfinite(value))


def _is_factor(value: object, _: int) -> bool:
    return type(value) is int and 0 < value < _LARGE


def _is_json(value: object, depth: int) -> bool:
    if value is None or type(value) is bool or _is_text(value) or _is_number(value, depth):
        return True
    if depth == 0:
        return False
    if type(value) is dict:
        items = cast("dict[object, object]", value).items()
        return all(_is_text(key) and _is_json(member, depth - 1) for key, member in items)
    return _is_list(value, depth)


def _is_list(value: object, depth: int) -> bool:
    if type(value) is not list or depth == 0:
        return False
    return all(_is_json(item, depth - 1) for item in cast("list[object]", value))


def _are_names(value: object, _: int, *, least: int) -> bool:
    if type(value) is not list:
        return False
    names = cast("list[str]", value)
    return all(map(_is_text, names)) and len(set(names)) == len(names) >= least


def _is_type(value: object, _: int) -> bool:
    if type(value) is str:
        return value in _TYPES
    return _are_names(value, 0, least=1) and set(cast("list[str]", value)) <= _TYPES.keys()


def _are_properties(value: object, depth: int) -> bool:
    if type(value) is not dict:
        return False
    items = cast("dict[object, object]", value).items()
    return all(_is_text(name) and _is_schema(inner, depth) for name, inner in items)


def _are_schemas(value: object, depth: int) -> bool:
    if type(value) is not list:
        return False
    schemas = cast("list[object]", value)
    return bool(schemas) and all(_is_schema(inner, depth) for inner in schemas)


def _words(check: Callable[[object, int], bool], words: str) -> dict[str, Callable[[object, int], bool]]:
    return dict.fromkeys(words.split(), check)


_WORDS: dict[str, Callable[[object, int], bool]] = {
    **_words(_is_type, "type"),
    **_words(_is_text, "title description format $comment"),
    **_words(_is_json, "default const"),
    **_words(_is_list, "examples"),
    **_words(partial(_are_names, least=1), "enum"),
    **_words(partial(_are_names, least=0), "required"),
    **_words(_is_number, "minimum maximum exclusiveMinimum exclusiveMaximum"),
    **_words(_is_factor, "multipleOf"),
    **_words(_is_count, "minLength maxLength minItems maxItems minProperties maxProperties"),
    **_words(_is_flag, "uniqueItems readOnly writeOnly deprecated"),
    **_words(_are_properties, "properties"),
    **_words(_is_schema, "items additionalProperties not"),
    **_words(_are_schemas, "anyOf allOf oneOf"),
}
