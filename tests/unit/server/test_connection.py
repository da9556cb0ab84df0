from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman.errors import ConnectError, ConnectionLostError, DragomanError, ProtocolError
from dragoman.model import ServerSpec, Stdio
from dragoman.server import connection as connections
from dragoman.server.connection import Connection
from dragoman.server.connection_events import ConnectionEvents
from dragoman.server.protocol import sdk
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.outgoing import Outgoing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.server.attempt import ConnectionEnd

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "legal-client.init",
        "excel-2.6",
        "otter-close",
        "kode-discovery.failure",
    ),
]

FAULTY = str(Path(__file__).resolve().parents[2] / "servers" / "faulty.py")


class Stay(ConnectionEvents):
    """A connection in the care of a task, as the supervisor has it."""

    def __init__(self, mode: str = "sound", *, connect: float = 20, **more: Any) -> None:
        transport = Stdio(sys.executable, ["-S", FAULTY, mode], cwd=str(Path.cwd()))
        spec = ServerSpec("s", transport, timeouts={"connect": connect})
        self.connection = Connection(spec, transport, events=self, env=os.environ, **more)
        self.ready = asyncio.Event()
        self.lost: list[ConnectionEnd] = []
        self.listings: asyncio.Queue[DragomanError | None] = asyncio.Queue()
        self.task = asyncio.ensure_future(self.connection.serve())

    def on_ready(self, connection: Connection) -> None:
        self.ready.set()

    def on_lost(self, connection: Connection, end: ConnectionEnd) -> None:
        self.lost.append(end)

    def on_listing(self, connection: Connection, error: DragomanError | None) -> None:
        self.listings.put_nowait(error)

    async def opened(self) -> Connection:
        waiting = asyncio.ensure_future(self.ready.wait())
        await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not self.ready.is_set():
            await self.task
        return self.connection

    async def close(self) -> None:
        self.connection.close()
        await asyncio.wait({self.task})


@pytest.fixture
async def stay() -> AsyncIterator[Any]:
    stays: list[Stay] = []

    def make(*args: Any, **more: Any) -> Stay:
        stays.append(Stay(*args, **more))
        return stays[-1]

    with anyio.fail_after(30):
        yield make
        for one in stays:
            await one.close()


def outgoing(tool: str, arguments: dict[str, Any], seconds: float, **more: Any) -> Outgoing:
    return Outgoing(tool, arguments, Deadline.after(seconds), **more)


def asked(mode: str = "sound") -> list[str]:
    return [line.split(" ", 1)[1] for line in Path(f"{mode}.log").read_text().splitlines()]


async def test_call_before_the_connection_is_open_and_after_its_end_never_runs(stay: Any) -> None:
    one = stay()
    with pytest.raises(ConnectionLostError, match="was closed") as caught:
        await one.connection.call_tool(outgoing("echo", {}, 1))
    assert not caught.value.may_have_run
    await one.opened()
    await one.close()
    assert one.task.exception() is None
    with pytest.raises(ConnectionLostError, match="was closed"):
        await one.connection.call_tool(outgoing("echo", {}, 1))
    assert one.lost == []


async def test_call_under_way_when_the_connection_is_closed_may_have_run(stay: Any) -> None:
    one = stay()
    connection = await one.opened()
    call = asyncio.ensure_future(connection.call_tool(outgoing("fault", {"kind": "never"}, 20)))
    await asyncio.sleep(0)
    assert connection.calls == 1
    connection.close()
    with pytest.raises(ConnectionLostError) as caught:
        await call
    assert caught.value.may_have_run
    assert connection.calls == 0


async def test_each_call_gets_an_error_of_its_own_without_a_circle_of_causes(stay: Any) -> None:
    one = stay()
    connection = await one.opened()
    calls = [
        connection.call_tool(outgoing("fault", {"kind": kind}, 20)) for kind in ("never", "never", "exits")
    ]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert len({id(error) for error in errors}) == 3
    for error in errors:
        assert isinstance(error, ConnectionLostError)
        assert "ended with code 7" in str(error)
        chain: list[Any] = []
        while error is not None:
            assert error not in chain
            chain.append(error)
            error = error.__cause__
    assert len(one.lost) == 1


async def test_time_out_is_one_and_has_no_circle_of_causes(stay: Any) -> None:
    connection = await stay().opened()
    with pytest.raises(TimeoutError) as caught:
        await connection.call_tool(outgoing("fault", {"kind": "never"}, 0.1))
    assert caught.value.__cause__ is None


async def test_unreadable_answer_names_server_and_tool(stay: Any) -> None:
    connection = await stay().opened()
    with pytest.raises(ProtocolError, match="server `s` gave no usable answer to `fault`") as caught:
        await connection.call_tool(outgoing("fault", {"kind": "nan"}, 5))
    assert (caught.value.server, caught.value.tool) == ("s", "fault")


@pytest.mark.parametrize("mode", ["mute", "mute-listing"])
async def test_open_ends_with_its_time(stay: Any, mode: str) -> None:
    one = stay(mode, connect=0.3)
    with pytest.raises(ConnectError, match=r"no answer within 0\.3 s"):
        await one.opened()
    assert one.connection.session is None


