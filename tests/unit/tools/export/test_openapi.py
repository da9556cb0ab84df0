from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.export.fitted import fitted, parameter, reason, whys

STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def written(schema: Any) -> Any:
    return fitted("gemini-openapi", parameter(schema))["properties"]["p"]


@pytest.mark.parametrize(
    "schema",
    [
        STRING,
        {"type": "string", "enum": ["a"], "description": "D", "title": "T", "default": "a", "minLength": 1},
        {"type": "string", "format": "date-time"},
        {"type": "number", "minimum": 0, "maximum": 1.5, "format": "double"},
        {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 2},
        {"type": "object", "properties": {"$a": STRING}, "required": ["$a"], "minProperties": 1},
        {"anyOf": [STRING, INTEGER]},
    ],
)
def test_what_the_subset_has_words_for_stays(schema: Any) -> None:
    assert written(schema) == schema
    assert whys("gemini-openapi", parameter(schema)) == []


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"anyOf": [STRING, {"type": "null"}], "default": None}, {"type": "string", "nullable": True, "default": None}),
        ({"type": ["string", "integer"]}, {"anyOf": [STRING, INTEGER]}),
        (
            {"anyOf": [STRING, INTEGER, {"type": "null"}], "description": "D"},
            {
                "anyOf": [
                    {"type": "string", "nullable": True, "description": "D"},
                    {"type": "integer", "nullable": True, "description": "D"},
                ]
            },
        ),
        ({"oneOf": [STRING, STRING]}, STRING),
        ({"anyOf": [{"anyOf": [STRING, INTEGER]}, {"type": "boolean"}]}, {"anyOf": [STRING, INTEGER, {"type": "boolean"}]}),
        ({"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "^a"}]}, {"anyOf": [{**STRING, "minLength": 1}, {**STRING, "pattern": "^a"}]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"const": 3}, {"type": "integer", "description": "One of: 3."}),
        ({"enum": ["a", "", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"enum": [1, 2], "type": "integer"}, {"type": "integer", "description": "One of: 1, 2."}),
        ({"enum": [""]}, {"type": "string", "description": 'One of: "".'}),
        ({"type": "null"}, {"type": "string", "nullable": True}),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": "Format: uri."}),
        ({"type": "integer", "exclusiveMinimum": 0, "minimum": 5}, {"type": "integer", "minimum": 5}),
        ({"type": "integer", "exclusiveMaximum": 9}, {"type": "integer", "maximum": 8}),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "minimum": 0, "description": "More than 0."}),
        ({"type": "integer", "multipleOf": 5}, {"type": "integer", "description": "A multiple of 5."}),
        ({"type": "array", "items": STRING, "uniqueItems": True}, {"type": "array", "items": STRING, "description": "No item twice."}),
        ({"type": "array", "prefixItems": [STRING, INTEGER], "items": False}, {"type": "array", "items": {"anyOf": [STRING, INTEGER]}, "maxItems": 2}),
        ({"items": [STRING, STRING]}, {"type": "array", "items": STRING}),
        ({"properties": {"a": STRING}}, {"type": "object", "properties": {"a": STRING}}),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"type": "object"}),
        ({"type": "object", "additionalProperties": INTEGER}, {"type": "object", "description": 'Members of any name, each of the form {"type": "integer"}.'}),
        ({"type": "object", "properties": {"a": False, "b": STRING}}, {"type": "object", "properties": {"b": STRING}}),
        (
            {"allOf": [{"type": "object", "properties": {"a": STRING}, "required": ["a"]}, {"properties": {"b": INTEGER}, "required": ["b"]}]},
            {"type": "object", "properties": {"a": STRING, "b": INTEGER}, "required": ["a", "b"]},
        ),
        ({"allOf": [{"enum": ["a", "b"]}, {"enum": ["b"]}, True]}, {"type": "string", "enum": ["b"]}),
        (
            {"type": "object", "properties": {"a": STRING, "b": STRING}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": []},
        ),
    ],
)  # fmt: skip
def test_what_it_has_no_words_for_is_said_otherwise_and_recorded(schema: Any, expected: Any) -> None:
    made = written(schema)
    if expected.get("required") == []:
        expected = {name: value for name, value in expected.items() if name != "required"}
    assert made == expected
    assert whys("gemini-openapi", parameter(schema)) != []


@pytest.mark.parametrize("schema", [{}, True, {"description": "Any."}])
def test_value_of_any_type_is_each_of_them(schema: Any) -> None:
    shapes = written(schema)["anyOf"]
    assert [shape["type"] for shape in shapes] == ["string", "number", "boolean", "object", "array"]
    assert all(shape["nullable"] for shape in shapes)


def test_required_property_that_is_not_described_takes_anything() -> None:
    made = written({"type": "object", "properties": {"a": STRING}, "required": ["a", "b"]})
    assert made["required"] == ["a", "b"]
    assert "anyOf" in made["properties"]["b"]


@pytest.mark.parametrize("word", ["if", "patternProperties", "dependentRequired", "x-own"])
def test_other_keywords_go_with_a_record(word: str) -> None:
    schema = parameter({"type": "object", "properties": {"a": STRING}, word: {}})
    assert (
        f"/inputSchema/properties/p/{word}",
        f"`{word}` is left out: the subset has no word for it",
    ) in whys("gemini-openapi", schema)


def test_required_parameter_that_nothing_fits_leaves_the_tool_out() -> None:
    assert (
        reason("gemini-openapi", parameter(False, required=["p"]))
        == "no object of arguments fits its input schema"
    )
    assert fitted("gemini-openapi", parameter(False))["properties"] == {}
    assert fitted("gemini-openapi", parameter({"enum": []}))["properties"] == {}


def test_no_arguments_are_an_object_without_properties() -> None:
    assert fitted("gemini-openapi", {"type": "object"}) == {"type": "object", "properties": {}}
