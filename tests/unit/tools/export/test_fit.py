from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.export.fitted import export, fitted, parameter, reason, whys

JSON_SCHEMA = ("openai", "responses", "anthropic", "gemini")
STRING = {"type": "string"}


@pytest.mark.parametrize("api", [*JSON_SCHEMA, "ai-sdk"])
def test_schema_that_is_acceptable_is_the_very_same_object(api: str) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "title": "T",
        "properties": {
            "a": {"type": ["string", "null"], "default": None, "examples": ["x"], "format": "uri"},
            "b": {"oneOf": [{"const": 1}, {"not": {"type": "string"}}], "x-own": 1},
            "c": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}},
        },
        "required": ["a"],
        "if": {"required": ["b"]},
        "then": {"required": ["c"]},
        "additionalProperties": False,
    }
    made = export(api, schema)
    assert not made.changes
    assert fitted(api, schema) is schema


@pytest.mark.parametrize("api", JSON_SCHEMA)
def test_tuples_of_older_drafts_are_written_as_in_2020(api: str) -> None:
    schema = parameter(
        {"type": "array", "items": [STRING], "additionalItems": False},
        **{"$schema": "http://json-schema.org/draft-07/schema#"},
    )
    assert fitted(api, schema) == parameter({"type": "array", "prefixItems": [STRING], "items": {"not": {}}})
    assert ("/inputSchema/$schema", "the schema is not of that draft any more") in whys(api, schema)


@pytest.mark.parametrize("api", JSON_SCHEMA)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"minimum": 0, "exclusiveMinimum": True}, {"exclusiveMinimum": 0}),
        ({"maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
        ({"exclusiveMinimum": True}, {}),
    ],
)
def test_exclusive_limits_of_draft_4_become_numbers(api: str, old: Any, new: Any) -> None:
    assert fitted(api, parameter({"type": "number", **old})) == parameter({"type": "number", **new})


@pytest.mark.parametrize("api", JSON_SCHEMA)
def test_boolean_schemas_of_parameters_are_written_as_objects(api: str) -> None:
    assert fitted(api, parameter(True)) == parameter({})
    assert fitted(api, parameter({"type": "array", "items": False})) == parameter(
        {"type": "array", "items": {"not": {}}}
    )


@pytest.mark.parametrize("api", [*JSON_SCHEMA, "ai-sdk", "gemini-openapi"])
@pytest.mark.parametrize(
    "schema", [parameter({"type": "any"}), parameter({"minimum": "x"}), parameter(STRING, required=3)]
)
def test_schema_that_is_not_valid_is_left_out_with_its_place(api: str, schema: Any) -> None:
    told = reason(api, schema)
    assert told.startswith("its input schema is not valid JSON Schema: ")
    assert "/properties/p/" in told or "/required" in told


@pytest.mark.parametrize(
    ("api", "name", "alias"),
    [
        ("anthropic", "$top", "_top"),
        ("anthropic", "x" * 65, None),
        ("gemini", "filter-query", "filter_query"),
        ("gemini", "user.name", "user_name"),
        ("gemini", "1st", "_1st"),
        ("gemini-openapi", "filter[a]", "filter_a_"),
        ("gemini-openapi", "名", None),
    ],
)
def test_parameter_gets_a_legal_name_and_its_own_back(api: str, name: str, alias: str | None) -> None:
    schema = {"type": "object", "properties": {"n": STRING, name: STRING}, "required": [name]}
    made = export(api, schema)
    [(exported, real)] = made.parameters["t"].items()
    assert real == name
    assert alias in {exported, None}
    assert list(fitted(api, schema)["properties"]) == ["n", exported]
    assert fitted(api, schema)["required"] == [exported]
    assert made.restore("t", {exported: "x", "n": "y"}) == ("t", {name: "x", "n": "y"})
    assert any(name in change.why for change in made.changes["t"])


def test_names_within_parameters_are_free() -> None:
    schema = parameter({"type": "object", "properties": {"$vectorSearch": STRING, "a-b": STRING}})
    for api in ("anthropic", "gemini", "gemini-openapi"):
        assert export(api, schema).parameters == {}


def test_conditions_about_parameters_that_are_renamed_go_with_a_record() -> None:
    schema = {
        "type": "object",
        "properties": {"a-b": STRING},
        "if": {"required": ["a-b"]},
        "then": {"minProperties": 2},
    }
    assert fitted("gemini", schema) == {"type": "object", "properties": {"a_b": STRING}}
    assert [where for where, _ in whys("gemini", schema)] == [
        *("/inputSchema/if", "/inputSchema/then", "/inputSchema/properties/a-b")
    ]
