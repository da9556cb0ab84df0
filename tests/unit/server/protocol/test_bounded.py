from __future__ import annotations

import pytest

from dragoman.server.protocol.rpc import SMALL_PIECE, Bounded


def gathered(limit: int, *pieces: bytes, ends: int = 3) -> Bounded:
    bounded = Bounded(limit, ends=ends)
    for piece in pieces:
        bounded.add(piece)
    return bounded


def test_everything_is_kept_up_to_the_limit() -> None:
    bounded = gathered(10, b"01234", b"", b"56789")
    assert bounded.is_whole
    assert (bounded.size, bounded.take()) == (10, b"0123456789")


def test_beyond_the_limit_both_ends_are_kept() -> None:
    bounded = gathered(10, b"01234", b"56789", b"a", b"bc")
    assert not bounded.is_whole
    assert (bounded.size, bounded.ends) == (13, (b"012", b"abc"))


def test_ends_of_something_short_overlap() -> None:
    assert gathered(10, b"ab").ends == (b"ab", b"ab")


@pytest.mark.parametrize("first", [b"ab", b"0123456789abc"])
def test_taking_begins_anew(first: bytes) -> None:
    bounded = gathered(10, first)
    bounded.take()
    assert (bounded.size, bounded.is_whole, bounded.ends) == (0, True, (b"", b""))
    bounded.add(b"xyz")
    assert bounded.take() == b"xyz"


def test_memory_stays_within_the_limit_however_much_comes() -> None:
    bounded = gathered(100, *[b"0123456789"] * 1000)
    assert bounded.size == 10_000
    assert sum(map(len, bounded._pieces)) <= 3


def test_single_bytes_are_collected_in_one_piece() -> None:
    bounded = Bounded(100_000, ends=3)
    bounded.add(b"x" * SMALL_PIECE)
    for _ in range(1000):
        bounded.add(b"y")
    assert len(bounded._pieces) == 2
    assert bounded.take() == b"x" * SMALL_PIECE + b"y" * 1000
