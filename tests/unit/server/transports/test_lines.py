from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.server.protocol.rpc import SALVAGE_BYTES
from dragoman.server.transports.stdio import Lines, TooLong

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.requirement("kode-connect.stdio", "otter-p0.stdio", "excel-2.2")

MIB = 1024 * 1024


def lines_of(chunks: Iterable[bytes], limit: int = 100) -> list[bytes | TooLong]:
    lines = Lines(limit)
    return [line for chunk in chunks for line in lines.feed(chunk)]


def test_lines_are_cut_and_stripped_and_blank_ones_left_out() -> None:
    assert lines_of([b"a\r\n\n \t\r\n  b \nc"]) == [b"a", b"b"]


def test_unfinished_line_is_kept_for_the_next_chunk() -> None:
    lines = Lines()
    assert list(lines.feed(b"ab")) == []
    assert lines.pending == 2
    assert list(lines.feed(b"c\nd")) == [b"abc"]
    assert lines.pending == 1


def test_line_of_exactly_the_limit_is_whole_and_one_byte_more_is_not() -> None:
    assert lines_of([b"x" * 100 + b"\n"]) == [b"x" * 100]
    assert lines_of([b"x" * 101 + b"\n"]) == [TooLong(b"x" * 101, b"x" * 101, 101)]


def test_line_beyond_the_limit_has_its_ends_and_the_next_is_read_again() -> None:
    middle = b"m" * (3 * SALVAGE_BYTES)
    long, after = lines_of([b"head", middle, b"tail\nafter\n"], limit=SALVAGE_BYTES)
    assert isinstance(long, TooLong)
    assert (long.size, len(long.head), len(long.tail)) == (len(middle) + 8, SALVAGE_BYTES, SALVAGE_BYTES)
    assert long.head.startswith(b"headm")
    assert long.tail.endswith(b"mtail")
    assert after == b"after"


def test_endless_line_takes_no_memory_and_is_counted() -> None:
    lines = Lines(1000)
    for _ in range(1000):
        assert list(lines.feed(b"x" * 10_000)) == []
    assert lines.pending == 10_000_000
    assert sum(map(len, lines._begun._pieces)) <= SALVAGE_BYTES


@given(
    data=st.lists(st.sampled_from([b"a", b"\n", b"\r", b" ", b"\xff", b'{"id":1}', b"x" * 40])).map(b"".join),
    cuts=st.lists(st.integers(0, 200)),
)
def test_any_chunking_gives_the_same_lines(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert lines_of(chunks, limit=50) == lines_of([data], limit=50)


@pytest.mark.parametrize("limit", [64 * MIB, MIB])
def test_work_grows_with_the_length_of_a_line_and_not_with_its_square(limit: int) -> None:
    def cost(size: int) -> float:
        chunk, best = b"x" * 65536, float("inf")
        for _ in range(3):
            lines = Lines(limit)
            began = time.process_time()
            for _ in range(size // len(chunk)):
                assert not list(lines.feed(chunk))
            assert len(list(lines.feed(b"\n"))) == 1
            best = min(best, time.process_time() - began)
        return best

    # Eight times the length costs 8 times as much, or 64 times if every chunk copies what came before.
    assert cost(32 * MIB) < 30 * max(cost(4 * MIB), 0.01)
