"""OpenAI's strict mode: every argument is sure to fit, for the part of JSON Schema that it knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dragoman.tools.export.fit import describe
from dragoman.tools.export.schema import References, UnfitError, escape, is_array, kind_of

if TYPE_CHECKING:
    from dragoman.tools.export.schema import Fitted, Schema

MAX_PROPERTIES = 5_000
MAX_LEVELS = 10
MAX_ENUM_VALUES = 1_000
MAX_CHARACTERS = 120_000

FORMATS = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
KEYWORDS = frozenset(
    """type properties required additionalProperties items anyOf enum const $ref $defs definitions
    title description format pattern multipleOf minimum maximum exclusiveMinimum exclusiveMaximum
    minItems maxItems
    """.split()
)
_DROPPED = frozenset("$schema $id $comment default examples example deprecated readOnly writeOnly".split())
_STORES = ("$defs", "definitions")


def make_strict(fitted: Fitted) -> None:
    """Make a schema strict.

    Raises:
        UnfitError: Its meaning would not survive; nothing is changed then.
    """
    copying = _Copying(fitted.schema)
    schema = copying.copied(fitted.schema, "", (), 0)
    if copying.properties > MAX_PROPERTIES:
        msg = f"it has more than {MAX_PROPERTIES} properties"
        raise UnfitError(msg)
    if copying.values > MAX_ENUM_VALUES:
        msg = f"it has more than {MAX_ENUM_VALUES} values in its enumerations"
        raise UnfitError(msg)
    if copying.characters > MAX_CHARACTERS:
        msg = f"its names and values have more than {MAX_CHARACTERS} characters"
        raise UnfitError(msg)
    fitted.schema = schema
    fitted.strict = True
    fitted.nullable = copying.nullable
    for where, why in copying.changes:
        fitted.record(where, why)


class _Copying:
    def __init__(self, root: Schema) -> None:
        self.changes: list[tuple[str, str]] = []
        self.nullable: list[tuple[str, ...]] = []
        self.properties = self.values = self.characters = 0
        self._references = References(root)
        self._takes_null: dict[int, bool] = {}

    def copied(self, node: Any, where: str, path: tuple[str, ...] | None, level: int) -> Schema:
        """Return the strict copy of a subschema.

        Args:
            node: The subschema.
            where: The pointer to it.
            path: The way through a value that leads only here; nothing if there are several.
            level: How many objects and arrays stand around it.
        """
        if not isinstance(node, dict):
            _refuse("a value of any type", where)
        if level > MAX_LEVELS:
            msg = f"it is nested more than {MAX_LEVELS} deep"
            raise UnfitError(msg)
        fields = self._known(cast("Schema", node), where)
        if "$ref" in fields:
            return self._reference(fields, where)
        copy = dict(fields)
        for store in _STORES:
            if isinstance(members := fields.get(store), dict):
                copy[store] = {
                    name: self.copied(member, f"{where}/{store}/{escape(name)}", None, 0)
                    for name, member in cast("Schema", members).items()
                }
        if isinstance(branches := fields.get("anyOf"), list):
            copy["anyOf"] = [
                self.copied(branch, f"{where}/anyOf/{index}", None, level)
                for index, branch in enumerate(cast("list[Any]", branches))
            ]
        elif not fields.keys() & {"type", "enum", "const"}:
            _refuse("a value of any type", where)
        if "type" not in fields and "anyOf" not in fields:
            copy["type"] = self._inferred(fields, where)
        kinds: Any = copy.get("type")
        if kinds == "object" or (isinstance(kinds, list) and "object" in kinds) or "properties" in fields:
            self._object(fields, copy, where, path, level)
        if is_array(cast("object", kinds)):
            below = None if path is None else (*path, "*")
            copy["items"] = self.copied(fields.get("items", {}), f"{where}/items", below, level + 1)
        elif "items" in fields:
            _refuse("`items` outside an array", where)
        return copy

    def _inferred(self, fields: Schema, where: str) -> str | list[str]:
        values = fields["enum"] if "enum" in fields else [fields["const"]]
        kinds = sorted({kind_of(value) for value in cast("list[Any]", values)})
        self.changes.append((where, "`type` is that of the values: strict mode requires it"))
        return kinds[0] if len(kinds) == 1 else kinds

    def _known(self, node: Schema, where: str) -> Schema:
        """Return a subschema without the annotations that strict mode refuses."""
        notes: list[str] = []
        for word in node:
            if word in _DROPPED or word.startswith("x-"):
                self.changes.append(
                    (f"{where}/{escape(word)}", f"`{word}` is left out: strict mode refuses it")
                )
            elif word not in KEYWORDS:
                _refuse(f"`{word}`", where)
        if node.get("default") is not None:
            notes.append(f"Default: {json.dumps(node['default'], ensure_ascii=False)}.")
        fields = {name: node[name] for name in node if name in KEYWORDS}
        if "format" in fields and fields["format"] not in FORMATS:
            notes.append(f"Format: {fields.pop('format')}.")
            self.changes.append((f"{where}/format", "the format is told in words: strict mode refuses it"))
        values: object = fields.get("enum")
        if isinstance(values, list):
            listed = cast("list[Any]", values)
            self.values += len(listed)
            self.characters += sum(len(value) for value in listed if isinstance(value, str))
        return describe(fields, " ".join(notes)) if notes else fields

    def _reference(self, fields: Schema, where: str) -> Schema:
        if self._references.resolve(fields["$ref"]) is None:
            _refuse("a reference that leads nowhere", where)
        if not fields["$ref"].startswith(("#/$defs/", "#/definitions/")) and fields["$ref"] != "#":
            msg = f"it refers to `{fields['$ref']}`"
            raise UnfitError(msg)
        rest = {name: fields[name] for name in fields if name != "$ref"}
        if not rest:
            return fields
        if not rest.keys() <= {"title", "description"}:
            _refuse("other words beside `$ref`", where)
        self.changes.append((where, "`$ref` stands in an `anyOf` of its own: strict mode wants it alone"))
        return {**rest, "anyOf": [{"$ref": fields["$ref"]}]}

    def _object(
        self, fields: Schema, copy: Schema, where: str, path: tuple[str, ...] | None, level: int
    ) -> None:
        members: Schema = fields.get("properties") or {}
        if fields.get("additionalProperties", False) is not False or (not members and where):
            _refuse("an object with members of any name", where)
        required: list[str] = fields.get("required") or []
        if not set(required) <= members.keys():
            _refuse("a required property that is not described", where)
        self.properties += len(members)
        self.characters += sum(map(len, members))
        copy["properties"] = {}
        for name, member in members.items():
            place = f"{where}/properties/{escape(name)}"
            below = None if path is None else (*path, name)
            schema = self.copied(member, place, below, level + 1)
            if name not in required and not self._may_be_null(member):
                if below is None:
                    _refuse("a property that may be missing, in a part with several places", place)
                schema = _or_null(schema)
                self.nullable.append(below)
                self.changes.append((place, "it may be null, which stands for an argument that is not given"))
            copy["properties"][name] = schema
        copy["required"] = list(members)
        if not members and "required" not in fields:
            self.changes.append((where, "`required` is empty, but there: strict mode wants it"))
        if "additionalProperties" not in fields:
            copy["additionalProperties"] = False
            self.changes.append((where, "it is closed to other members: strict mode requires it"))

    def _may_be_null(self, node: Any) -> bool:
        if not isinstance(node, dict):
            return False
        fields = cast("Schema", node)
        if id(fields) not in self._takes_null:
            # Until it is known: one that refers to itself says nothing new.
            self._takes_null[id(fields)] = False
            self._takes_null[id(fields)] = self._allows_null(fields)
        return self._takes_null[id(fields)]

    def _allows_null(self, fields: Schema) -> bool:
        if "$ref" in fields:
            return self._may_be_null(self._references.resolve(fields["$ref"]))
        if "anyOf" in fields:
            return any(map(self._may_be_null, cast("list[Any]", fields["anyOf"])))
        if "enum" in fields:
            return None in fields["enum"]
        if "const" in fields:
            return fields["const"] is None
        kinds = fields.get("type")
        return kinds == "null" or (isinstance(kinds, list) and "null" in kinds)


def _or_null(schema: Schema) -> Schema:
    kinds = schema.get("type")
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if isinstance(kinds, str) and not schema.keys() & {"enum", "const", "properties"}:
        return {**schema, "type": [kinds, "null"]}
    about = {name: schema[name] for name in ("title", "description") if name in schema}
    rest = {name: schema[name] for name in schema if name not in about}
    return {**about, "anyOf": [rest, {"type": "null"}]}


def _refuse(what: str, where: str) -> NoReturn:
    msg = f"it has {what} at `{where or '/'}`"
    raise UnfitError(msg)
