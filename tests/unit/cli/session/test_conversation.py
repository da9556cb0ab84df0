"""The talk with a model: tokens and money, another model in the middle of it, saving it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.model_api import ModelApi
from tests.unit.cli.program import SERVERS
from tests.unit.cli.test_slash import answer, complaint

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.agent import Price, Say, ScriptedProvider, Usage, open_provider
from dragoman.cli import slash
from dragoman.cli.session.conversation import Conversation, as_markdown
from dragoman.errors import AgentError, DragomanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.agent import AgentEvent, Provider


def ignore(_: AgentEvent) -> None:
    """Hear nothing."""


def content(name: str) -> str:
    """Read a file that only its owner may read."""
    assert Path(name).stat().st_mode & 0o777 == 0o600
    return Path(name).read_text("utf-8")


@pytest.fixture
async def mcp() -> AsyncIterator[McpManager]:
    spec = ServerSpec("one", Stdio(sys.executable, [str(SERVERS / "plain.py")]))
    # Without it the model's calls would be asked about.
    async with McpManager([spec], policy=[{"action": "allow", "tool": "echo"}]) as manager:
        assert await manager.wait_ready()
        yield manager


def scripted() -> ScriptedProvider:
    used = Usage(input_tokens=1000, output_tokens=100, cached_tokens=500)
    return ScriptedProvider(
        [
            Say(text="Let me see.", calls=[("mcp_one_echo", {"text": "a ``` b"})], usage=used),
            Say(text="It is **so**.", usage=used),
        ],
        model="tiny",
    )


async def test_what_was_spent_is_counted_and_shown(mcp: McpManager) -> None:
    async with Conversation(mcp, scripted(), price=Price(input=1, output=10)) as talk:
        context = slash.Context(mcp=mcp, conversation=talk)
        assert "No tokens used yet." in await answer(context, "/cost")
        assert "Nothing to save yet" in await complaint(context, "/save")
        said = await talk.ask("Is it so?", ignore)
        assert said.text == "It is **so**."
        assert (talk.model, talk.tokens, talk.money()) == ("tiny", 2200, pytest.approx(0.004))
        shown = (await answer(context, "/cost")).splitlines()
        assert shown[1].split() == ["tiny", "2,000", "1,000", "200", "0.0040"]
        assert await complaint(context, "/cost now") == "/cost takes no arguments."


async def test_a_new_conversation_forgets_what_was_said_and_leaves_the_transcript(mcp: McpManager) -> None:
    async with Conversation(mcp, scripted(), transcript="talk.jsonl") as talk:
        cleared: list[bool] = []
        context = slash.Context(mcp=mcp, conversation=talk, clear=lambda: cleared.append(True))
        await talk.ask("Is it so?", ignore)
        before = content("talk.jsonl")
        assert "talk.jsonl keeps the previous one" in " ".join((await answer(context, "/new")).split())
        assert list(talk.messages) == []
        assert content("talk.jsonl") == before
        assert (await answer(context, "/clear")).strip() == ""
        assert cleared == [True]
        assert talk.tokens == 2200
        assert await complaint(context, "/new now") == "/new takes no arguments."
    assert "only in a chat" in await complaint(slash.Context(mcp=mcp), "/new")


async def test_a_conversation_is_saved_for_people_and_for_programs(mcp: McpManager) -> None:
    async with Conversation(mcp, scripted()) as talk:
        context = slash.Context(mcp=mcp, conversation=talk)
        await talk.ask("Is it so?", ignore)
        assert "Saved 4 messages to ./talk.md" in await answer(context, "/save talk.md")
        assert "Saved 4 messages to ./talk.jsonl" in await answer(context, "/save talk.jsonl")
        assert "Saved 4 messages to ./dragoman-" in await answer(context, "/save")
        assert "already exists" in await complaint(context, "/save talk.md")
        assert "must end with .md or .jsonl" in await complaint(context, "/save talk.txt")
        assert "Cannot write" in await complaint(context, "/save none/talk.md")
        assert as_markdown(talk.messages) == content("talk.md")
    text = content("talk.md")
    assert text.startswith("## You\n\nIs it so?\n\n## Model\n\nLet me see.\n\n### Call `mcp_one_echo`\n\n```")
    assert "### Result of `mcp_one_echo`\n\n````text\na ``` b\n````" in text
    lines = content("talk.jsonl").splitlines()
    assert [json.loads(line)["role"] for line in lines] == ["user", "assistant", "tool", "assistant"]


async def test_another_model_goes_on_with_what_was_said(mcp: McpManager) -> None:
    async with ModelApi([{"text": "I know."}]) as api:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": api.base_url("openai")}
        async with Conversation(mcp, scripted(), env=env, price=Price(input=1, output=10)) as talk:
            context = slash.Context(mcp=mcp, conversation=talk)
            await talk.ask("Is it so?", ignore)
            assert "Model: other" in await answer(context, "/model openai:other")
            assert (await talk.ask("Do you know?", ignore)).text == "I know."
            sent = api.requests[0].body["messages"]
            assert [message["role"] for message in sent if message["role"] != "system"] == [
                "user",
                "assistant",
                "tool",
                "assistant",
                "user",
            ]
            assert set(talk.usage) == {"tiny", "other"}
            assert talk.money() is None
            assert talk.money("tiny") is not None
            with pytest.raises(DragomanError, match="unknown model API `nothing`"):
                await slash.run(context, "/model nothing:x")
            assert talk.model == "other"


async def test_without_a_model_it_says_so_and_one_can_be_chosen(
    mcp: McpManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.agent.providers.local.LOCAL_SERVERS", {})
    async with ModelApi([{"text": "Hello."}]) as api:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": api.base_url("openai")}
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        async with Conversation(mcp, env=env) as talk:
            context = slash.Context(mcp=mcp, conversation=talk)
            with pytest.raises(AgentError, match="no model configured"):
                await talk.ask("hi", ignore)
            with pytest.raises(AgentError, match="no model configured"):
                _ = talk.provider
            shown = await answer(context, "/model")
            assert "Model: none" in shown
            assert "openai:MODEL  API key is set" in shown
            assert "anthropic:MODEL  needs ANTHROPIC_API_KEY" in shown
            assert "qwen:MODEL, qwen-intl:MODEL  needs DASHSCOPE_API_KEY" in shown
            await slash.run(context, "/model openai:tiny")
            assert (await talk.ask("hi", ignore)).text == "Hello."


@pytest.fixture
async def api() -> AsyncIterator[ModelApi]:
    async with ModelApi([{"text": "So."}], repeat=True) as server:
        yield server


def environment(api: ModelApi) -> dict[str, str]:
    return {"DEEPSEEK_API_KEY": "k-4711", "DEEPSEEK_BASE_URL": api.base_url("deepseek")}


async def deepseek(api: ModelApi) -> Provider:
    return await open_provider("deepseek:tiny", env=environment(api))


def offered(api: ModelApi) -> list[str]:
    return [tool["function"]["name"] for tool in api.requests[-1].body.get("tools", ())]


async def test_thinking_is_set_in_the_middle_of_a_conversation(mcp: McpManager, api: ModelApi) -> None:
    async with Conversation(mcp, await deepseek(api), env=environment(api)) as talk:
        context = slash.Context(mcp=mcp, conversation=talk)
        assert "Thinking: auto" in await answer(context, "/think")
        await talk.ask("Is it so?", ignore)
        assert "thinking" not in api.requests[-1].body
        assert "Thinking: low" in await answer(context, "/think low")
        await talk.ask("And now?", ignore)
        assert api.requests[-1].body["reasoning_effort"] == "low"
        said = [one["content"] for one in api.requests[-1].body["messages"] if one["role"] != "system"]
        assert said == ["Is it so?", "So.", "And now?"]
        assert "Thinking: off" in await answer(context, "/think off")
        await talk.ask("And now?", ignore)
        assert api.requests[-1].body["thinking"] == {"type": "disabled"}
        assert "Usage: /think on|off" in await complaint(context, "/think much")
    async with Conversation(mcp, scripted()) as talk:
        with pytest.raises(AgentError, match="cannot be opened by name"):
            await slash.run(slash.Context(mcp=mcp, conversation=talk), "/think on")


async def test_what_a_model_does_not_take_leaves_it_as_it_was(mcp: McpManager, api: ModelApi) -> None:
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": api.base_url("openai")}
    provider = await open_provider("openai:tiny", env=env)
    async with Conversation(mcp, provider, env=env) as talk:
        context = slash.Context(mcp=mcp, conversation=talk)
        with pytest.raises(DragomanError, match="say how much"):
            await slash.run(context, "/think on")
        assert "Thinking: auto" in await answer(context, "/think")
        assert (await talk.ask("hi", ignore)).text == "So."


async def test_tools_are_kept_from_the_model_and_given_back(mcp: McpManager, api: ModelApi) -> None:
    async with Conversation(mcp, await deepseek(api), env=environment(api)) as talk:
        context = slash.Context(mcp=mcp, conversation=talk)
        await talk.ask("hi", ignore)
        every = offered(api)
        assert "mcp_one_echo" in every
        assert len(every) > 1
        assert "Off for the model: mcp_one_echo" in await answer(context, "/tools off echo")
        await talk.ask("hi", ignore)
        assert set(every) - set(offered(api)) == {"mcp_one_echo"}
        # A person can still call it.
        assert "hello" in await answer(context, "/call echo text=hello")
        assert "mcp_one_echo, one:*" in await answer(context, "/tools off one")
        await talk.ask("hi", ignore)
        assert offered(api) == []
        assert "Off for the model: mcp_one_echo" in await answer(context, "/tools on one")
        assert "Off for the model: nothing" in await answer(context, "/tools on")
        await talk.ask("hi", ignore)
        assert offered(api) == every
        assert "No tool matches `nothing_*`" in await complaint(context, "/tools off nothing_*")
        assert "Unknown tool" in await complaint(context, "/tools off nothing")
        assert "`mcp_one_echo` is not off" in await complaint(context, "/tools on echo")


def spoil(name: str) -> None:
    Path(name).write_text("{}\n{}\n", "utf-8")


async def test_a_saved_conversation_is_loaded_and_its_file_stays_as_it_is(
    mcp: McpManager, api: ModelApi
) -> None:
    async with Conversation(mcp, await deepseek(api), env=environment(api)) as talk:
        context = slash.Context(mcp=mcp, conversation=talk)
        await talk.ask("First?", ignore)
        await slash.run(context, "/save talk.jsonl")
        await slash.run(context, "/new")
        await talk.ask("Other?", ignore)
        assert "Loaded 2 messages" in await answer(context, "/load talk.jsonl")
        assert talk.questions == 1
        await talk.ask("And?", ignore)
        said = [one["content"] for one in api.requests[-1].body["messages"] if one["role"] == "user"]
        assert said == ["First?", "And?"]
        assert len(content("talk.jsonl").splitlines()) == 2
        assert "Cannot read `none.jsonl`" in await complaint(context, "/load none.jsonl")
        assert "Usage: /load" in await complaint(context, "/load")
        spoil("bad.jsonl")
        with pytest.raises(AgentError, match="line 1 is not a transcript message"):
            await slash.run(context, "/load bad.jsonl")
        assert [message.text for message in talk.messages if message.role == "user"] == ["First?", "And?"]


async def test_a_load_that_fails_loses_nothing(mcp: McpManager, api: ModelApi) -> None:
    env = environment(api)
    async with Conversation(mcp, await deepseek(api), env=env) as talk:
        context = slash.Context(mcp=mcp, conversation=talk)
        await talk.ask("First?", ignore)
        await slash.run(context, "/save talk.jsonl")
        await slash.run(context, "/think low")
        env.clear()
        for line in ("/load talk.jsonl", "/tools off echo", "/think high", "/model deepseek:other"):
            with pytest.raises(DragomanError, match="set `DEEPSEEK_API_KEY`"):
                await slash.run(context, line)
        assert (talk.off, talk.think, talk.model) == ((), "low", "tiny")
        await talk.ask("Second?", ignore)
        env.update(environment(api))
        await slash.run(context, "/think high")
        assert [message.text for message in talk.messages if message.role == "user"] == ["First?", "Second?"]
