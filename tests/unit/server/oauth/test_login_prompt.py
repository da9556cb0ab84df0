from __future__ import annotations

import asyncio

import pytest

from dragoman.server.oauth.login_prompt import LoginQueue, login_queue

pytestmark = pytest.mark.anyio


def test_first_login_is_shown_and_the_next_when_it_is_over() -> None:
    queue, shown = LoginQueue(), []
    logins = [object() for _ in range(4)]
    for number, login in enumerate(logins):
        queue.add(login, lambda number=number: shown.append(number))  # type: ignore[misc]
    assert shown == [0]
    queue.remove(logins[0])
    assert shown == [0, 1]
    # One that is done by other means is never shown.
    queue.remove(logins[2])
    queue.remove(logins[1])
    assert shown == [0, 1, 3]
    queue.remove(logins[3])
    queue.add(logins[0], lambda: shown.append(9))
    assert shown == [0, 1, 3, 9]


def test_login_that_was_never_added_may_be_removed() -> None:
    queue, shown = LoginQueue(), []
    queue.remove(object())
    queue.add(1, lambda: shown.append(1))
    queue.remove(object())
    queue.add(2, lambda: shown.append(2))
    assert shown == [1]


async def test_one_loop_has_one_queue() -> None:
    assert login_queue() is login_queue()
    other = await asyncio.to_thread(lambda: asyncio.run(_own()))
    assert other is not login_queue()


async def _own() -> LoginQueue:
    return login_queue()
