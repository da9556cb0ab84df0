"""Whose turn it is: of all the logins of a process, one at a time is put before the person.

Ten servers may want a login in the same moment. The application's handler, which may open a browser, is told
of one of them, and of the next when that one is over. All of their addresses are in the status meanwhile. A
login that a person asks for by name waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable


class Turns:
    """A queue of logins; only the first of it is shown."""

    def __init__(self) -> None:
        self._queue: deque[tuple[object, Callable[[], None]]] = deque()

    def take(self, login: object, show: Callable[[], None]) -> None:
        """Have a login shown as soon as it is its turn, which may be now."""
        self._queue.append((login, show))
        if len(self._queue) == 1:
            show()

    def leave(self, login: object) -> None:
        """Let a login go, whether its turn has come or not; the next one is shown."""
        first = self._queue[0][0] if self._queue else None
        self._queue = deque(entry for entry in self._queue if entry[0] is not login)
        if first is login and self._queue:
            self._queue[0][1]()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns() -> Turns:
    """Return the queue that all logins of the running loop share, whatever manager they belong to."""
    return _of_loop.setdefault(asyncio.get_running_loop(), Turns())
