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
from dragoman.agent import Price, Say, ScriptedProvider, Usage
from dragoman.cli import slash
from dragoman.cli.session.conversation import Conversation, as_markdown
from dragoman.errors import AgentError, DragomanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.agent import AgentEvent


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
