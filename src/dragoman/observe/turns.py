"""Turns: how many calls begin, and how many failures are logged, in one iteration of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

logger = logging.getLogger("dragoman.calls")
logger.addHandler(logging.NullHandler())

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


LINES_PER_TURN = 20


class FailureLog:
    """Logs failed calls, at most `LINES_PER_TURN` in one iteration of the event loop."""

    def __init__(self) -> None:
        self._lines = 0
        """How many lines were written in this iteration of the loop."""
        self._more: dict[tuple[str, str], tuple[int, str, str]] = {}
        """By server and error code: how many more calls failed, the last one, and its error."""

    def note(self, server: str, code: str, call: str, error: str | None) -> None:
        """Log that a call failed.

        Args:
            server: The server of the tool; empty for a built-in tool.
            code: The stable code of the error.
            call: The call, as `id of tool`.
            error: The error that the caller gets.
        """
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._end_turn)
        if self._lines < LINES_PER_TURN:
            self._lines += 1
            logger.error("%s: call %s failed: %s", server or "builtin", call, error)
        else:
            known = self._more.get((server, code))
            self._more[server, code] = (known[0] + 1 if known else 1, call, error or "")

    def _end_turn(self) -> None:
        self._lines = 0
        more, self._more = self._more, {}
        for (server, code), (count, call, error) in more.items():
            line = "%s: %d more calls failed at the same time (%s), the last is call %s: %s"
            logger.error(line, server or "builtin", count, code, call, error)
