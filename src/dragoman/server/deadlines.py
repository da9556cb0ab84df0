"""When the requests of one connection have to be over: one timer for all of them.

Nearly every request is answered long before, so that entering and leaving has to be cheap: two entries of a
dictionary. Only when the nearest end comes, all are looked at, at most once in `GRAIN` seconds.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

GRAIN = 0.01
"""How much later than its deadline a request may be ended."""
ASKING_GRAIN = 0.5
"""How often it is looked whether a question has been answered."""


LONGEST_ANSWER = 600.0
"""How long a person may take to answer before the call's own time runs again."""


class Deadline:
    """When a call has to be over, on the loop's clock; it may be put off while a person is asked."""

    __slots__ = ("_most", "at")

    def __init__(self, at: float) -> None:
        self.at = at
        self._most = at + LONGEST_ANSWER

    def put_off(self, seconds: float) -> None:
        """Give a call the time back that a person took to answer, within bounds over all of its questions."""
        self.at = min(self.at + seconds, self._most)


deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
"""The deadline of the current task's call, over all of its requests."""


class Deadlines:
    """Ends requests whose own time-out, or the deadline of whose whole call, has passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends: dict[asyncio.Future[Any], tuple[float, Deadline | None] | Deadline] = {}
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._asking = 0
        """How many questions of the server's are being answered."""
        self._asked_at = 0.0
        # The timer is not that of the caller who happens to be the first.
        self._context = Context()

    def add(self, future: asyncio.Future[Any], timeout: float | None) -> None:
        """Resolve a future with a `TimeoutError` after so many seconds, or at the deadline of the call."""
        shared = deadline.get()
        own = math.inf if timeout is None else self._loop.time() + timeout
        end = own if shared is None or own < shared.at else shared.at
        if end < math.inf:
            self._ends[future] = shared if shared is not None and own == math.inf else (own, shared)
            if end < self._due:
                self._arm(end)

    def drop(self, future: asyncio.Future[Any]) -> None:
        """Forget a request that is over."""
        self._ends.pop(future, None)

    def stop(self) -> None:
        """End nothing from here on: every request has been ended."""
        self._ends.clear()
        self._arm(math.inf)

    @contextmanager
    def held(self) -> Generator[None]:
        """Let no time run out while the application answers a question of the server's.

        Nobody knows which call a question belongs to, so it is given to all that are under way.
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
        # A deadline may have been put off meanwhile, so that only its value of now counts.
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
