"""The events of one manager for all pages that show it: collected, numbered, and kept for a while.

A page gets at most ten messages a second, whatever happens: each says which servers changed, and what the
latest calls are. Who comes back names the last message that was seen (`Last-Event-ID`) and gets those after
it; if they are not kept any more, `resync` says to read everything again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from dragoman.errors import DragomanError
from dragoman.events import ApprovalAnswered, ApprovalRequested, CallFinished, CallStarted, ConfigReloaded
from dragoman.observe.call_stream import CallEntry, CallStream, Follower
from dragoman.trust.sanitizing import for_json
from dragoman.visible import shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.events import Event
    from dragoman.manager.manager import McpManager
    from dragoman.observe.bus import Subscription
    from dragoman.observe.call_history import CallHistory

PAUSE = 0.1
"""Seconds in which events are collected for one message."""
KEPT = 200
"""Messages that are kept for pages that come back: those of twenty seconds at least."""
MOST_CALLS = 100
"""Calls in one message; `skipped` counts the others."""
PING_SECONDS = 15.0
PING = b": ping\n\n"
LINGER_SECONDS = 30.0
"""How long events are collected after the last page has gone."""
LOG_SECONDS = 1.0
"""How often the log is looked at for calls of other programs."""
MOST_LINE = 200


class Feed:
    """The messages of one manager."""

    def __init__(self, mcp: McpManager, *, history: CallHistory | None = None) -> None:
        """Collect nothing until a page reads.

        Args:
            mcp: The manager.
            history: The log whose calls are shown too, those of other programs; `None` for none.
        """
        self._mcp = mcp
        self._history = history
        self.calls = CallStream()
        """The latest calls."""
        self._name = secrets.token_hex(4)
        """Tells messages of this feed from those of one before a restart."""
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._news = asyncio.Event()
        self._readers = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._servers: set[str] = set()
        self._dirty: dict[str, None] = {}
        """The calls that changed since the last message, in order."""
        self._is_reloaded = False
        self._has_inbox_news = False
        self._due = asyncio.Event()
        self._closed = False

    def start(self) -> None:
        """Begin to collect, if that is not done already."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._tasks or self._closed:
            return
        self._tasks = [
            asyncio.create_task(self._listen(self._mcp.events()), name="dragoman console events"),
            asyncio.create_task(self._write(), name="dragoman console feed"),
        ]
        if self._history is not None:
            follower = Follower(self._history)
            self._tasks.append(asyncio.create_task(self._follow(follower), name="dragoman console log"))

    async def close(self) -> None:
        """End the collection and every page's stream."""
        self._closed = True
        self._news.set()
        await self._stop()

    async def read(self, last: str = "") -> AsyncGenerator[bytes]:
        """Yield the messages for one page as server-sent events, until the feed is closed.

        Args:
            last: The id of the last message that the page has seen.
        """
        self._readers += 1
        self.start()
        try:
            name, _, number = last.partition("-")
            at = int(number) if name == self._name and number.isdecimal() and len(number) < 16 else -1
            oldest = self._kept[0][0] if self._kept else self._number + 1
            if at > self._number or at + 1 < oldest:
                at = self._number
                yield self._message("resync", number=at)
            while not self._closed:
                for number, message in [one for one in self._kept if one[0] > at]:
                    if number > at + 1:
                        yield self._message("resync", number=number)
                    yield message
                    at = number
                if at < self._number:
                    continue
                news = self._news
                try:
                    async with asyncio.timeout(PING_SECONDS):
                        await news.wait()
                except TimeoutError:
                    yield PING
                else:
                    if at == self._number and not self._closed:
                        yield PING
        finally:
            self._readers -= 1
            if not self._readers and not self._closed:
                self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._leave)

    def wake(self) -> None:
        """Have every page's stream yield, so that those whose visitor is out can end."""
        self._announce()

    def touch(self, *servers: str) -> None:
        """Say that servers changed in a way that no event tells."""
        self._servers.update(servers)
        self._due.set()

    def _leave(self) -> None:
        self._timer = None
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        # Who comes back has missed something.
        self._name = secrets.token_hex(4)
        self._kept.clear()

    async def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _listen(self, subscription: Subscription) -> None:
        async for event in subscription:
            # The others wait in the subscription: a task that wakes for each would cost as much as the calls.
            await asyncio.sleep(PAUSE)
            now = time.time()
            self._take(event, now)
            for more in subscription.take():
                self._take(more, now)
            self._flush()
        # The manager has ended, as that of a user does who was idle: nothing is left to tell.
        self._closed = True
        self._announce()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def _take(self, event: Event, now: float) -> None:
        match event:
            case CallStarted():
                self.calls.begin(event, now)
                self._dirty[event.call_id] = None
            case CallFinished():
                self.calls.end(event, now)
                self._dirty.pop(event.call_id, None)
                self._dirty[event.call_id] = None
            case ConfigReloaded():
                self._is_reloaded = True
            case ApprovalRequested() | ApprovalAnswered():
                self._has_inbox_news = True
            case _:
                self._servers.add(event.server)

    async def _follow(self, follower: Follower) -> None:
        while True:
            try:
                records = await asyncio.to_thread(follower.poll)
            except DragomanError:
                records = []  # The page says so when it reads the log itself.
            new = [
                one for one in records if (entry := self.calls.get(one.call_id)) is None or not entry.record
            ]
            self.calls.take(records)
            if new:
                self._dirty.update(dict.fromkeys(one.call_id for one in new))
                self._due.set()
            await asyncio.sleep(LOG_SECONDS)

    async def _write(self) -> None:
        while True:
            await self._due.wait()
            await asyncio.sleep(PAUSE)
            self._due.clear()
            self._flush()

    def _flush(self) -> None:
        """Make one message of all that has changed."""
        if not (self._dirty or self._servers or self._is_reloaded or self._has_inbox_news):
            return
        dirty, self._dirty = list(self._dirty), {}
        servers, self._servers = sorted(self._servers), set()
        entries = [entry for one in dirty[-MOST_CALLS:] if (entry := self.calls.get(one)) is not None]
        # A call is metered by its server, whose numbers are then others.
        metered = sorted({entry.server for entry in entries} - {""})
        data: dict[str, Any] = {
            "servers": [shown(one) for one in servers],
            "metered": [shown(one) for one in metered],
            "calls": [call_row(entry) for entry in entries],
            "skipped": max(0, len(dirty) - MOST_CALLS),
            "reloaded": self._is_reloaded,
            "inbox": self._has_inbox_news,
        }
        self._is_reloaded = self._has_inbox_news = False
        self._number += 1
        self._kept.append((self._number, self._message("news", data, number=self._number)))
        self._announce()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _message(self, kind: str, data: dict[str, Any] | None = None, *, number: int) -> bytes:
        text = for_json(json.dumps(data or {}, ensure_ascii=False, separators=(",", ":")))
        return f"id: {self._name}-{number}\nevent: {kind}\ndata: {text}\n\n".encode("utf-8", "replace")


def call_row(entry: CallEntry) -> dict[str, Any]:
    """Return a call as one row of a list."""
    line = entry.arguments
    return {
        "call_id": entry.call_id,
        "at": entry.at,
        "server": shown(entry.server),
        "tool": shown(entry.tool),
        "duration": entry.duration,
        "error_code": entry.error_code,
        "arguments": line if len(line) <= MOST_LINE else f"{line[:MOST_LINE]}…",
    }
