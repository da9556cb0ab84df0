"""Formats, for any schema whatever: what is exported is legal, and what is not exported says why."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.model_api_rules import name_of, problems, schema_of
from tests.property.schemas import NAMES, ROOTS, SCHEMAS, STRICT, VALUES

from dragoman.model import ToolDef
from dragoman.tools.export.apis import APIS
from dragoman.tools.export.export import Exporter

FORMS = [(api, False) for api in APIS] + [("openai", True), ("responses", True)]


def tool_of(schema: Any, name: str = "t") -> ToolDef:
    return ToolDef(name=name, description="Does it.", input_schema=schema, server="s", original_name=name)


@pytest.mark.parametrize(("api", "strict"), FORMS)
@given(schema=ROOTS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
def test_any_schema_is_exported_legally_or_left_out_with_its_reason(
    api: Any, strict: bool, schema: Any
) -> None:
    before = copy.deepcopy(schema)
    neighbour = tool_of({"type": "object", "properties": {"n": {"type": "integer"}}}, "neighbour")
    export = Exporter(api, strict=strict).export([neighbour, tool_of(schema)])
    assert schema == before, "the server's own schema is never written to"
    assert [name_of(tool) for tool in export.tools] == ["neighbour", "t"][: len(export.tools)]
    assert set(export.left_out) == ({"t"} if len(export.tools) == 1 else set())
    for tool in export.tools:
        assert problems(api, tool) == []
        assert json.loads(json.dumps(tool)) == tool
    for name, reason in export.left_out.items():
        assert name == "t"
        assert reason
    if "t" in export.aliases and not export.changes.get("t") and api != "gemini-openapi":
        assert schema is True or schema_of(api, export.tools[1]) is schema


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic", "gemini", "ai-sdk"])
@given(
    properties=st.dictionaries(NAMES, SCHEMAS, min_size=1, max_size=3),
    required=st.lists(NAMES, max_size=1),
    arguments=st.dictionaries(NAMES, VALUES, max_size=3),
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)
def test_arguments_that_the_server_takes_are_never_excluded(
    api: Any, properties: dict[str, Any], required: list[str], arguments: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    assume(_validator(schema) is not None)
    export = Exporter(api).export([tool_of(schema)])
    assume(export.tools and _is_valid(schema, arguments))
    renamed = {name: alias for alias, name in export.parameters.get("t", {}).items()}
    said = {renamed.get(name, name): value for name, value in arguments.items()}
    assert _is_valid(schema_of(api, export.tools[0]), said)
    assert export.restore("t", said) == ("t", arguments)


@given(
    properties=st.dictionaries(st.sampled_from(["a", "b"]), STRICT, min_size=1),
    required=st.lists(st.sampled_from(["a", "b"]), unique=True),
    arguments=st.dictionaries(st.sampled_from(["a", "b"]), VALUES),
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)
def test_what_strict_mode_lets_through_is_what_the_server_takes_once_it_is_restored(
    properties: dict[str, Any], required: list[str], arguments: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": properties, "required": required}
    assume(_validator(schema) is not None)
    export = Exporter("openai", strict=True).export([tool_of(schema)])
    assume(export.tools and export.tools[0]["function"]["strict"])
    strict = schema_of("openai", export.tools[0])
    said = {name: arguments.get(name) for name in strict["properties"]}
    assume(_is_valid(strict, said))
    name, restored = export.restore("t", said)
    assert name == "t"
    assert _is_valid(schema, restored)


def _validator(schema: Any) -> jsonschema_rs.Validator | None:
    try:
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=False, offline=True)
    except (ValueError, jsonschema_rs.ValidationError):
        return None


def _is_valid(schema: Any, value: Any) -> bool:
    validator = _validator(schema)
    return validator is not None and validator.is_valid(value)
