"""What every wire is: a way to send messages, and a conversation that it feeds with what comes back.

A wire never interprets a message. Sending never waits: a pipe writes or queues, an HTTP wire starts a request
of its own. Whatever ends a call (an answer, a refusal, a broken connection) reaches it through the `Rpc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

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
