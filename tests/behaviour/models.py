"""A model behind one of the three APIs at the scripted server, and what a test asks of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman.agent.messages import Answered, Message, ModelRequest
from dragoman.agent.providers import ProviderError, RetryPolicy, open_provider
from dragoman.agent.providers.local import KEYS as LOCAL_KEYS
from dragoman.agent.providers.open import VARIABLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.servers.model_api import ModelApi

    from dragoman.agent.messages import ModelEvent, Provider

APIS = ("openai", "responses", "anthropic")
KEYS = {**VARIABLES, **LOCAL_KEYS}
GUARD = 50.0
"""A guard against hangs, not a measurement."""
QUICK = RetryPolicy(attempts=3, first=0)
ASK = Message(role="user", text="hi")
CALLS = [{"name": "add", "arguments": {"a": 1, "b": "zwei"}}, {"name": "now", "arguments": {}}]


@asynccontextmanager
async def opened(
    api: str, server: ModelApi | str, *, key: str = "", model: str = "m", **how: Any
) -> AsyncIterator[Provider]:
    base_url = server if isinstance(server, str) else server.base_url(api)
    how.setdefault("policy", QUICK)
    env = {KEYS[api]: key} if key else {}
    provider = await open_provider(f"{api}:{model}", base_url=base_url, env=env, **how)
    try:
        yield provider
    finally:
        await provider.aclose()


async def events(provider: Provider, *messages: Message, **fields: Any) -> list[ModelEvent]:
    with anyio.fail_after(GUARD):
        return [event async for event in provider.stream(ModelRequest(messages=messages or (ASK,), **fields))]


async def failing(provider: Provider) -> tuple[list[ModelEvent], ProviderError]:
    """Return what came, and the error that ended it."""
    got: list[ModelEvent] = []
    try:
        with anyio.fail_after(GUARD):
            async for event in provider.stream(ModelRequest(messages=[ASK])):
                got.append(event)  # noqa: PERF401 -- what came before the error is looked at
    except ProviderError as error:
        return got, error
    pytest.fail("no error")


async def answer(provider: Provider, *messages: Message, **fields: Any) -> Answered:
    last = (await events(provider, *messages, **fields))[-1]
    assert isinstance(last, Answered)
    return last


def results(message: Message, *texts: str, **fields: Any) -> list[Message]:
    return [
        Message(role="tool", call_id=call.id, name=call.name, text=text, **fields)
        for call, text in zip(message.calls, texts, strict=True)
    ]


def kinds(events: Sequence[ModelEvent]) -> list[str]:
    found: list[str] = []
    for event in events:
        if not found or found[-1] != type(event).__name__:
            found.append(type(event).__name__)
    return found
