"""What was ready once comes back by itself, and a server that is busy for a moment is waited for."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.servers.authorization import Authorization
from tests.servers.http_faults import FaultServer
from tests.waiting import until, until_state

from dragoman import Handlers, Http, McpManager, ServerSpec, Sse, Stdio
from dragoman.events import StateChanged
from dragoman.model import Auth
from dragoman.server import lifecycle
from dragoman.testing import ScriptedServer
from dragoman.testing.servers import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.requirement(
    "legal-error.lost",
    "otter-crash",
    "kode-lifecycle.reconnect",
    "otter-p1.health",
)


SERVERS = Path(__file__).resolve().parents[1] / "servers"


@pytest.fixture
async def faults() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


# Once ready, never dead


@pytest.mark.requirement("legal-error.lost")
async def test_server_whose_program_is_missing_for_a_moment_comes_back(tmp_path: Path) -> None:
    program, aside = tmp_path / "law", tmp_path / "aside"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {SERVERS / 'plain.py'}\n", "utf-8")
    program.chmod(0o755)
    with anyio.fail_after(50):
        async with McpManager([ServerSpec("law", Stdio(str(program)))]) as mcp:
            assert await mcp.wait_ready()
            program.rename(aside)
            number = mcp.status()["law"].pid
            assert number
            os.kill(number, signal.SIGKILL)
            await until_state(mcp, "backoff", times=2)
            status = mcp.status()["law"]
            assert status.last_error is not None
            assert "cannot be started" in status.last_error
            assert status.retry_in is not None
            aside.rename(program)
            await until_state(mcp, "ready")


async def test_server_that_never_started_is_not_tried_for_ever(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with McpManager([ServerSpec("law", Stdio(str(tmp_path / "absent")))]) as mcp:
            await mcp.wait_ready()
            status = mcp.status()["law"]
            assert (status.state, status.retry_in) == ("failed", None)


@pytest.mark.parametrize("mode", ["auto", "none"])
async def test_single_401_without_a_challenge_is_not_the_end(
    mode: Any, faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_REFUSED", 0.05)
    spec = ServerSpec("law", Http(faults.url("refusing")), auth=None if mode == "auto" else Auth(mode=mode))
    faults.release.set()
    with anyio.fail_after(50):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            faults.release.clear()
            await mcp.restart("law")
            await until_state(mcp, "needs_auth", times=2)
            faults.release.set()
            await until_state(mcp, "ready")
            assert (await mcp.call("mcp_law_fault", {})).success


async def test_server_that_waits_for_a_login_is_tried_without_asking_the_person_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_REFUSED", 0.02)
    monkeypatch.setattr(lifecycle, "LONGEST_REFUSED", 0.02)
    opened: list[str] = []

    def refuse(_name: str, request: dict[str, Any]) -> None:
        opened.append(request["url"])
        msg = "the person closed the window"
        raise RuntimeError(msg)

    with anyio.fail_after(50):
        async with Authorization() as server:
            spec = ServerSpec("law", Http(server.url))
            async with McpManager([spec], handlers=Handlers(login=refuse)) as mcp:
                await until_state(mcp, "needs_auth", times=4)
                assert len(opened) == 1
                await mcp.auth.login("law", open_url=server.open)
                assert mcp.status()["law"].state == "ready"


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
@pytest.mark.parametrize("mode", ["auto", "none"])
async def test_message_that_is_refused_once_asks_no_person(
    protocol: Any, mode: Any, faults: FaultServer
) -> None:
    def refuse(name: str, _request: dict[str, Any]) -> None:
        pytest.fail(f"a person is asked to log in to {name}")

    spec = ServerSpec("law", Http(faults.url("busy?401")), protocol=protocol, auth=Auth(mode=mode))
    with anyio.fail_after(50):
        async with McpManager([spec], handlers=Handlers(login=refuse)) as mcp:
            events = mcp.events()
            assert await mcp.wait_ready()
            assert (await mcp.call("mcp_law_fault", {})).success
            assert len(faults.sent("tools/call")) == 2
    states = [event.after async for event in events if isinstance(event, StateChanged)]
    assert states == ["ready", "closed"]


async def test_call_tries_a_server_again_that_required_a_login(
    faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ServerSpec("law", Http(faults.url("refusing")))
    faults.release.set()
    with anyio.fail_after(50):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            faults.release.clear()
            await mcp.restart("law")
            assert not await mcp.wait_ready()
            assert mcp.status()["law"].state == "needs_auth"
            faults.release.set()
            requests = len(faults.requests)
            # So soon after a refusal, a call asks the server nothing.
            monkeypatch.setattr(lifecycle, "FIRST", 60.0)
            result = await mcp.call("mcp_law_fault", {})
            assert not result.success
            assert "needs_auth" in result.text
            assert len(faults.requests) == requests
            monkeypatch.setattr(lifecycle, "FIRST", 0.0)
            assert (await mcp.call("mcp_law_fault", {})).success
            assert mcp.status()["law"].state == "ready"


@pytest.mark.parametrize("how", ["header", "key", "query"])
async def test_login_that_was_refused_is_not_repeated_by_a_call(
    how: str, faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST", 0.0)
    headers = {"header": {"Authorization": "Bearer wrong-one"}, "key": {"X-Api-Key": "wrong-one"}}
    url = faults.url("refusing") + ("?api_key=wrong-one" if how == "query" else "")
    spec = ServerSpec("law", Http(url, headers=headers.get(how, {})), protocol="legacy")
    faults.release.set()
    with anyio.fail_after(50):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            faults.release.clear()
            await mcp.restart("law")
            assert not await mcp.wait_ready()
            assert mcp.status()["law"].state == "needs_auth"
            assert len(faults.sent("initialize")) == 2
            requests = len(faults.requests)
            for _ in range(3):
                assert not (await mcp.call("mcp_law_fault", {})).success
            assert len(faults.requests) == requests


async def test_call_that_comes_while_a_person_logs_in_leaves_the_login_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST", 0.0)
    opened: list[str] = []
    with anyio.fail_after(50):
        async with Authorization() as server:
            spec = ServerSpec("law", Http(server.url))
            handlers = Handlers(login=lambda _name, request: opened.append(request["url"]))
            async with McpManager([spec], handlers=handlers) as mcp:
                await until_state(mcp, "needs_auth")
                requests = server.seen["/mcp"]
                for _ in range(3):
                    assert not (await mcp.call("mcp_law_read", {})).success
                assert (len(opened), server.seen["/mcp"]) == (1, requests)
                assert mcp.status()["law"].login_url == opened[0]


# Busy for a moment


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_load_balancer_that_refuses_every_second_request_is_connected_to(
    protocol: Any, faults: FaultServer
) -> None:
    spec = ServerSpec("law", Http(faults.url("every-second")), protocol=protocol)
    with anyio.fail_after(50):
        async with McpManager([spec]) as mcp:
            events = mcp.events()
            assert await mcp.wait_ready()
            assert (await mcp.call("mcp_law_fault", {})).success
    states = [event.after async for event in events if isinstance(event, StateChanged)]
    assert states == ["ready", "closed"]


@pytest.mark.parametrize("status", ["429", "502", "503", "504", "429-0", "503-1"])
async def test_busy_server_is_asked_again_and_a_call_is_not(status: str, faults: FaultServer) -> None:
    spec = ServerSpec("law", Http(faults.url(f"busy?{status}")), protocol="legacy")
    with anyio.fail_after(50):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            assert len(faults.sent("initialize")) == len(faults.sent("tools/list")) == 2
            if status in ("502", "504"):
                result = await mcp.call("mcp_law_fault", {})
                assert not result.success
                assert len(faults.sent("tools/call")) == 1


async def test_retry_after_that_is_too_long_is_not_waited_for(faults: FaultServer) -> None:
    spec = ServerSpec("law", Http(faults.url("busy?503-3600")), protocol="legacy")
    with anyio.fail_after(20):
        async with McpManager([spec]) as mcp:
            assert not await mcp.wait_ready()
            assert len(faults.sent("initialize")) == 1
            assert "HTTP 503" in (mcp.status()["law"].last_error or "")


async def test_legacy_stream_that_is_refused_once_is_opened_again(faults: FaultServer) -> None:
    spec = ServerSpec("law", Sse(faults.url("legacy-busy")))
    with anyio.fail_after(50):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            assert len(faults.sent("GET")) == 2


class Unlisted(ScriptedServer):
    """One whose listing may fail, or its second page."""

    fails = ""

    async def answer(self, wire: Any, method: str, params: Any) -> Any:
        if method == "tools/list" and self.fails == "all":
            raise Refusal(-32603, "the listing is broken")
        if method == "tools/list" and self.fails == "later page":
            if params.get("cursor"):
                raise Refusal(-32603, "the page is broken")
            return {**await super().answer(wire, method, params), "nextCursor": "2"}
        return await super().answer(wire, method, params)


def find(text: str) -> str:
    return text


@pytest.mark.requirement("otter-crash")
async def test_server_that_crashes_while_its_listing_fails_is_connected_again() -> None:
    server = Unlisted("law", tools=[find])
    with anyio.fail_after(30):
        async with McpManager([server.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            server.fails, events = "all", mcp.events()
            server.add(find)
            await until(events, StateChanged, after="degraded")
            server.crash()
            server.fails = ""
            await until(events, StateChanged, after="ready")
            assert (await mcp.call("mcp_law_find", {"text": "x"})).text == "x"


@pytest.mark.requirement("kode-discovery.list", "kode-discovery.failure", "excel-3.1")
async def test_listing_with_a_page_that_fails_is_a_failed_listing() -> None:
    server = Unlisted("law", tools=[find])
    server.fails = "later page"
    with anyio.fail_after(30):
        async with McpManager([server.spec()], cache=False) as mcp:
            assert not await mcp.wait_ready()
            assert (mcp.status()["law"].state, mcp.tools()) == ("degraded", [])
            assert "the page is broken" in (mcp.status()["law"].last_error or "")


@pytest.mark.requirement("otter-concurrency")
async def test_call_that_finds_no_server_takes_up_no_room_for_later_ones() -> None:
    server = ScriptedServer("law", tools=[find])
    with anyio.fail_after(30):
        async with McpManager([server.spec(max_concurrency=1)], cache=False) as mcp:
            await mcp.wait_ready()
            events = mcp.events()
            server.stop()
            await until(events, StateChanged, after="backoff")
            for _ in range(3):
                assert not (await mcp.call("mcp_law_find", {"text": "x"}, timeout=0.05)).success
            server.start()
            await mcp.start(["law"])
            await mcp.wait_ready()
            assert (await mcp.call("mcp_law_find", {"text": "x"})).text == "x"
