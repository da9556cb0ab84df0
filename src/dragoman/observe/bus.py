"""Delivers events to subscriptions. Publishing never waits and never fails.

A subscription that falls behind loses its oldest events and counts them; others are not affected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING
from weakref import ref

if TYPE_CHECKING:
    from dragoman.events import Event

CAPACITY = 10_000


class EventBus:
    """Delivers every event to every subscription that is still referenced."""

    def __init__(self) -> None:
        self._subscriptions: list[ref[Subscription]] = []
        self._closed = False

    def publish(self, event: Event) -> None:
        """Deliver an event to all subscriptions."""
        for reference in self._subscriptions:
            if (subscription := reference()) is not None:
                subscription.put(event)

    def has_listeners(self) -> bool:
        """Return whether there is a subscription; without one, events need not be created."""
        return bool(self._subscriptions)

    def subscribe(self) -> Subscription:
        """Return a subscription to all further events; it ends with the last reference to it."""
        subscription = Subscription()
        if self._closed:
            subscription.close()
        else:
            self._subscriptions = [*self._subscriptions, ref(subscription, self._forget)]
        return subscription

    def close(self) -> None:
        """End every subscription after its unread events."""
        self._closed = True
        for reference in self._subscriptions:
            if (subscription := reference()) is not None:
                subscription.close()
        self._subscriptions = []

    def _forget(self, gone: ref[Subscription]) -> None:
        self._subscriptions = [reference for reference in self._subscriptions if reference is not gone]


class Subscription:
    """Events since its creation, read with `async for`."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self.dropped = 0
        """How many events were lost because they were not read in time."""

    def put(self, event: Event) -> None:
        """Keep an event until it is read."""
        if len(self._events) >= CAPACITY:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._changed.set()

    def take(self) -> list[Event]:
        """Return the unread events without waiting for more."""
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        """End the iteration after the unread events."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()
