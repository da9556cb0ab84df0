from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.model import ServerSpec, Stdio, ToolDef
from dragoman.tools.definition import Rejected, admit, define, fill_in_schemas, readmit, recall, schema_fault

pytestmark = pytest.mark.requirement(
    "excel-3.2",
    "excel-3.4",
    "kode-discovery.metadata",
    "legal-discovery.schema",
    "otter-schema",
    "rrclaw-schema.default",
    "rrclaw-description.default",
)

OBJECT = {"type": "object", "properties": {}}
TEMPLATE = "mcp_{server}_{tool}"


def defined(**raw: Any) -> ToolDef | Rejected:
    return define({"name": "t", **raw}, server="s", template=TEMPLATE)


def test_definition_without_description_and_schema_gets_the_defaults() -> None:
    tool = defined()
    assert isinstance(tool, ToolDef)
    assert (tool.description, tool.input_schema) == ("MCP tool", OBJECT)
    assert (tool.name, tool.server, tool.original_name, tool.source) == ("mcp_s_t", "s", "t", "mcp")


def test_blank_description_is_a_missing_one() -> None:
    tool = defined(description=" \n")
    assert isinstance(tool, ToolDef)
    assert tool.description == "MCP tool"


def test_schema_is_kept_verbatim() -> None:
    schema = {"$schema": "https://example.org/own", "type": "object", "x-own": 1, "properties": {"a": True}}
    tool = defined(inputSchema=schema, outputSchema={"type": "array"})
    assert isinstance(tool, ToolDef)
    assert tool.input_schema == schema
    assert tool.output_schema == {"type": "array"}


def test_title_comes_from_the_tool_or_from_its_annotations() -> None:
    own = defined(title="Own", annotations={"title": "Other"})
    other = defined(annotations={"title": "Other", "readOnlyHint": True})
    assert isinstance(own, ToolDef)
    assert isinstance(other, ToolDef)
    assert (own.title, other.title, other.annotations["readOnlyHint"]) == ("Own", "Other", True)


@pytest.mark.parametrize("name", [None, "", 3])
def test_definition_without_a_name_is_rejected(name: object) -> None:
    assert isinstance(defined(name=name), Rejected)


@pytest.mark.parametrize("name", ["read\u200b", "re\u00adad", "read ", "\tread", "read\0", "\u202eread"])
def test_name_with_characters_that_cannot_be_seen_is_rejected(name: str) -> None:
    assert isinstance(defined(name=name), Rejected)


@pytest.mark.parametrize(
    "schema", ["text", True, {"type": "strong"}, {"type": "object", "properties": {"a": {"minimum": "x"}}}]
)
def test_schema_that_is_no_json_schema_is_rejected_with_its_reason(schema: object) -> None:
    rejected = defined(inputSchema=schema)
    assert isinstance(rejected, Rejected)
    assert rejected.tool == "t"
    assert "not valid JSON Schema" in rejected.reason


def test_fault_names_its_place() -> None:
    assert schema_fault({"properties": {"a": {"type": 3}}}).endswith("at `/properties/a/type`")


@pytest.mark.parametrize(
    "dialect", ["http://127.0.0.1:9/never-fetched", "http://json-schema.org/draft-07/schema#"]
)
def test_no_dialect_is_ever_fetched(dialect: str) -> None:
    assert schema_fault({"$schema": dialect, "type": "object"}) == ""


def test_reference_to_the_network_is_no_fault_and_not_fetched() -> None:
    assert schema_fault({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}}) == ""


def test_schema_that_would_take_the_validator_down_is_a_fault() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"allOf": [schema]}
    assert "nested more than" in schema_fault(schema)
    assert "nested more than" in schema_fault({"type": "object", "properties": {"a": schema}})


def test_schema_with_a_number_that_the_validator_cannot_read_is_a_fault() -> None:
    assert schema_fault({"type": "object", "maxProperties": float("nan")})


@pytest.mark.parametrize("result", [{}, {"tools": None}, {"tools": [3, "x"]}])
def test_what_is_no_listing_is_left_alone(result: dict[str, Any]) -> None:
    before = dict(result)
    fill_in_schemas(result)
    assert result == before


def test_missing_schemas_are_filled_in_and_others_left_alone() -> None:
    listing = {"tools": [{"name": "a"}, {"name": "b", "inputSchema": {"type": "object", "x": 1}}]}
    fill_in_schemas(listing)
    assert [tool["inputSchema"] for tool in listing["tools"]] == [OBJECT, {"type": "object", "x": 1}]


@pytest.mark.requirement(
    "excel-5.2", "rrclaw-name.prefix", "kode-registry.register", "kode-discovery.metadata"
)
@pytest.mark.parametrize("name", ["t", "Read-File"])
def test_definition_from_the_cache_is_the_one_that_was_listed(name: str) -> None:
    raw = {
        "name": name,
        "title": "Read a file",
        "description": "Read a file.\n\nThe whole of it.",
        "annotations": {"readOnlyHint": True},
        "_meta": {"a": 1},
    }
    schemas = [{"type": "object", "properties": {"path": {"type": "string"}}}, {"type": "object"}]
    listed = define(
        {**raw, "inputSchema": schemas[0], "outputSchema": schemas[1]}, server="My-s", template=TEMPLATE
    )
    assert isinstance(listed, ToolDef)
    assert (listed.name, listed.original_name) == (f"mcp_My-s_{name}", name)
    assert (listed.description, listed.title) == (raw["description"], "Read a file")
    assert (listed.annotations, listed.meta) == ({"readOnlyHint": True}, {"a": 1})
    assert (listed.input_schema, listed.output_schema) == (schemas[0], schemas[1])
    assert recall(raw, json.dumps(schemas), server="My-s", template=TEMPLATE) == listed


@pytest.mark.requirement("otter-schema")
def test_each_unusable_definition_costs_itself_alone() -> None:
    bad = {"inputSchema": {"type": "nothing"}}
    listing = [{"name": "a", **bad}, {"name": "b"}, {"name": "c", **bad}, {"name": "d"}]
    tools, rejected = admit(listing, ServerSpec("s", Stdio("x")), template=TEMPLATE)
    assert [tool.original_name for tool in tools] == ["b", "d"]
    assert [one.tool for one in rejected] == ["a", "c"]


@pytest.mark.requirement("rrclaw-config.allowed", "rrclaw-manager.tools", "kode-registry.register")
def test_filter_of_a_spec_holds_for_cached_definitions_too() -> None:
    cached = [({"name": name}, '[{"type": "object"}, null]') for name in ("read", "write", "remove")]
    spec = ServerSpec("s", Stdio("x"), allowed_tools=["read", "remove"], denied_tools=["remove"])
    assert [tool.name for tool in readmit(cached, spec, template=TEMPLATE)] == ["mcp_s_read"]
