from __future__ import annotations

import asyncio

import pytest

from dragoman.observe.turns import BURST, CallThrottle

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("otter-concurrency")]


async def test_calls_begin_in_order_and_a_bounded_number_in_a_turn() -> None:
    pace = CallThrottle()
    begun: list[int] = []
    turns: list[int] = []

    async def call(number: int) -> None:
        if not pace.has_room():
            await pace.turn()
        begun.append(number)

    calls = [asyncio.ensure_future(call(number)) for number in range(3 * BURST + 1)]
    while not all(one.done() for one in calls):
        before = len(begun)
        await asyncio.sleep(0)
        turns.append(len(begun) - before)
    assert begun == list(range(3 * BURST + 1))
    assert max(turns) <= BURST


async def test_call_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    pace = CallThrottle()
    assert all(pace.has_room() for _ in range(BURST))
    waiting = [asyncio.ensure_future(pace.turn()) for _ in range(BURST + 1)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert waiting[0].cancelled()
    assert not any(one.cancelled() for one in waiting[1:])


async def test_there_is_room_again_in_the_next_turn() -> None:
    pace = CallThrottle()
    for _ in range(3):
        assert all(pace.has_room() for _ in range(BURST))
        assert not pace.has_room()
        await asyncio.sleep(0)
