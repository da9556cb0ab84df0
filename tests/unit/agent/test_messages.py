from __future__ import annotations

import pytest

from dragoman.agent.messages import Price, Usage


def test_usage_adds_up() -> None:
    one = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, written_tokens=4)
    assert one + one == Usage(input_tokens=2, output_tokens=4, cached_tokens=6, written_tokens=8)


def test_a_price_counts_cached_and_written_input_apart() -> None:
    usage = Usage(
        input_tokens=1_000_000, output_tokens=100_000, cached_tokens=600_000, written_tokens=100_000
    )
    price = Price(input=3, output=15, cached=0.3, written=3.75)
    assert price.cost(usage) == pytest.approx(0.3 * 3 + 0.6 * 0.3 + 0.1 * 3.75 + 0.1 * 15)


def test_a_price_without_those_counts_all_input_alike() -> None:
    usage = Usage(input_tokens=1_000_000, cached_tokens=600_000, written_tokens=100_000)
    assert Price(input=3, output=15).cost(usage) == pytest.approx(3)


def test_more_cached_than_input_never_gives_money_back() -> None:
    assert Price(input=3, output=15, cached=0).cost(Usage(input_tokens=1, cached_tokens=9)) == 0
