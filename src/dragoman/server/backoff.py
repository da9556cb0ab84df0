"""How long to wait before the next try to connect.

The first retry comes after half a second, each further one after twice as long, up to a minute, give or
take a fifth so that many clients do not knock in step. Success alone resets nothing: only a connection
that was ready for a minute and has answered a request shows that the trouble is over. Five failures within
three minutes are a crash loop: from then on there is one try a minute, shown as such, until somebody
restarts the server or it has proven itself. It never gives up.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

FIRST = 0.5
FACTOR = 2.0
LONGEST = 60.0
JITTER = 0.2
PROVEN_AFTER = 60.0
LOOP_FAILURES = 5
LOOP_WINDOW = 180.0


class Delay(NamedTuple):
    """The wait before the next try."""

    seconds: float
    slow: bool
    """Whether this is a crash loop, tried once a minute."""


class Backoff:
    """The memory of one server's failures; time and chance come in as arguments."""

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=LOOP_FAILURES)
        self._tries = 0
        self._slow = False
        self._ready_since: float | None = None
        self._answered = False

    def slow(self, now: float) -> bool:
        """Tell whether the server is in a crash loop, and has not proven itself since."""
        return self._slow and not self._proven(now)

    def ready(self, now: float) -> None:
        """Note that the server is connected."""
        self._ready_since = now
        self._answered = False

    def answered(self) -> None:
        """Note that it has answered a request."""
        self._answered = True

    def failed(self, now: float, chance: float) -> Delay:
        """Note a failure and return the wait.

        Args:
            now: Seconds on a clock that never goes back.
            chance: A number from 0 to 1, which decides the jitter.
        """
        if self._proven(now):
            self.reset()
        self._ready_since = None
        self._failures.append(now)
        if len(self._failures) == LOOP_FAILURES and now - self._failures[0] <= LOOP_WINDOW:
            self._slow = True
        wait = LONGEST if self._slow else min(LONGEST, FIRST * FACTOR**self._tries)
        self._tries = min(self._tries + 1, 16)
        return Delay(wait * (1 - JITTER + 2 * JITTER * chance), self._slow)

    def reset(self) -> None:
        """Forget every failure."""
        self._failures.clear()
        self._tries = 0
        self._slow = False

    def _proven(self, now: float) -> bool:
        since = self._ready_since
        return since is not None and self._answered and now - since >= PROVEN_AFTER
