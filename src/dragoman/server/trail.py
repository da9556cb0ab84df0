"""What was learnt of one attempt to connect: the matter of errors and of a status. Holds no secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dragoman.server.process import StderrTail

_NO_REFUSAL = frozenset({401, 403, 407, 408, 425, 429})
_SERVER_ERROR = 500


@dataclass(slots=True, kw_only=True)
class Trail:
    """Written on the way by whoever learns something."""

    kind: str
    """The transport in use: `stdio`, `http` or `sse`."""
    stage: str = "connect"
    """How far it came: `variables`, `spawn`, `connect`, `handshake` or `listing`."""
    pid: int | None = None
    exit_code: int | None = None
    stderr: StderrTail | None = None
    ended_by_probe: bool = False
    """Whether a child ended after it had read the question for its protocol."""
    http_status: int | None = None
    """The status of the last HTTP answer."""
    challenge: str = ""
    """What a refusal said about logging in."""

    @property
    def refused(self) -> bool:
        """Whether something answered at that address, but does not speak this transport.

        Trouble with the network, with a login or inside the server says nothing about the transport.
        """
        status = self.http_status
        return status is not None and status < _SERVER_ERROR and status not in _NO_REFUSAL
