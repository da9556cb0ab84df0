"""The interface of a wire, which sends messages and feeds what comes back to an `Rpc`.

A wire never interprets a message. Sending never waits: a pipe writes or queues, an HTTP wire starts a request
of its own. Whatever ends a request (an answer, a refusal, a broken connection) reaches it through the `Rpc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import HeaderProvider
    from dragoman.server.protocol.rpc import RequestId
    from dragoman.server.transports.http_client import HttpAuth


MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The default limit for the size of a message."""


class SendInfo(NamedTuple):
    """What a wire needs to know about a message."""

    method: str = ""
    """Empty for an answer to a request from the server."""
    request_id: RequestId | None = None
    """Set for a request: the wire must report its outcome."""
    headers: Mapping[str, str] | None = None
    """For HTTP: the fields that the protocol copies into headers."""


class Wire(Protocol):
    """An open wire."""

    def send(self, message: bytes, envelope: SendInfo) -> None:
        """Send a message, or queue it."""

    def abandon(self, message: bytes, envelope: SendInfo, reason: str, *, tell: bool = True) -> bool:
        """Give up a request: remove it from the queue, or notify the server if `tell` is set.

        Returns:
            Whether the request was certainly never sent.
        """
        ...


class HttpOptions(Struct, kw_only=True):
    """Options of a connection besides its transport; stdio uses only `limit`."""

    limit: int = MAX_MESSAGE_BYTES
    """The size limit of a message in bytes, after decompression."""
    header_provider: HeaderProvider | None = None
    """Called for more headers before each request, in the context of the caller if there is one."""
    auth: HttpAuth | None = None
    """Adds credentials to each request."""
    busy_seconds: float = 0.0
    """How long a request that is safe to repeat is repeated while the server is busy."""


PLAIN = HttpOptions()

BUSY_SHARE = 0.25
"""How much of the time to connect one request may be repeated for; a connection needs three requests."""
