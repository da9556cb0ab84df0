"""The deadlines of all requests of one connection, with one timer; every time is the loop's."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Generator

GRAIN = 0.01
"""How many seconds after its deadline a request may end."""
ASKING_GRAIN = 0.5
"""Seconds between two checks while the user answers a question."""


LONGEST_ANSWER = 600.0
"""How long the user may take to answer before the time of the call goes on."""
LONGEST_CALL = 600.0
"""The longest time that progress reports can extend a call to, in seconds."""


class Deadline:
    """When a call must end; later while the user answers a question, and with each report of progress."""

    __slots__ = ("_latest", "_most", "_seconds", "at")

    def __init__(self, at: float, *, seconds: float = 0.0) -> None:
        """Set a time on the loop's clock.

        Args:
            at: The time.
            seconds: The time limit of the call that ends then.
        """
        self.at = at
        self._seconds = seconds
        self._most = at + LONGEST_ANSWER
        self._latest = at + max(0.0, LONGEST_CALL - seconds)

    @classmethod
    def after(cls, seconds: float) -> Self:
        """Return a deadline after so many seconds."""
        return cls(asyncio.get_running_loop().time() + seconds, seconds=seconds)

    def left(self) -> float:
        """Return how many seconds are left; negative if it has passed."""
        return self.at - asyncio.get_running_loop().time()

    def put_off(self, seconds: float) -> None:
        """Extend the deadline by the time that the user took to answer, up to `LONGEST_ANSWER` in total."""
        self.at = min(self.at + seconds, self._most)

    def renew(self) -> None:
        """Start the time limit again, up to `LONGEST_CALL` in total: the server has reported progress."""
        self.at = min(self._latest, asyncio.get_running_loop().time() + self._seconds)


class Deadlines:
    """Ends requests whose own timeout, or the deadline of their call, has passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends: dict[asyncio.Future[Any], tuple[float, Deadline | None] | Deadline] = {}
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._asking = 0
        """How many questions from the server are being answered."""
        self._asked_at = 0.0
        # The timer serves all calls: it must not run in the context of the call that armed it.
        self._context = Context()

    def add(self, future: asyncio.Future[Any], timeout: float | None, shared: Deadline | None = None) -> None:
        """Resolve a future with a `TimeoutError` after `timeout` seconds, or at the deadline of its call."""
        own = math.inf if timeout is None else self._loop.time() + timeout
        end = own if shared is None or own < shared.at else shared.at
        if end < math.inf:
            self._ends[future] = shared if shared is not None and own == math.inf else (own, shared)
            if end < self._due:
                self._arm(end)

    def drop(self, future: asyncio.Future[Any]) -> None:
        """Remove a finished request."""
        self._ends.pop(future, None)

    def stop(self) -> None:
        """Remove every request and stop the timer."""
        self._ends.clear()
        self._arm(math.inf)

    @contextmanager
    def held(self) -> Generator[None]:
        """Stop the clock while the application answers a question from the server.

        The protocol does not say which call a question belongs to, so every pending call gets the time.
        """
        if not self._asking:
            self._asked_at = self._loop.time()
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._put_off(self._loop.time() - self._asked_at)

    def _put_off(self, seconds: float) -> None:
        seconds = min(seconds, LONGEST_ANSWER)
        moved: set[int] = set()
        for future, ends in list(self._ends.items()):
            own, shared = (math.inf, ends) if isinstance(ends, Deadline) else ends
            if shared is not None and id(shared) not in moved:
                moved.add(id(shared))
                shared.put_off(seconds)
            if own < math.inf:
                self._ends[future] = (own + seconds, shared)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due < math.inf:
            self._timer = self._loop.call_at(due, self._look, context=self._context)

    def _look(self) -> None:
        # Deadlines may have been extended since the timer was armed, so each is checked again.
        now, nearest = self._loop.time(), math.inf
        if self._asking and now < self._asked_at + LONGEST_ANSWER:
            self._arm(now + ASKING_GRAIN)
            return
        for future, ends in list(self._ends.items()):
            own, shared = (math.inf, ends) if isinstance(ends, Deadline) else ends
            end = own if shared is None or own < shared.at else shared.at
            if end > now:
                nearest = min(nearest, end)
                continue
            del self._ends[future]
            if not future.done():
                future.set_result(TimeoutError())
        self._arm(max(nearest, now + GRAIN))
