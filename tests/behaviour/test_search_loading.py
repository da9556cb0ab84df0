"""Tools that a search finds are appended: each request begins with the bytes of the one before."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.models import opened
from tests.servers.model_api import ModelApi

from dragoman import ToolDef, ToolRegistry
from dragoman.agent.engine import AgentEngine
from dragoman.agent.offer import ToolLimit
from dragoman.agent.providers.anthropic import INLINE_TOOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("openai", {}),
    "responses": ("responses", {"loads_tools": True}),
    "responses of another vendor": ("responses", {}),
    "anthropic": ("anthropic", {"loads_tools": True}),
    "anthropic with inline tools": ("anthropic", {"loads_tools": True, "betas": [INLINE_TOOLS]}),
    "anthropic of another vendor": ("anthropic", {}),
}
NATIVE = {name for name, (_, how) in CASES.items() if how}


async def weather(city: str) -> str:
    return f"Rain in {city}."


def tools(count: int) -> ToolRegistry:
    registry = ToolRegistry()
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    registry.register(
        ToolDef(name="weather", description="Tells the weather of a city.", input_schema=schema, func=weather)
    )
    for number in range(count):
        registry.register(
            ToolDef(
                name=f"task_{number}", description=f"Job number {number}.", input_schema=schema, func=weather
            )
        )
    return registry


def prompt(body: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the tools, the system prompt and the messages as the model reads them."""
    messages = body.get("messages") or body.get("input")
    system = body.get("system") or body.get("instructions") or ""

    def written(value: Any) -> str:
        # A cache mark is an order to the API, not a part of the prompt.
        return json.dumps(json.loads(json.dumps(value), object_hook=without_mark))

    def without_mark(fields: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in fields.items() if key != "cache_control"}

    return written(body.get("tools", [])), written(system), written(messages)


def script(case: str, *, late: str = "") -> list[dict[str, Any]]:
    queries = {"queries": ["what is the weather like in a city"]}
    search: dict[str, Any] = {"calls": [{"name": "search_tools", "arguments": queries}]}
    if case == "responses":
        item = {"type": "tool_search_call", "id": "ts1", "call_id": "s1", "status": "completed"}
        search = {"unknown": [{**item, "execution": "client", "arguments": queries}], "finish": "tool_calls"}
    called = {"name": "weather", "arguments": {"city": "Bonn"}}
    if case not in NATIVE:
        called = {"name": "call_tool", "arguments": {"name": "weather", "arguments": {"city": "Bonn"}}}
    turns = [search, {"calls": [called]}, {"text": "It rains."}]
    if late:
        turns.append(
            {"calls": [{"name": "call_tool", "arguments": {"name": late, "arguments": {"city": "X"}}}]}
        )
    return [*turns, {"text": "Bye."}]


@pytest.mark.parametrize("case", CASES)
async def test_each_request_begins_with_the_bytes_of_the_one_before(case: str) -> None:
    api, how = CASES[case]
    registry = tools(200)
    async with ModelApi(script(case, late="brand_new")) as server, opened(api, server, **how) as provider:
        async with AgentEngine(provider, registry, system="Be brief.", limit=ToolLimit(count=50)) as agent:
            first = await agent.run("Do I need an umbrella in Bonn?")
            # Servers come and go; the model has read its list already.
            registry.unregister("task_7")
            registry.register(
                ToolDef(name="brand_new", description="New.", input_schema={"type": "object"}, func=weather)
            )
            await agent.run("Thanks.")
        bodies = [asked.body for asked in server.requests]
        assert server.complaints == []

    assert first.text == "It rains."
    results = [message.text for message in agent.messages if message.role == "tool"]
    assert results[0].startswith("weather: Tells the weather")
    assert results[1] == "Rain in Bonn."
    assert results[2] == "Rain in X."
    read = [prompt(body) for body in bodies]
    assert len(read) == 5
    for before, after in pairwise(read):
        assert after[0] == before[0]
        assert after[1] == before[1]
        assert after[2].startswith(before[2].removesuffix("]"))


@pytest.mark.parametrize("case", sorted(NATIVE))
async def test_an_api_that_loads_tools_gets_what_the_search_found(case: str) -> None:
    api, how = CASES[case]
    async with ModelApi(script(case)) as server, opened(api, server, **how) as provider:
        async with AgentEngine(provider, tools(200), limit=ToolLimit(count=50)) as agent:
            await agent.run("Do I need an umbrella in Bonn?")
        first, second = (asked.body for asked in server.requests[:2])
        headers = server.requests[0].headers

    if api == "responses":
        (finder,) = [tool for tool in first["tools"] if tool["type"] == "tool_search"]
        assert finder["execution"] == "client"
        (output,) = [item for item in second["input"] if item.get("type") == "tool_search_output"]
        assert output["call_id"] == "s1"
        assert output["tools"][0]["name"] == "weather"
        assert output["tools"][0]["defer_loading"]
    elif "inline" in case:
        assert headers["anthropic-beta"] == INLINE_TOOLS
        assert len(first["tools"]) < 5
        added = second["messages"][-1]["content"][0]
        assert added["type"] == "tool_addition"
        assert added["tool"]["definition"]["name"] == "weather"
    else:
        deferred = [tool["name"] for tool in first["tools"] if tool.get("defer_loading")]
        assert len(deferred) == 201
        (result,) = second["messages"][-1]["content"]
        assert {"type": "tool_reference", "tool_name": "weather"} in result["content"]


async def test_a_tool_that_appears_later_is_added_to_the_conversation_of_the_responses_api() -> None:
    registry = tools(3)
    answers = [
        {"text": "Hello."},
        {"calls": [{"name": "late", "arguments": {"city": "Rome"}}]},
        {"text": "ok"},
    ]
    async with ModelApi(answers) as server, opened("responses", server, loads_tools=True) as provider:
        async with AgentEngine(provider, registry) as agent:
            await agent.run("Hi.")
            registry.register(
                ToolDef(name="late", description="Late.", input_schema={"type": "object"}, func=weather)
            )
            await agent.run("And now?")
        first, second, _ = (asked.body for asked in server.requests)

    assert first["tools"] == second["tools"]
    (added,) = [item for item in second["input"] if item.get("type") == "additional_tools"]
    assert [tool["name"] for tool in added["tools"]] == ["late"]
    assert [message.text for message in agent.messages if message.role == "tool"] == ["Rain in Rome."]


async def test_a_tool_that_appears_later_is_added_at_the_end_of_the_list_elsewhere() -> None:
    registry = tools(3)
    async with ModelApi([{"text": "Hello."}, {"text": "ok"}]) as server, opened("openai", server) as provider:
        async with AgentEngine(provider, registry) as agent:
            await agent.run("Hi.")
            registry.register(
                ToolDef(name="a_late", description="Late.", input_schema={"type": "object"}, func=weather)
            )
            registry.unregister("task_1")
            await agent.run("And now?")
        first, second = (asked.body["tools"] for asked in server.requests)

    assert second[: len(first)] == first
    assert [tool["function"]["name"] for tool in second[len(first) :]] == ["a_late"]
