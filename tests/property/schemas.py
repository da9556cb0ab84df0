"""Schemas that a server may send: every keyword, in places good and bad, and ones that are none."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TYPES = ["string", "number", "integer", "boolean", "array", "object", "null"]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "b", "x1"]), st.just(0.5)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "$c"]), inner, max_size=2)
    ),
    max_leaves=4,
)
NAMES = st.sampled_from(["a", "b", "$c", "d-e", "f.g", "1h", "_i", "é", "x" * 70, "$ref", "type"])
REFERENCES = st.sampled_from(
    [
        "#",
        "#/$defs/A",
        "#/$defs/B",
        "#/definitions/A",
        "#/properties/a",
        "#/nowhere",
        "http://x.test/y",
        "#anchor",
    ]
)
LEAF_WORDS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.one_of(
        st.sampled_from(TYPES), st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True)
    ),
    "enum": st.lists(VALUES, min_size=1, max_size=3),
    "const": VALUES,
    "format": st.sampled_from(["uri", "date-time", "int32", "email"]),
    "pattern": st.sampled_from(["^a", "(?=a)b", "\\p{L}", "(?<!x)y", "["]),
    "minimum": st.integers(-2, 2),
    "exclusiveMinimum": st.one_of(st.integers(-2, 2), st.booleans()),
    "exclusiveMaximum": st.one_of(st.just(1.5), st.booleans()),
    "multipleOf": st.just(2),
    "minLength": st.integers(0, 2),
    "maxItems": st.integers(0, 3),
    "uniqueItems": st.booleans(),
    "required": st.lists(NAMES, max_size=2, unique=True),
    "title": st.just("T"),
    "description": st.sampled_from(["", "About."]),
    "default": VALUES,
    "nullable": st.booleans(),
    "$ref": REFERENCES,
    "$anchor": st.just("anchor"),
    "x-own": VALUES,
    "minProperties": st.integers(0, 2),
}


def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=2)
    members = st.dictionaries(NAMES, inner, max_size=3)
    nested = {
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), some),
        **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), members),
        **dict.fromkeys(
            (
                *("additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"),
                "unevaluatedProperties",
            ),
            inner,
        ),
        "items": st.one_of(inner, some),
    }
    return some_of({**LEAF_WORDS, **nested})


def some_of(words: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Make objects of a few of these members; that is far quicker than to decide about each."""
    chosen = st.lists(st.sampled_from(sorted(words)), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: words[name] for name in names}))


SCHEMAS = st.recursive(st.one_of(st.booleans(), some_of(LEAF_WORDS)), extend, max_leaves=6)
# What strict mode has a form for, mostly.
STRICT: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.builds(lambda kind: {"type": kind}, LEAF_WORDS["type"]),
        st.builds(lambda values: {"enum": values}, LEAF_WORDS["enum"]),
        st.builds(lambda value: {"const": value, "default": value}, VALUES),
    ),
    lambda inner: st.one_of(
        st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda members, required: {"type": "object", "properties": members, "required": required},
            st.dictionaries(st.sampled_from(["a", "b"]), inner, min_size=2),
            st.lists(st.sampled_from(["a", "b"]), unique=True),
        ),
    ),
    max_leaves=4,
)
STORE = st.fixed_dictionaries({}, optional={"A": SCHEMAS, "B": SCHEMAS})
ROOTS = st.one_of(
    SCHEMAS,
    st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, SCHEMAS, max_size=3)},
        optional={
            "$defs": STORE,
            "definitions": STORE,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "anyOf": st.lists(SCHEMAS, min_size=1, max_size=3),
            "oneOf": st.lists(SCHEMAS, min_size=1, max_size=3),
            "allOf": st.lists(SCHEMAS, min_size=1, max_size=3),
            "additionalProperties": SCHEMAS,
            "$schema": st.just("http://json-schema.org/draft-07/schema#"),
        },
    ),
    st.fixed_dictionaries({"$ref": REFERENCES, "$defs": STORE}),
    # No schemas at all, or with words that hold what they must not.
    st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={"properties": st.one_of(VALUES, st.just({"a": 3})), "required": VALUES, "anyOf": VALUES},
    ),
    VALUES,
)
