"""What must hold of every schema and every value: no exception, our verdict is the validator's, problems are short."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman.tools.schema.validate import compile_schema

pytestmark = pytest.mark.requirement("legal-error.schema")

NAMES = st.sampled_from(["a", "b", "c", "0", "api_key", "é"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-3, 3).map(lambda number: round(number, 1))
    | st.sampled_from(["", "a", "ab", "b1", "x y"])
)
VALUES: Any = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
SMALL = st.integers(0, 3)
PATTERNS = st.sampled_from(["^a", "b$", r"\d", "[ab]+"])
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#here"])
HARD_PATTERNS = PATTERNS | st.sampled_from(["(?=a)", "(?!b)a", r"(a)\1"])
HARD_REFERENCES = REFERENCES | st.sampled_from(["#/nowhere", "https://example.org/x", "b", "#no"])


def schemas(patterns: Any, references: Any) -> Any:
    """Make schemas of every keyword that decides about a value."""

    def grown(inner: Any) -> Any:
        lists = st.lists(inner, min_size=1, max_size=3)
        maps = st.dictionaries(NAMES, inner, max_size=3)
        words = """not if then else contains propertyNames additionalProperties unevaluatedProperties items
        unevaluatedItems"""
        return st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(words.split(), inner),
                **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lists),
                **dict.fromkeys(("properties", "dependentSchemas", "$defs"), maps),
                "patternProperties": st.dictionaries(patterns, inner, max_size=2),
                "$ref": references,
                "$anchor": st.just("here"),
                **LEAF,
            },
        )

    leaf = st.booleans() | st.fixed_dictionaries({}, optional={"pattern": patterns, **LEAF})
    return st.recursive(leaf, grown, max_leaves=12)


LEAF: dict[str, Any] = {
    "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
    "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
    "const": SCALARS,
    "required": st.lists(NAMES, max_size=2, unique=True),
    "minimum": st.integers(-3, 3),
    "exclusiveMaximum": st.integers(-3, 3),
    "multipleOf": st.integers(1, 3),
    **dict.fromkeys(
        "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains".split(),
        SMALL,
    ),
    "uniqueItems": st.booleans(),
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True), max_size=2),
    "format": st.just("email"),
    "description": st.just("x"),
}
JSON: Any = st.recursive(
    SCALARS | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                "type properties $ref $id id $defs items enum pattern allOf required not $anchor".split()
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)
MANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def original(schema: Any) -> jsonschema_rs.Validator | None:
    """Compile the schema itself, as it stands."""
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=False, offline=True)
    except ValueError:
        return None


def check(problems: list[str]) -> None:
    assert len(problems) <= 20
    assert all(0 < len(text) <= 300 for text in problems)


@MANY
@given(schema=schemas(PATTERNS, REFERENCES), value=VALUES)
def test_verdict_is_that_of_the_schema_itself(schema: Any, value: Any) -> None:
    validator = compile_schema(schema)
    problems = validator.problems(value)
    check(problems)
    theirs = original(schema)
    if theirs is not None and not validator.notes:
        assert bool(problems) != theirs.is_valid(value)


@MANY
@given(schema=schemas(HARD_PATTERNS, HARD_REFERENCES), value=VALUES)
def test_what_the_schema_allows_is_always_allowed(schema: Any, value: Any) -> None:
    loose = compile_schema(schema)
    problems = loose.problems(value)
    check(problems)
    # Its own engine reads the patterns that ours leaves out.
    theirs = original(schema)
    if theirs is not None and theirs.is_valid(value):
        assert problems == []


@MANY
@given(schema=JSON, value=JSON)
def test_any_json_is_taken_for_a_schema_and_for_a_value(schema: Any, value: Any) -> None:
    validator = compile_schema(schema)
    check(validator.problems(value))
    assert all(isinstance(note, str) for note in validator.notes)
