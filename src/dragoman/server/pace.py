"""How many calls may begin in one turn of the event loop.

A program that makes thousands of calls at once would keep the loop from everything else while they begin:
from answers, from other tasks, and from noticing that a server died. So the others begin in the next turns.
"""

from __future__ import annotations

import asyncio
from collections import deque

BURST = 200
"""Some 15 ms of work."""


class Pace:
    """Lets calls begin in the order in which they came, a bounded number at a time."""

    def __init__(self) -> None:
        self._begun = 0
        """How many began in this turn of the loop."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._planned = False

    def has_room(self) -> bool:
        """Begin a call now, if it may: else it has to wait for its turn."""
        if self._waiting or self._begun >= BURST:
            return False
        self._begun += 1
        if not self._planned:
            self._plan()
        return True

    async def turn(self) -> None:
        """Wait until a call that had no room may begin."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if not self._planned:
            self._plan()
        await waiting

    def _plan(self) -> None:
        self._planned = True
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._begun, self._planned = 0, False
        while self._waiting and self._begun < BURST:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                self._begun += 1
        if self._begun:
            self._plan()
