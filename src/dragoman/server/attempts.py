"""Which transports are tried for one connection, in which order, and what is told if none of them works."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.model import Http, Sse, Stdio
from dragoman.server.trail import Trail

if TYPE_CHECKING:
    from dragoman.errors import ConnectError
    from dragoman.model import Transport


def trail_of(transport: Transport) -> Trail:
    """Begin the trail of one attempt."""
    match transport:
        case Stdio():
            return Trail(kind="stdio")
        case Http():
            return Trail(kind="http")
        case Sse():
            return Trail(kind="sse")


def attempts_at(transport: Transport) -> list[Transport]:
    """Return the transports to try, in order; an alternate is tried only if the first is refused."""
    match transport:
        case Http(alternate=True):
            return [transport, _other(Sse, transport)]
        case Sse(alternate=True):
            return [transport, _other(Http, transport)]
        case _:
            return [transport]


def _other(kind: type[Http | Sse], of: Http | Sse) -> Transport:
    return kind(of.url, headers=of.headers, tls=of.tls, allow_http=of.allow_http)


def recount(failures: list[ConnectError]) -> None:
    """Let the last failure tell what the earlier ones were."""
    failures[-1].message += "".join(f"; before that: {earlier.message}" for earlier in failures[:-1])
