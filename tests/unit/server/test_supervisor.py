from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from dragoman.config.templates import ExpansionContext
from dragoman.errors import (
    AuthRequiredError,
    ConfigError,
    ConnectError,
    ConnectionLostError,
    DragomanError,
    MissingVariableError,
    ServerNotReadyError,
)
from dragoman.model import Http, ServerSpec, ServerState, Stdio
from dragoman.server import closing
from dragoman.server import connection as connections
from dragoman.server import supervisor as supervising
from dragoman.server.attempt import ConnectionEnd
from dragoman.server.lifecycle import Signal, verdict
from dragoman.server.prepare import resolve_paths
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.outgoing import Outgoing
from dragoman.server.supervisor import Supervisor

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "otter-crash",
        "kode-lifecycle.reconnect",
        "legal-error.lost",
        "excel-2.4",
    ),
]

FAULTY = str(Path(__file__).resolve().parents[2] / "servers" / "faulty.py")
S = ServerState


class Watched:
    """A supervisor with listeners that take down what they are told."""

    def __init__(self, spec: ServerSpec, **more: Any) -> None:
        self.states: list[ServerState] = []
        self.listings: list[int] = []
        expansion = ExpansionContext(env=os.environ, root=str(Path.cwd()), home=str(Path.home()))
        self.supervisor = Supervisor(spec, expansion=expansion, observer=self, **more)

    def on_event(self, supervisor: Supervisor, event: Any) -> None:
        self.states.append(event.after)

    def on_tools(self, supervisor: Supervisor, listing: Any) -> int:
        self.listings.append(len(listing))
        return len(listing)

    async def read_ahead(self, supervisor: Supervisor, listing: Any) -> None:
        """Prepare nothing."""


def spec(mode: str = "sound", **more: Any) -> ServerSpec:
    # Pins are compared beside everything else, and the manager waits for that at its end: here is none.
    return ServerSpec("s", Stdio(sys.executable, ["-S", FAULTY, mode]), trust="off", **more)


async def echo(one: Supervisor, seconds: float = 5) -> Any:
    call = Outgoing("echo", {"text": "x"}, Deadline.after(seconds))
    async with one.acquire(call.deadline) as connection:
        return await connection.call_tool(call)


def starts() -> int:
    return sum(line.endswith(" start") for line in Path("sound.log").read_text().splitlines())


LOST = ConnectionLostError("x", server="s", may_have_run=True)


@pytest.mark.parametrize(
    ("error", "reconnect", "signal"),
    [
        (AuthRequiredError("x", server="s"), True, Signal.AUTH_REQUIRED),
        (AuthRequiredError("x", server="s"), False, Signal.AUTH_REQUIRED),
        (LOST, True, Signal.LOST),
        (LOST, False, Signal.HOPELESS),
        (ConfigError("x"), True, Signal.HOPELESS),
        (ConnectError("x", server="s", stage="variables"), True, Signal.HOPELESS),
        (ConnectError("x", server="s", stage="spawn"), True, Signal.HOPELESS),
        (ConnectError("x", server="s", stage="approval"), True, Signal.HOPELESS),
        (ConnectError("x", server="s", stage="handshake"), True, Signal.UNREACHABLE),
        (ConnectError("x", server="s", stage="handshake"), False, Signal.HOPELESS),
        (DragomanError("x"), True, Signal.UNREACHABLE),
    ],
)
def test_verdict_on_a_failure(error: DragomanError, reconnect: bool, signal: Signal) -> None:
    assert verdict(error, reconnect=reconnect) is signal


async def test_life_from_start_to_stop() -> None:
    with anyio.fail_after(20):
        watched = Watched(spec())
        one = watched.supervisor
        assert (one.state, one.server_version, one.instructions) == (S.IDLE, "", "")
        one.start()
        one.start()
        assert await one.wait_settled() is S.READY
        assert one.server_version == "1"
        assert one.status().tools == 2
        answer = await echo(one)
        assert answer.parts[0].text == "x"
        await asyncio.gather(one.stop(), one.stop())
        await one.stop()
        assert watched.states == [S.CONNECTING, S.READY, S.CLOSED]
        assert watched.listings == [2, 0]
        with pytest.raises(ServerNotReadyError, match="is closed"):
            await echo(one)


async def test_switched_off_server_starts_only_on_a_restart() -> None:
    with anyio.fail_after(20):
        one = Watched(spec(enabled=False)).supervisor
        one.start()
        assert one.state is S.CLOSED
        await one.restart()
        assert await one.wait_settled() is S.READY
        await one.stop()


async def test_missing_variable_and_missing_command_are_hopeless_and_a_call_tries_again() -> None:
    with anyio.fail_after(20):
        for transport, kind in (
            (Stdio("${NO_SUCH_VARIABLE}"), MissingVariableError),
            (Stdio("no-such-command-anywhere"), ConnectError),
        ):
            watched = Watched(ServerSpec("s", transport))
            one = watched.supervisor
            one.start()
            assert await one.wait_settled() is S.FAILED
            assert isinstance(one.error, kind)
            with pytest.raises(ServerNotReadyError, match="is failed") as caught:
                await echo(one)
            assert caught.value.__cause__ is one.error
            assert watched.states == [S.CONNECTING, S.FAILED] * 2
            await one.stop()


