"""An agent on a model of one's own machine: its server cuts from the front, and must never have to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.clerk import QUESTION, STEPS, SYSTEM, Clerk, asked, opened, registry
from tests.servers.local_models import LocalModels, count

from dragoman.agent import AgentEngine, Noticed
from dragoman.errors import ModelError

if TYPE_CHECKING:
    from dragoman.agent import AgentEvent


@pytest.mark.parametrize("kind", ["ollama", "llamacpp", "vllm", "lmstudio"])
@pytest.mark.parametrize(("window", "tools"), [(4_096, 5), (4_096, 300), (32_768, 60)])
async def test_nothing_that_the_model_needs_is_cut(kind: str, window: int, tools: int) -> None:
    clerk = Clerk(tools)
    most = window if kind == "ollama" else 131_072
    async with LocalModels(kind, window=window, most=most, script=clerk) as server:
        text, _ = await asked(server, registry(tools))
    assert text == "The seventh."
    assert not clerk.missing
    assert not any(server.cuts)
    assert not server.refused
    definitions = [count(body.get("tools", [])) for body in server.requests]
    assert max(definitions) <= 0.35 * window


async def test_ollama_is_asked_for_the_window_that_a_request_needs() -> None:
    clerk = Clerk(5)
    async with LocalModels("ollama", window=4_096, script=clerk) as server:
        await asked(server, registry(5, words=1_500))
    sizes = [body["options"]["num_ctx"] for body in server.requests]
    assert sizes == sorted(sizes), "a smaller window would load the model again"
    assert sizes[0] < sizes[-1] <= server.most
    assert all(
        asked_for >= min(size + 8_192, server.most)
        for asked_for, size in zip(sizes, server.sizes, strict=True)
    )


async def test_a_window_that_the_person_sets_is_kept() -> None:
    clerk = Clerk(5)
    async with LocalModels("ollama", window=4_096, script=clerk) as server:
        await asked(server, registry(5), model=await opened(server, num_ctx=6_000))
    assert {body["options"]["num_ctx"] for body in server.requests} == {6_000}
    assert not any(server.cuts)
    assert not clerk.missing


async def test_a_cut_that_happened_anyway_is_told() -> None:
    clerk = Clerk(40)
    async with LocalModels("ollama", window=2_000, lies=True, script=clerk) as server:
        _, events = await asked(server, registry(40))
    assert any(server.cuts)
    cuts = [cut for cut in server.cuts if cut]
    told = [event.text for event in events if isinstance(event, Noticed) and "its server cut" in event.text]
    assert len(told) == len(cuts)


async def test_what_was_left_out_is_told_and_the_conversation_keeps_it() -> None:
    clerk = Clerk(3)
    async with LocalModels("llamacpp", window=4_096, script=clerk) as server:
        events: list[AgentEvent] = []
        async with AgentEngine(await opened(server), registry(3), system=SYSTEM) as agent:
            await agent.run(QUESTION, on_event=events.append)
            results = [message for message in agent.messages if message.role == "tool"]
    assert len(results) == STEPS
    assert all("the harbour lies" in message.text for message in results)
    assert any(isinstance(event, Noticed) and "left out" in event.text for event in events)


async def test_a_refusal_that_names_the_window_is_learned_from() -> None:
    clerk = Clerk(3)
    async with LocalModels("silent", window=4_096, script=clerk) as server:
        text, _ = await asked(server, registry(3), window=50_000)
    assert text == "The seventh."
    assert server.refused == 1
    assert not any(server.cuts)


async def test_a_question_that_cannot_fit_is_an_error() -> None:
    async with LocalModels("llamacpp", window=4_096, script=Clerk(3)) as server:
        with pytest.raises(ModelError, match="does not fit into the 4,096 tokens"):
            await asked(server, registry(3), question="harbour " * 20_000)
    assert not server.requests


async def test_a_model_without_tools_is_offered_none() -> None:
    def plain(body: dict[str, Any]) -> dict[str, Any]:
        return {"text": f"{len(body['tools'])} tools"}

    async with LocalModels("ollama", window=4_096, tools=False, script=plain) as server:
        text, events = await asked(server, registry(3))
    assert text == "0 tools"
    assert any(isinstance(event, Noticed) and "cannot call tools" in event.text for event in events)


async def test_tools_that_come_later_and_do_not_fit_are_found_by_a_search() -> None:
    tools = registry(2)
    clerk = Clerk(200)
    async with (
        LocalModels("llamacpp", window=8_192, script=clerk) as server,
        AgentEngine(await opened(server), tools, system=SYSTEM) as agent,
    ):
        clerk.calls = STEPS
        await agent.run(QUESTION)
        tools.register_all(tool for tool in registry(200) if tool.name not in tools)
        clerk.calls = 0
        assert (await agent.run(QUESTION)).text == "The seventh."
    assert not clerk.missing
    first, last = server.requests[0]["tools"], server.requests[-1]["tools"]
    assert last[: len(first)] == first, "what was sent stays as it was"
    assert max(count(body["tools"]) for body in server.requests) <= 0.35 * 8_192
