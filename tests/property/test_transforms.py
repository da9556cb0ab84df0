"""Transforms keep what a tool means, or are refused: over generated schemas and over those of real tools."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.property.schemas import LEAF_WORDS as LEAVES
from tests.property.schemas import VALUES, extend, some_of

from dragoman.errors import InvalidArgumentsError
from dragoman.model import ArgumentTransform, ServerSpec, Stdio, ToolDef, ToolTransform
from dragoman.tools.definition import schema_fault
from dragoman.tools.export.apis import APIS
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.schema.validate import compile_schema
from dragoman.tools.transforms import Refusal, sent_arguments, transformed

REAL = Path(__file__).resolve().parents[1] / "data" / "real-tools.json"
ARGUMENTS = ["a", "b", "$c", "d-e", "é", "路径"]
NEW = st.sampled_from(["a", "b", "x", "y z", "名", "$ref", "type", "other"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
LEAF = some_of(LEAVES)
INNER = extend(LEAF)


@cache
def real_tools() -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(REAL.read_text("utf-8"))
    return [tool for tools in found.values() for tool in tools if tool["inputSchema"].get("properties")]


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(ARGUMENTS), min_size=1, max_size=4, unique=True))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: draw(INNER | st.just(True)) for name in names},
    }
    if draw(st.booleans()):
        schema["required"] = draw(st.lists(st.sampled_from([*names, "other"]), max_size=3, unique=True))
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans() | LEAF)
    if draw(st.integers(0, 3)) == 0:
        schema["dependentRequired"] = draw(
            st.dictionaries(st.sampled_from(names), st.lists(st.sampled_from(names), unique=True), max_size=2)
        )
    if draw(st.integers(0, 2)) == 0:
        schema |= draw(extend(some_of({"required": LEAVES["required"], "$ref": LEAVES["$ref"]})))
        schema["type"] = "object"
        schema.setdefault("properties", {})
    schema["$defs"] = {"A": draw(LEAF), "B": draw(LEAF)}
    assume(isinstance(schema["properties"], dict) and schema["properties"])
    return schema


@st.composite
def argument_rules(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, ArgumentTransform]:
    found: dict[str, ArgumentTransform] = {}
    for name in draw(st.lists(st.sampled_from(sorted(schema["properties"])), max_size=3, unique=True)):
        found[name] = draw(
            st.builds(ArgumentTransform, name=NEW, description=st.none() | st.just("New."))
            | st.builds(ArgumentTransform, value=VALUES)
            | st.builds(ArgumentTransform, default=VALUES)
            | st.builds(ArgumentTransform, name=NEW, default=VALUES)
            | st.just(ArgumentTransform(hidden=True))
        )
    return found


def tool_of(schema: dict[str, Any]) -> ToolDef:
    return ToolDef(name="mcp_s_t", description="T.", input_schema=schema, server="s", original_name="t")


def changed(tool: ToolDef, rules: dict[str, ArgumentTransform]) -> ToolDef | Refusal:
    refusals: list[Refusal] = []
    spec = ServerSpec("s", Stdio("x"), tools={tool.original_name: ToolTransform(arguments=rules)})
    found = transformed(tool, spec, template="mcp_{server}_{tool}", on_refused=refusals.append)
    if refusals:
        assert (found is None) is refusals[0].is_withheld
        return refusals[0]
    assert found is not None
    return found


def exact(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def check_round_trip(tool: ToolDef, given_arguments: dict[str, Any]) -> dict[str, Any]:
    """Send arguments, and see that they come out as they went in."""
    by = tool.transform
    assert by is not None
    sent = sent_arguments(tool, given_arguments)
    own = {by.renamed.get(name, name): value for name, value in given_arguments.items()}
    assert exact({name: sent[name] for name in own}) == exact(own)
    assert exact({name: sent[name] for name in by.fixed}) == exact(by.fixed)
    extra = sent.keys() - own.keys() - by.fixed.keys()
    assert exact({name: sent[name] for name in extra}) == exact(
        {name: value for name, value in by.defaults.items() if name not in own}
    )
    for name in by.closed - by.renamed.keys():
        with pytest.raises(InvalidArgumentsError):
            sent_arguments(tool, {**given_arguments, name: None})
    return sent


@given(st.data())
def test_what_is_sent_is_what_was_given_and_fits_where_that_did(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    assume(not schema_fault(schema))
    before = exact(schema)
    tool = changed(tool_of(schema), data.draw(argument_rules(schema)))
    assert exact(schema) == before
    if isinstance(tool, Refusal) or tool.transform is None:
        return
    by = tool.transform
    assert schema_fault(tool.input_schema) == ""
    names = [*tool.input_schema.get("properties", {}), "free"]
    values = data.draw(st.dictionaries(st.sampled_from(names), VALUES | JSON, max_size=4))
    values = {name: value for name, value in values.items() if name not in by.closed or name in by.renamed}
    sent = check_round_trip(tool, values)
    old, new = compile_schema(schema), compile_schema(tool.input_schema)
    if not (old.notes or new.notes):
        assert (old.problems(sent) == []) == (new.problems(values) == [])


@given(st.data())
def test_changed_real_tools_are_exported_to_every_api(data: st.DataObject) -> None:
    raw = data.draw(st.sampled_from(real_tools()))
    schema = raw["inputSchema"]
    required, rules = schema.get("required", []), dict[str, ArgumentTransform]()
    for number, name in enumerate(sorted(schema["properties"])):
        match data.draw(st.integers(0, 3)):
            case 0:
                rules[name] = ArgumentTransform(name=f"new_{number}", description="Other words.")
            case 1 if name not in required:
                rules[name] = ArgumentTransform(hidden=True)
            case _:
                pass
    original = tool_of(schema)
    tool = changed(original, rules)
    assert not isinstance(tool, Refusal), tool.reason
    if tool.transform is None:
        return
    values = {name: data.draw(JSON) for name in tool.input_schema["properties"]}
    check_round_trip(tool, values)
    registry, plain = ToolRegistry(), ToolRegistry()
    registry.register(tool)
    plain.register(original)
    for api in APIS:
        assert len(registry.export(api).tools) >= len(plain.export(api).tools), api


def test_every_real_tool_takes_a_rename_of_all_its_arguments() -> None:
    for raw in real_tools():
        schema = raw["inputSchema"]
        rules = {name: ArgumentTransform(name=f"_{name}") for name in schema["properties"]}
        tool = changed(tool_of(schema), rules)
        assert not isinstance(tool, Refusal), f"{raw['name']}: {tool.reason}"
        assert schema_fault(tool.input_schema) == ""
        check_round_trip(tool, {f"_{name}": name for name in schema["properties"]})
