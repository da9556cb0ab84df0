from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.export.fitted import export, fitted, reason, whys

ALL = ("openai", "responses", "anthropic", "gemini", "gemini-openapi", "ai-sdk")
PLAIN = ("openai", "responses", "anthropic", "gemini")
STRING = {"type": "string"}


@pytest.mark.parametrize("api", ALL)
def test_root_without_type_becomes_an_object_and_says_so(api: str) -> None:
    assert fitted(api, {"properties": {"a": STRING}}) == {"type": "object", "properties": {"a": STRING}}
    assert ("/inputSchema", "`type` is set to `object`: the API requires it") in whys(
        api, {"properties": {"a": STRING}}
    )


@pytest.mark.parametrize("api", ALL)
def test_root_that_may_be_null_is_an_object(api: str) -> None:
    assert fitted(api, {"type": ["object", "null"], "properties": {}})["type"] == "object"


@pytest.mark.parametrize("api", ALL)
@pytest.mark.parametrize("schema", [{"type": "array", "items": STRING}, STRING, {"type": ["string", "null"]}])
def test_root_that_is_no_object_is_left_out_with_its_reason(api: str, schema: Any) -> None:
    assert "not an object but" in reason(api, schema)


@pytest.mark.parametrize("api", ALL)
def test_boolean_root_is_any_arguments_or_none_at_all(api: str) -> None:
    assert fitted(api, True) == {"type": "object", "properties": {}}
    assert reason(api, False) == "its input schema allows nothing"
    assert reason(api, "text") == "its input schema is not a JSON Schema"


@pytest.mark.parametrize("api", PLAIN)
def test_groups_of_required_arguments_are_told_in_the_description(api: str) -> None:
    schema = {
        "type": "object",
        "properties": {"id": STRING, "name": STRING, "year": STRING},
        "oneOf": [{"required": ["id"]}, {"required": ["name", "year"]}],
    }
    made = export(api, schema)
    body = made.tools[0].get("function", made.tools[0])
    assert body["description"] == "Does it.\n\nGive one of: `id`; `name` with `year`."
    assert fitted(api, schema) == {"type": "object", "properties": schema["properties"]}
    assert {change.where for change in made.changes["t"]} == {"/inputSchema/oneOf", "/description"}


@pytest.mark.parametrize("api", PLAIN)
def test_forms_at_the_root_become_one_object(api: str) -> None:
    schema = {
        "anyOf": [
            {"type": "object", "properties": {"k": {"const": "a"}, "x": STRING}, "required": ["k", "x"]},
            {"type": "object", "properties": {"k": {"const": "b"}, "y": STRING}, "required": ["k"]},
            {"type": "string"},
            False,
        ]
    }
    assert fitted(api, schema) == {
        "type": "object",
        "properties": {"k": {"anyOf": [{"const": "a"}, {"const": "b"}]}, "x": STRING, "y": STRING},
        "required": ["k"],
    }


def test_parts_at_the_root_are_all_required() -> None:
    schema = {
        "allOf": [
            {"properties": {"a": STRING}, "required": ["a"]},
            {"$ref": "#/$defs/More"},
            {"properties": {"a": {"minLength": 1}}},
        ],
        "$defs": {"More": {"properties": {"b": STRING}, "required": ["b"]}},
    }
    made = fitted("anthropic", schema)
    assert made["properties"] == {"a": {"allOf": [STRING, {"minLength": 1}]}, "b": STRING}
    assert made["required"] == ["a", "b"]


def test_root_that_is_a_reference_is_what_it_leads_to() -> None:
    schema = {
        "$ref": "#/$defs/A",
        "$defs": {
            "A": {"type": "object", "title": "A", "properties": {"a": STRING}, "additionalProperties": False}
        },
    }
    made = fitted("openai", schema)
    assert (made["title"], made["properties"], made["additionalProperties"]) == ("A", {"a": STRING}, False)
    assert "$ref" not in made


def test_what_one_form_says_of_a_parameter_does_not_bind_the_others() -> None:
    schema = {
        "type": "object",
        "properties": {"mode": {"enum": ["a", "b"]}},
        "anyOf": [{"properties": {"mode": {"const": "a"}}}, {"required": ["mode"]}],
    }
    assert fitted("openai", schema)["properties"] == {"mode": {"enum": ["a", "b"]}}


def test_closed_root_takes_no_parameters_of_its_forms() -> None:
    schema = {
        "type": "object",
        "properties": {"a": STRING},
        "additionalProperties": False,
        "anyOf": [{"properties": {"b": STRING}}, {}],
    }
    assert fitted("openai", schema)["properties"] == {"a": STRING}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string"}, False]},
        {"allOf": [{"type": "array"}, {}]},
        {"$ref": "#/$defs/F", "$defs": {"F": False}},
    ],
)
def test_root_that_no_arguments_fit_is_left_out(schema: Any) -> None:
    assert reason("openai", schema) == "no object of arguments fits its input schema"


def test_conditions_and_values_at_the_root_go_with_a_record() -> None:
    schema = {"type": "object", "properties": {}, "not": {"required": ["x"]}, "enum": [{}]}
    assert fitted("openai", schema) == {"type": "object", "properties": {}}
    assert [where for where, _ in whys("openai", schema)] == ["/inputSchema/enum", "/inputSchema/not"]


def test_circle_of_references_at_the_root_ends() -> None:
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    assert fitted("openai", schema)["type"] == "object"
    assert fitted("gemini-openapi", schema)["type"] == "object"
