"""Links that work once, and sessions of a cookie and a key."""

from __future__ import annotations

import pytest

from dragoman.console.sessions import IDLE_SECONDS, LINK_SECONDS, MOST_SESSIONS, TRIES, Sessions
from dragoman.gateway.auth import Refused


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock=clock)


def test_a_link_works_once(sessions: Sessions) -> None:
    token = sessions.new_link()
    assert len(token) >= 40
    assert not sessions.redeem(f"{token}x")
    assert sessions.redeem(token)
    assert not sessions.redeem(token)


def test_a_link_ends_by_itself(sessions: Sessions, clock: Clock) -> None:
    token = sessions.new_link()
    clock.now = LINK_SECONDS
    assert not sessions.redeem(token)


def test_a_session_needs_both_halves(sessions: Sessions) -> None:
    cookie, key = sessions.open("ada", "secret")
    other_cookie, other_key = sessions.open("", None)
    assert sessions.find(cookie, key).user == "ada"
    assert not sessions.find(cookie, key).is_operator
    assert sessions.find(other_cookie, other_key).is_operator
    for wrong in ((cookie, ""), ("", key), (cookie, other_key), (other_cookie, key), (key, cookie)):
        with pytest.raises(Refused, match="no session"):
            sessions.find(*wrong)


def test_a_session_ends_without_use_and_stays_with_it(sessions: Sessions, clock: Clock) -> None:
    cookie, key = sessions.open("", None)
    clock.now = IDLE_SECONDS
    session = sessions.find(cookie, key)
    clock.now = 2 * IDLE_SECONDS
    assert sessions.find(cookie, key) is session
    clock.now = 3 * IDLE_SECONDS + 1
    with pytest.raises(Refused, match="over"):
        sessions.find(cookie, key)
    assert not sessions.is_open(session)


def test_the_session_that_was_idle_for_longest_makes_room(sessions: Sessions) -> None:
    first, second = sessions.open("", None), sessions.open("", None)
    sessions.find(*first)
    for _ in range(MOST_SESSIONS - 1):
        sessions.open("", None)
    sessions.find(*first)
    with pytest.raises(Refused):
        sessions.find(*second)


def test_nobody_logs_the_others_out_by_coming_in_often(sessions: Sessions) -> None:
    operator, bob = sessions.open("", None), sessions.open("bob", "of bob")
    for _ in range(2 * MOST_SESSIONS):
        last = sessions.open("eve", "of eve")
    for one in (operator, bob, last):
        assert sessions.find(*one)


def test_a_session_that_was_left_is_over(sessions: Sessions) -> None:
    cookie, key = sessions.open("", None)
    sessions.close(sessions.find(cookie, key))
    with pytest.raises(Refused, match="no session"):
        sessions.find(cookie, key)


def test_tokens_cannot_be_guessed_for_long(sessions: Sessions, clock: Clock) -> None:
    for _ in range(TRIES):
        sessions.check_tries()
        sessions.note_wrong()
    with pytest.raises(Refused, match="too many") as caught:
        sessions.check_tries()
    assert caught.value.status == 429
    clock.now = 60.0
    sessions.check_tries()
