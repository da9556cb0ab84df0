"""What must hold of the short ways: a yes is never given for what the validator refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.property.schemas import LEAF_WORDS, NAMES, ROOTS, TYPES

from dragoman.tools.export.neutral import neutralise
from dragoman.tools.export.schema import REFERENCES, Fitted, fault, survey
from dragoman.tools.schema.cost import MAX_FIELDS, QuickCheck, is_harmless, is_plain
from dragoman.tools.schema.validate import compile_schema

REAL = [
    tool["inputSchema"]
    for tools in json.loads(
        Path(__file__).parents[1].joinpath("data/real-tools.json").read_text("utf-8")
    ).values()
    for tool in tools
    if "inputSchema" in tool
]
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=3),
    st.just("\ud800"),
    st.just(10**400),
    st.lists(st.sampled_from(["a", "b", 1, 1.0, True, None]), max_size=3),
    st.sampled_from([{}, {"a": True}, {"type": "string"}, [True], [{}], object()]),
)
WORDS = sorted(
    {*LEAF_WORDS, "maximum", "maxLength", "minItems", "maxProperties", "examples", "deprecated", "readOnly"}
    | {"items", "properties", "additionalProperties", "not", "anyOf", "allOf", "oneOf", "$comment", "$schema"}
)
# One schema, in which a keyword or two hold what they may or may not.
SPOILT = st.dictionaries(st.sampled_from(WORDS), ODD, min_size=1, max_size=2).map(
    lambda odd: {"type": "object", "properties": {"a": {"type": "string"}}, **odd}
)
NESTED = st.one_of(
    SPOILT,
    SPOILT.map(lambda inner: {"properties": {"a": inner}}),
    SPOILT.map(lambda inner: {"anyOf": [{"items": inner}]}),
)
REMARKS = st.sampled_from([{}, {"title": "T"}, {"default": None, "description": "D."}, {"format": "email"}])
SIMPLE = st.recursive(
    st.one_of(
        st.sampled_from([{"type": name} for name in TYPES]),
        st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True).map(
            lambda names: {"type": names}
        ),
        st.sampled_from([True, False, {}, {"enum": ["a"]}, {"type": "string", "minLength": 1}, {"const": 1}]),
    ),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
    max_leaves=4,
).flatmap(lambda schema: REMARKS.map(lambda more: {**schema, **more} if isinstance(schema, dict) else schema))
TOOLS = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, SIMPLE, max_size=4)},
    optional={
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.one_of(st.booleans(), SIMPLE),
        "$schema": st.sampled_from(
            ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
        ),
    },
)
MEMBERS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(),
    st.sampled_from(["", "a"]),
    st.just(10**400),
    ODD,
)
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


def refused(schema: Any) -> str:
    try:
        jsonschema_rs.meta.validate(schema)
    except ValueError as exc:
        return str(exc) or type(exc).__name__
    return ""


@given(st.one_of(ROOTS, NESTED))
@QUICK
def test_plain_schema_is_valid_and_compiles(schema: Any) -> None:
    if is_plain(schema):
        assert refused(schema) == ""
        assert compile_schema(schema).notes == ()
        jsonschema_rs.validator_for(schema, validate_formats=False, offline=True)


@given(st.one_of(ROOTS, NESTED, TOOLS))
@QUICK
def test_harmless_schema_needs_none_of_the_changes_for_an_api(schema: Any) -> None:
    if is_harmless(schema, 100):
        found = survey(schema)
        assert not found.has_boolean
        assert not found.has_bare_array
        assert found.words.isdisjoint({*REFERENCES, "pattern", "patternProperties"})
        assert fault(schema) == ""
        fitted = Fitted(schema, "")
        neutralise(fitted)
        assert fitted.schema is schema


def test_harmless_schema_has_no_more_parts_than_allowed() -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in "abc"}}
    assert is_harmless(schema, 4)
    assert not is_harmless(schema, 3)


@given(TOOLS, st.dictionaries(NAMES, MEMBERS, max_size=4))
@QUICK
def test_arguments_that_fit_at_a_glance_fit(schema: Any, value: Any) -> None:
    glance = QuickCheck.of(schema)
    assume(glance is not None)
    assert glance is not None
    if glance.fits(value):
        try:
            assert jsonschema_rs.validator_for(schema, validate_formats=False).is_valid(value)
        except UnicodeEncodeError:
            # Half a character is for the wire to refuse: there is no schema that says so.
            assert "\ud800" <= max("".join(map(str, value.values()))) <= "\udfff"


def test_most_real_schemas_are_plain_and_none_of_those_is_refused() -> None:
    plain = [schema for schema in REAL if is_plain(schema)]
    assert len(plain) > len(REAL) // 2
    assert [schema for schema in plain if refused(schema)] == []
    assert any(QuickCheck.of(schema) for schema in plain)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"type": []},
        {"type": ["string", "string"]},
        {"required": ["a", "a"]},
        {"minLength": -1},
        {"minLength": True},
        {"multipleOf": 0},
        {"anyOf": []},
        {"properties": []},
        {"properties": {"a": {"type": "nothing"}}},
        {"items": [{}, {"type": 7}]},
        {"minimum": float("nan")},
        {"additionalProperties": {"enum": 3}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": 3},
        {"not": None},
    ],
)
def test_what_the_validator_refuses_is_not_plain(schema: Any) -> None:
    assert refused(schema)
    assert not is_plain(schema)


def test_glance_knows_what_most_arguments_are() -> None:
    schema = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "What."},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["text"],
    }
    glance = QuickCheck.of(schema)
    assert glance is not None
    assert glance.fits({"text": "a"})
    assert glance.fits({"text": "a", "limit": 3})
    assert glance.fits({"text": "a", "limit": None})
    assert not glance.fits({"limit": 3})
    assert not glance.fits({"text": 1})
    assert not glance.fits({"text": "a", "limit": True})
    assert not glance.fits({"text": "a", "tags": ["x"]}), "it takes more than a glance"
    assert not glance.fits({"text": "a", "other": 1}), "it takes more than a glance"
    assert not glance.fits([])
    wide = {
        "type": "object",
        "properties": {f"p{number}": {"type": "null"} for number in range(MAX_FIELDS + 1)},
    }
    checked = QuickCheck.of(wide)
    assert checked is not None
    assert not checked.fits(dict.fromkeys(wide["properties"]))


def test_what_a_glance_does_not_tell_is_checked_in_full() -> None:
    validator = compile_schema(
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    )
    assert validator.problems({"n": 1}) == []
    assert validator.problems({"n": 1, "more": [1]}) == []
    assert len(validator.problems({"n": "one"})) == 1
    assert validator.work({"n": "one"}) > 0
    assert validator.problems({"n": 1.0}) == []
