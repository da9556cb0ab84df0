from __future__ import annotations

import asyncio

import pytest

from dragoman.server.auth_turn import Turns, turns

pytestmark = pytest.mark.anyio


def test_first_login_is_shown_and_the_next_when_it_is_over() -> None:
    queue, shown = Turns(), []
    logins = [object() for _ in range(4)]
    for number, login in enumerate(logins):
        queue.take(login, lambda number=number: shown.append(number))  # type: ignore[misc]
    assert shown == [0]
    queue.leave(logins[0])
    assert shown == [0, 1]
    # One that is done by other means never gets its turn.
    queue.leave(logins[2])
    queue.leave(logins[1])
    assert shown == [0, 1, 3]
    queue.leave(logins[3])
    queue.take(logins[0], lambda: shown.append(9))
    assert shown == [0, 1, 3, 9]


def test_who_never_had_a_turn_may_leave() -> None:
    queue, shown = Turns(), []
    queue.leave(object())
    queue.take(1, lambda: shown.append(1))
    queue.leave(object())
    queue.take(2, lambda: shown.append(2))
    assert shown == [1]


async def test_one_loop_has_one_queue() -> None:
    assert turns() is turns()
    other = await asyncio.to_thread(lambda: asyncio.run(_own()))
    assert other is not turns()


async def _own() -> Turns:
    return turns()
