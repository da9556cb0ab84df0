from __future__ import annotations

import pytest

from dragoman.server.lifecycle import Backoff

pytestmark = pytest.mark.requirement("kode-lifecycle.reconnect", "otter-crash", "legal-error.lost")

MIDDLE = 0.5
"""The chance that gives no jitter."""


def waits(backoff: Backoff, times: list[float], chance: float = MIDDLE) -> list[float]:
    return [backoff.failed(now, chance).seconds for now in times]


@pytest.mark.requirement("kode-lifecycle.reconnect")
def test_delay_doubles_from_half_a_second_to_a_minute() -> None:
    far_apart = [number * 1000.0 for number in range(10)]
    assert waits(Backoff(), far_apart) == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize(("chance", "first"), [(0.0, 0.4), (0.5, 0.5), (1.0, 0.6)])
def test_jitter_is_a_fifth_either_way(chance: float, first: float) -> None:
    assert Backoff().failed(0.0, chance).seconds == pytest.approx(first)


def test_five_failures_in_three_minutes_are_a_crash_loop_tried_once_a_minute() -> None:
    backoff = Backoff()
    delays = [backoff.failed(now, MIDDLE) for now in (0.0, 1.0, 2.0, 3.0)]
    assert not any(delay.slow for delay in delays)
    assert not backoff.slow(3.0)
    assert backoff.failed(180.0, MIDDLE) == (60.0, True)
    assert backoff.slow(180.0)


def test_five_failures_in_more_than_three_minutes_are_none() -> None:
    backoff = Backoff()
    assert waits(backoff, [0.0, 1.0, 2.0, 3.0, 180.1])[-1] == 8
    assert not backoff.slow(200.0)


def test_crash_loop_stays_slow_however_long_the_tries_are_apart() -> None:
    backoff = Backoff()
    waits(backoff, [0.0, 1.0, 2.0, 3.0, 4.0])
    assert [backoff.failed(1000.0 * number, MIDDLE) for number in range(1, 50)] == [(60.0, True)] * 49


def test_a_minute_of_ready_and_an_answer_reset_it() -> None:
    backoff = Backoff()
    waits(backoff, [0.0, 1.0, 2.0, 3.0, 4.0])
    backoff.ready(10.0)
    backoff.answered()
    assert backoff.slow(69.9)
    assert not backoff.slow(70.0)
    assert backoff.failed(70.0, MIDDLE) == (0.5, False)


@pytest.mark.parametrize(("answered", "ended"), [(False, 1000.0), (True, 69.9)])
def test_neither_time_nor_an_answer_alone_resets_it(answered: bool, ended: float) -> None:
    backoff = Backoff()
    waits(backoff, [0.0, 1.0, 2.0])
    backoff.ready(10.0)
    if answered:
        backoff.answered()
    assert backoff.failed(ended, MIDDLE).seconds == 4


def test_answer_of_an_earlier_connection_proves_nothing_about_a_later_one() -> None:
    backoff = Backoff()
    backoff.ready(0.0)
    backoff.answered()
    waits(backoff, [1.0])
    backoff.ready(2.0)
    assert backoff.failed(100.0, MIDDLE).seconds == 1


def test_failure_to_connect_is_not_taken_for_the_end_of_a_proven_connection() -> None:
    backoff = Backoff()
    backoff.ready(0.0)
    backoff.answered()
    assert waits(backoff, [100.0, 200.0, 300.0]) == [0.5, 1, 2]


def test_restart_forgets_everything() -> None:
    backoff = Backoff()
    waits(backoff, [0.0, 1.0, 2.0, 3.0, 4.0])
    backoff.reset()
    assert not backoff.slow(5.0)
    assert backoff.failed(5.0, MIDDLE) == (0.5, False)


def test_ten_hours_of_crashing_at_once_stay_within_the_table() -> None:
    for chance in (0.0, 0.5, 1.0):
        backoff, now, starts = Backoff(), 0.0, 0
        while now < 36_000:
            starts += 1
            now += backoff.failed(now, chance).seconds
        assert 36_000 / 72 <= starts <= 5 + 36_000 / 48


def test_refused_logins_are_tried_after_minutes_and_ever_more_slowly() -> None:
    backoff = Backoff()
    waits = [backoff.refused(0.0, 0.5).seconds for _ in range(6)]
    assert waits == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0]
    backoff.ready(0.0)
    assert backoff.refused(0.0, 0.5).seconds == 60.0
    assert backoff.failed(1.0, 0.5).seconds == 0.5


def test_calls_try_a_server_that_required_a_login_ever_more_rarely() -> None:
    backoff = Backoff()
    for wait in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        backoff.refused(100.0, 0.5)
        assert not backoff.allows_call(100.0 + wait - 0.01)
        assert backoff.allows_call(100.0 + wait)
    backoff.ready(0.0)
    backoff.refused(100.0, 0.5)
    assert backoff.allows_call(100.5)
