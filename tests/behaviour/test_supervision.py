"""What keeps a server alive: retries, restarts, probes, laziness, bounds; and processes that die with us."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest
from tests.behaviour.chaos import storm
from tests.behaviour.faults import asked, children_of, comes_back, faulty, started
from tests.conftest import end_of
from tests.waiting import until

from dragoman import (
    CallTimeoutError,
    ConnectError,
    McpManager,
    ServerState,
    ToolUnavailableError,
)
from dragoman.errors import ServerNotReadyError
from dragoman.events import StateChanged
from dragoman.server import connection as connections
from dragoman.server.process import family
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.outgoing import Outgoing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "excel-2.6",
        "otter-p1.health",
        "otter-crash",
        "kode-lifecycle.health",
        "kode-lifecycle.reconnect",
        "legal-error.lost",
        "legal-config.health",
        "legal-client.sse",
    ),
]


@pytest.fixture(autouse=True)
def short_graces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "STDIN_GRACE", 0.2)
    monkeypatch.setattr(family, "TERM_GRACE", 0.2)


# ── losses


async def test_kills_during_many_calls_lose_and_mix_up_nothing() -> None:
    with anyio.fail_after(50):
        outcome = await storm(servers=5, calls=500, timeout=10, seed=1)
    assert outcome.strange == []
    assert outcome.timed_out == 0
    assert outcome.answered + outcome.lost + outcome.refused == 500
    assert outcome.answered > 250


async def test_protocol_is_remembered_so_that_a_reconnect_does_not_ask_again() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("old", "sound"), faulty("new", "modern")]) as mcp:
            await mcp.wait_ready()
            for name in ("old", "new"):
                events = mcp.events()
                assert (await mcp.call(f"mcp_{name}_fault", {"kind": "exits"})).exception
                await until(events, StateChanged, after=ServerState.READY)
            assert [mcp.status()[name].protocol_version for name in ("old", "new")] == [
                "2025-11-25",
                "2026-07-28",
            ]
    for mode in ("sound", "modern"):
        assert asked(mode).count("start") == 2
        assert asked(mode).count("server/discover") == 1


async def test_server_that_ends_when_asked_for_its_era_is_asked_once_only() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("strict", "exits-at-discover")]) as mcp:
            assert await mcp.wait_ready()
            events = mcp.events()
            assert (await mcp.call("mcp_strict_fault", {"kind": "exits"})).exception
            await until(events, StateChanged, after=ServerState.READY)
    assert asked("exits-at-discover").count("server/discover") == 1
    assert asked("exits-at-discover").count("start") == 3


async def test_server_that_crashes_before_it_reads_anything_is_started_once_a_try() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("crash", "crash-at-start")]) as mcp:
            await mcp.wait_ready()
            assert asked("crash-at-start") == ["start"]


@pytest.mark.requirement("otter-crash")
async def test_loss_without_reconnect_is_a_failure_until_the_next_call() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("once", reconnect=False)]) as mcp:
            await mcp.wait_ready()
            events = mcp.events()
            assert (await mcp.call("mcp_once_fault", {"kind": "exits"})).exception
            lost = await until(events, StateChanged, after=ServerState.FAILED)
            assert "ended with code 7" in lost.reason
            assert mcp.status()["once"].retry_in is None
            assert (await mcp.call("mcp_once_echo", {"text": "again"})).text == "again"


async def test_call_whose_retry_is_far_fails_fast_with_retry_in() -> None:
    with anyio.fail_after(40):
        async with McpManager([faulty("bad")]) as mcp:
            await mcp.wait_ready()
            supervisor = mcp._parts.supervisors["bad"]
            for _ in range(4):
                supervisor._backoff.failed(asyncio.get_running_loop().time(), 0.5)
            events = mcp.events()
            assert (await mcp.call("mcp_bad_fault", {"kind": "exits"})).exception
            await until(events, StateChanged, after=ServerState.BACKOFF)
            status = mcp.status()["bad"]
            assert status.crash_loop
            assert status.retry_in is not None
            assert 40 < status.retry_in <= 72
            result = await mcp.call("mcp_bad_echo", {"text": "x"})
            assert isinstance(result.exception, ToolUnavailableError)
            assert not result.exception.may_have_run
            cause = result.exception.__cause__
            assert isinstance(cause, ServerNotReadyError)
            assert cause.retry_in is not None
            assert cause.retry_in > 30
            assert "ended with code 7" in str(result.exception)
            # A manual restart does not wait, and forgets the past.
            await mcp.restart("bad")
            status = mcp.status()["bad"]
            assert (status.state, status.crash_loop, status.retry_in) == (ServerState.READY, False, None)
            events = mcp.events()
            assert (await mcp.call("mcp_bad_fault", {"kind": "exits"})).exception
            await until(events, StateChanged, after=ServerState.BACKOFF)
            assert (mcp.status()["bad"].retry_in or 0) <= 0.6


@pytest.mark.requirement("kode-lifecycle.reconnect")
async def test_call_waits_for_a_retry_that_is_near() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("bad")]) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call("mcp_bad_fault", {"kind": "killed"})).exception
            results = await asyncio.gather(*(mcp.call("mcp_bad_echo", {"text": f"{n}"}) for n in range(5)))
            assert [result.text for result in results] == ["0", "1", "2", "3", "4"]
            assert asked("sound").count("start") == 2


async def test_call_of_a_server_that_hangs_at_its_start_ends_with_its_own_deadline() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("slow", "mute", lazy=True)]) as mcp:
            with pytest.raises(ServerNotReadyError, match="is connecting"):
                async with mcp._parts.supervisors["slow"].acquire(Deadline.after(0.3)):
                    pytest.fail("acquired")
            assert mcp.status()["slow"].state is ServerState.CONNECTING


# ── wishes


async def test_restart_while_connecting_twice_and_under_calls_gives_one_good_server() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("one", "slow-start")]) as mcp:
            await asyncio.gather(*(mcp.restart("one") for _ in range(3)))
            assert mcp.status()["one"].state is ServerState.READY
            calls = [asyncio.ensure_future(mcp.call("mcp_one_fault", {"kind": "never"})) for _ in range(3)]
            await asyncio.sleep(0)
            await asyncio.gather(mcp.restart("one"), mcp.restart("one"))
            for result in await asyncio.gather(*calls):
                assert isinstance(result.exception, ToolUnavailableError)
            assert (await mcp.call("mcp_one_echo", {"text": "x"})).text == "x"


async def test_restart_at_every_moment_of_a_start_never_leaves_it_ready_without_a_connection() -> None:
    with anyio.fail_after(50):
        async with McpManager([faulty("one")]) as mcp:
            for turns in range(0, 400, 20):
                await mcp.restart("one")
                again = asyncio.ensure_future(mcp.restart("one"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await asyncio.gather(again, mcp.restart("one"))
                assert mcp.status()["one"].pid is not None
                assert (await mcp.call("mcp_one_echo", {"text": "x"})).text == "x"


async def test_required_server_that_cannot_be_had_fails_the_start_and_ends_the_others() -> None:
    specs = [faulty("good"), faulty("bad", "crash-at-start", required=True)]
    with anyio.fail_after(30):
        with pytest.raises(ConnectError, match=r"required server `bad` is not ready.*license file missing"):
            async with McpManager(specs):
                pytest.fail("entered")
        with pytest.raises(ConnectError, match="required server `bad` is not ready"):
            await McpManager.connect_all(specs)


async def test_lazy_server_starts_at_its_first_call_and_stops_when_it_is_not_used() -> None:
    with anyio.fail_after(30):
        spec = faulty("lazy", lazy=True, timeouts={"idle": 0.2})
        async with McpManager([spec]) as mcp:
            events = mcp.events()
            supervisor = mcp._parts.supervisors["lazy"]
            assert mcp.status()["lazy"].state is ServerState.IDLE
            assert not started("sound")
            for _ in range(2):
                call = Outgoing("echo", {"text": "x", "pause": 0.4}, Deadline.after(10))
                async with supervisor.acquire(call.deadline) as connection:
                    answer = await connection.call_tool(call)
                assert answer.parts[0].text == "x"
                stopped = await until(events, StateChanged, after=ServerState.IDLE)
                assert stopped.reason == "unused"
            assert mcp.status()["lazy"].pid is None
    assert asked("sound").count("start") == 2


@pytest.mark.requirement("otter-concurrency")
async def test_no_more_calls_than_max_concurrency_are_under_way() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("two", max_concurrency=2)]) as mcp:
            await mcp.wait_ready()
            supervisor = mcp._parts.supervisors["two"]
            assert supervisor._connection is not None
            most = 0

            async def call(number: int) -> None:
                nonlocal most
                result = await mcp.call("mcp_two_echo", {"text": f"{number}"})
                assert result.text == f"{number}"

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, supervisor._connection.calls)
                    await asyncio.sleep(0)

            watching = asyncio.ensure_future(watch())
            await asyncio.gather(*(call(number) for number in range(50)))
            watching.cancel()
            assert most == 2
            # A call that waits for its turn ends with its deadline, and is never sent.
            stuck = [
                asyncio.ensure_future(mcp.call("mcp_two_fault", {"kind": "never"}, timeout=1))
                for _ in range(2)
            ]
            await asyncio.sleep(0)
            before = asked("sound").count("tools/call")
            waiting = await mcp.call("mcp_two_echo", {"text": "x"}, timeout=0.2)
            assert isinstance(waiting.exception, CallTimeoutError)
            assert asked("sound").count("tools/call") - before <= 2
            await asyncio.gather(*stuck)
            assert (await mcp.call("mcp_two_echo", {"text": "x"})).text == "x"


# ── health


@pytest.fixture
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PROBE_SECONDS", 0.1)


@pytest.mark.parametrize("mode", ["sound", "modern"])
@pytest.mark.requirement("excel-2.6")
@pytest.mark.requirement("kode-lifecycle.health")
@pytest.mark.requirement("otter-p1.health")
async def test_idle_server_that_is_frozen_is_found_out_by_probes(mode: str, quick_probes: None) -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("frozen", mode, health_check_interval=0.05)]) as mcp:
            await mcp.wait_ready()
            pid, events = mcp.status()["frozen"].pid, mcp.events()
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            lost = await until(events, StateChanged, after=ServerState.BACKOFF)
            assert "did not answer 3 probes" in lost.reason
            await comes_back(mcp, "frozen", events)
            assert mcp.status()["frozen"].pid != pid
            assert (await mcp.call("mcp_frozen_echo", {"text": "x"})).text == "x"


async def test_frozen_server_that_is_called_all_the_time_is_found_out_by_its_silence() -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("frozen", health_check_interval=0.5)]) as mcp:
            await mcp.wait_ready()
            pid, events = mcp.status()["frozen"].pid, mcp.events()
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            while mcp.status()["frozen"].state is ServerState.READY:
                await mcp.call("mcp_frozen_echo", {"text": "x"}, timeout=0.2)
            lost = await until(events, StateChanged, after=ServerState.BACKOFF)
            assert "it sent nothing for" in lost.reason
            await comes_back(mcp, "frozen", events)


async def test_busy_server_is_never_probed_to_death(quick_probes: None) -> None:
    with anyio.fail_after(30):
        async with McpManager([faulty("busy", health_check_interval=0.05)]) as mcp:
            await mcp.wait_ready()
            pid = mcp.status()["busy"].pid
            result = await mcp.call("mcp_busy_echo", {"text": "x", "pause": 2})
            assert result.text == "x"
            assert mcp.status()["busy"].pid == pid


async def test_healthy_server_is_probed_and_stays() -> None:
    with anyio.fail_after(30):
        specs = [
            faulty("old", health_check_interval=0.05),
            faulty("new", "modern", health_check_interval=0.05),
        ]
        async with McpManager(specs) as mcp:
            await mcp.wait_ready()
            pids = {name: mcp.status()[name].pid for name in ("old", "new")}
            while asked("sound").count("ping") < 5 or asked("modern").count("server/discover") < 5:  # noqa: ASYNC110 -- a file
                await asyncio.sleep(0)
            assert {name: mcp.status()[name].pid for name in pids} == pids


# ── the end of our own process

OWNER = """
import asyncio, json, sys
from dragoman import McpManager, ServerSpec, Stdio

