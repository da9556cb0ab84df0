"""Ollama's own API: what is sent, and what comes back, also when it breaks off."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from dragoman.agent.messages import (
    Answered,
    CallDelta,
    Message,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    ToolCall,
)
from dragoman.agent.providers import ProviderError, RetryPolicy, StreamBrokenError
from dragoman.agent.providers.http_endpoint import HttpEndpoint
from dragoman.agent.providers.ollama import OllamaProvider
from dragoman.model import Part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.agent.messages import ModelEvent

DONE = {"done": True, "done_reason": "stop", "prompt_eval_count": 12, "eval_count": 3}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
ASK = Message(role="user", text="hi")


@asynccontextmanager
async def opened(
    *answers: tuple[int, bytes], **options: Any
) -> AsyncIterator[tuple[OllamaProvider, list[dict[str, Any]]]]:
    """Serve these answers, one after the other, and open a model there."""
    left = list(answers)
    came: list[dict[str, Any]] = []

    async def chat(request: web.Request) -> web.Response:
        came.append(await request.json())
        status, body = left.pop(0)
        return web.Response(status=status, body=body)

    app = web.Application()
    app.router.add_post("/api/chat", chat)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    policy = RetryPolicy(attempts=2, first=0)
    endpoint = HttpEndpoint(provider="ollama", base_url=f"http://{host}:{port}", policy=policy)
    model = OllamaProvider("m", endpoint=endpoint, **options)
    try:
        yield model, came
    finally:
        await model.aclose()
        await runner.cleanup()


def lines(*objects: object) -> bytes:
    return "".join(f"{json.dumps(one)}\n" for one in objects).encode()


def said(**message: Any) -> dict[str, Any]:
    return {"model": "m:latest", "message": {"role": "assistant", **message}, "done": False}


async def events(model: OllamaProvider, *messages: Message, **fields: Any) -> list[ModelEvent]:
    return [event async for event in model.stream(ModelRequest(messages=messages or (ASK,), **fields))]


async def test_thoughts_text_and_parallel_calls() -> None:
    calls = [
        {"function": {"name": "add", "arguments": {"a": 1, "b": "zwei"}}},
        {"function": {"name": "add", "arguments": {}}},
    ]
    body = lines(
        said(thinking="hm"), said(content="So"), said(tool_calls=calls), {**said(content=""), **DONE}
    )
    async with opened((200, body)) as (model, _):
        got = await events(model)
    assert got[:2] == [ThoughtDelta(text="hm"), TextDelta(text="So")]
    assert [event.name for event in got if isinstance(event, CallDelta)] == ["add", "add"]
    end = got[-1]
    assert isinstance(end, Answered)
    assert (end.finish, end.model, end.message.text) == ("tool_calls", "m:latest", "So")
    assert [call.arguments for call in end.message.calls] == [{"a": 1, "b": "zwei"}, {}]
    assert len({call.id for call in end.message.calls}) == 2
    assert (end.usage.input_tokens, end.usage.output_tokens) == (12, 3)


async def test_a_conversation_goes_back_with_its_calls_images_and_thoughts() -> None:
    call = ToolCall(id="c1", name="look", arguments={"at": 1}, raw='{"at": 1}')
    broken = ToolCall(id="c2", name="look", raw="{oops", problem="not JSON")
    image = Part(kind="image", data=PIXEL, mime_type="image/png")
    talk = [
        Message(role="system", text="be brief"),
        ASK,
        Message(role="assistant", calls=[call, broken], native={"ollama": {"thinking": "hm", "model": "m"}}),
        Message(role="tool", call_id="c1", name="look", text="a cat", parts=[image]),
        Message(role="tool", call_id="c2", name="look", text="bad", is_error=True),
    ]
    async with opened((200, lines({**said(content="cat"), **DONE})), think="low") as (model, came):
        await events(model, *talk, max_tokens=50, temperature=0.5, stop=["x"])
    sent = came[0]
    assert sent["think"] == "low"
    assert sent["options"] == {"num_ctx": 16_384, "num_predict": 50, "temperature": 0.5, "stop": ["x"]}
    assert [one["role"] for one in sent["messages"]] == ["system", "user", "assistant", "tool", "tool"]
    turn, first, second = sent["messages"][2:]
    assert turn["thinking"] == "hm"
    assert [one["function"]["arguments"] for one in turn["tool_calls"]] == [{"at": 1}, {}]
    assert (first["tool_name"], first["tool_call_id"], len(first["images"])) == ("look", "c1", 1)
    assert second["content"] == "Error: bad"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (lines(said(content="so")), StreamBrokenError, "without a finish reason"),
        (lines(said(content="so")) + b'{"oops\n', StreamBrokenError, "not valid JSON"),
        (lines(said(content="so"), {"error": "out of memory"}), ProviderError, "out of memory"),
        (b"", StreamBrokenError, "without a finish reason"),
    ],
)
async def test_an_answer_that_breaks_off(body: bytes, kind: type[ProviderError], words: str) -> None:
    async with opened((200, body)) as (model, came):
        with pytest.raises(kind, match=words):
            await events(model)
    assert len(came) == 1


async def test_a_refusal_says_why_and_a_busy_server_is_asked_again() -> None:
    missing = lines({"error": "model 'm' not found"})
    async with opened((404, missing)) as (model, _):
        with pytest.raises(ProviderError, match="model 'm' not found") as caught:
            await events(model)
    assert caught.value.status == 404
    async with opened((503, b"busy"), (200, lines({**said(content="ok"), **DONE}))) as (model, came):
        end = (await events(model))[-1]
    assert isinstance(end, Answered)
    assert end.message.text == "ok"
    assert len(came) == 2
