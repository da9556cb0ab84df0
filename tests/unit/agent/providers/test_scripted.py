from __future__ import annotations

import asyncio

import pytest

from dragoman.agent.messages import (
    Answered,
    CallDelta,
    Message,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    ToolCall,
    Usage,
)
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.errors import ModelError

REQUEST = ModelRequest(messages=[Message(role="user", text="hi")])


async def events(provider: ScriptedProvider, request: ModelRequest = REQUEST) -> list[object]:
    return [event async for event in provider.stream(request)]


async def test_lines_come_one_for_each_request_in_words() -> None:
    provider = ScriptedProvider(["one two", Say(text="three", usage=Usage(input_tokens=7))])
    assert await events(provider) == [
        TextDelta(text="one "),
        TextDelta(text="two"),
        Answered(message=Message(role="assistant", text="one two"), finish="stop", model="scripted"),
    ]
    last = (await events(provider))[-1]
    assert isinstance(last, Answered)
    assert last.usage == Usage(input_tokens=7)
    assert provider.requests == [REQUEST, REQUEST]


async def test_calls_get_ids_that_do_not_repeat_in_the_conversation() -> None:
    say = Say(thought="hm", calls=[("add", {"a": 1}), ("add", "{bad"), ToolCall(id="mine", name="x")])
    provider = ScriptedProvider([say, say])
    got = await events(provider)
    assert [type(event) for event in got] == [ThoughtDelta, CallDelta, CallDelta, CallDelta, Answered]
    last = got[-1]
    assert isinstance(last, Answered)
    assert last.finish == "tool_calls"
    assert [(call.id, call.arguments) for call in last.message.calls] == [
        ("call_1", {"a": 1}),
        ("call_2", None),
        ("mine", None),
    ]
    again = (await events(provider, ModelRequest(messages=[last.message])))[-1]
    assert isinstance(again, Answered)
    assert [call.id for call in again.message.calls] == ["call_4", "call_5", "mine"]


@pytest.mark.parametrize("text", ["", " ", "a  b ", "line\nline two\n"])
async def test_the_words_are_the_text(text: str) -> None:
    got = await events(ScriptedProvider([text]))
    assert "".join(event.text for event in got if isinstance(event, TextDelta)) == text


async def test_errors_come_in_place_of_an_answer_or_of_its_end() -> None:
    provider = ScriptedProvider([ModelError("down"), Say(text="half", error=ModelError("cut"))])
    with pytest.raises(ModelError, match="down"):
        await events(provider)
    got: list[object] = []

    async def read() -> None:
        got.extend([event async for event in provider.stream(REQUEST)])

    with pytest.raises(ModelError, match="cut"):
        await read()
    with pytest.raises(ModelError, match="2 lines, and the model was asked for line 3"):
        await events(provider)


async def test_a_function_answers_and_may_wait() -> None:
    go = asyncio.Event()

    async def script(request: ModelRequest) -> str:
        await go.wait()
        return request.messages[-1].text.upper()

    provider = ScriptedProvider(script, api="anthropic", model="claude")
    task = asyncio.create_task(events(provider))
    go.set()
    assert (await task)[0] == TextDelta(text="HI")
    assert (provider.api, provider.model) == ("anthropic", "claude")
    assert (await events(ScriptedProvider(lambda _: Say(finish="refused"))))[-1] == Answered(
        message=Message(role="assistant"), finish="refused", model="scripted"
    )
    await provider.aclose()