async def main():
    async with McpManager([ServerSpec("s", Stdio(sys.executable, sys.argv[1:]))]) as mcp:
        await mcp.wait_ready()
        print(json.dumps({"pid": mcp.status()["s"].pid}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def own(*args: str) -> tuple[asyncio.subprocess.Process, int]:
    """Start another dragoman with one server; return it and the server's number."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", OWNER, *args),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())["pid"]


async def killed(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]


FAULTY = str(Path(__file__).resolve().parents[1] / "servers" / "faulty.py")


async def test_children_die_with_us_even_if_we_are_killed() -> None:
    with anyio.fail_after(40):
        process, pid = await own("-S", FAULTY, "ignores-everything")
        os.kill(pid, 0)
        await killed(process)
        await end_of(pid)


def watchdog_of(pid: int) -> int:
    lists = [task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    (found,) = [int(spawn) for listed in lists for spawn in listed.split()]
    return found


async def test_what_survives_us_is_swept_at_the_next_start_and_living_owners_are_left_alone() -> None:
    with anyio.fail_after(50):
        living, spared = await own("-S", FAULTY, "sound")
        dead, leader = await own("-S", FAULTY, "daemon")
        (daemon,) = children_of("daemon")
        watchdog = watchdog_of(dead.pid)
        # Both at once, as when memory is short: nothing is left that could clean up.
        os.kill(watchdog, signal.SIGSTOP)
        await killed(dead)
        os.kill(watchdog, signal.SIGKILL)
        await end_of(leader)
        os.kill(daemon, 0)
        # A third one starts, and sweeps first.
        third, third_server = await own("-S", FAULTY, "third")
        await end_of(daemon)
        os.kill(spared, 0)
        os.kill(third_server, 0)
        for process, server in ((living, spared), (third, third_server)):
            await killed(process)
            await end_of(server)


async def test_daemon_of_a_server_ends_when_we_are_killed() -> None:
    with anyio.fail_after(50):
        client, leader = await own("-S", FAULTY, "daemon")
        (daemon,) = children_of("daemon")
        await killed(client)
        await end_of(leader)
        await end_of(daemon)
