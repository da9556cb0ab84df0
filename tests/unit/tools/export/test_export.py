from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tools.export.fitted import export, parameter

from dragoman.model import ToolDef
from dragoman.tools.export.apis import APIS
from dragoman.tools.export.export import Exporter

pytestmark = pytest.mark.requirement("excel-4.2", "legal-discovery.ai_sdk")

STRING = {"type": "string"}


def tool(name: str, schema: Any = None, **fields: Any) -> ToolDef:
    return ToolDef(name=name, description="", input_schema=schema or parameter(STRING), **fields)


@pytest.mark.parametrize("api", APIS)
def test_bad_tool_is_left_out_and_the_others_are_untouched(api: Any) -> None:
    good = [tool("a"), tool("c")]
    whole = Exporter(api).export([good[0], tool("b", {"type": "array"}), good[1]])
    assert dict(whole.left_out) == {"b": "its arguments are not an object but `array`"}
    assert whole.tools == Exporter(api).export(good).tools
    assert list(whole.aliases) == ["a", "c"]


def test_tool_that_did_not_change_is_not_fitted_again() -> None:
    exporter = Exporter("openai")
    bare = tool("a", parameter({"type": "array"}))
    [before] = exporter.export([bare]).tools
    after, _ = exporter.export([bare, tool("b")]).tools
    assert after["function"]["parameters"] is before["function"]["parameters"]
    changed = tool("a", parameter({"type": "array"}))
    [again] = exporter.export([changed]).tools
    assert again["function"]["parameters"] is not before["function"]["parameters"]


def test_alias_of_a_tool_that_is_left_out_stays_reserved() -> None:
    whole = Exporter("openai").export([tool("a.b", {"type": "array"}), tool("a/b")])
    assert whole.names.keys().isdisjoint({"a_b"})


def test_restoring_an_unknown_name_changes_nothing() -> None:
    assert export("openai", parameter(STRING)).restore("other", {"x": None}) == ("other", {"x": None})
    assert export("openai", parameter(STRING)).restore("t") == ("t", {})


def test_unknown_api_and_missing_strict_mode_are_misuse() -> None:
    with pytest.raises(ValueError, match="unknown API `claude`: use one of ai-sdk, anthropic"):
        Exporter("claude")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`anthropic` has no strict mode here"):
        Exporter("anthropic", strict=True)


def test_tables_cannot_be_written_to() -> None:
    made = export("openai", parameter(STRING))
    with pytest.raises(TypeError):
        made.names["x"] = "y"  # type: ignore[index]


def test_value_deeper_than_any_schema_is_left_out() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    made = Exporter("openai", strict=True).export([tool("a", parameter({"type": "string", "default": deep}))])
    assert dict(made.left_out) == {"a": "a value in its input schema is nested too deep"}


def test_shapes_of_the_other_apis() -> None:
    schema = parameter(STRING)
    given = tool("a.b", schema, title="T", output_schema={"type": "object"})
    assert Exporter("anthropic").export([given]).tools == [
        {"name": "a_b", "description": "", "input_schema": schema}
    ]
    assert Exporter("gemini").export([given]).tools == [
        {"name": "a.b", "description": "", "parameters_json_schema": schema}
    ]
    assert Exporter("gemini-openapi").export([given]).tools == [
        {"name": "a.b", "description": "", "parameters": schema}
    ]
    assert Exporter("ai-sdk").export([given]).tools == [
        {
            "name": "a_b",
            "description": "",
            "inputSchema": schema,
            "title": "T",
            "outputSchema": {"type": "object"},
        }
    ]
    assert Exporter("ai-sdk").export([tool("a")]).tools[0].keys() == {"name", "description", "inputSchema"}
