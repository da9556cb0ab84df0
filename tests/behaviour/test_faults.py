"""Servers that misbehave: the call ends with a typed error, the neighbour notices nothing, the server comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.faults import (
    FAULTS,
    MODES,
    STUCK,
    Fault,
    Mode,
    asked,
    check,
    children_of,
    comes_back,
    faulty,
)

from dragoman import (
    CallTimeoutError,
    McpManager,
    ProtocolError,
    ServerState,
    ToolUnavailableError,
    UnknownToolError,
)
from dragoman.events import StateChanged, ToolsChanged
from dragoman.server.process import family
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.outgoing import Outgoing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("pipes")]


@pytest.fixture(autouse=True)
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask politely for a moment only: many of these servers have to be killed."""
    monkeypatch.setattr(family, "STDIN_GRACE", 0.2)
    monkeypatch.setattr(family, "TERM_GRACE", 0.2)


async def neighbours(mcp: McpManager) -> None:
    for number in range(5):
        assert (await mcp.call("mcp_good_echo", {"text": f"{number}"})).text == f"{number}"


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_of_one_call_ends_that_call_and_nothing_else(fault: Fault) -> None:
    with anyio.fail_after(50):
        async with McpManager([faulty("bad"), faulty("good", "good")]) as mcp:
            assert await mcp.wait_ready()
            pid, events = mcp.status()["bad"].pid, mcp.events()
            call = asyncio.ensure_future(
                mcp.call("mcp_bad_fault", {"kind": fault.kind}, timeout=fault.timeout)
            )
            await neighbours(mcp)
            check(await call, fault)
            if not fault.survives:
                async for event in events:
                    if isinstance(event, StateChanged):
                        assert (event.server, event.after) == ("bad", ServerState.BACKOFF)
                        break
            await comes_back(mcp, "bad", events)
            again = await mcp.call("mcp_bad_echo", {"text": "again"})
            assert again.text == "again"
            assert (mcp.status()["bad"].pid == pid) is fault.survives
            await neighbours(mcp)
            assert all(gone(number) for number in children_of("sound"))


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_server_that_misbehaves_from_the_beginning_harms_no_other(mode: Mode) -> None:
    specs = [faulty("bad", mode.name, timeouts={"connect": mode.connect}), faulty("good", "good")]
    with anyio.fail_after(50):
        async with McpManager(specs) as mcp:
            events = mcp.events()
            await mcp.wait_ready(["good"])
            await neighbours(mcp)
            async for event in events:
                if isinstance(event, StateChanged) and event.server == "bad":
                    assert event.after is mode.state, event.reason
                    assert mode.said in event.reason
                    break
            if mode.comes_back:
                await comes_back(mcp, "bad", events)
                listed = tuple(tool.original_name for tool in mcp.tools() if tool.server == "bad")
                assert listed == mode.tools
                assert mcp.status()["bad"].last_error is None
            if mode.comes_back and mode.tools:
                assert (await mcp.call("mcp_bad_echo", {"text": "here"})).text == "here"
            await neighbours(mcp)
    assert all(gone(pid) for pid in children_of(mode.name))


@pytest.mark.parametrize("fault", STUCK, ids=str)
async def test_server_that_is_stuck_is_found_out_by_its_silence(fault: Fault) -> None:
    specs = [faulty("bad", health_check_interval=0.5), faulty("good", "good")]
    with anyio.fail_after(50):
        async with McpManager(specs) as mcp:
            await mcp.wait_ready()
            pid, events = mcp.status()["bad"].pid, mcp.events()
            check(await mcp.call("mcp_bad_fault", {"kind": fault.kind}, timeout=fault.timeout), fault)
            # Calls go on, so that it is never idle.
            while mcp.status()["bad"].pid == pid:
                result = await mcp.call("mcp_bad_echo", {"text": "?"}, timeout=0.2)
                assert isinstance(result.exception, CallTimeoutError | ToolUnavailableError)
                await neighbours(mcp)
            await comes_back(mcp, "bad", events)
            assert (await mcp.call("mcp_bad_echo", {"text": "again"})).text == "again"
            assert gone(pid)


async def test_write_to_a_server_that_does_not_read_is_under_the_deadline_too() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("bad"), faulty("good", "good")]) as mcp:
            await mcp.wait_ready()
            stuck = asyncio.ensure_future(mcp.call("mcp_bad_fault", {"kind": "stops-reading"}, timeout=1))
            large = {"text": "x" * 1_000_000}
            calls = [mcp.call("mcp_bad_echo", large, timeout=0.3) for _ in range(8)]
            for result in await asyncio.gather(*calls):
                assert isinstance(result.exception, CallTimeoutError)
            await neighbours(mcp)
            assert isinstance((await stuck).exception, CallTimeoutError)
            connection = mcp._parts.supervisors["bad"]._connection
            assert connection is not None
            wire = connection.session._dispatcher.wire
            # Only the check that follows a time-out may wait there.
            assert not [queued for queued, envelope in wire._queue if envelope.method == "tools/call"]


