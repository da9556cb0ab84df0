"""What a model's API, its stream or the network can do wrong: retries, broken streams, cancellation, keys."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import traceback
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from tests.behaviour.models import (
    APIS,
    ASK,
    CALLS,
    GUARD,
    KEYS,
    QUICK,
    answer,
    events,
    failing,
    kinds,
    opened,
)
from tests.servers.model_api import ModelApi

from dragoman.agent.messages import Answered, Message, ModelRequest, Retrying, TextDelta
from dragoman.agent.providers import ProviderAuthError, ProviderError, RetryPolicy, StreamBrokenError
from dragoman.errors import ModelError


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return request.param


# ── refusals and retries


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
async def test_a_refusal_for_now_is_asked_again(api: str, status: int) -> None:
    script = [{"status": status}, {"status": status}, {"text": "ok"}]
    async with ModelApi(script) as server, opened(api, server) as provider:
        got = await events(provider)
    assert kinds(got) == ["Retrying", "TextDelta", "Answered"]
    retries = [event for event in got if isinstance(event, Retrying)]
    assert len(retries) == 2
    assert f"({status})" in retries[0].reason
    assert len(server.requests) == 3
    assert server.requests[0].raw == server.requests[2].raw


async def test_retries_end_and_the_last_refusal_is_raised(api: str) -> None:
    async with (
        ModelApi([{"status": 503, "error": "too busy"}], repeat=True) as server,
        opened(api, server) as provider,
    ):
        with pytest.raises(ProviderError, match=r"failed \(503\): too busy") as caught:
            await events(provider)
    assert len(server.requests) == QUICK.attempts
    error = caught.value
    assert (error.status, error.provider, error.transient) == (503, api, True)
    assert isinstance(error, ModelError)


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, 0.5),
        ({"Retry-After": "nan"}, 0.5),
        ({"Retry-After": "-3"}, 0.5),
    ],
)
async def test_the_pause_that_the_api_asks_for_is_kept(
    api: str, headers: dict[str, str], pause: float
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with ModelApi([{"status": 429, "headers": headers}, {"text": "ok"}]) as server:
        how = {"sleep": sleep, "chance": lambda: 0.0, "policy": RetryPolicy(first=0.5)}
        async with opened(api, server, **how) as provider:
            got = await events(provider)
    assert slept == [pause]
    assert [event.pause for event in got if isinstance(event, Retrying)] == [pause]


async def test_a_pause_that_is_too_long_is_left_to_the_caller(api: str) -> None:
    async with (
        ModelApi([{"status": 429, "headers": {"Retry-After": "3600"}}]) as server,
        opened(api, server) as provider,
    ):
        with pytest.raises(ProviderError) as caught:
            await events(provider)
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        {"status": 429, "headers": {"x-should-retry": "false"}},
        {"status": 429, "kind": "insufficient_quota"},
        {"status": 400, "kind": "context_length_exceeded"},
        {"status": 404},
        {"status": 413},
        {"status": 422},
    ],
    ids=str,
)
async def test_a_refusal_that_stays_is_raised_at_once_in_the_apis_words(
    api: str, refusal: dict[str, Any]
) -> None:
    turn = {"error": "because \x1b[31mof reasons", **refusal}
    async with ModelApi([turn, {"text": "never"}]) as server, opened(api, server) as provider:
        with pytest.raises(ProviderError) as caught:
            await events(provider)
    error = caught.value
    assert len(server.requests) == 1
    assert (error.status, error.provider) == (refusal["status"], api)
    assert "because  [31mof reasons" in str(error)  # The escape that would colour a terminal is gone.
    assert error.kind == refusal.get("kind", error.kind)


async def test_the_api_may_ask_for_a_retry_of_what_looks_final(api: str) -> None:
    script = [{"status": 409, "headers": {"x-should-retry": "true"}}, {"text": "ok"}]
    async with ModelApi(script) as server, opened(api, server) as provider:
        assert (await answer(provider)).message.text == "ok"


async def test_an_illegal_body_gets_the_apis_complaint(api: str) -> None:
    tool = {"type": "function", "name": "a b", "function": {"name": "a b"}}
    async with ModelApi([{"text": "never"}]) as server, opened(api, server) as provider:
        with pytest.raises(ProviderError, match=r"refused the request \(400\): .*name") as caught:
            await events(provider, tools=[tool])
    assert caught.value.status == 400


async def test_a_server_that_is_not_there_is_tried_again_and_named(api: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    async with opened(api, url) as provider:
        got, error = await failing(provider)
    assert kinds(got) == ["Retrying"]
    assert len(got) == QUICK.attempts - 1
    assert error.status is None
    assert url in str(error)
    assert "check that the server runs" in str(error)


async def test_a_connection_lost_before_the_answer_is_tried_again(api: str) -> None:
    async with ModelApi([{"broken": "drop"}, {"text": "ok"}]) as server, opened(api, server) as provider:
        assert kinds(await events(provider)) == ["Retrying", "TextDelta", "Answered"]


async def test_an_overload_told_inside_the_stream_before_anything_else_is_tried_again(api: str) -> None:
    script = [{"text": "x", "broken": "error at once"}, {"text": "ok"}]
    async with ModelApi(script) as server, opened(api, server) as provider:
        got = await events(provider)
    assert kinds(got) == ["Retrying", "TextDelta", "Answered"]
    assert isinstance(got[0], Retrying)
    assert "Overloaded" in got[0].reason


# ── streams that break


@pytest.mark.parametrize("broken", ["cut", "no finish", "bad json", "bad utf-8", "error"])
async def test_a_broken_stream_is_an_error_that_has_what_came(api: str, broken: str) -> None:
    turn = {"text": "the beginning of something", "calls": CALLS, "broken": broken}
    async with ModelApi([turn, {"text": "never"}]) as server, opened(api, server) as provider:
        got, error = await failing(provider)
    assert "TextDelta" in kinds(got)
    assert not any(isinstance(event, Retrying | Answered) for event in got)
    assert len(server.requests) == 1
    assert error.partial is not None
    assert error.partial.text == "the beginning of something"
    assert "26 characters of text and 2 tool calls received before" in str(error)
    if broken == "no finish":
        assert isinstance(error, StreamBrokenError)
        assert "without a finish reason" in str(error)
    if broken in {"bad json", "bad utf-8"}:
        assert "not valid JSON" in str(error)


@pytest.mark.parametrize("broken", ["empty", "not a stream"])
async def test_an_answer_without_an_event_is_an_error(api: str, broken: str) -> None:
    async with ModelApi([{"text": "x", "broken": broken}]) as server, opened(api, server) as provider:
        with pytest.raises(StreamBrokenError, match="without a finish reason") as caught:
            await events(provider)
    assert caught.value.partial is None


async def test_a_missing_end_mark_does_no_harm_once_the_reason_is_known(api: str) -> None:
    async with ModelApi([{"text": "all", "broken": "no done"}]) as server, opened(api, server) as provider:
        assert (await answer(provider)).message.text == "all"


async def test_silence_ends_with_an_error(api: str) -> None:
    script = [{"text": "some text", "hold": True}]
    async with ModelApi(script) as server, opened(api, server, idle_timeout=0.05) as provider:
        with pytest.raises(ProviderError, match=r"no data .* for 0.05 s"):
            await events(provider)


# ── letting go


async def test_cancellation_closes_the_connection(api: str) -> None:
    async with (
        ModelApi([{"text": "some longer text", "hold": True}]) as server,
        opened(api, server) as provider,
    ):
        task = asyncio.create_task(events(provider))
        with anyio.fail_after(GUARD):
            await server.holding.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.left.wait()


async def test_leaving_the_iteration_closes_the_connection(api: str) -> None:
    script = [{"text": "some longer text", "hold": True}, {"text": "ok"}]
    async with ModelApi(script) as server, opened(api, server) as provider:
        async with aclosing(provider.stream(ModelRequest(messages=[ASK]))) as stream:
            async for event in stream:
                assert isinstance(event, TextDelta)
                break
        with anyio.fail_after(GUARD):
            await server.left.wait()
        assert (await answer(provider)).message.text == "ok"


async def test_cancellation_during_the_pause_ends_it(api: str) -> None:
    pausing = asyncio.Event()

    async def sleep(_: float) -> None:
        pausing.set()
        await asyncio.Event().wait()

    async with ModelApi([{"status": 500}]) as server, opened(api, server, sleep=sleep) as provider:
        task = asyncio.create_task(events(provider))
        with anyio.fail_after(GUARD):
            await pausing.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert len(server.requests) == 1


async def test_many_questions_at_once_do_not_mix(api: str) -> None:
    def script(body: dict[str, Any]) -> dict[str, Any]:
        said = json.dumps(body["messages" if api != "responses" else "input"])
        return {"text": f"answer to {said[said.index('question') :][:11]}"}

    async with ModelApi(script) as server, opened(api, server) as provider:
        asked = [Message(role="user", text=f"question-{number:02}") for number in range(30)]
        answers = await asyncio.gather(*(answer(provider, message) for message in asked))
    assert [last.message.text for last in answers] == [f"answer to {message.text}" for message in asked]


async def test_a_closed_model_says_so(api: str) -> None:
    async with ModelApi([{"text": "x"}]) as server:
        async with opened(api, server) as provider:
            pass
        with pytest.raises(ProviderError, match="closed"):
            await events(provider)
    assert server.requests == []


# ── keys


async def test_the_key_is_sent_and_never_shown(api: str, caplog: pytest.LogCaptureFixture) -> None:
    key = "an-odd-key-4711"
    script = [{"status": 401, "error": f"Incorrect API key provided: {key}"}]
    caplog.set_level(logging.DEBUG)
    async with ModelApi(script) as server, opened(api, server, key=key) as provider:
        with pytest.raises(ProviderAuthError) as caught:
            await events(provider)
        shown = [repr(provider), str(vars(provider)), repr(vars(provider))]
    error = caught.value
    headers = server.requests[0].headers
    assert key in headers.get("authorization", "") + headers.get("x-api-key", "")
    assert f"check `{KEYS[api]}`" in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    shown += ["".join(traceback.format_exception(error)), repr(error), repr(vars(error)), caplog.text]
    assert [text for text in shown if key in text] == []


async def test_a_server_without_a_key_gets_none(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The environment of the process is not the one that was given.
    monkeypatch.setenv(KEYS[api], "not-for-you-4711")
    async with ModelApi([{"text": "ok"}, {"status": 401}]) as server, opened(api, server) as provider:
        await answer(provider)
        with pytest.raises(ProviderAuthError, match=f"set `{KEYS[api]}`"):
            await events(provider)
    for request in server.requests:
        assert "authorization" not in request.headers
        assert "x-api-key" not in request.headers
        assert "4711" not in str(request.headers)


async def test_a_redirect_is_not_followed_with_the_key(api: str) -> None:
    async with ModelApi([{"text": "stolen"}]) as thief:
        location = {"Location": f"{thief.url}/v1/messages"}
        script = [{"status": 307, "headers": location}]
        async with ModelApi(script) as server, opened(api, server, key="k-4711") as provider:
            with pytest.raises(ProviderError, match="redirects elsewhere"):
                await events(provider)
    assert thief.requests == []


async def test_a_proxy_for_the_world_is_not_asked_for_this_machine(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with ModelApi([{"text": "ok"}]) as server, opened(api, server) as provider:
        assert (await answer(provider)).message.text == "ok"