@pytest.mark.parametrize("turns", [0, 1, 3, 10, 30])
async def test_close_at_any_moment_of_the_opening_is_quiet(stay: Any, turns: int) -> None:
    one = stay("slow-start")
    for _ in range(turns):
        await asyncio.sleep(0)
    await one.close()
    assert one.task.exception() is None
    assert not one.ready.is_set()


async def test_connection_that_is_closed_the_moment_it_is_listed_never_says_that_it_is_ready(
    stay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Connection._first_listing

    async def listing(self: Connection, session: Any) -> None:
        await first(self, session)
        self._leave.set_result(None)

    monkeypatch.setattr(Connection, "_first_listing", listing)
    one = stay()
    await asyncio.wait({one.task})
    assert one.task.exception() is None
    assert not one.ready.is_set()


async def test_places_for_starting_servers_are_given_back(stay: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = asyncio.Semaphore(1)
    for _ in range(3):
        one = stay(slots=slots)
        await one.opened()
        assert not slots.locked()
    waiting = stay("mute", slots=slots)
    while not slots.locked():  # noqa: ASYNC110 -- a semaphore has no event
        await asyncio.sleep(0)
    second = stay("mute", slots=slots)
    await asyncio.sleep(0)
    await asyncio.gather(waiting.close(), second.close())
    assert not slots.locked()
    # One that hangs gives its place up by itself.
    monkeypatch.setattr(connections, "SLOT_SECONDS", 0.05)
    stay("mute", slots=slots)
    await asyncio.sleep(0)
    assert (await stay(slots=slots).opened()).session is not None


async def test_failed_listing_is_tried_again_until_it_succeeds(stay: Any) -> None:
    one = stay("bad-once")
    connection = await one.opened()
    assert "the index is locked" in str(connection.listing_error)
    assert await one.listings.get() is None
    assert [tool["name"] for tool in connection.tools] == ["echo", "fault"]
    assert connection.listing_error is None


async def test_listing_that_keeps_failing_is_reported_each_time(
    stay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RELIST_PAUSE", 0.001)
    one = stay("null-listing")
    await one.opened()
    for _ in range(3):
        assert isinstance(await one.listings.get(), DragomanError)


async def test_server_that_was_modern_and_fails_to_list_is_asked_for_its_era_again(stay: Any) -> None:
    modern = await stay("modern").opened()
    known_protocol = modern.known_protocol
    assert known_protocol is not None
    assert known_protocol.discover is not None
    one = stay("null-listing", known_protocol=known_protocol)
    with pytest.raises(ConnectError, match="null as its result"):
        await one.opened()
    assert one.connection.known_protocol is None
    assert "server/discover" not in asked("null-listing")


async def test_server_that_refuses_the_protocol_it_had_is_asked_again(stay: Any) -> None:
    one = stay("modern-only", known_protocol=sdk.KnownProtocol("legacy"))
    with pytest.raises(ConnectError, match="-32022"):
        await one.opened()
    assert one.connection.known_protocol is None


async def test_crash_says_nothing_about_the_era(stay: Any) -> None:
    one = stay("crash-at-start", known_protocol=sdk.KnownProtocol("legacy"))
    with pytest.raises(ConnectError, match="license file missing"):
        await one.opened()
    assert one.connection.known_protocol == sdk.KnownProtocol("legacy")


async def test_server_that_ends_at_both_questions_is_asked_anew_the_next_time(
    stay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, tries = Connection._serve, []

    async def twice(self: Connection, transport: Any, seconds: float) -> None:
        tries.append(self.known_protocol)
        try:
            await serve(self, transport, seconds)
        finally:
            self.attempt.ended_by_probe = True

    monkeypatch.setattr(Connection, "_serve", twice)
    one = stay("exits-at-initialize")
    with pytest.raises(ConnectError, match="ended with code 5"):
        await one.opened()
    assert tries == [None, sdk.KnownProtocol("legacy")]
    assert one.connection.known_protocol is None


async def test_silent_calls_are_counted_only_while_nothing_is_heard(stay: Any) -> None:
    one = stay(health_check_interval=0.2)
    connection = await one.opened()
    for _ in range(6):
        with pytest.raises(TimeoutError):
            await connection.call_tool(outgoing("fault", {"kind": "never"}, 0.05))
        assert await connection.call_tool(outgoing("echo", {"text": "x"}, 5))
    assert one.lost == []


async def test_silence_while_another_call_is_under_way_is_no_silence(stay: Any) -> None:
    one = stay(health_check_interval=0.1)
    connection = await one.opened()
    busy = asyncio.ensure_future(connection.call_tool(outgoing("echo", {"text": "x", "pause": 0.7}, 20)))
    await asyncio.sleep(0)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await connection.call_tool(outgoing("echo", {"text": "y"}, 0.05))
    assert (await busy).parts[0].text == "x"
    assert one.lost == []
