"""What an HTTP wire is told beside its transport, and how it asks whoever logs us in; without a client.

A connection to a child passes these on too, so nothing here imports what speaks HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dragoman.server.rpc import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.model import HeaderProvider


class HttpRequest(NamedTuple):
    """A request as `HttpAuth` sees it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class HttpAnswer(NamedTuple):
    """A refusal as `HttpAuth` sees it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    request: HttpRequest
    peer: str = ""
    """The address that answered; empty where a proxy stands between."""


class HttpAuth(Protocol):
    """Whoever logs us in."""

    async def headers(self, request: HttpRequest) -> Mapping[str, str]:
        """Return what proves who we are."""
        ...

    async def on_challenge(self, answer: HttpAnswer) -> bool:
        """Take a refusal (401 or 403) in; returns whether trying once more makes sense."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """What a wire is told beside the transport; a pipe reads the limit alone."""

    limit: int = MAX_MESSAGE_BYTES
    """Bytes of one message, at most, unpacked."""
    header_provider: HeaderProvider | None = None
    """Asked for more headers before each request: in the context of whoever calls, else in an empty one."""
    auth: HttpAuth | None = None
    """Asked for what proves who we are."""


PLAIN = HttpOptions()
