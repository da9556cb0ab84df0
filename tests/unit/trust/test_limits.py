"""Limits: each error names its setting, tables are read with care, the bucket lets through what it may."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.struct import field_names
from dragoman.trust.limits import Limits, TokenBucket, rate_text, read_limits

SETTINGS = field_names(Limits)


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_excess_names_its_setting(setting: str) -> None:
    limits = Limits(calls_per_second=5)
    limit = getattr(limits, setting)
    assert limits.excess(setting, limit, what="it") == ""
    text = limits.excess(setting, limit + 1, what="the listing of `fs`")
    assert text.startswith("the listing of `fs` has ")
    assert f"`limits.{setting}`" in text


def test_the_text_says_how_much() -> None:
    assert (
        Limits().excess("tools", 12_000, what="`fs`")
        == "`fs` has 12,000 tools, more than the 10,000 that `limits.tools` allows"
    )
    assert "9,000 characters" in Limits().excess("description_chars", 9_000, what="it")


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_limit_can_be_set(setting: str) -> None:
    limits, problems = read_limits({setting: 7})
    assert problems == []
    assert getattr(limits, setting) == 7


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"tool": 1}, "`limits.tool` is unknown"),
        ({"tools": 0}, "between 1 and"),
        ({"tools": -1}, "between 1 and"),
        ({"tools": "many"}, "whole number"),
        ({"tools": True}, "whole number"),
        ({"tools": 1.5}, "whole number"),
        ({"calls_per_second": "x"}, "must be a number"),
        ({"calls_per_second": float("inf")}, "between"),
        ({"calls_per_second": float("nan")}, "between"),
        ({"schema_depth": 10_000}, "between 1 and 200"),
        ([], "must be a table"),
    ],
)
def test_what_is_wrong_leaves_the_limit(data: Any, problem: str) -> None:
    limits, problems = read_limits(data)
    assert limits == Limits()
    assert len(problems) == 1
    assert problem in problems[0]


def test_a_project_can_only_narrow() -> None:
    base = Limits(calls_per_second=5)
    limits, problems = read_limits(
        {"tools": 20_000, "pages": 10, "calls_per_second": 0}, base, only_narrow=True
    )
    assert (limits.tools, limits.pages, limits.calls_per_second) == (base.tools, 10, 5)
    assert len(problems) == 2
    assert read_limits({"calls_per_second": 3}, Limits(), only_narrow=True)[0].calls_per_second == 3


def test_a_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    bucket = TokenBucket(2, 3)
    assert [bucket.take(10.0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(10.0) == pytest.approx(0.5)
    assert bucket.take(10.25) == pytest.approx(0.25)
    assert bucket.take(10.5) == 0
    assert bucket.take(9.0) == pytest.approx(0.5)
    assert [bucket.take(1000.0) for _ in range(4)] == [0, 0, 0, pytest.approx(0.5)]


def test_without_a_rate_everything_goes() -> None:
    assert all(TokenBucket(0, 1).take(0.0) == 0 for _ in range(100))


def test_a_call_that_comes_too_soon_names_the_setting() -> None:
    text = rate_text(Limits(calls_per_second=2), server="fs", wait=0.5)
    assert "`limits.calls_per_second`" in text
    assert "`fs`" in text


@given(
    st.floats(0.1, 100),
    st.integers(1, 20),
    st.lists(st.floats(0, 1), min_size=1, max_size=200),
)
def test_no_more_than_the_burst_and_the_rate_get_through(rate: float, burst: int, steps: list[float]) -> None:
    bucket, now, taken = TokenBucket(rate, burst), 0.0, 0
    for step in steps:
        now += step
        wait = bucket.take(now)
        taken += wait == 0
        # A caller that waits as long as told gets through.
        assert wait >= 0
        assert taken <= burst + rate * now + 1e-6
    wait = bucket.take(now)
    assert bucket.take(now + wait + 1e-9) == 0 if wait else True