async def test_tool_that_is_not_listed_is_refused_by_the_server_without_a_hidden_listing() -> None:
    with anyio.fail_after(20):
        async with McpManager([faulty("bad")]) as mcp:
            await mcp.wait_ready()
            assert isinstance((await mcp.call("mcp_bad_unlisted")).exception, UnknownToolError)
            with pytest.raises(ProtocolError, match="no tool unlisted"):
                async with mcp._parts.supervisors["bad"].acquire(Deadline.after(5)) as connection:
                    await connection.call_tool(Outgoing("unlisted", {}, Deadline.after(5)))
            assert asked("sound").count("tools/list") == 1


async def test_endless_pagination_is_cut_short() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("bad", "endless-pages")]) as mcp:
            assert await mcp.wait_ready()
            assert mcp.status()["bad"].tools == 502
            assert asked("endless-pages").count("tools/list") == 500


async def test_five_thousand_announced_changes_are_few_listings() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("bad", "changes")]) as mcp:
            await mcp.wait_ready()
            events = mcp.events()
            assert (await mcp.call("mcp_bad_fault", {"kind": "change-flood"})).text == "ok"
            async for event in events:
                if isinstance(event, ToolsChanged):
                    assert event.removed == ("mcp_bad_version1",)
                    break
            assert asked("changes").count("tools/list") <= 4
            assert mcp.status()["bad"].state is ServerState.READY


async def test_server_that_announces_a_change_with_every_listing_is_listed_ever_more_rarely() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("bad", "restless")]) as mcp:
            await mcp.wait_ready()
            changes = [event async for event in first(mcp, ToolsChanged, 4)]
            assert [change.added for change in changes[-1:]] == [("mcp_bad_version5",)]
            assert (await mcp.call("mcp_bad_echo", {"text": "x"})).text == "x"


async def test_answer_that_comes_too_late_is_dropped() -> None:
    with anyio.fail_after(20):
        async with McpManager([faulty("bad")]) as mcp:
            await mcp.wait_ready()
            late = await mcp.call("mcp_bad_fault", {"kind": "late"}, timeout=0.2)
            assert isinstance(late.exception, CallTimeoutError)
            for number in range(20):
                assert (await mcp.call("mcp_bad_echo", {"text": f"{number}"})).text == f"{number}"
            assert "notifications/cancelled" in asked("sound")


async def test_unreadable_answer_with_the_id_of_another_call_inside_fails_its_own_call_alone() -> None:
    with anyio.fail_after(20):
        async with McpManager([faulty("bad")]) as mcp:
            await mcp.wait_ready()
            other = asyncio.ensure_future(mcp.call("mcp_bad_fault", {"kind": "late"}, timeout=0.5))
            await asyncio.sleep(0)
            bad = await mcp.call("mcp_bad_fault", {"kind": "others-id-inside"})
            assert isinstance(bad.exception, ProtocolError)
            assert not other.done()
            assert isinstance((await other).exception, CallTimeoutError)


async def test_server_that_exits_after_each_call_is_started_for_each() -> None:
    with anyio.fail_after(40):
        async with McpManager([faulty("bad", "exits-after-each-call")]) as mcp:
            await mcp.wait_ready()
            for number in range(3):
                events = mcp.events()
                result = await mcp.call("mcp_bad_echo", {"text": f"{number}"})
                assert result.text == f"{number}"
                async for event in events:
                    if isinstance(event, StateChanged) and event.after is ServerState.BACKOFF:
                        break
            assert asked("exits-after-each-call").count("start") == 3


async def test_server_in_a_crash_loop_is_tried_again_with_its_last_words_shown() -> None:
    with anyio.fail_after(40):
        async with McpManager([faulty("bad", "crash-at-start")]) as mcp:
            events = mcp.events()
            await mcp.wait_ready()
            tries = [event async for event in first(mcp, StateChanged, 4, events)]
            assert [event.after for event in tries] == ["backoff", "connecting", "backoff", "connecting"]
            status = mcp.status()["bad"]
            assert "license file missing" in (status.last_error or "")
            assert not status.crash_loop


async def test_everything_that_a_server_started_ends_with_it() -> None:
    with anyio.fail_after(40):
        async with McpManager([faulty(mode, mode) for mode in ("daemon", "wrapper-leaves-child")]) as mcp:
            await mcp.wait_ready()
            pids = [pid for mode in ("daemon", "wrapper-leaves-child") for pid in children_of(mode)]
            assert len(pids) == 2
            assert not any(gone(pid) for pid in pids)
        assert all(gone(pid) for pid in pids)


async def first(mcp: McpManager, kind: type, count: int, events: Any = None) -> AsyncIterator[Any]:
    async for event in events or mcp.events():
        if isinstance(event, kind):
            yield event
            count -= 1
            if not count:
                return


def gone(pid: int | None) -> bool:
    """Return whether a process has ended; one that waits to be buried has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