async def test_unforeseen_failure_is_a_typed_error_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(_: Any) -> None:
        raise KeyError("odd")

    monkeypatch.setattr(connections.Connection, "serve", serve)
    with anyio.fail_after(20):
        one = Watched(spec()).supervisor
        one.start()
        assert await one.wait_settled() is S.BACKOFF
        assert isinstance(one.error, ConnectError)
        assert "KeyError: 'odd'" in str(one.error)
        assert "failed unexpectedly" in caplog.text
        await one.stop()


async def test_connection_that_was_left_is_not_believed() -> None:
    with anyio.fail_after(20):
        watched = Watched(spec())
        one = watched.supervisor
        one.start()
        await one.wait_settled()
        left = one._connection
        assert left is not None
        await one.restart()
        for stale in (
            lambda: one.on_ready(left),
            lambda: one.on_listing(left, None),
            lambda: one.on_lost(left, ConnectionEnd(reason="x")),
        ):
            stale()
            assert one.state is S.CONNECTING
        assert await one.wait_settled() is S.READY
        assert one._connection is not left
        await one.stop()


async def test_owner_that_was_replaced_before_it_began_opens_nothing() -> None:
    with anyio.fail_after(20):
        one = Watched(spec()).supervisor
        for _ in range(5):
            one.start()
            await one.restart()
        assert await one.wait_settled() is S.READY
        await one.stop()
    assert starts() == 1


async def test_stop_while_connecting_leaves_nothing() -> None:
    with anyio.fail_after(30):
        for mode in ("sound", "mute", "slow-start"):
            for turns in (0, 1, 5, 50):
                one = Watched(spec(mode)).supervisor
                one.start()
                for _ in range(turns):
                    await asyncio.sleep(0)
                await one.stop()
                assert one.state is S.CLOSED


async def test_cancelled_stop_stops_all_the_same() -> None:
    with anyio.fail_after(20):
        one = Watched(spec()).supervisor
        one.start()
        await one.wait_settled()
        pid = one.status().pid
        stopping = asyncio.ensure_future(one.stop())
        for _ in range(3):
            await asyncio.sleep(0)
            stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        with pytest.raises(ProcessLookupError):
            os.kill(pid or 0, 0)


async def test_owner_that_does_not_end_is_cancelled_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(closing, "CLOSE_LIMIT", 0.05)
    release = asyncio.Event()

    async def obedient() -> None:
        await asyncio.Event().wait()

    async def deaf() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    with anyio.fail_after(20):
        first = asyncio.ensure_future(obedient())
        await closing.wait_closed(first, "s")
        assert first.cancelled()
        second = asyncio.ensure_future(deaf())
        await closing.wait_closed(second, "s")
        assert "abandoned" in caplog.text
        release.set()
        await second


async def test_queue_of_a_bounded_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "MAX_WAITING", 2)
    with anyio.fail_after(20):
        one = Watched(spec(max_concurrency=1)).supervisor
        hold = asyncio.Event()

        async def held() -> None:
            async with one.acquire(Deadline.after(10)):
                await hold.wait()

        calls = [asyncio.ensure_future(held()) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ServerNotReadyError, match="2 calls already wait"):
            await held()
        assert not await one.wait_unused(0.01)
        hold.set()
        await asyncio.gather(*calls)
        assert await one.wait_unused()
        await one.stop()


async def test_success_counts_for_the_backoff_and_a_failure_does_not() -> None:
    with anyio.fail_after(20):
        one = Watched(spec()).supervisor
        one.start()
        await one.wait_settled()

        with pytest.raises(TimeoutError):
            async with one.acquire(Deadline.after(1)):
                raise TimeoutError
        assert not one._backoff._answered
        await echo(one)
        assert one._backoff._answered
        await one.stop()


async def test_import_of_the_sdk_happens_outside_of_the_loop() -> None:
    """The first connection of a process imports a second's worth of modules; the loop must go on."""
    code = f"""
import asyncio, sys, threading
from dragoman import McpManager, ServerSpec, Stdio

class Noting:
    threads = []
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            self.threads.append(threading.current_thread())

async def main():
    sys.meta_path.insert(0, Noting())
    async with McpManager([ServerSpec("s", Stdio(sys.executable, ["-S", {FAULTY!r}]))]) as mcp:
        assert "mcp" not in sys.modules
        assert await mcp.wait_ready()
    assert "mcp" in sys.modules
    print(*(thread is threading.main_thread() for thread in Noting.threads))
asyncio.run(main())
"""
    with anyio.fail_after(40):
        done = await anyio.run_process([sys.executable, "-c", code], check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split() == ["False"]


@pytest.mark.parametrize(
    ("transport", "root", "cwd"),
    [
        (Stdio("x"), "", None),
        (Stdio("x"), "/project", "/project"),
        (Stdio("x", cwd="sub"), "/project", "/project/sub"),
        (Stdio("x", cwd="/else"), "/project", "/else"),
    ],
)
def test_relative_folder_is_read_from_the_project(transport: Stdio, root: str, cwd: str | None) -> None:
    found = resolve_paths(transport, root)
    assert isinstance(found, Stdio)
    assert found.cwd == cwd


def test_other_transports_have_no_folder() -> None:
    http = Http("http://x")
    assert resolve_paths(http, "/project") is http
    assert time.monotonic() > 0
