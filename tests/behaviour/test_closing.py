"""What closing does: calls under way end, servers are told in the way of their transport, nothing is left."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.conftest import end_of
from tests.servers.http_faults import FaultServer
from tests.waiting import until

from dragoman import Http, McpManager, ServerSpec, ServerState, Sse, Stdio, ToolUnavailableError
from dragoman.events import StateChanged
from dragoman.server.process.orphans import descendants
from dragoman.server.process.spawn import Child
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "excel-2.5",
        "otter-close",
        "kode-lifecycle.stop",
        "rrclaw-manager.shutdown",
    ),
]

HEARS = """
import json, os, subprocess, sys
helper = subprocess.Popen(["sleep", "600"])
heard = open(sys.argv[1], "a", buffering=1)
for line in sys.stdin:
    message = json.loads(line)
    heard.write(message.get("method", "") + "\\n")
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "hears", "version": "1"}},
        "tools/list": {"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]},
    }
    if message.get("method") in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
    if message.get("method") == "tools/call":
        report = {"progressToken": message["params"]["_meta"]["progressToken"], "progress": 1}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": report}), flush=True)
heard.write("end of input\\n")
"""
"""Writes down what it hears, and has a helper that would outlive it."""


@pytest.fixture
async def faults() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


def begin(mcp: McpManager, name: str, **arguments: Any) -> asyncio.Task[Any]:
    """Start a call that is never answered."""
    return asyncio.create_task(mcp.call(name, arguments, timeout=60))


async def has_ended(call: asyncio.Task[Any]) -> None:
    result = await call
    assert isinstance(result.exception, ToolUnavailableError)
    assert result.exception.may_have_run


@pytest.mark.requirement("otter-close")
@pytest.mark.requirement("kode-lifecycle.stop")
@pytest.mark.usefixtures("pipes")
async def test_child_sees_its_input_end_and_leaves_with_all_it_started(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    spec = ServerSpec("s", Stdio(sys.executable, ["-c", HEARS, str(heard)]), protocol="legacy")
    with anyio.fail_after(30):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            pid = mcp.status()["s"].pid
            assert pid is not None
            arrived = asyncio.Event()
            call = asyncio.create_task(mcp.call("mcp_s_wait", on_progress=lambda *_: arrived.set()))
            await arrived.wait()
        await has_ended(call)
        assert mcp.status()["s"].state is ServerState.CLOSED
        for left in descendants(groups=[pid]):
            await end_of(left)
    lines = heard.read_text().split("\n")
    assert lines[-2:] == ["end of input", ""]
    assert descendants(groups=[pid]) == []


async def test_child_that_needs_a_moment_after_the_signal_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Child.stop, "__kwdefaults__", {"grace": 0.1})
    saved = tmp_path / "saved"
    leave = f"import signal, time\ndef leave(*_):\n    time.sleep(0.3); open({str(saved)!r}, 'w').close(); raise SystemExit\n"
    script = f"{leave}signal.signal(signal.SIGTERM, leave)\n{HEARS}\nwhile True: time.sleep(60)"
    spec = ServerSpec("s", Stdio(sys.executable, ["-c", script, str(tmp_path / "heard")]), protocol="legacy")
    with anyio.fail_after(30):
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
    assert saved.exists()


@pytest.mark.requirement("otter-close")
async def test_session_over_http_is_deleted_after_its_calls_were_broken_off(faults: FaultServer) -> None:
    with anyio.fail_after(30):
        spec = ServerSpec("s", Http(faults.url("mute")), protocol="legacy")
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            call = begin(mcp, "mcp_s_fault")
            await faults.until(lambda: faults.sent("tools/call"))
        await has_ended(call)
        [deleted] = faults.sent("DELETE")
        assert deleted.headers["mcp-session-id"]
        # The server sees that the call was given up.
        await faults.until(lambda: any(one.rpc_method == "tools/call" for one in faults.closed))


@pytest.mark.requirement("otter-close")
async def test_stream_over_sse_is_closed_after_its_calls_were_given_up(faults: FaultServer) -> None:
    with anyio.fail_after(30):
        async with McpManager([ServerSpec("s", Sse(faults.url("legacy-whole")), protocol="legacy")]) as mcp:
            assert await mcp.wait_ready()
            call = begin(mcp, "mcp_s_fault", silent=True)
            await faults.until(lambda: faults.sent("tools/call"))
            assert len(faults.streams) == 1
        await has_ended(call)
        await faults.until(lambda: any(one.method == "GET" for one in faults.closed))


@pytest.mark.requirement("legal-client.sse")
async def test_idle_sse_connection_is_kept_alive_by_probes(faults: FaultServer) -> None:
    with anyio.fail_after(30):
        spec = ServerSpec("s", Sse(faults.url("legacy-whole")), protocol="legacy", health_check_interval=0.05)
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            await faults.until(lambda: len(faults.sent("ping")) >= 5)
            assert mcp.status()["s"].state is ServerState.READY
            assert len(faults.sent("GET")) == 1
            assert (await mcp.call("mcp_s_fault")).text == "legacy"


@pytest.mark.requirement("legal-client.sse")
async def test_death_of_an_sse_connection_is_noticed_and_mended(faults: FaultServer) -> None:
    with anyio.fail_after(30):
        async with McpManager([ServerSpec("s", Sse(faults.url("legacy-whole")), protocol="legacy")]) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            call = begin(mcp, "mcp_s_fault", silent=True)
            await faults.until(lambda: faults.sent("tools/call"))
            faults.hang_up()
            await has_ended(call)
            lost = await until(events, StateChanged, after=ServerState.BACKOFF)
            assert "the event stream" in lost.reason
            await until(events, StateChanged, after=ServerState.READY)
            assert (await mcp.call("mcp_s_fault")).text == "legacy"
            assert len(faults.sent("GET")) == 2


@pytest.mark.requirement("legal-client.sse")
async def test_sse_server_that_falls_silent_is_found_out(
    faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragoman.server import connection

    monkeypatch.setattr(connection, "PROBE_SECONDS", 0.1)
    with anyio.fail_after(30):
        spec = ServerSpec("s", Sse(faults.url("legacy-whole")), protocol="legacy", health_check_interval=0.05)
        async with McpManager([spec]) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            # The stream stays open, but nothing comes on it any more.
            silent = faults.streams.copy()
            faults.streams.clear()
            lost = await until(events, StateChanged, after=ServerState.BACKOFF)
            assert "did not answer 3 probes" in lost.reason
            await until(events, StateChanged, after=ServerState.READY)
            assert len(silent) == 1
            assert (await mcp.call("mcp_s_fault")).text == "legacy"


def test_call_that_would_end_soon_is_cancelled_and_not_waited_for() -> None:
    law = ScriptedServer("law")

    @law.tool
    async def find() -> str:
        await asyncio.sleep(2)
        return "found"

    async def main() -> None:
        async with McpManager([law.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            call = begin(mcp, "mcp_law_find")
            while not law.calls:  # noqa: ASYNC110 -- a scripted call has no event
                await asyncio.sleep(0)
        await has_ended(call)

    InstantClock().run(main())
