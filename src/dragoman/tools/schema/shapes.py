"""The types that a JSON Schema describes, for any language to print: for `dragoman stubs` and for code mode.

Pure: schemas in, types out. Schemas are untrusted, so depth and size are bounded; what these types cannot say
is `ANY`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from dragoman.model import json_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

MAX_DEPTH = 12
MAX_CHOICES = 60
"""Values of an enum, or branches of a union, that a type lists; above that it only has their types."""
MAX_RECORDS = 200
"""Records of one schema; deeper objects are maps."""
MAX_LITERAL = 200
"""Characters of a text that may be one of several choices."""


class PlainType(NamedTuple):
    """A type without parts: `any`, `string`, `integer`, `number`, `boolean` or `null`."""

    kind: str


class ListOf(NamedTuple):
    """A list."""

    item: Shape


class MapOf(NamedTuple):
    """An object with any keys."""

    value: Shape


class Choices(NamedTuple):
    """One of several values."""

    values: tuple[str | int | bool | None, ...]


class OneOf(NamedTuple):
    """One of several types."""

    shapes: tuple[Shape, ...]


class Named(NamedTuple):
    """A record, by its name."""

    name: str
    is_recursive: bool = False
    """Whether it refers to a record that contains it."""


class Record(NamedTuple):
    """An object with known keys."""

    name: str
    fields: Mapping[str, Shape]
    required: AbstractSet[str]
    about: Mapping[str, str]
    """The descriptions of fields, as the schema has them."""


Shape: TypeAlias = PlainType | ListOf | MapOf | Choices | OneOf | Named
ANY, NULL = PlainType("any"), PlainType("null")
_KINDS = frozenset({"string", "integer", "number", "boolean", "null"})


class Shapes:
    """The types of one schema document; objects become records."""

    def __init__(self, root: Mapping[str, Any], name_record: Callable[[Sequence[str]], str]) -> None:
        """Start without records.

        Args:
            root: The document.
            name_record: Returns a new name for a record, given the path of keys that leads to it.
        """
        self.records: list[Record] = []
        self._root = root
        self._name_record = name_record
        self._begun = 0
        self._references: dict[str, str] = {}
        self._open: set[str] = set()

    def shape_of(self, schema: Any, path: Sequence[str], depth: int = 0) -> Shape:
        """Return the type of a schema; `path` names the record that it may need."""
        known = json_object(schema)
        if not known or depth > MAX_DEPTH:
            return ANY
        reference = known.get("$ref")
        if isinstance(reference, str):
            return self._referenced(reference, depth)
        found = self._plain(known, path, depth)
        return union([found, NULL]) if known.get("nullable") is True else found

    def properties(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the properties of an object, with those of its `allOf`."""
        found: dict[str, Any] = {}
        for one in (*self._parts(schema), schema):
            found |= json_object(one.get("properties"))
        return found

    def required(self, schema: Mapping[str, Any]) -> AbstractSet[str]:
        """Return the names of the properties that an object must have."""
        named = {
            name
            for one in (*self._parts(schema), schema)
            for name in _list(one.get("required"))
            if isinstance(name, str)
        }
        return named & self.properties(schema).keys()

    def record_of(self, schema: Mapping[str, Any], path: Sequence[str]) -> Shape:
        """Return the record of an object, even if no property is known."""
        return self._record(schema, path, 0)

    def _parts(self, schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        parts: list[Mapping[str, Any]] = []
        for one in _list(schema.get("allOf")):
            part = json_object(one)
            reference = part.get("$ref")
            parts.append(json_object(self._target(reference)) if isinstance(reference, str) else part)
        return parts

    def _plain(self, schema: Mapping[str, Any], path: Sequence[str], depth: int) -> Shape:
        if "const" in schema:
            return _choices([schema["const"]])
        if isinstance(schema.get("enum"), list):
            return _choices(_list(schema["enum"]))
        if self.properties(schema):
            return self._record(schema, path, depth)
        for key in ("anyOf", "oneOf"):
            branches = _list(schema.get(key))
            if branches and not schema.get("properties"):
                if len(branches) > MAX_CHOICES:
                    return ANY
                only = len(branches) == 1
                return union(
                    self.shape_of(one, path if only else _numbered(path, number), depth + 1)
                    for number, one in enumerate(branches, 1)
                )
        parts = _list(schema.get("allOf"))
        if len(parts) == 1 and "type" not in schema:
            return self.shape_of(parts[0], path, depth + 1)
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return union(self._kind(kind, schema, path, depth) for kind in cast("list[Any]", kinds))
        return self._kind(kinds, schema, path, depth)

    def _kind(self, kind: Any, schema: Mapping[str, Any], path: Sequence[str], depth: int) -> Shape:
        if isinstance(kind, str) and kind in _KINDS:
            return PlainType(kind)
        if kind == "array" or (kind is None and "items" in schema):
            if "items" not in schema or isinstance(schema["items"], list):
                return ListOf(ANY)
            return ListOf(self.shape_of(schema["items"], [*path, "item"], depth + 1))
        if kind == "object" or (kind is None and "additionalProperties" in schema):
            value = schema.get("additionalProperties")
            if not isinstance(value, dict):
                return MapOf(ANY)
            return MapOf(self.shape_of(cast("object", value), [*path, "value"], depth + 1))
        return ANY

    def _record(
        self, schema: Mapping[str, Any], path: Sequence[str], depth: int, *, reserved: str = ""
    ) -> Shape:
        if self._begun >= MAX_RECORDS:
            return MapOf(ANY)
        self._begun += not reserved
        name = reserved or self._name_record(path)
        properties, required = self.properties(schema), self.required(schema)
        fields = {
            key: self.shape_of(value, [*path, key], depth + 1)
            for key, value in properties.items()
            if is_sayable(key)
        }
        about = {key: str(json_object(properties[key]).get("description") or "") for key in fields}
        self.records.append(Record(name, fields, required, about))
        return Named(name)

    def _referenced(self, reference: str, depth: int) -> Shape:
        if reference in self._references:
            return Named(self._references[reference], reference in self._open)
        target = json_object(self._target(reference))
        if not target or reference in self._open:
            # An alias that contains itself, such as a list of lists, has no name to refer to.
            return ANY
        path = [reference.rpartition("/")[2]]
        reserved = ""
        if self.properties(target) and self._begun < MAX_RECORDS:
            self._begun += 1
            self._references[reference] = reserved = self._name_record(path)
        self._open.add(reference)
        try:
            if reserved:
                return self._record(target, path, depth + 1, reserved=reserved)
            return self.shape_of(target, path, depth + 1)
        finally:
            self._open.discard(reference)

    def _target(self, reference: str) -> Any:
        """Return what a reference inside the document points to; others are unknown."""
        if not reference.startswith("#"):
            return None
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = cast("dict[str, Any]", found).get(key)
            elif isinstance(found, list) and key.isdecimal():
                several = cast("list[Any]", found)
                found = several[int(key)] if len(key) < 6 and int(key) < len(several) else None
            else:
                return None
        return found


def union(shapes: Iterable[Shape]) -> Shape:
    """Return one of several types, without repetitions; null comes last."""
    flat = [part for one in shapes for part in (one.shapes if isinstance(one, OneOf) else (one,))]
    found = list(dict.fromkeys(flat))
    if ANY in found or not found:
        return ANY
    found.sort(key=lambda one: one == NULL)
    return found[0] if len(found) == 1 else OneOf(tuple(found))


def without_null(shape: Shape) -> tuple[Shape, bool]:
    """Return a type without null, and whether it had it."""
    if not isinstance(shape, OneOf) or NULL not in shape.shapes:
        return shape, False
    return union(one for one in shape.shapes if one != NULL), True


def is_sayable(value: str | int | None) -> bool:
    """Return whether a value can stand in source code."""
    if isinstance(value, str):
        return len(value) <= MAX_LITERAL and not any("\ud800" <= char <= "\udfff" for char in value)
    return not isinstance(value, int) or abs(value) < 2**63


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _numbered(path: Sequence[str], number: int) -> list[str]:
    return [*path[:-1], f"{path[-1]}{number}"]


def _choices(values: Sequence[Any]) -> Shape:
    plain = [one for one in values if one is None or isinstance(one, (str, bool, int))]
    if not plain or len(plain) != len(values):
        return ANY
    if len(values) > MAX_CHOICES or not all(map(is_sayable, plain)):
        return union(map(_kind_of, sorted(plain, key=lambda one: _kind_of(one).kind)))
    # 1 and True are equal, and are two values.
    return Choices(tuple(value for _, value in dict.fromkeys((type(one), one) for one in plain)))


def _kind_of(value: str | int | None) -> PlainType:
    match value:
        case None:
            return NULL
        case bool():
            return PlainType("boolean")
        case int():
            return PlainType("integer")
        case _:
            return PlainType("string")
