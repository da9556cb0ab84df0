"""The smallest change that makes an input schema acceptable, for APIs that take JSON Schema.

Most schemas are acceptable as they are: one look finds that out, and the very same object goes out. The rest
is brought to draft 2020-12, which OpenAI and Anthropic check against, and then to what each API wants beyond.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.struct import MutableStruct, Struct, field
from dragoman.tools.export.schema import (
    ANNOTATIONS,
    MAX_DEPTH,
    MAX_EXPANDED,
    MAX_NODES,
    REFERENCES,
    Fitted,
    References,
    Schema,
    UnfitError,
    escape,
    fault,
    is_array,
    rebuild,
    survey,
)
from dragoman.tools.names import NameRule, assign
from dragoman.tools.schema.cost import is_harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dragoman.model import ToolDef
    from dragoman.tools.export.schema import Survey

MAX_FORMS = 500
"""Branches that are looked at, references followed."""
MAX_GROUPS = 12
"""Groups of arguments that are told in the description."""

_UNIONS = ("anyOf", "oneOf")
_COMBINING = frozenset({"allOf", "anyOf", "oneOf"})
_BANNED = _COMBINING | {"not", "enum", "const", "$ref", "$dynamicRef", "$recursiveRef"}


def as_object(schema: object) -> Schema:
    """Return a root that is an object: the schema itself, or what a boolean stands for.

    Raises:
        UnfitError: It allows nothing, or is not a schema.
    """
    if isinstance(schema, dict):
        return cast("Schema", schema)
    if schema is True:
        return {"type": "object", "properties": {}}
    msg = "its input schema allows nothing" if schema is False else "its input schema is not a JSON Schema"
    raise UnfitError(msg)


def fit_type(fitted: Fitted) -> None:
    """Make the root say that it is an object.

    Raises:
        UnfitError: It says something else.
    """
    kind = fitted.schema.get("type")
    if kind == "object":
        return
    if isinstance(kind, list):
        if "object" not in kind:
            raise _no_object(cast("object", kind))
        fitted.record("/type", "arguments are always an object")
    elif kind is not None:
        raise _no_object(kind)
    else:
        fitted.record("", "`type` is set to `object`: the API requires it")
    rest = {name: value for name, value in fitted.schema.items() if name != "type"}
    fitted.schema = {"type": "object", **rest}


def fit_root(fitted: Fitted, *, properties: bool) -> None:
    """Make the root a plain object.

    Args:
        fitted: What has the schema.
        properties: Whether `properties` has to be there, be it empty.

    Raises:
        UnfitError: No object of arguments fits the schema.
    """
    root = fitted.schema
    if not _BANNED.isdisjoint(root):
        fitted.schema = _flattened(fitted, root)
    fit_type(fitted)
    if properties and "properties" not in fitted.schema:
        fitted.schema = {**fitted.schema, "properties": {}}
        fitted.record("", "an empty `properties` is added: the API requires it")


def merge(node: Schema) -> tuple[dict[str, Any], list[str]] | None:
    """Return the properties of an object and the required ones, its branches merged; nothing if none fits.

    Args:
        node: A subschema without references.
    """
    form = _Merging(node).form(node, ())
    return None if form is None else (form.properties, list(form.required))


def _flattened(fitted: Fitted, root: Schema) -> Schema:
    merging = _Merging(root)
    form = merging.form(root, ())
    if form is None:
        msg = "no object of arguments fits its input schema"
        raise UnfitError(msg)
    for word in sorted(_BANNED.intersection(root)):
        how = "is merged into one object" if word in _COMBINING or word == "$ref" else "is left out"
        fitted.record(f"/{word}", f"`{word}` at the root {how}: the API does not take it")
    plain = {name: value for name, value in root.items() if name not in _BANNED}
    for name, value in merging.about.items():
        plain.setdefault(name, value)
    own: dict[str, Any] = root.get("properties") or {}
    is_closed = root.get("additionalProperties") is False
    plain["properties"] = {
        name: value for name, value in form.properties.items() if not is_closed or name in own
    }
    if form.required:
        plain["required"] = list(form.required)
    _tell_groups(fitted, root)
    return plain


def _tell_groups(fitted: Fitted, root: Schema) -> None:
    merging = _Merging(root)
    for word in _UNIONS:
        branches: object = root.get(word)
        if not isinstance(branches, list) or len(cast("list[Any]", branches)) > MAX_GROUPS:
            continue
        forms = [merging.form(branch, ()) for branch in cast("list[Any]", branches)]
        groups = [[name for name in form.required if name] for form in forms if form is not None]
        if len(groups) < 2 or not all(groups):
            continue
        listed = "; ".join(" with ".join(f"`{name}`" for name in group) for group in groups)
        few = "one" if word == "oneOf" else "at least one"
        fitted.explain(f"Give {few} of: {listed}.", f"what `{word}` at the root required is told in words")


class _Form(MutableStruct):
    """What arguments look like: their schemas, and which are required, in order."""

    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    required: dict[str, None] = field(default_factory=dict[str, None])
    partial: set[str] = field(default_factory=set[str])
    """Properties that only some of the ways through speak of."""


class _Merging:
    def __init__(self, root: Schema) -> None:
        self.about: Schema = {}
        """Annotations of a schema that the root refers to."""
        self._references = References(root)
        self._left = MAX_FORMS

    def form(self, node: Any, chain: tuple[int, ...]) -> _Form | None:
        """Return the form of a branch, or nothing if no object fits it."""
        self._left -= 1
        if self._left < 0:
            msg = f"the root of its input schema has more than {MAX_FORMS} branches"
            raise UnfitError(msg)
        if not isinstance(node, dict):
            return None if node is False else _Form()
        fields = cast("Schema", node)
        kind = fields.get("type")
        if kind is not None and kind != "object" and not (isinstance(kind, list) and "object" in kind):
            return None
        names = [name for name in fields.get("required") or () if isinstance(name, str)]
        form: _Form | None = _Form(dict(fields.get("properties") or {}), dict.fromkeys(names))
        for word in ("$ref", "allOf", *_UNIONS):
            if word in fields and form is not None:
                more = self._more(word, fields[word], (*chain, id(fields)))
                form = None if more is None else _both(form, more)
        return form

    def _more(self, word: str, value: Any, chain: tuple[int, ...]) -> _Form | None:
        if word == "$ref":
            target = self._references.resolve(value)
            if not isinstance(target, dict) or id(target) in chain:
                return None if target is False else _Form()
            if len(chain) == 1:
                words = ANNOTATIONS | {"additionalProperties"}
                self.about = {name: target[name] for name in target if name in words}
            return self.form(target, chain)
        if not isinstance(value, list) or len(chain) > MAX_FORMS // 10:
            return _Form()
        forms = [self.form(branch, chain) for branch in cast("list[Any]", value)]
        possible = [form for form in forms if form is not None]
        if word != "allOf":
            return _either(possible) if possible else None
        if len(possible) < len(forms):
            return None
        merged = _Form()
        for form in possible:
            merged = _both(merged, form)
        return merged


def _both(one: _Form, two: _Form) -> _Form:
    properties = dict(one.properties)
    for name, schema in two.properties.items():
        if name not in properties or properties[name] == schema or name in one.partial:
            properties[name] = schema
        elif name not in two.partial:
            properties[name] = {"allOf": [properties[name], schema]}
    partial = (one.partial | two.partial) - (
        (one.properties.keys() - one.partial) | (two.properties.keys() - two.partial)
    )
    return _Form(properties, one.required | two.required, partial)


def _either(forms: list[_Form]) -> _Form:
    properties: dict[str, Any] = {}
    for name in dict.fromkeys(name for form in forms for name in form.properties):
        schemas = different(form.properties[name] for form in forms if name in form.properties)
        properties[name] = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    partial = {
        name
        for name in properties
        if any(name not in form.properties or name in form.partial for form in forms)
    }
    required = {name: None for name in forms[0].required if all(name in form.required for form in forms)}
    return _Form(properties, required, partial)


def different(schemas: Iterable[Any]) -> list[Any]:
    """Return schemas without those that were there before."""
    return list({json.dumps(schema, sort_keys=True): schema for schema in reversed([*schemas])}.values())[
        ::-1
    ]


def _no_object(kind: object) -> UnfitError:
    return UnfitError(f"its arguments are not an object but `{kind}`")


Node: TypeAlias = Schema | bool

_STORES = ("$defs", "definitions")
# How many references stand inside one another, at most.
_HEIGHTS = (MAX_DEPTH, 4, 2, 1)


def repair(fitted: Fitted) -> None:
    """Take out the references that lead nowhere or out of the schema; the others stay."""
    references = References(fitted.schema)

    def visit(node: Any, where: str) -> Any:
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        for word in REFERENCES:
            if word in fields and references.resolve(fields[word]) is None:
                fitted.record(where, _lost(word, fields[word]))
                fields = {name: value for name, value in fields.items() if name != word}
        return rebuild(fields, lambda child, step: visit(child, where + step))

    fitted.schema = visit(fitted.schema, "")


def write_out(fitted: Fitted) -> None:
    """Replace every reference by what it leads to; one that leads to itself is cut there.

    Where that is too much, references within references are cut too, ever sooner.

    Raises:
        UnfitError: It is too much even then.
    """
    for height in _HEIGHTS:
        unfolding = _Unfolding(fitted.schema, height)
        try:
            schema = unfolding.run()
        except UnfitError:
            if height == _HEIGHTS[-1]:
                raise
            continue
        if schema is not fitted.schema:
            fitted.schema = schema
            fitted.record("", "references are written out: the API does not take all of them")
        for where, why in unfolding.changes:
            fitted.record(where, why)
        return


class _Unfolding:
    def __init__(self, root: Schema, height: int) -> None:
        self.changes: list[tuple[str, str]] = []
        self._root = root
        self._height = height
        self._references = References(root)
        self._size = 0
        self._cuts = 0
        self._written: dict[int, tuple[Schema | bool, int]] = {}

    def run(self) -> Schema:
        root = {name: value for name, value in self._root.items() if name not in _STORES}
        # The copy stands for the root: a reference to `#` from within is a circle.
        schema = as_object(self._unfold(root, "", (id(self._root),), 0))
        same = len(schema) == len(self._root) and all(schema[name] is self._root.get(name) for name in schema)
        return self._root if same else schema

    def _unfold(self, node: Any, where: str, chain: tuple[int, ...], depth: int) -> Any:
        self._size += 1
        if self._size > MAX_EXPANDED:
            msg = f"its input schema has more than {MAX_EXPANDED} parts once references are written out"
            raise UnfitError(msg)
        if depth > MAX_DEPTH:
            msg = f"its input schema is nested more than {MAX_DEPTH} deep once references are written out"
            raise UnfitError(msg)
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        if any(store in fields for store in _STORES) and depth:
            fields = {name: value for name, value in fields.items() if name not in _STORES}
        for word in REFERENCES:
            if word in fields:
                rest = {name: value for name, value in fields.items() if name != word}
                target = self._target(word, fields[word], where, chain, depth)
                beside = self._unfold(rest, where, chain, depth) if rest else rest
                return _joined(target, beside)
        return rebuild(fields, lambda child, step: self._unfold(child, where + step, chain, depth + 1))

    def _target(
        self, word: str, reference: object, where: str, chain: tuple[int, ...], depth: int
    ) -> Schema | bool:
        target = self._references.resolve(reference)
        if target is None:
            self.changes.append((where, _lost(word, reference)))
            return {}
        if isinstance(target, bool):
            return target
        if id(target) in chain or len(chain) > self._height:
            why = "it holds itself" if id(target) in chain else "all of it would be too much"
            self._cuts += 1
            self.changes.append((where, f"`{str(reference)[:80]}` is cut here: {why}"))
            return _cut(target)
        if (known := self._written.get(id(target))) is not None:
            self._size += known[1]
            return known[0]
        cuts, size = self._cuts, self._size
        written = self._unfold(target, where, (*chain, id(target)), depth + 1)
        if cuts == self._cuts:
            # One with a cut in it depends on where it stands.
            self._written[id(target)] = (written, self._size - size)
        return written


def _cut(target: Schema) -> Schema:
    """Return what is left of a schema whose own parts are not looked at once more."""
    kept = {name: target[name] for name in ("type", "title", "description") if name in target}
    title = target.get("title")
    name = f"`{title}`" if isinstance(title, str) and title else "the schema that it stands in"
    note = f"Of the same form as {name}."
    about = kept.get("description")
    return {**kept, "description": f"{about} {note}" if isinstance(about, str) and about else note}


def _joined(target: Node, beside: Schema) -> Node:
    if not beside:
        return target
    if target is True:
        return beside
    if isinstance(target, dict) and (beside.keys() <= ANNOTATIONS or target.keys().isdisjoint(beside)):
        return {**target, **beside}
    return {**beside, "allOf": [*cast("list[Any]", beside.get("allOf", [])), target]}


def _lost(word: str, reference: object) -> str:
    text = str(reference)
    where = "leads nowhere" if text.startswith("#") else "leads out of the schema, and nothing is fetched"
    return f"`{word}` to `{text[:80]}` is left out: it {where}"


MAX_PATTERNS = 64
"""Patterns of a tool that are looked at: to compile one may take a millisecond."""

_NAMING_PARAMETERS = frozenset(
    """patternProperties propertyNames dependentRequired dependentSchemas dependencies if then else
    """.split()
)
_KEEPS_BOOLEANS = (
    "/additionalProperties",
    "/unevaluatedProperties",
    "/additionalItems",
    "/unevaluatedItems",
    "/not",
    "/if",
    "/then",
    "/else",
)


class Demands(Struct, kw_only=True):
    """What an API wants of a JSON Schema beyond being valid, with an object at its root."""

    properties: bool = False
    """Whether the root has to have `properties`."""
    items: bool = False
    """Whether an array has to say what its items are."""
    reads: Callable[[str], bool] | None = None
    """Tells which patterns the API takes, where it does not take all."""
    references: bool = True
    """Whether it takes references."""
    parameters: NameRule | None = None
    """What it takes for the name of a parameter."""


def fit(tool: ToolDef, demands: Demands) -> Fitted:
    """Return a tool's definition as an API takes it.

    Raises:
        UnfitError: It cannot be expressed.
    """
    schema = as_object(tool.input_schema)
    fitted = Fitted(schema, tool.description)
    if is_harmless(schema, MAX_NODES):
        fitted.is_harmless = True
        fit_root(fitted, properties=demands.properties)
        if demands.parameters is not None:
            rename(fitted, demands.parameters)
        return fitted
    found = survey(schema)
    if fault(schema):
        _modernise(fitted)
        found = survey(fitted.schema)
    if not found.words.isdisjoint(REFERENCES):
        if demands.references:
            repair(fitted)
        else:
            write_out(fitted)
            # References may lead to where nothing was looked at before.
            found = survey(fitted.schema)
            check(fitted.schema)
    fit_root(fitted, properties=demands.properties)
    if _is_conspicuous(found, demands):
        fitted.schema = _Node(fitted, demands).visit(fitted.schema, "")
    if demands.parameters is not None:
        rename(fitted, demands.parameters)
    return fitted


def check(schema: Schema) -> None:
    """Let a schema pass that is valid.

    Raises:
        UnfitError: It is not.
    """
    if reason := fault(schema):
        msg = f"its input schema is not valid JSON Schema: {reason}"
        raise UnfitError(msg)


def rename(fitted: Fitted, rule: NameRule) -> None:
    """Give parameters names that the API takes; what leads back is kept."""
    properties: Schema = fitted.schema.get("properties", {})
    required: list[str] = fitted.schema.get("required", [])
    if all(map(rule.allows, properties)) and all(map(rule.allows, required)):
        return
    names = assign([*properties, *required], rule)
    schema = {name: value for name, value in fitted.schema.items() if name not in _NAMING_PARAMETERS}
    for word in sorted(_NAMING_PARAMETERS.intersection(fitted.schema)):
        fitted.record(f"/{word}", f"`{word}` is left out: it speaks of parameters that have other names here")
    schema["properties"] = {names[name]: value for name, value in properties.items()}
    if "required" in schema:
        schema["required"] = [names[name] for name in required]
    fitted.renamed = {alias: name for name, alias in names.items() if name != alias}
    for name, alias in names.items():
        if name != alias:
            why = f"the parameter `{name}` is called `{alias}`: the API does not take its name"
            fitted.record(f"/properties/{escape(name)}", why)
    fitted.schema = schema


def describe(node: Schema, note: str) -> Schema:
    """Return a subschema whose description says one thing more."""
    about = node.get("description")
    return {**node, "description": f"{about} {note}" if isinstance(about, str) and about else note}


def _is_conspicuous(found: Survey, demands: Demands) -> bool:
    return (
        found.has_boolean
        or (demands.items and found.has_bare_array)
        or (demands.reads is not None and not found.words.isdisjoint({"pattern", "patternProperties"}))
    )


def _modernise(fitted: Fitted) -> None:
    """Write a schema in the words of draft 2020-12 if it is one of an older draft."""

    def visit(node: Any, where: str) -> Any:
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        if isinstance(fields.get("items"), list):
            rest = {name: fields[name] for name in fields if name not in {"items", "additionalItems"}}
            fields = {**rest, "prefixItems": fields["items"], "items": fields.get("additionalItems", True)}
            fitted.record(where, "the list in `items` is called `prefixItems`, as in draft 2020-12")
        for word, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(is_exclusive := fields.get(word), bool):
                fields = {name: fields[name] for name in fields if name != word}
                if is_exclusive and limit in fields:
                    fields[word] = fields.pop(limit)
                fitted.record(where, f"`{word}` holds the number itself, as in draft 2020-12")
        return rebuild(fields, lambda child, step: visit(child, where + step))

    schema = visit(fitted.schema, "")
    if "$schema" in schema:
        schema = {name: schema[name] for name in schema if name != "$schema"}
        fitted.record("/$schema", "the schema is not of that draft any more")
    check(schema)
    fitted.schema = schema


class _Node:
    """One pass over all subschemas; each that has to change is copied."""

    def __init__(self, fitted: Fitted, demands: Demands) -> None:
        self._fitted = fitted
        self._demands = demands
        self._patterns: set[str] = set()

    def visit(self, node: Any, where: str) -> Any:
        """Return what stands in a subschema's place."""
        if isinstance(node, bool):
            if where.endswith(_KEEPS_BOOLEANS):
                return node
            self._fitted.record(where, f"`{str(node).lower()}` is written as an object")
            return {} if node else {"not": {}}
        if not isinstance(node, dict):
            return node
        fields = cast("Schema", node)
        if self._demands.items and "items" not in fields and is_array(fields.get("type")):
            fields = {**fields, "items": cast("Schema", {})}
            self._fitted.record(where, "`items` is added, for anything: the API requires it")
        if self._demands.reads is not None:
            fields = self._without_patterns(fields, where)
        return rebuild(fields, lambda child, step: self.visit(child, where + step))

    def _without_patterns(self, node: Schema, where: str) -> Schema:
        pattern = node.get("pattern")
        if isinstance(pattern, str) and not self._reads(pattern):
            rest = {name: node[name] for name in node if name != "pattern"}
            node = describe(rest, f"Has to match the regular expression {pattern}")
            self._fitted.record(f"{where}/pattern", "the pattern is told in words: the API does not read it")
        members: object = node.get("patternProperties")
        if isinstance(members, dict) and not all(map(self._reads, cast("Schema", members))):
            kept = {name: value for name, value in cast("Schema", members).items() if self._reads(name)}
            # Which names are additional is not known once a pattern is missing.
            node = {name: node[name] for name in node if name != "additionalProperties"}
            node["patternProperties"] = kept
            self._fitted.record(f"{where}/patternProperties", "the API does not read every pattern")
        return node

    def _reads(self, pattern: str) -> bool:
        self._patterns.add(pattern)
        reads = self._demands.reads
        return reads is not None and len(self._patterns) <= MAX_PATTERNS and reads(pattern)
