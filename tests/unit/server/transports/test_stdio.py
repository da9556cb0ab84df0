from __future__ import annotations

import asyncio
import fcntl
import json
import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from dragoman.errors import ConnectionLostError, ProtocolError
from dragoman.server.protocol.rpc import Rpc
from dragoman.server.protocol.wire import SendInfo
from dragoman.server.transports import stdio as pipes
from dragoman.server.transports.stdio import ENDLESS, MAX_UNREAD_ANSWERS, READ_BYTES, TURN_LINES, Pipe

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "kode-connect.stdio",
        "otter-p0.stdio",
        "excel-2.2",
        "legal-client.stdio",
    ),
]


class Ends:
    """A pipe with a conversation on our side, and bare descriptors on the child's."""

    def __init__(self, limit: int = 1000) -> None:
        self.theirs_in, stdin = os.pipe()
        stdout, self.theirs_out = os.pipe()
        self.ended: list[str] = []
        self.notifications: list[str] = []
        self.junk: list[str] = []
        self.outcomes: dict[Any, asyncio.Future[Any]] = {}
        self.rpc = Rpc(self)
        self.pipe = Pipe(
            self.rpc, server="s", stdin=stdin, stdout=stdout, limit=limit, on_end=self.ended.append
        )
        self.open = {self.theirs_in, self.theirs_out}

    def on_request(self, request_id: Any, method: str, params: Any) -> None:
        raise AssertionError(method)

    def on_notification(self, method: str, params: Any) -> None:
        self.notifications.append(method)

    def on_junk(self, reason: str, sample: bytes) -> None:
        self.junk.append(reason)

    def call(self, **params: Any) -> tuple[Any, bytes, SendInfo]:
        future = asyncio.get_running_loop().create_future()
        request_id, message = self.rpc.request("m", params, resolve=future.set_result)
        self.outcomes[request_id] = future
        envelope = SendInfo("m", request_id)
        self.pipe.send(message, envelope)
        return request_id, message, envelope

    def say(self, data: bytes) -> None:
        os.write(self.theirs_out, data)

    def heard(self) -> list[Any]:
        """What the child would read now."""
        os.set_blocking(self.theirs_in, False)
        data = b""
        try:
            while chunk := os.read(self.theirs_in, 1 << 20):
                data += chunk
        except BlockingIOError:
            pass
        return [json.loads(line) for line in data.splitlines()]

    def shut(self, descriptor: int) -> None:
        self.open.discard(descriptor)
        os.close(descriptor)


@pytest.fixture
async def ends() -> Iterator[Ends]:
    one = Ends()
    yield one
    one.pipe.close()
    for descriptor in list(one.open):
        one.shut(descriptor)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_sent_in_one_turn_goes_out_in_its_order(ends: Ends) -> None:
    for number in range(3):
        ends.call(number=number)
    ends.pipe.send(ends.rpc.notification("n"))
    await turns()
    assert [message.get("params", message["method"]) for message in ends.heard()] == [
        {"number": 0},
        {"number": 1},
        {"number": 2},
        "n",
    ]


async def test_lone_request_goes_out_at_once_and_those_beside_it_together(ends: Ends) -> None:
    first, _, _ = ends.call()
    assert [message["id"] for message in ends.heard()] == [first]
    beside = [ends.call() for _ in range(2)]
    assert ends.heard() == []
    assert ends.pipe.abandon(*beside[1][1:], "too late")
    await turns()
    assert [message["id"] for message in ends.heard()] == [beside[0][0]]


async def test_lone_request_stays_behind_what_was_sent_before(ends: Ends) -> None:
    ends.pipe.send(ends.rpc.notification("n"))
    ends.call()
    assert ends.heard() == []
    await turns()
    assert [message["method"] for message in ends.heard()] == ["n", "m"]


