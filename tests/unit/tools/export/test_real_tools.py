"""All tools of real servers, in every form, before the judge of each API's published rules."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from tests.model_api_rules import NAMES, VERBATIM, description_of, name_of, problems, schema_of

from dragoman.model import ToolDef
from dragoman.tools.definition import define
from dragoman.tools.export.apis import APIS
from dragoman.tools.registry import ToolRegistry

DATA = Path(__file__).parents[3] / "data" / "real-tools.json"
STRICT = 868
FOR_MODELS = 942
"""One of the 943 is for its server's app only."""


def registry_of(template: str = "mcp_{server}_{tool}") -> ToolRegistry:
    listing: dict[str, list[dict[str, Any]]] = json.loads(DATA.read_text("utf-8"))
    registry = ToolRegistry()
    for server, tools in listing.items():
        for raw in tools:
            tool = define(raw, server=server, template=template)
            assert isinstance(tool, ToolDef)
            assert registry.register(tool)
    return registry


@pytest.fixture(scope="module")
def registry() -> ToolRegistry:
    return registry_of()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_every_real_tool_is_legal_and_none_is_left_out(
    registry: ToolRegistry, api: Any, strict: bool
) -> None:
    if strict and api not in {"openai", "responses"}:
        return
    export = registry.export(api, strict=strict)
    assert dict(export.left_out) == {}
    assert len(export.tools) == len(registry) - 1 == FOR_MODELS
    found = {name_of(tool): told for tool in export.tools if (told := problems(api, tool))}
    assert found == {}


@pytest.mark.parametrize("api", APIS)
def test_what_is_not_recorded_is_as_the_server_said_it(registry: ToolRegistry, api: Any) -> None:
    export = registry.export(api)
    verbatim = 0
    for tool in export.tools:
        name = export.names[name_of(tool)]
        given = registry.get(name)
        assert given is not None
        changes = export.changes.get(name, ())
        if all(change.where == "/description" for change in changes) and not changes:
            assert description_of(tool) == given.description
        if not any(change.where.startswith("/inputSchema") for change in changes):
            schema = schema_of(api, tool)
            expected = given.input_schema
            if api == "gemini-openapi":
                # Annotations of no meaning to it go without saying.
                assert schema.keys() <= expected.keys()
            elif changes:
                assert {**schema, "description": 0} == {**expected, "description": 0}
            else:
                assert schema is expected
            verbatim += 1
    assert verbatim == VERBATIM[api]


def test_no_word_of_a_long_description_is_lost(registry: ToolRegistry) -> None:
    export = registry.export("openai")
    long = [tool for tool in registry if len(tool.description) > 1024]
    assert len(long) == 39
    by_name = {export.names[name_of(tool)]: tool["function"] for tool in export.tools}
    for tool in long:
        function = by_name[tool.name]
        whole = f"{function['description']} {function['parameters']['description']}"
        assert set(tool.description.split()) <= set(whole.split())


def test_strict_holds_wherever_the_meaning_survives(registry: ToolRegistry) -> None:
    export = registry.export("openai", strict=True)
    strict = [tool for tool in export.tools if tool["function"]["strict"]]
    assert len(strict) == STRICT
    for tool in export.tools:
        changes = export.changes.get(export.names[name_of(tool)], ())
        told = [change.why for change in changes if change.why.startswith("it is not strict: ")]
        assert bool(told) is not tool["function"]["strict"]


@pytest.mark.parametrize("template", ["{server}:{tool}", "{server}/{tool}", "法律.{server} {tool}"])
@pytest.mark.parametrize("api", APIS)
def test_every_real_name_has_its_own_legal_alias_under_any_naming(api: Any, template: str) -> None:
    export = registry_of(template).export(api)
    assert len(export.names) == FOR_MODELS
    assert [alias for alias in export.names if not re.fullmatch(NAMES[api], alias)] == []
    assert all(export.aliases[name] == alias for alias, name in export.names.items())


def test_nothing_is_logged_for_tools_that_fit(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for api in APIS:
            registry_of().export(api)
    assert caplog.text == ""


def test_the_judge_finds_faults() -> None:
    bad = {
        "name": "a b",
        "description": "",
        "input_schema": {"type": "object", "anyOf": [{}], "minimum": "x"},
    }
    told = problems("anthropic", bad)
    assert len(told) == 3
