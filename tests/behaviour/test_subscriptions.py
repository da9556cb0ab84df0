"""Changes of resources, log messages and roots: old and new protocol, stdio and HTTP, after reconnections."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.real.servers import command
from tests.waiting import until
from tests.warm import server_command

from dragoman import DragomanError, Handlers, McpManager, ServerSpec, ServerState, Stdio, UnknownServerError
from dragoman.blocking import manager
from dragoman.events import PromptsChanged, ResourceChanged, ResourcesChanged, StateChanged

if TYPE_CHECKING:
    from dragoman.events import Event

SERVERS = Path(__file__).resolve().parents[1] / "servers"
DAY = "sample://day"
ERAS = pytest.mark.parametrize("script", ["telling.py", "changing.py"])


def spec(script: str, **more: Any) -> ServerSpec:
    command, *words = server_command(SERVERS / script)
    return ServerSpec("s", Stdio(command, words), **more)


async def succeed(mcp: McpManager, tool: str, **arguments: Any) -> str:
    result = await mcp.call(f"mcp_s_{tool}", arguments)
    assert result.success, result.error
    return result.text


@pytest.mark.usefixtures("pipes")
@ERAS
async def test_changes_of_a_resource_are_told_by_event_and_to_the_handler(script: str) -> None:
    told: asyncio.Queue[ResourceChanged] = asyncio.Queue()
    with anyio.fail_after(50):
        async with McpManager([spec(script)], cache=False) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            await mcp.subscribe(DAY, on_change=told.put)
            await succeed(mcp, "touch", uri=DAY)
            assert await until(events, ResourceChanged) == ResourceChanged(server="s", uri=DAY)
            assert await told.get() == ResourceChanged(server="s", uri=DAY)
            assert told.empty()


@ERAS
async def test_many_changes_are_one_and_others_resources_none_of_ours(script: str) -> None:
    with anyio.fail_after(50):
        async with McpManager([spec(script)], cache=False) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            await mcp.subscribe(DAY, "s")
            await succeed(mcp, "touch", uri="sample://night")
            await succeed(mcp, "touch", uri=DAY, times=500)
            await succeed(mcp, "rearrange")
            heard: list[Event] = []
            async for event in events:
                if isinstance(event, PromptsChanged):
                    break
                heard.append(event)
            changes = [event for event in heard if isinstance(event, ResourceChanged)]
            assert set(changes) == {ResourceChanged(server="s", uri=DAY)}
            assert len(changes) < 100
            assert ResourcesChanged(server="s") in heard


@ERAS
async def test_changes_of_listings_are_told_without_a_subscription(script: str) -> None:
    with anyio.fail_after(50):
        async with McpManager([spec(script)], cache=False) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            # A modern server notifies only open streams; `subscribe` waits until the stream is open.
            await mcp.subscribe(DAY)
            await succeed(mcp, "rearrange")
            assert await until(events, ResourcesChanged) == ResourcesChanged(server="s")
            assert await until(events, PromptsChanged) == PromptsChanged(server="s")


@ERAS
async def test_subscription_survives_the_end_of_its_server_and_what_was_missed_is_told(script: str) -> None:
    with anyio.fail_after(50):
        async with McpManager([spec(script)], cache=False) as mcp:
            assert await mcp.wait_ready()
            await mcp.subscribe(DAY)
            events = mcp.events()
            await mcp.call("mcp_s_exit")
            await until(events, StateChanged, after=ServerState.READY)
            await until(events, ResourceChanged, uri=DAY)
            await succeed(mcp, "touch", uri=DAY)
            await until(events, ResourceChanged, uri=DAY)
            await mcp.restart("s")
            await until(events, ResourceChanged, uri=DAY)
            await succeed(mcp, "touch", uri=DAY)
            await until(events, ResourceChanged, uri=DAY)


async def test_subscription_goes_over_to_a_server_that_takes_the_place_of_another(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"

    def write(note: str) -> None:
        entry = {"command": sys.executable, "args": [str(SERVERS / "telling.py"), note]}
        file.write_text(json.dumps({"mcpServers": {"s": entry}}))

    write("one")
    with anyio.fail_after(50):
        async with McpManager.from_config(config=file, cache=False, trust_project=True) as mcp:
            assert await mcp.wait_ready()
            await mcp.subscribe(DAY)
            before = mcp.status()["s"].pid
            events = mcp.events()
            write("two")
            assert (await mcp.reload()).replaced == ("s",)
            assert mcp.status()["s"].pid != before
            await until(events, ResourceChanged, uri=DAY)
            assert json.loads(await succeed(mcp, "subscribed")) == [DAY]


async def test_older_server_is_told_of_the_end_of_a_subscription() -> None:
    with anyio.fail_after(50):
        async with McpManager([spec("telling.py")], cache=False) as mcp:
            assert await mcp.wait_ready()
            await mcp.subscribe(DAY)
            await mcp.subscribe("sample://other", "s")
            assert json.loads(await succeed(mcp, "subscribed")) == [DAY, "sample://other"]
            await mcp.unsubscribe(DAY)
            assert json.loads(await succeed(mcp, "subscribed")) == ["sample://other"]
            await mcp.restart("s")
            events = mcp.events()
            await until(events, ResourceChanged, uri="sample://other")
            assert json.loads(await succeed(mcp, "subscribed")) == ["sample://other"]


@pytest.mark.usefixtures("pipes")
async def test_modern_server_tells_no_more_of_what_was_unsubscribed() -> None:
    with anyio.fail_after(50):
        async with McpManager([spec("changing.py")], cache=False) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            for uri in (DAY, "sample://other"):
                await mcp.subscribe(uri, "s")
                await succeed(mcp, "touch", uri=uri)
                await until(events, ResourceChanged, uri=uri)
            await mcp.unsubscribe(DAY)
            await succeed(mcp, "touch", uri=DAY)
            await succeed(mcp, "touch", uri="sample://other")
            event = await until(events, ResourceChanged)
            assert event == ResourceChanged(server="s", uri="sample://other")


async def test_subscription_that_is_refused_is_an_error_and_forgotten() -> None:
    with anyio.fail_after(50):
        async with McpManager([spec("telling.py")], cache=False) as mcp:
            assert await mcp.wait_ready()
            with pytest.raises(DragomanError, match="not that one"):
                await mcp.subscribe("sample://secret", "s", on_change=print)
            with pytest.raises(UnknownServerError):
                await mcp.subscribe(DAY, "unknown")
            await mcp.restart("s")
            assert json.loads(await succeed(mcp, "subscribed")) == []


async def test_handler_that_fails_is_logged_and_the_next_change_told(caplog: Any) -> None:
    told: asyncio.Queue[ResourceChanged] = asyncio.Queue()

    def broken(event: ResourceChanged) -> None:
        told.put_nowait(event)
        raise RuntimeError("no news today")

    with anyio.fail_after(50):
        async with McpManager([spec("telling.py")], cache=False) as mcp:
            assert await mcp.wait_ready()
            await mcp.subscribe(DAY, on_change=broken)
            for _ in range(2):
                await succeed(mcp, "touch", uri=DAY)
                await told.get()
    assert "handler of a subscription failed" in caplog.text


@ERAS
async def test_log_messages_come_from_the_level_on_that_was_asked_for(script: str, caplog: Any) -> None:
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    handlers = Handlers(logging=lambda _, message: said.put_nowait(message))
    caplog.set_level(logging.DEBUG, "dragoman")
    with anyio.fail_after(50):
        async with McpManager([spec(script)], handlers=handlers, cache=False) as mcp:
            assert await mcp.wait_ready()
            await mcp.session.set_log_level("error", "s")
            await succeed(mcp, "log", level="info", text="quiet")
            await succeed(mcp, "log", level="error", text="loud")
            assert (await said.get())["data"] == {"said": "loud"}
            await mcp.session.set_log_level("info")
            await mcp.restart("s")
            await succeed(mcp, "log", level="debug", text="quiet")
            while said.empty():
                # The level is set right after the restart; until then the server uses its own.
                await succeed(mcp, "log", level="info", text="murmur")
                await anyio.lowlevel.checkpoint()
            assert (await said.get())["data"] == {"said": "murmur"}
            with pytest.raises(UnknownServerError):
                await mcp.session.set_log_level("info", "unknown")
    assert "log message (error" in caplog.text


async def test_everything_tells_of_resources_logs_and_asks_for_other_roots() -> None:
    said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    handlers = Handlers(roots=["file:///one"], logging=lambda _, message: said.put_nowait(message))
    program, *arguments = command("everything")
    everything = ServerSpec("everything", Stdio(program, arguments))
    with anyio.fail_after(50):
        async with McpManager([everything], handlers=handlers, cache=False) as mcp:
            assert await mcp.wait_ready()
            await mcp.session.set_log_level("debug")
            uri = (await mcp.resources())[0].uri
            await mcp.subscribe(uri)
            while "Received Subscribe" not in str(await said.get()):
                pass
            events = mcp.events()
            assert (await mcp.call("mcp_everything_toggle-subscriber-updates")).success
            await until(events, ResourceChanged, uri=uri)
            assert "file:///one" in (await mcp.call("mcp_everything_get-roots-list")).text
            await mcp.session.set_roots(["file:///two", "file:///three"])
            while "2 root(s)" not in str(await said.get()):
                pass
            assert "file:///three" in (await mcp.call("mcp_everything_get-roots-list")).text
            await mcp.session.set_roots(["file:///own"], "everything")
            while "1 root(s)" not in str(await said.get()):
                pass
            with pytest.raises(UnknownServerError):
                await mcp.session.set_roots([], "unknown")


async def test_what_no_session_could_take_is_refused_before_it_is_sent() -> None:
    async with McpManager([spec("telling.py")], cache=False) as mcp:
        assert await mcp.wait_ready(timeout=30)
        session = mcp.session
        with pytest.raises(DragomanError, match="levels: debug, info"):
            await session.set_log_level("loud")  # type: ignore[arg-type]
        for roots in ("file:///one", ["/one"], ["file:///one", ""]):
            with pytest.raises(DragomanError, match="is not a URI in a list of roots"):
                await session.set_roots(roots)
        for ref in ({}, {"text": "x"}, {"name": "p", "uri": "x://{a}"}):
            with pytest.raises(DragomanError, match="one prompt or one template"):
                await session.complete(ref, "a", "b", server="s")


def test_twin_without_await_tells_of_changes_too() -> None:
    told: SimpleQueue[ResourceChanged] = SimpleQueue()
    with manager.McpManager([spec("telling.py")], cache=False) as mcp:
        assert mcp.wait_ready(timeout=30)
        mcp.subscribe(DAY, on_change=told.put)
        mcp.session.set_log_level("error")
        mcp.session.set_roots(["file:///one"])
        assert mcp.call("mcp_s_touch", {"uri": DAY}).success
        assert told.get(timeout=30) == ResourceChanged(server="s", uri=DAY)
        mcp.unsubscribe(DAY)
        assert json.loads(mcp.call("mcp_s_subscribed").text) == []
