"""Outbox: messages on their way to one client, which may read slowly or not at all.

A message from a server must not wait for a client: it would hold up every other client of that server. It is
put into the outbox of its client, which is bounded; a client that does not empty it is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

from dragoman.server.protocol.envelope import encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

logger = logging.getLogger("dragoman")

MAX_BYTES = 4 * 1024 * 1024
"""How much may wait for a client; a single larger message may."""
MAX_MESSAGES = 4_096


def line(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line."""
    return encode(message) + b"\n"


class ClientOutbox:
    """What waits for one client, in order."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        *,
        frame: Callable[[Mapping[str, Any]], bytes] = line,
        on_stuck: Callable[[], None] = lambda: None,
    ) -> None:
        """Start to write.

        Args:
            write: Writes a message; returns when there is room for the next one.
            frame: Returns a message as it is written.
            on_stuck: Called when too much waits; the outbox takes nothing more then.
        """
        self._write = write
        self._frame = frame
        self._on_stuck = on_stuck
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self.closed = asyncio.Event()
        """Set when nothing more is taken."""
        self._changed = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._task = asyncio.create_task(self._run(), name="dragoman outbox")

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a message in its turn; that a list has changed is said once, until it is written."""
        self.put(self._frame(message), once=str(message.get("method", "")).endswith("/list_changed"))

    def put(self, data: bytes, *, once: bool = False) -> None:
        """Write something in its turn, without waiting for that.

        Args:
            data: What to write.
            once: Whether it says nothing new while the same still waits.
        """
        if self.closed.is_set() or (once and data in self._waiting):
            return
        if self._waiting and (self._bytes + len(data) > MAX_BYTES or len(self._waiting) >= MAX_MESSAGES):
            logger.warning("a client does not read: it is cut off")
            self._waiting.clear()
            self._end()
            self._task.cancel()
            self._on_stuck()
            return
        self._waiting.append(data)
        self._bytes += len(data)
        self._empty.clear()
        self._changed.set()

    async def flush(self) -> None:
        """Wait until everything is written, or nothing more will be."""
        await self._empty.wait()

    async def close(self, *, flush: bool = True) -> None:
        """End the outbox, after what waits in it if that is wanted."""
        self.closed.set()
        if flush:
            await self._empty.wait()
        self._end()
        self._task.cancel()
        await asyncio.wait({self._task})

    def _end(self) -> None:
        self.closed.set()
        self._bytes = 0
        self._empty.set()

    async def _run(self) -> None:
        try:
            while True:
                while self._waiting:
                    data = self._waiting[0]
                    await self._write(data)
                    self._waiting.popleft()
                    self._bytes -= len(data)
                self._empty.set()
                self._changed.clear()
                await self._changed.wait()
        except (OSError, RuntimeError) as exc:
            logger.debug("a client has gone: %s", exc)
        finally:
            self._end()
