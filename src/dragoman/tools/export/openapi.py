"""JSON Schema in the words of the OpenAPI 3.0 subset that Gemini's `parameters` takes.

The policy: every node has one `type`, or is an `anyOf` and nothing else, since Vertex refuses other fields
beside it. Null is `nullable`. Enumerations hold texts that are not empty. Arrays say what their items are.
What the subset has no word for is told in the description if a model can use it, and recorded in any case. A
result accepts more than the schema did, except for values that Gemini has no way to name; arguments are
checked against the server's own schema before they are sent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from dragoman.tools.export.fit import describe, different, merge
from dragoman.tools.export.schema import MAX_DEPTH, MAX_EXPANDED, Schema, UnfitError, escape, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.tools.export.schema import Fitted

FORMATS = {
    "string": frozenset({"enum", "date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}
FIELDS = frozenset(
    """type format title description nullable enum default example anyOf items minItems maxItems properties
    required minProperties maxProperties minLength maxLength pattern minimum maximum
    """.split()
)
_OWN = {
    "string": frozenset("minLength maxLength pattern".split()),
    "number": frozenset("minimum maximum".split()),
    "integer": frozenset("minimum maximum".split()),
    "boolean": frozenset[str](),
    "array": frozenset("minItems maxItems".split()),
    "object": frozenset("minProperties maxProperties".split()),
}
_HINTS = {
    "object": frozenset("properties required additionalProperties patternProperties propertyNames".split())
    | {"minProperties", "maxProperties"},
    "array": frozenset("items prefixItems minItems maxItems uniqueItems contains".split()),
    "string": frozenset("pattern minLength maxLength format contentEncoding".split()),
    "number": frozenset("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split()),
}
_UNIONS = ("anyOf", "oneOf")
_ABOUT = ("title", "description")
# What is carried out in other words, or says nothing about a value.
_TOLD = frozenset(
    """type enum const format items prefixItems properties required anyOf oneOf allOf title description
    default nullable example exclusiveMinimum exclusiveMaximum multipleOf uniqueItems
    """.split()
)
_SILENT = frozenset("$schema $id $comment $anchor examples deprecated readOnly writeOnly".split())


def to_openapi(fitted: Fitted) -> None:
    """Write the schema, which has no references, in the subset.

    Raises:
        UnfitError: A part that has to be there has no value that fits.
    """
    writing = _Writing(fitted)
    try:
        fitted.schema = writing.written(fitted.schema, "", 0)
    except _NothingFitsError as exc:
        msg = "no object of arguments fits its input schema"
        raise UnfitError(msg) from exc


class _NothingFitsError(Exception):
    """No value fits a subschema."""


class _Writing:
    def __init__(self, fitted: Fitted) -> None:
        self._fitted = fitted
        self._left = MAX_EXPANDED

    def written(self, node: Any, where: str, depth: int) -> Schema:
        """Return a subschema in the subset."""
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            msg = "its input schema is too large for the OpenAPI form"
            raise UnfitError(msg)
        if _fits_nothing(node):
            raise _NothingFitsError
        fields = self._without_all_of(cast("Schema", node) if isinstance(node, dict) else {}, where)
        for word in _UNIONS:
            if isinstance(fields.get(word), list):
                return self._union(word, fields, where, depth)
        kinds, nullable = self._kinds(fields, where)
        if kinds is None:
            self._note(where, "it has no type: any is allowed")
            return _any_of([*_ANY_ITEM["anyOf"], _ANY_ARRAY], fields, nullable=True)
        if not kinds:  # an empty `enum`
            raise _NothingFitsError
        shapes = [self._typed(kind, fields, where, depth) for kind in kinds]
        if len(shapes) > 1:
            self._note(where, "several types become an `anyOf`")
            return _any_of(shapes, {}, nullable=nullable)
        return {**shapes[0], "nullable": True} if nullable else shapes[0]

    def _note(self, where: str, why: str) -> None:
        self._fitted.record(where, why)

    def _kinds(self, node: Schema, where: str) -> tuple[list[str] | None, bool]:
        """Return the types of a node without null, nothing for any; and whether it may be null."""
        declared = node.get("type")
        nullable = node.get("nullable") is True
        if isinstance(declared, str | list):
            kinds = (
                [declared] if isinstance(declared, str) else list(dict.fromkeys(cast("list[str]", declared)))
            )
        elif "enum" in node or "const" in node:
            kinds = list(dict.fromkeys(map(kind_of, _values(node))))
            self._note(where, "`type` is that of the values")
        else:
            kinds = [kind for kind, words in _HINTS.items() if not words.isdisjoint(node)][:1]
            if not kinds:
                return None, nullable
            self._note(where, f"`type` is set to `{kinds[0]}`, which the other words are about")
        if "null" in kinds:
            kinds = [kind for kind in kinds if kind != "null"]
            nullable = True
            self._note(where, "null is told by `nullable`")
            if not kinds:
                # The subset has no type for null alone.
                kinds = ["string"]
        return kinds, nullable

    def _typed(self, kind: str, node: Schema, where: str, depth: int) -> Schema:
        out: Schema = {"type": kind}
        out.update({name: node[name] for name in (*_ABOUT, "default", "example") if name in node})
        out.update({name: node[name] for name in _OWN[kind] if name in node})
        notes: list[str] = []
        self._format(kind, node, out, where, notes)
        self._enumeration(kind, node, out, where, notes)
        if kind in {"number", "integer"}:
            self._limits(kind, node, out, where, notes)
        elif kind == "array":
            out["items"] = self._items(node, out, where, depth, notes)
        elif kind == "object":
            self._members(node, out, where, depth, notes)
        for word in node:
            if word not in out and word not in _TOLD and word not in _SILENT and word not in FIELDS:
                self._note(f"{where}/{escape(word)}", f"`{word}` is left out: the subset has no word for it")
        return describe(out, " ".join(notes)) if notes else out

    def _format(self, kind: str, node: Schema, out: Schema, where: str, notes: list[str]) -> None:
        form = node.get("format")
        if form in FORMATS.get(kind, ()):
            out["format"] = form
        elif isinstance(form, str):
            notes.append(f"Format: {form}.")
            self._note(f"{where}/format", "the format is told in words: the API takes few")

    def _enumeration(self, kind: str, node: Schema, out: Schema, where: str, notes: list[str]) -> None:
        if "enum" not in node and "const" not in node:
            return
        values = [value for value in _values(node) if _is_of(value, kind)]
        texts = [value for value in values if isinstance(value, str) and value]
        if kind == "string" and texts:
            out["enum"] = list(dict.fromkeys(texts))
            if len(texts) < len(values):
                self._note(f"{where}/enum", "the empty text is left out: the API does not take it")
            if "const" in node:
                self._note(f"{where}/const", "`const` is written as `enum`")
        elif values:
            listed = ", ".join(json.dumps(value, ensure_ascii=False) for value in values[:50])
            notes.append(f"One of: {listed}.")
            self._note(where, "the values are told in words: the API takes enumerations of texts only")

    def _limits(self, kind: str, node: Schema, out: Schema, where: str, notes: list[str]) -> None:
        for word, limit, step, much in (
            ("exclusiveMinimum", "minimum", 1, "More"),
            ("exclusiveMaximum", "maximum", -1, "Less"),
        ):
            value = node.get(word)
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            closest = max if step > 0 else min
            if kind == "integer" and float(value).is_integer():
                value = int(value) + step
                self._note(f"{where}/{word}", f"`{word}` is written as `{limit}`")
            else:
                notes.append(f"{much} than {value}.")
                self._note(f"{where}/{word}", f"`{word}` is written as `{limit}`, and told in words")
            out[limit] = closest(value, out[limit]) if limit in out else value
        if "multipleOf" in node:
            notes.append(f"A multiple of {node['multipleOf']}.")
            self._note(f"{where}/multipleOf", "it is told in words")

    def _items(self, node: Schema, out: Schema, where: str, depth: int, notes: list[str]) -> Schema:
        if node.get("uniqueItems") is True:
            notes.append("No item twice.")
            self._note(f"{where}/uniqueItems", "it is told in words")
        first: list[Any] = node.get("prefixItems") or []
        rest = node.get("items", {})
        if not first:
            if "items" not in node:
                self._note(where, "`items` is added, for anything: the API requires it")
            return self.written(rest, f"{where}/items", depth + 1)
        self._note(f"{where}/prefixItems", "a tuple becomes an array of what its places take")
        parts = [self.written(part, f"{where}/prefixItems/{n}", depth + 1) for n, part in enumerate(first)]
        if _fits_nothing(rest):
            out["maxItems"] = min(len(first), out.get("maxItems", len(first)))
        elif rest not in ({}, True):
            parts.append(self.written(rest, f"{where}/items", depth + 1))
        return _any_of(parts, {})

    def _members(self, node: Schema, out: Schema, where: str, depth: int, notes: list[str]) -> None:
        members: Schema = node.get("properties") or {}
        required = [name for name in node.get("required") or () if isinstance(name, str)]
        properties: Schema = {}
        for name in (*members, *(name for name in required if name not in members)):
            place = f"{where}/properties/{escape(name)}"
            try:
                properties[name] = self.written(members.get(name, {}), place, depth + 1)
            except _NothingFitsError:
                if name in required:
                    raise
                self._note(place, "it is left out: no value fits it")
        if properties or not where:
            out["properties"] = properties
        if required:
            out["required"] = list(dict.fromkeys(required))
        values = node.get("additionalProperties")
        if isinstance(values, dict) and values:
            text = json.dumps(values, ensure_ascii=False)
            notes.append(f"Members of any name, each of the form {text[:300]}.")

    def _union(self, word: str, node: Schema, where: str, depth: int) -> Schema:
        if word == "oneOf":
            self._note(f"{where}/oneOf", "`oneOf` is written as `anyOf`")
        elif "oneOf" in node:
            self._note(f"{where}/oneOf", "`oneOf` is left out beside `anyOf`")
        rest = {name: value for name, value in node.items() if name not in _UNIONS}
        if rest.get("properties"):
            return self._merged_object(word, node, rest, where, depth)
        about = {name: rest.pop(name) for name in (*_ABOUT, "default") if name in rest}
        shapes: list[Schema] = []
        nullable = rest.pop("nullable", False) is True
        for index, branch in enumerate(cast("list[Any]", node[word])):
            fields = cast("Schema", branch) if isinstance(branch, dict) else {}
            if branch is False or fields.get("type") == "null":
                nullable = nullable or branch is not False
                continue
            try:
                shape = self.written({**rest, **fields}, f"{where}/{word}/{index}", depth + 1)
            except _NothingFitsError:
                continue
            shapes += shape["anyOf"] if shape.keys() == {"anyOf"} else [shape]
        if nullable:
            self._note(where, "null is told by `nullable`")
        is_flattened = len(shapes) > len(node[word])
        if len(shapes) > 1 and (rest or about or is_flattened):
            self._note(where, "`anyOf` stands alone: what was beside or within it is in its branches")
        if not shapes:
            if not nullable:
                raise _NothingFitsError
            shapes = [{"type": "string"}]
        return _any_of(shapes, about, nullable=nullable)

    def _merged_object(self, word: str, node: Schema, rest: Schema, where: str, depth: int) -> Schema:
        merged = merge(node)
        if merged is None:
            raise _NothingFitsError
        self._note(f"{where}/{word}", f"`{word}` is merged into one object")
        properties, required = merged
        return self.written({**rest, "properties": properties, "required": required}, where, depth + 1)

    def _without_all_of(self, node: Schema, where: str) -> Schema:
        branches: object = node.get("allOf")
        if not isinstance(branches, list):
            return node
        merged = {name: value for name, value in node.items() if name != "allOf"}
        self._note(f"{where}/allOf", "`allOf` is merged into one schema")
        for branch in cast("list[Any]", branches):
            if branch is False:
                raise _NothingFitsError
            if not isinstance(branch, dict):
                continue
            for name, value in self._without_all_of(cast("Schema", branch), where).items():
                self._combine(merged, name, value, where)
        return merged

    def _combine(self, merged: Schema, name: str, value: Any, where: str) -> None:
        old = merged.get(name)
        if name not in merged or old == value:
            merged[name] = value
        elif name == "properties" and isinstance(old, dict) and isinstance(value, dict):
            members: Schema = dict(cast("Schema", old))
            for key, member in cast("Schema", value).items():
                same = key not in members or members[key] == member
                members[key] = member if same else {"allOf": [members[key], member]}
            merged[name] = members
        elif name == "required" and isinstance(old, list) and isinstance(value, list):
            merged[name] = list(dict.fromkeys([*cast("list[str]", old), *cast("list[str]", value)]))
        elif name == "enum" and isinstance(old, list) and isinstance(value, list):
            merged[name] = [item for item in cast("list[Any]", old) if item in value]
        elif name == "description":
            merged[name] = f"{old} {value}"
        elif name not in {"title", "default"}:
            self._note(f"{where}/allOf", f"`{name}` of one branch is left out: another says otherwise")


def _fits_nothing(node: Any) -> bool:
    return node is False or (isinstance(node, dict) and cast("Schema", node).get("not") in ({}, True))


def _values(node: Schema) -> list[Any]:
    return [node["const"]] if "const" in node else list(cast("Iterable[Any]", node.get("enum") or ()))


def _is_of(value: object, kind: str) -> bool:
    own = kind_of(value)
    return own == kind or (own == "integer" and kind == "number")


def _any_of(shapes: list[Schema], about: Schema, *, nullable: bool = False) -> Schema:
    """Return one of several shapes, with what is said of all of them in each, since nothing stands beside."""
    shapes = different(shapes)
    if nullable or about.get("nullable") is True:
        shapes = [{**shape, "nullable": True} for shape in shapes]
    if len(shapes) == 1:
        return {**shapes[0], **_joined(about, shapes[0])}
    if "default" in about:
        about = {**about, "description": _default(about)}
    said = {name: about[name] for name in _ABOUT if name in about}
    return {"anyOf": [{**shape, **_joined(said, shape)} for shape in shapes]}


def _joined(about: Schema, shape: Schema) -> Schema:
    said = {name: about[name] for name in (*_ABOUT, "default") if name in about}
    if said.get("description") and shape.get("description"):
        said["description"] = f"{said['description']} {shape['description']}"
    return said


def _default(about: Schema) -> str:
    text = f"Default: {json.dumps(about['default'], ensure_ascii=False)}."
    return f"{about['description']} {text}" if about.get("description") else text


_ANY_ITEM: Schema = {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean", "object")]}
_ANY_ARRAY: Schema = {"type": "array", "items": _ANY_ITEM}
