from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import DragomanError, UnknownServerError
from dragoman.manager.manager import McpManager
from dragoman.model import Http, ServerSpec, ServerState, Settings, Stdio
from dragoman.testing import ScriptedServer
from dragoman.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SPEC = ServerSpec("law", Http("http://127.0.0.1:9/mcp"))


async def test_observing_starts_nothing() -> None:
    mcp = McpManager(Settings(servers=[SPEC]))
    assert mcp.status()["law"].state is ServerState.IDLE
    assert mcp.status()["law"].transport == "http"
    assert mcp.tools() == []


async def test_given_registry_is_the_one_in_use_even_if_it_is_empty() -> None:
    registry = ToolRegistry()
    assert McpManager([], registry=registry).registry is registry


async def test_unknown_server_is_named_with_those_there_are() -> None:
    async with McpManager([ServerSpec("law", SPEC.transport, enabled=False)]) as mcp:
        with pytest.raises(UnknownServerError, match="known servers: `law`") as caught:
            await mcp.restart("laws")
    assert caught.value.suggestions == ("law",)


async def test_trust_project_can_be_read_back() -> None:
    assert McpManager([], trust_project=True).trust_project
    assert not McpManager([]).trust_project


@pytest.mark.parametrize("first", ["enter", "connect", "close"])
@pytest.mark.parametrize("is_guest", [False, True], ids=["its own loop", "a guest of asyncio"])
async def test_another_event_loop_is_refused_plainly(first: str, is_guest: bool) -> None:
    import sniffio

    manager = McpManager([ServerSpec("s", Stdio("true"))])
    uses: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "enter": manager.__aenter__,
        "connect": lambda: McpManager.connect_all([]),
        "close": manager.shutdown,
    }

    def use() -> None:
        # As trio does it: it says that it runs, and drives the coroutine itself.
        sniffio.thread_local.name = "trio"
        try:
            uses[first]().send(None)
        finally:
            sniffio.thread_local.name = None

    async def run() -> None:
        return use() if is_guest else await asyncio.to_thread(use)

    with pytest.raises(DragomanError, match=r"needs asyncio, and this runs under trio \(.*dragoman.blocking"):
        await run()
    assert not manager.started


async def test_no_event_loop_at_all_is_refused_plainly() -> None:
    def use() -> None:
        McpManager([]).__aenter__().send(None)

    with pytest.raises(DragomanError, match="needs asyncio, and this runs under no event loop of asyncio"):
        await asyncio.to_thread(use)


async def test_a_manager_is_started_and_closed_without_a_block() -> None:
    server = ScriptedServer("s")
    mcp = McpManager([server.spec(lazy=True)], cache=False)
    with pytest.raises(DragomanError, match="is not started"):
        await mcp.start(["s"])
    await mcp.start()
    try:
        assert mcp.started
        assert mcp.status()["s"].state is ServerState.IDLE
        await mcp.start(["s"])
        assert await mcp.wait_ready(["s"])
        with pytest.raises(UnknownServerError):
            await mcp.start(["t"])
        with pytest.raises(DragomanError, match="already started"):
            await mcp.start()
    finally:
        await mcp.close()
    with pytest.raises(DragomanError, match="the manager is closed"):
        await mcp.start()


async def test_a_user_is_started_and_closed_without_a_block() -> None:
    server = ScriptedServer("s")
    async with McpManager([server.spec(lazy=True)], cache=False) as mcp:
        alice = mcp.as_user("alice")
        await alice.start()
        assert await alice.wait_ready()
        assert mcp.status()["s"].state is ServerState.IDLE
        await alice.close()
        with pytest.raises(DragomanError, match="call `as_user` again"):
            await alice.start()
