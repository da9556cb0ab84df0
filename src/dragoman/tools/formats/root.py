"""The root of an input schema: every API wants an object there, and most want it plain.

`allOf`, `anyOf` and `oneOf` at the root become one object: all their properties, required where every way
through requires them. That accepts more than before, which does no harm: arguments are checked against the
server's own schema before they are sent. What groups of arguments belong together is told in the description.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from dragoman.tools.formats.schema import ANNOTATIONS, References, Schema, UnfitError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.tools.formats.schema import Fitted

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
        UnfitError: It allows nothing, or is no schema.
    """
    if isinstance(schema, dict):
        return cast("Schema", schema)
    if schema is True:
        return {"type": "object", "properties": {}}
    msg = "its input schema allows nothing" if schema is False else "its input schema is no schema"
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


@dataclass(slots=True)
class _Form:
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