async def test_answers_resolve_their_calls(ends: Ends) -> None:
    request_id, _, _ = ends.call()
    ends.say(b'{"jsonrpc":"2.0","id":%d,"result":{"a":1}}\n' % request_id)
    with anyio.fail_after(5):
        assert await ends.outcomes[request_id] == {"a": 1}


async def test_message_beyond_the_limit_fails_its_call_and_the_next_is_read(ends: Ends) -> None:
    first, _, _ = ends.call()
    second, _, _ = ends.call()
    ends.say(b'{"jsonrpc":"2.0","id":%d,"result":{"a":"%s"}}\n' % (first, b"x" * 2000))
    ends.say(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % second)
    with anyio.fail_after(5):
        error = await ends.outcomes[first]
        assert await ends.outcomes[second] == {}
    assert isinstance(error, ProtocolError)
    assert "the limit `max_message_bytes` is 1000" in str(error)
    assert ends.rpc.received == 2


async def test_line_without_end_ends_the_wire(ends: Ends) -> None:
    with anyio.fail_after(5):
        while not ends.ended:
            ends.say(b"x" * 1000)
            await turns(2)
    assert "has no end" in ends.ended[0]
    assert ends.rpc.received == 0
    assert ends.pipe._lines.pending <= (ENDLESS + 2) * 1000 + READ_BYTES


async def test_end_of_the_output_is_told_once(ends: Ends) -> None:
    ends.shut(ends.theirs_out)
    await turns()
    ends.pipe.read_rest()
    assert ends.ended == ["it closed its output"]


async def test_last_words_are_read_although_the_loop_has_not_looked(ends: Ends) -> None:
    ends.say(b'{"method":"n"}\n' * 100)
    ends.shut(ends.theirs_out)
    ends.pipe.read_rest()
    assert len(ends.notifications) == 100
    assert ends.ended == ["it closed its output"]


async def test_last_words_have_an_end_even_if_another_process_goes_on_writing(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "LAST_BYTES", 5000)
    ends.say(b'{"method":"n"}\n' * 1000)
    ends.pipe.read_rest()
    assert 300 < len(ends.notifications) < 1000


async def test_unread_input_ends_the_wire_and_fails_what_has_not_gone_out(ends: Ends) -> None:
    ends.shut(ends.theirs_in)
    request_id, _, _ = ends.call()
    await turns()
    assert ends.ended == ["its input cannot be written: Broken pipe"]
    later, _, _ = ends.call()
    error = await ends.outcomes[later]
    assert isinstance(error, ConnectionLostError)
    assert not error.may_have_run
    # Whether the first one was read is not known: the end of the connection tells it.
    assert not ends.outcomes[request_id].done()


async def test_full_pipe_is_waited_for_and_written_in_pieces(ends: Ends) -> None:
    sent = [ends.call(text=f"{number}" * 100_000)[0] for number in range(10)]
    await turns()
    assert ends.pipe._blocked
    heard: list[Any] = []
    data = b""
    os.set_blocking(ends.theirs_in, False)
    with anyio.fail_after(10):
        while data.count(b"\n") < len(sent):
            await anyio.wait_readable(ends.theirs_in)
            data += os.read(ends.theirs_in, 1 << 20)
            await turns(2)
    heard = [json.loads(line) for line in data.splitlines()]
    assert [message["id"] for message in heard] == sent
    assert [message["params"]["text"] for message in heard] == [f"{number}" * 100_000 for number in range(10)]
    assert not ends.pipe._blocked
    after, _, _ = ends.call()
    await turns()
    assert [message["id"] for message in ends.heard()] == [after]


async def test_request_that_has_not_gone_out_is_taken_back(ends: Ends) -> None:
    ends.call(text="x" * 2_000_000)
    await turns()
    _, message, envelope = ends.call()
    assert ends.pipe.abandon(message, envelope, "too late")
    assert not ends.pipe._queue


