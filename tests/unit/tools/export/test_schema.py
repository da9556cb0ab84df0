from __future__ import annotations

from typing import Any

import pytest

from dragoman.tools.export.schema import (
    DRAFT_7,
    MAX_DEPTH,
    MAX_NODES,
    References,
    UnfitError,
    fault,
    kind_of,
    rebuild,
    survey,
)


def test_survey_finds_keywords_only_where_schemas_stand() -> None:
    found = survey({"properties": {"pattern": {"type": "string", "default": {"$ref": "x"}}}})
    assert found.words == {"properties", "type", "default"}
    assert not found.has_boolean
    assert not found.has_bare_array


@pytest.mark.parametrize(
    ("schema", "is_bare"),
    [
        ({"type": "array"}, True),
        ({"type": ["array", "null"]}, True),
        ({"type": "array", "items": {}}, False),
        ({"properties": {"items": {"type": "array"}}}, True),
    ],
)
def test_survey_finds_arrays_that_do_not_name_their_items(schema: Any, is_bare: bool) -> None:
    assert survey(schema).has_bare_array is is_bare


@pytest.mark.parametrize("schema", [{"items": True}, {"anyOf": [False]}, {"properties": {"a": True}}])
def test_survey_finds_booleans_that_stand_for_schemas(schema: Any) -> None:
    assert survey(schema).has_boolean


def test_closed_object_is_no_boolean_schema() -> None:
    assert not survey({"additionalProperties": False}).has_boolean


@pytest.mark.parametrize(
    "schema", [3, {"properties": 3}, {"anyOf": {}}, {"items": "x"}, {"properties": {"a": None}}]
)
def test_survey_refuses_what_is_no_schema(schema: Any) -> None:
    with pytest.raises(UnfitError, match="a part of it is not a schema"):
        survey(schema)


def test_survey_is_bounded() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(UnfitError, match=f"more than {MAX_DEPTH} deep"):
        survey(deep)
    with pytest.raises(UnfitError, match=f"more than {MAX_NODES} parts"):
        survey({"anyOf": [{}] * MAX_NODES})


def test_faults_are_those_of_the_draft() -> None:
    assert fault({"items": [{}]}) != ""
    assert fault({"items": [{}]}, draft=DRAFT_7) == ""
    assert fault({"$schema": "http://127.0.0.1:9/never-fetched", "$ref": "http://127.0.0.1:9/x"}) == ""
    assert fault({"properties": {"a": {"type": "any"}}}).endswith("at `/properties/a/type`")


def test_what_did_not_change_is_shared() -> None:
    node = {"properties": {"a": {"type": "string"}, "b": {}}, "dependencies": {"a": ["b"]}, "anyOf": [{}]}
    assert rebuild(node, lambda child, where: child) is node
    copy = rebuild(node, lambda child, where: {"x": 1} if where == "/properties/b" else child)
    assert copy["properties"] == {"a": {"type": "string"}, "b": {"x": 1}}
    assert copy["properties"]["a"] is node["properties"]["a"]
    assert copy["anyOf"] is node["anyOf"]
    assert node["properties"]["b"] == {}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", "root"),
        ("#/$defs/a~1b", "slash"),
        ("#/%24defs/a~1b", "slash"),
        ("#named", "anchor"),
        ("https://x.test/s#/$defs/a~1b", "slash"),
        ("#/allOf/0", "listed"),
        ("#/allOf/7", None),
        ("#/allOf/x", None),
        ("#/nowhere", None),
        ("#none", None),
        ("other.json#/x", None),
        (3, None),
    ],
)
def test_references_lead_within_the_schema_or_nowhere(reference: Any, target: str | None) -> None:
    root = {
        "$id": "https://x.test/s",
        "title": "root",
        "$defs": {"a/b": {"title": "slash"}, "c": {"$anchor": "named", "title": "anchor"}},
        "allOf": [{"title": "listed"}],
    }
    found = References(root).resolve(reference)
    assert (found["title"] if isinstance(found, dict) else found) == target


def test_kinds_of_values() -> None:
    assert [kind_of(value) for value in (True, None, "", 1, 1.5, [], {})] == [
        *("boolean", "null", "string", "integer", "number", "array", "object")
    ]
