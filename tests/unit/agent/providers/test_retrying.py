from __future__ import annotations

import pytest

from dragoman.agent.providers.request import RETRYABLE, RetryPolicy, is_transient

POLICY = RetryPolicy(attempts=6, first=1, factor=3, longest=10, longest_asked=60)


def test_pauses_grow_to_a_limit_and_end() -> None:
    assert [POLICY.pause(failures, asked=None, chance=0) for failures in range(1, 8)] == [
        1,
        3,
        9,
        10,
        10,
        None,
        None,
    ]


def test_chance_only_shortens_a_pause() -> None:
    assert POLICY.pause(1, asked=None, chance=1) == 0.75


def test_very_many_attempts_do_not_overflow() -> None:
    assert RetryPolicy(attempts=10**6).pause(10**5, asked=None, chance=0) == 8


@pytest.mark.parametrize(("asked", "pause"), [(0, 0), (42.5, 42.5), (60, 60), (60.1, None)])
def test_the_apis_wish_counts_up_to_a_limit(asked: float, pause: float | None) -> None:
    assert POLICY.pause(1, asked=asked, chance=1) == pause


def test_a_wish_does_not_give_another_attempt() -> None:
    assert POLICY.pause(6, asked=0, chance=0) is None
    assert RetryPolicy(attempts=1).pause(1, asked=None, chance=0) is None


@pytest.mark.parametrize("status", range(400, 600))
def test_the_table_decides_by_status(status: int) -> None:
    assert is_transient(status, kind="") == (status in {408, 429, 500, 502, 503, 504, 529})
    assert RETRYABLE


@pytest.mark.parametrize(
    ("status", "kind", "told", "transient"),
    [
        (400, "", "true", True),
        (503, "", "false", False),
        (503, "", "perhaps", True),
        (429, "insufficient_quota", "", False),
        (None, "overloaded_error", "", True),
        (None, "server_error", "", True),
        (None, "invalid_request_error", "", False),
        (None, "", "", False),
    ],
)
def test_the_apis_word_counts_more(status: int | None, kind: str, told: str, *, transient: bool) -> None:
    assert is_transient(status, kind=kind, told=told) is transient
