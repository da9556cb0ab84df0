from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.server.protocol.rpc import SALVAGE_BYTES
from dragoman.server.transports.http_response import EventStream, StreamEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1024 * 1024


def events_of(chunks: Iterable[bytes], limit: int = 100) -> list[StreamEvent]:
    stream = EventStream(limit)
    return [event for chunk in chunks for event in stream.feed(chunk)]


def event(data: bytes, kind: bytes = b"message", event_id: str | None = None) -> StreamEvent:
    return StreamEvent(kind, data, event_id)


def test_event_has_a_kind_data_and_an_id() -> None:
    text = b"event: endpoint\nid: 7\ndata: /x\ndata:y\n\ndata: z\n\n"
    assert events_of([text]) == [event(b"/x\ny", b"endpoint", "7"), event(b"z")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_counts(end: bytes) -> None:
    assert events_of([b"data: a" + end + end + b"data: b" + end + end]) == [event(b"a"), event(b"b")]


def test_line_end_may_be_split_between_chunks() -> None:
    assert events_of([b"data: a\r", b"\n\r", b"", b"\ndata: b\r", b"\r"]) == [event(b"a"), event(b"b")]


@pytest.mark.parametrize("chunks", [[b"\xef\xbb\xbfdata: a\n\n"], [b"\xef", b"\xbb", b"\xbfdata: a\n\n"]])
def test_mark_at_the_beginning_is_left_out(chunks: list[bytes]) -> None:
    assert events_of(chunks) == [event(b"a")]


def test_comments_and_unknown_fields_are_ignored_and_empty_events_are_none() -> None:
    assert events_of([b": ping\n\nfoo: 1\nevent: x\n\ndata\n\n"]) == [event(b"")]


def test_id_alone_is_an_event_and_an_id_with_a_null_byte_is_none() -> None:
    stream = EventStream()
    assert list(stream.feed(b"id: 5\n\nid: 6\0\n\nid\n\n")) == [
        event(b"", event_id="5"),
        event(b"", event_id=""),
    ]
    assert stream.last_id == ""


@pytest.mark.parametrize(
    ("line", "retry"), [(b"retry: 50", 50), (b"retry: x", None), (b"retry: 9999999999999999", 999999999999)]
)
def test_retry_is_a_bounded_number_of_milliseconds(line: bytes, retry: int | None) -> None:
    stream = EventStream()
    assert list(stream.feed(line + b"\n")) == []
    assert stream.retry_ms == retry


def test_event_of_exactly_the_limit_is_whole_and_one_byte_more_is_not() -> None:
    assert events_of([b"data: " + b"x" * 100 + b"\n\n"]) == [event(b"x" * 100)]
    (long,) = events_of([b"data: " + b"x" * 101 + b"\n\n"])
    assert long.too_long == 101


@pytest.mark.parametrize("lines", [1, 40])
@pytest.mark.parametrize("piece", [7, 1000, MIB])
def test_event_beyond_the_limit_has_its_ends_and_the_next_is_read_again(lines: int, piece: int) -> None:
    middle = b"m" * (40 * SALVAGE_BYTES // lines)
    text = b"data: head\n" + (b"data: " + middle + b"\n") * lines + b"data: tail\n\ndata: next\n\n"
    chunks = [text[start : start + piece] for start in range(0, len(text), piece)]
    long, after = events_of(chunks, limit=2 * SALVAGE_BYTES)
    assert long.data.startswith(b"head\nm")
    assert long.data.endswith(b"m\ntail")
    assert abs(long.too_long - 40 * SALVAGE_BYTES) < 200
    assert len(long.data) <= 2 * SALVAGE_BYTES
    assert after == event(b"next")


def test_long_comment_does_not_spoil_the_event_after_it() -> None:
    comment = b":" + b"c" * (3 * SALVAGE_BYTES)
    assert events_of([comment, comment, b"\ndata: a\n\n"]) == [event(b"a")]


def test_empty_lines_of_data_count_and_take_no_endless_memory() -> None:
    stream = EventStream(1000)
    for _ in range(100):
        assert list(stream.feed(b"data:\n" * 1000)) == []
    (long,) = stream.feed(b"\n")
    assert long.too_long == 99_999


@given(
    data=st.lists(
        st.sampled_from(
            [b"data: a", b"data:", b"\n", b"\r", b"\r\n", b"id: 1\n", b":c\n", b"x" * 60, b"\xff"]
        )
    ).map(b"".join),
    cuts=st.lists(st.integers(0, 300)),
)
def test_any_chunking_gives_the_same_events(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert events_of(chunks, limit=50) == events_of([data], limit=50)


@pytest.mark.parametrize("limit", [64 * MIB, MIB])
@pytest.mark.parametrize("line", [b"", b"\ndata:"])
def test_work_grows_with_the_length_of_an_event_and_not_with_its_square(limit: int, line: bytes) -> None:
    def cost(size: int) -> float:
        chunk, best = line + b"x" * 16_000, float("inf")
        for _ in range(3):
            stream = EventStream(limit)
            began = time.process_time()
            assert not list(stream.feed(b"data:"))
            for _ in range(size // len(chunk)):
                assert not list(stream.feed(chunk))
            assert len(list(stream.feed(b"\n\n"))) == 1
            best = min(best, time.process_time() - began)
        return best

    assert cost(32 * MIB) < 30 * max(cost(4 * MIB), 0.01)
