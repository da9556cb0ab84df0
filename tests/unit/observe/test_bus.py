from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

from dragoman.events import CallStarted
from dragoman.observe import bus as module
from dragoman.observe.bus import EventBus

if TYPE_CHECKING:
    import pytest


def event(number: int) -> CallStarted:
    return CallStarted(server="s", tool="t", call_id=str(number))


async def test_every_listener_gets_every_event_in_order() -> None:
    bus = EventBus()
    one, two = bus.subscribe(), bus.subscribe()
    for number in range(3):
        bus.publish(event(number))
    bus.close()
    assert [item async for item in one] == [item async for item in two] == [event(0), event(1), event(2)]


async def test_listener_waits_for_what_comes() -> None:
    bus = EventBus()
    reading = asyncio.ensure_future(anext(bus.subscribe()))
    await asyncio.sleep(0)
    assert not reading.done()
    bus.publish(event(1))
    assert await reading == event(1)


async def test_closing_wakes_who_waits_and_later_listeners_end_at_once() -> None:
    bus = EventBus()
    reading = asyncio.ensure_future(anext(bus.subscribe(), "end"))
    await asyncio.sleep(0)
    bus.close()
    assert await reading == "end"
    assert [item async for item in bus.subscribe()] == []


async def test_slow_listener_loses_the_oldest_and_knows_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CAPACITY", 2)
    bus = EventBus()
    slow = bus.subscribe()
    for number in range(5):
        bus.publish(event(number))
    bus.close()
    assert slow.dropped == 3
    assert [item async for item in slow] == [event(3), event(4)]


async def test_listener_without_references_is_forgotten() -> None:
    bus = EventBus()
    bus.subscribe()
    gc.collect()
    bus.publish(event(1))
    assert len(bus._subscriptions) == 0