async def test_server_is_told_of_a_request_that_went_out(ends: Ends) -> None:
    request_id, message, envelope = ends.call()
    await turns()
    assert not ends.pipe.abandon(message, envelope, "too late")
    await turns()
    assert ends.heard()[-1]["params"] == {"requestId": request_id, "reason": "too late"}


async def test_answers_to_a_server_that_does_not_read_are_bounded_and_requests_still_queued(
    ends: Ends,
) -> None:
    ends.call(text="x" * 2_000_000)
    await turns()
    for number in range(2 * MAX_UNREAD_ANSWERS):
        ends.pipe.send(ends.rpc.result(number, {}))
    assert len(ends.pipe._queue) == MAX_UNREAD_ANSWERS
    ends.call()
    assert len(ends.pipe._queue) == MAX_UNREAD_ANSWERS + 1


async def test_closing_the_input_fails_what_is_queued_as_never_run(ends: Ends) -> None:
    ends.call(text="x" * 2_000_000)
    await turns()
    queued, _, _ = ends.call()
    ends.pipe.close_stdin("it was killed")
    ends.pipe.close_stdin()
    error = await ends.outcomes[queued]
    assert isinstance(error, ConnectionLostError)
    assert not error.may_have_run
    assert "ended before the request was sent: it was killed" in str(error)
    ends.pipe.send(ends.rpc.notification("n"))
    assert not ends.pipe._queue


async def test_flood_of_lines_is_taken_in_small_portions_and_large_messages_in_large_ones(ends: Ends) -> None:
    lines = READ_BYTES // 2
    os.set_blocking(ends.theirs_out, False)
    ends.say(b"\n" * lines)
    largest = 0
    while await_more(ends):
        before = ends.pipe._lines.pending
        assert before == 0
        ends.pipe._read()
        largest = max(largest, ends.pipe._read_bytes)
        await asyncio.sleep(0)
    assert largest <= 2 * max(pipes.LEAST_READ_BYTES, TURN_LINES)
    for _ in range(3):
        ends.say(b"x" * READ_BYTES)
        while await_more(ends):
            ends.pipe._read()
    assert ends.pipe._read_bytes > pipes.LEAST_READ_BYTES


def await_more(ends: Ends) -> bool:
    import select

    return bool(select.select([ends.pipe._stdout], [], [], 0)[0])


async def test_it_is_known_whether_the_child_has_read_anything(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not ends.pipe.was_read()
    ends.call()
    await turns()
    assert not ends.pipe.was_read()
    assert ends.heard()
    assert ends.pipe.was_read()
    monkeypatch.setattr(pipes, "_UNREAD", 1)
    assert ends.pipe.was_read()
    monkeypatch.setattr(pipes, "_UNREAD", None)
    assert ends.pipe.was_read()
    ends.pipe.close_stdin()
    assert ends.pipe.was_read()


async def test_output_that_cannot_be_read_ends_the_wire(ends: Ends) -> None:
    folder = os.open(".", os.O_RDONLY)
    stdout = ends.pipe._stdout
    assert stdout is not None
    asyncio.get_running_loop().remove_reader(stdout)
    os.dup2(folder, stdout)
    os.close(folder)
    ends.pipe._read()
    assert ends.ended == ["its output cannot be read: Is a directory"]


async def test_closing_twice_does_no_harm_and_nothing_is_read_after(ends: Ends) -> None:
    ends.pipe.close()
    ends.pipe.close()
    ends.pipe.read_rest()
    assert ends.ended == []


async def test_descriptor_that_cannot_be_widened_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    size = fcntl.fcntl(read, fcntl.F_GETPIPE_SZ)
    try:
        for command in (-1, None):
            monkeypatch.setattr(pipes, "_SET_PIPE_SIZE", command)
            pipes._widen(read)
            assert fcntl.fcntl(read, fcntl.F_GETPIPE_SZ) == size
    finally:
        os.close(read)
        os.close(write)
