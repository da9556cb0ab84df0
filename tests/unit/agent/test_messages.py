from __future__ import annotations

import pytest

from dragoman.agent.messages import Price, Usage, price_of


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


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("gpt-5", 1),
        ("gpt-5-2026-01-01", 1),
        ("gpt-5-mini", 2),
        ("gpt-5-mini-x", 2),
        ("gpt-50", None),
        ("o1", None),
    ],
)
def test_a_models_price_is_that_of_the_longest_name_it_begins_with(model: str, found: int | None) -> None:
    prices = {"gpt-5": Price(input=1, output=1), "gpt-5-mini": Price(input=2, output=2)}
    price = price_of(model, prices)
    assert (price and price.input) == found
