from __future__ import annotations

import asyncio

import anyio
import pytest

from dragoman.server.protocol import deadlines as module
from dragoman.server.protocol.deadlines import GRAIN, Deadline, Deadlines

pytestmark = pytest.mark.anyio


async def test_each_future_ends_at_its_own_time_or_at_the_deadline_of_its_call() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    futures = [loop.create_future() for _ in range(4)]
    began = loop.time()
    deadlines.add(futures[0], 0.05)
    deadlines.add(futures[1], 0.02)
    of_call = Deadline(began + 0.03)
    deadlines.add(futures[2], None, of_call)
    deadlines.add(futures[3], 60, of_call)
    with anyio.fail_after(5):
        for number, at in ((1, 0.02), (2, 0.03), (3, 0.03), (0, 0.05)):
            assert isinstance(await futures[number], TimeoutError)
            assert loop.time() >= began + at


async def test_deadline_that_is_put_off_ends_nothing_before() -> None:
    loop = asyncio.get_running_loop()
    deadlines, end = Deadlines(loop), Deadline(loop.time() + GRAIN)
    future = loop.create_future()
    deadlines.add(future, None, end)
    end.at += 5 * GRAIN
    with anyio.fail_after(5):
        await future
    assert loop.time() >= end.at


async def test_many_questions_together_put_a_deadline_off_only_so_far() -> None:
    end = Deadline(100.0)
    for _ in range(5):
        end.put_off(module.LONGEST_ANSWER / 2)
    assert end.at == 100.0 + module.LONGEST_ANSWER


async def test_what_is_over_is_forgotten_and_no_timer_stays() -> None:
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    answered, endless, late = loop.create_future(), loop.create_future(), loop.create_future()
    deadlines.add(answered, 0.0)
    deadlines.drop(answered)
    deadlines.add(endless, None)
    deadlines.add(late, 0.0)
    late.set_result("answered in the same moment")
    marked = loop.create_future()
    deadlines.add(marked, 2 * GRAIN)
    with anyio.fail_after(5):
        await marked
    assert not answered.done()
    assert not endless.done()
    assert late.result() == "answered in the same moment"
    deadlines.add(answered, 60)
    deadlines.stop()
    assert deadlines._timer is None


async def test_no_time_runs_out_while_the_server_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASKING_GRAIN", GRAIN)
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    own, shared, marked = loop.create_future(), loop.create_future(), loop.create_future()
    began = loop.time()
    deadlines.add(own, GRAIN)
    deadlines.add(shared, None, Deadline(began + GRAIN))
    with anyio.fail_after(5):
        with deadlines.held(), deadlines.held():
            loop.call_later(5 * GRAIN, marked.set_result, None)
            await marked
            assert not own.done()
            assert not shared.done()
        answered = loop.time()
        await asyncio.wait({own, shared})
    assert loop.time() >= answered
    assert isinstance(own.result(), TimeoutError)
    assert isinstance(shared.result(), TimeoutError)


async def test_an_answer_that_never_comes_holds_a_call_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASKING_GRAIN", GRAIN)
    monkeypatch.setattr(module, "LONGEST_ANSWER", 3 * GRAIN)
    loop = asyncio.get_running_loop()
    deadlines, future = Deadlines(loop), loop.create_future()
    deadlines.add(future, GRAIN)
    with anyio.fail_after(5), deadlines.held():
        assert isinstance(await future, TimeoutError)
