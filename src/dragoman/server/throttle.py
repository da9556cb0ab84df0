"""How many calls may begin in one iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque

BURST = 200
"""About 15 ms of work."""


class CallThrottle:
    """Starts calls in their order, at most `BURST` in one iteration of the event loop."""

    def __init__(self) -> None:
        self._begun = 0
        """How many calls began since the last `_next_turn`, which need not be in this iteration."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._planned = False

    def has_room(self) -> bool:
        """Begin a call now and return True, or return False if it must wait for its `turn`."""
        if self._waiting or self._begun >= BURST:
            return False
        self._begun += 1
        if self._begun == BURST and not self._planned:
            # Counting needs the loop only now: a callback for each call would cost an iteration of the loop.
            self._plan()
        return True

    async def turn(self) -> None:
        """Wait until a call for which `has_room` was false may begin."""
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
