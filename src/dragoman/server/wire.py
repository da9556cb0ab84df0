"""What every wire is: a way to send messages, and a conversation that it feeds with what comes back.

A wire never interprets a message. Sending never waits: a pipe writes or queues, an HTTP wire starts a request
of its own. Whatever ends a call (an answer, a refusal, a broken connection) reaches it through the `Rpc`.

Headers of one call travel with its context: `calling` sets them, and the task that carries the call's request
sees them, as no other does. What a connection sends of its own accord is for nobody's call, even where one
has opened it; it says so by `on_own_account`. The `traffic` of a call is counted the same way.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from dragoman.server.rpc import RequestId


class Envelope(NamedTuple):
    """What a wire has to know of a message that it carries."""

    method: str = ""
    """Empty for an answer to a request of the server's."""
    request_id: RequestId | None = None
    """Set for a request: the wire owes it an outcome."""
    headers: Mapping[str, str] | None = None
    """For HTTP: what the protocol mirrors into headers."""


class Wire(Protocol):
    """An open wire."""

    def send(self, message: bytes, envelope: Envelope) -> None:
        """Send a message, or see to it that it is sent."""

    def abandon(self, message: bytes, envelope: Envelope, reason: str, *, tell: bool = True) -> bool:
        """Give a request up: take it back, or else tell the server unless that is not allowed.

        Returns whether it surely never went out.
        """
        ...


class Traffic:
    """How many bytes of messages went out and came back for one call."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0


traffic: ContextVar[Traffic | None] = ContextVar("traffic", default=None)
"""What counts the bytes of the current task's call, if anybody wants to know."""

_caller: ContextVar[Mapping[str, str] | None] = ContextVar("caller", default={})  # noqa: B039 -- never changed


@contextmanager
def calling(headers: Mapping[str, str]) -> Generator[None]:
    """Send headers along with every HTTP request that is made for the sake of what happens inside."""
    token = _caller.set(dict(headers))
    try:
        yield
    finally:
        _caller.reset(token)


def on_own_account() -> None:
    """Say that what the current task sends from here on, and what it starts, is for no call."""
    _caller.set(None)


def caller_headers() -> Mapping[str, str] | None:
    """Return the headers of the current call; `None` if nobody's call is the reason to send."""
    return _caller.get()
