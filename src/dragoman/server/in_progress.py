"""Whose requests are in progress at a server.

An older server asks in the middle of a request, and over stdio it does not say in which. A question then
belongs to the only client that has a request there; if there are several, it is not clear, and none may be
asked: the wrong one could say yes. A request that ended without an answer, because it was cancelled or took
too long, may still be running at the server and ask late: it counts for a while.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Protocol

LATE_SECONDS = 600.0
"""How long a request counts that ended without an answer: as long as a question may wait for a person."""


class Caller(Protocol):
    """A request of a client of the gateway."""

    @property
    def client(self) -> object:
        """Equal for requests of the same client."""
        ...

    @property
    def name(self) -> str:
        """What the client calls itself."""
        ...

    @property
    def principal(self) -> str:
        """Whom its token stands for."""
        ...


current_caller: ContextVar[Caller | None] = ContextVar("current_caller", default=None)
"""The request that the current task works for; `None` for a call of the application itself."""


class SeveralClientsError(Exception):
    """Several clients have requests in progress, and nothing says which is meant."""


class InProgress:
    """The requests in progress at one server."""

    __slots__ = ("_callers", "_late")

    def __init__(self) -> None:
        self._callers: dict[Caller | None, int] = {}
        """How many requests each has, the newest caller last."""
        self._late: dict[object, float] = {}
        """Until when a client counts whose request ended without an answer; the last two, the latest last."""

    def begin(self) -> None:
        """Count a request of the current task."""
        caller = current_caller.get()
        self._callers[caller] = self._callers.pop(caller, 0) + 1

    def end(self, *, answered: bool) -> None:
        """Count it no longer.

        Args:
            answered: Whether the server has answered; if not, it may still work on the request.
        """
        caller = current_caller.get()
        left = self._callers.get(caller, 0) - 1
        if left > 0:
            self._callers[caller] = left
        else:
            self._callers.pop(caller, None)
        if not answered and caller is not None:
            self._late.pop(caller.client, None)
            self._late[caller.client] = time.monotonic() + LATE_SECONDS
            if len(self._late) > 2:
                # With two that can be meant nothing is clear; a third one makes no difference.
                del self._late[next(iter(self._late))]

    def sole(self) -> Caller | None:
        """Return the newest request of the only client that has one; `None` for the application itself.

        Raises:
            SeveralClientsError: There are several, or one whose request is over may still ask.
        """
        now = time.monotonic()
        self._late = {client: until for client, until in self._late.items() if until > now}
        clients = {None if caller is None else caller.client for caller in self._callers}
        if len(clients) > 1 or (self._late.keys() - clients):
            raise SeveralClientsError
        return next(reversed(self._callers)) if self._callers else None
