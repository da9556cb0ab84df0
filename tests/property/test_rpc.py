"""Whatever bytes come in: nothing is raised, and every call that waits is resolved exactly once."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import ConnectionLostError, DragomanError
from dragoman.server.protocol.rpc import Rpc
from dragoman.server.transports.stdio import Lines, TooLong

LOST = ConnectionLostError("gone", server="s", may_have_run=True)

keys = st.sampled_from(
    ["jsonrpc", "id", "method", "params", "result", "error", "code", "message", "data", "_meta"]
)
ids = st.one_of(st.integers(-1, 8), st.sampled_from(["1", "2", "03", "x", "", "9" * 30, None, True, 1.0]))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from(["\ud800", "notifications/progress", "2.0", "id"]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys | st.text(), inner, max_size=5)
)
messages = st.one_of(
    st.fixed_dictionaries(
        {"id": ids}, optional={"result": values, "error": values, "jsonrpc": st.just("2.0")}
    ),
    st.fixed_dictionaries({"id": ids, "result": st.dictionaries(keys, values)}),
    st.fixed_dictionaries({"method": scalars}, optional={"id": ids, "params": values}),
    st.builds(
        lambda token, progress, total: {
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": progress, "total": total},
        },
        ids,
        scalars,
        scalars,
    ),
    values,
)
written = (messages | st.lists(messages, max_size=4)).map(lambda message: json.dumps(message).encode())


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A message with some bytes changed, taken out or put in."""
    data = bytearray(draw(written))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


lines = st.one_of(st.binary(max_size=200), written, mangled())


class Deaf:
    """Takes everything and does nothing."""

    def on_request(self, request_id: Any, method: str, params: Any) -> None:
        assert type(request_id) in (int, str)
        assert type(method) is str
        assert params is None or type(params) is dict

    def on_notification(self, method: str, params: Any) -> None:
        assert type(method) is str
        assert params is None or type(params) is dict

    def on_junk(self, reason: str, sample: bytes) -> None:
        assert reason


def begin(rpc: Rpc, count: int) -> list[list[Any]]:
    outcomes: list[list[Any]] = [[] for _ in range(count)]
    for number, outcome in enumerate(outcomes):
        rpc.request("m", None, resolve=outcome.append, on_progress=lambda *_: None, lenient=number % 2 == 0)
    return outcomes


@given(received=st.lists(lines, max_size=20), calls=st.integers(0, 6))
def test_every_waiting_call_is_resolved_exactly_once(received: list[bytes], calls: int) -> None:
    rpc = Rpc(Deaf())
    outcomes = begin(rpc, calls)
    for line in received:
        before = rpc.waiting
        ended = rpc.receive(line)
        assert (ended is None) == (rpc.waiting == before)
    assert rpc.received == len(received)
    assert rpc.waiting == sum(not outcome for outcome in outcomes)
    rpc.close(LOST)
    for outcome in outcomes:
        (one,) = outcome
        assert type(one) is dict or isinstance(one, DragomanError)
    for line in received:
        rpc.receive(line)
    assert all(len(outcome) == 1 for outcome in outcomes)


@given(stream=st.lists(lines).map(b"\n".join), cuts=st.lists(st.integers(0, 2000)), limit=st.integers(1, 300))
def test_no_stream_of_bytes_raises_however_it_is_cut(stream: bytes, cuts: list[int], limit: int) -> None:
    rpc, framing = Rpc(Deaf()), Lines(limit)
    outcomes = begin(rpc, 4)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in itertools.pairwise(edges):
        for line in framing.feed(stream[start:end]):
            if isinstance(line, TooLong):
                assert line.size > limit
                rpc.salvage(line.head, line.tail, "too long")
            else:
                assert 0 < len(line) <= limit
                rpc.receive(line)
    rpc.close(LOST)
    assert all(len(outcome) == 1 for outcome in outcomes)


@given(head=st.binary(max_size=300), tail=st.binary(max_size=300))
def test_salvaging_anything_raises_nothing(head: bytes, tail: bytes) -> None:
    rpc = Rpc(Deaf())
    outcomes = begin(rpc, 9)
    rpc.salvage(head, tail, "unreadable")
    rpc.close(LOST)
    assert all(len(outcome) == 1 for outcome in outcomes)


@given(result=st.dictionaries(st.text(), st.recursive(scalars, lambda inner: st.lists(inner, max_size=3))))
def test_good_answer_always_reaches_its_own_call(result: dict[str, Any]) -> None:
    rpc = Rpc(Deaf())
    outcomes = begin(rpc, 3)
    data = json.dumps({"jsonrpc": "2.0", "id": 2, "result": result}).encode()
    assert rpc.receive(data) == 2
    assert [len(outcome) for outcome in outcomes] == [0, 1, 0]
