"""The smallest change that makes an input schema acceptable, for APIs that take JSON Schema.

Most schemas are acceptable as they are: one look finds that out, and the very same object goes out. The rest
is brought to draft 2020-12, which OpenAI and Anthropic check against, and then to what each API wants beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dragoman.tools.aliases import Rule, assign
from dragoman.tools.formats.references import mend, write_out
from dragoman.tools.formats.root import as_object, fit_root
from dragoman.tools.formats.schema import (
    REFERENCES,
    Fitted,
    Schema,
    UnfitError,
    escape,
    fault,
    is_array,
    rebuild,
    survey,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.model import ToolDef
    from dragoman.tools.formats.schema import Survey

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What an API wants of a JSON Schema beyond being valid, with an object at its root."""

    properties: bool = False
    """Whether the root has to have `properties`."""
    items: bool = False
    """Whether an array has to say what its items are."""
    reads: Callable[[str], bool] | None = None
    """Tells which patterns the API takes, where it does not take all."""
    references: bool = True
    """Whether it takes references."""
    parameters: Rule | None = None
    """What it takes for the name of a parameter."""


def fit(tool: ToolDef, demands: Demands) -> Fitted:
    """Return a tool's definition as an API takes it.

    Raises:
        UnfitError: It cannot be expressed.
    """
    schema = as_object(tool.input_schema)
    found = survey(schema)
    fitted = Fitted(schema, tool.description)
    if fault(schema):
        _modernise(fitted)
        found = survey(fitted.schema)
    if not found.words.isdisjoint(REFERENCES):
        if demands.references:
            mend(fitted)
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


def rename(fitted: Fitted, rule: Rule) -> None:
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
    for name, alias in names.items():
        if name != alias:
            fitted.renamed[alias] = name
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
