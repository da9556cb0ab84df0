from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from dragoman.agent.providers.local import LOCAL_SERVERS, LocalServer, find_local

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

GOOD = '{"object": "list", "data": [{"id": "nomic-embed-text"}, {"id": "qwen"}, {"no": "id"}, 7, {"id": "llama"}]}'


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/v1/models", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def saying(body: str, status: int = 200, **headers: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        assert "Authorization" not in request.headers
        return web.Response(text=body, status=status, headers=headers)

    return answer


def unused() -> str:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}/v1"


def test_only_loopback_is_looked_at() -> None:
    assert {url.split(":")[1] for url in LOCAL_SERVERS.values()} == {"//127.0.0.1"}
    assert sorted(int(url.split(":")[2].partition("/")[0]) for url in LOCAL_SERVERS.values()) == [
        1234,
        8000,
        8080,
        11434,
    ]


async def test_the_models_that_can_chat_are_listed() -> None:
    async with serving(saying(GOOD)) as url:
        assert await find_local([f"{url}/"]) == LocalServer(base_url=url, models=["qwen", "llama"])


@pytest.mark.parametrize(
    ("body", "status", "headers"),
    [
        ("<html>hello</html>", 200, {}),
        ("[]", 200, {}),
        ('{"data": {}}', 200, {}),
        ('{"data": []', 200, {}),
        ("[" * 100_000, 200, {}),
        (GOOD, 404, {}),
        (GOOD, 302, {"Location": "http://127.0.0.1:1/"}),
    ],
    ids=["a page", "a list", "no list", "cut", "deep", "not found", "a redirect"],
)
async def test_something_else_on_the_port_is_no_model_server(
    body: str, status: int, headers: dict[str, str]
) -> None:
    async with serving(saying(body, status, **headers)) as url:
        assert await find_local([url]) is None


async def test_nothing_there_is_none() -> None:
    assert await find_local([unused(), unused()]) is None


async def test_the_first_with_a_model_wins_and_one_without_is_the_last_resort() -> None:
    empty, full = saying('{"data": []}'), saying(GOOD)
    async with serving(empty) as first, serving(full) as second:
        found = await find_local([unused(), first, second])
        assert found is not None
        assert found.base_url == second
        assert await find_local([first]) == LocalServer(base_url=first, models=[])


async def test_all_are_asked_at_once_and_a_silent_one_does_not_hold_up_for_long() -> None:
    asked = [asyncio.Event(), asyncio.Event()]

    def waiting(own: asyncio.Event, other: asyncio.Event) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            own.set()
            await other.wait()  # Only a question at the same time sets it.
            return web.Response(text=GOOD)

        return answer

    async def silent(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with (
        serving(silent) as mute,
        serving(waiting(asked[0], asked[1])) as first,
        serving(waiting(asked[1], asked[0])) as second,
    ):
        found = await find_local([mute, first, second], timeout=0.5)
    assert found is not None
    assert found.base_url == first
