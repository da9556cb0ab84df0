from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.export.fitted import export, fitted, parameter

STRING = {"type": "string"}


def strict(schema: Any) -> Any:
    made = fitted("openai", schema, strict=True)
    assert export("openai", schema, strict=True).tools[0]["function"]["strict"], "it is strict"
    return made


def refusal(schema: Any) -> str:
    made = export("openai", schema, strict=True)
    assert made.tools[0]["function"]["strict"] is False
    [why] = [change.why for change in made.changes["t"] if change.why.startswith("it is not strict: ")]
    return why.removeprefix("it is not strict: ")


def closed(properties: Any) -> Any:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def test_required_parameters_are_closed() -> None:
    assert strict(parameter(STRING, required=["p"])) == closed({"p": STRING})


@pytest.mark.parametrize(
    ("schema", "nullable"),
    [
        (STRING, {"type": ["string", "null"]}),
        ({"enum": ["a"]}, {"anyOf": [{"enum": ["a"], "type": "string"}, {"type": "null"}]}),
        (
            {"anyOf": [STRING, {"type": "integer"}]},
            {"anyOf": [STRING, {"type": "integer"}, {"type": "null"}]},
        ),
        (
            {"const": 1, "title": "T"},
            {"title": "T", "anyOf": [{"const": 1, "type": "integer"}, {"type": "null"}]},
        ),
    ],
)
def test_parameter_that_may_be_missing_may_be_null_and_the_null_is_taken_out(
    schema: Any, nullable: Any
) -> None:
    assert strict(parameter(schema)) == closed({"p": nullable})
    assert export("openai", parameter(schema), strict=True).restore("t", {"p": None}) == ("t", {})


def test_null_that_the_server_knows_stays() -> None:
    schema = parameter({"anyOf": [STRING, {"type": "null"}]})
    assert strict(schema) == closed({"p": {"anyOf": [STRING, {"type": "null"}]}})
    assert export("openai", schema, strict=True).restore("t", {"p": None}) == ("t", {"p": None})


def test_nulls_within_arrays_of_objects_are_taken_out_too() -> None:
    item = {"type": "object", "properties": {"a": STRING, "b": STRING}, "required": ["a"]}
    made = export("openai", parameter({"type": "array", "items": item}, required=["p"]), strict=True)
    said = {"p": [{"a": "x", "b": None}, {"a": "y", "b": "z"}, 3]}
    assert made.restore("t", said) == ("t", {"p": [{"a": "x"}, {"a": "y", "b": "z"}, 3]})
    assert said["p"][0] == {"a": "x", "b": None}, "what was said is not written to"
    assert made.restore("t", {"p": None}) == ("t", {"p": None})


def test_defaults_and_other_formats_are_told_in_words() -> None:
    schema = parameter(
        {**STRING, "default": "x", "format": "uri", "description": "An address."}, required=["p"]
    )
    assert strict(schema) == closed(
        {"p": {**STRING, "description": 'An address. Default: "x". Format: uri.'}}
    )


def test_reference_with_words_beside_it_stands_alone() -> None:
    schema = parameter({"$ref": "#/$defs/A", "description": "D"}, required=["p"], **{"$defs": {"A": STRING}})
    assert strict(schema)["properties"]["p"] == {"description": "D", "anyOf": [{"$ref": "#/$defs/A"}]}


def test_schema_that_refers_to_itself_can_be_strict() -> None:
    node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}}
    made = strict(parameter({"$ref": "#/$defs/N"}, required=["p"], **{"$defs": {"N": node}}))
    assert made["$defs"]["N"] == closed(node["properties"])


def deep(levels: int) -> Any:
    schema: Any = STRING
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return parameter(schema, required=["p"])


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (parameter({}), "it has a value of any type at `/properties/p`"),
        (parameter({"type": "array"}), "it has a value of any type at `/properties/p/items`"),
        (parameter({"type": "object"}), "it has an object with members of any name at `/properties/p`"),
        (parameter(STRING, additionalProperties=True), "it has an object with members of any name at `/`"),
        (parameter({**STRING, "minLength": 1}), "it has `minLength` at `/properties/p`"),
        (parameter({"oneOf": [STRING, {"type": "integer"}]}), "it has `oneOf` at `/properties/p`"),
        (parameter({"allOf": [STRING]}), "it has `allOf` at `/properties/p`"),
        (parameter(STRING, required=["q"]), "it has a required property that is not described at `/`"),
        (deep(11), "it is nested more than 10 deep"),
        (
            parameter({"enum": [f"v{number}" for number in range(1001)]}, required=["p"]),
            "it has more than 1000 values in its enumerations",
        ),
        (
            {"type": "object", "properties": {f"p{number}": STRING for number in range(5001)}},
            "it has more than 5000 properties",
        ),
        (
            {"type": "object", "properties": {f"{number}{'x' * 1000}": STRING for number in range(120)}},
            "its names and values have more than 120000 characters",
        ),
        (
            parameter({"anyOf": [{"type": "object", "properties": {"a": STRING}}, STRING]}),
            "it has a property that may be missing, in a part with several places at `/properties/p/anyOf/0/properties/a`",
        ),
        (
            parameter({"$ref": "#/$defs/A", "minLength": 1}, **{"$defs": {"A": STRING}}),
            "it has `minLength` at `/properties/p`",
        ),
        (
            parameter({"$ref": "#/properties/q"})
            | {"properties": {"p": {"$ref": "#/properties/q"}, "q": STRING}},
            "it refers to `#/properties/q`",
        ),
    ],
)
def test_tool_whose_meaning_would_not_survive_stays_as_it_is(schema: Any, why: str) -> None:
    assert refusal(schema) == why
    assert fitted("openai", schema, strict=True) == fitted("openai", schema)


def test_ten_levels_are_strict() -> None:
    assert strict(deep(9))
