"""The facts of one connection attempt, for errors and status. They hold no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.errors import ConnectionLostError
from dragoman.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.server.process.environment import StderrTail

_NO_REFUSAL = frozenset({401, 403, 407, 408, 425, 429})
_SERVER_ERROR = 500


class ConnectionEnd(Struct, kw_only=True):
    """How a connection ended that we did not close.

    It is made once, where the end is noticed: by the owner of the child, the HTTP wire or the probes. From
    there it goes up to the supervisor unchanged.
    """

    reason: str
    exit_code: int | None = None
    """That of the child, if it exited by itself."""

    def error(self, server: str) -> ConnectionLostError:
        """Return the error for a connection that was open."""
        msg = f"the connection to server `{server}` was lost: {self.reason}"
        return ConnectionLostError(msg, server=server, may_have_run=True)


class ConnectAttempt(MutableStruct, kw_only=True):
    """The facts of one connection attempt, filled in as they become known."""

    kind: str
    """The transport in use: `stdio`, `http` or `sse`."""
    stage: str = "connect"
    """How far it came: `variables`, `spawn`, `connect`, `handshake` or `listing`."""
    pid: int | None = None
    end: ConnectionEnd | None = None
    """How the connection ended, if it did."""
    stderr: StderrTail | None = None
    ended_by_probe: bool = False
    """Whether a child process ended after it read the question for its protocol version."""
    http_status: int | None = None
    """The status of the last HTTP response."""
    challenge: str = ""
    """The login challenge of a refusal."""
    sent_login: bool = False
    """Whether the last request that was refused with 401 had credentials."""
    is_page: bool = False
    """Whether the last HTTP response was a web page."""
    network: tuple[str, str] = ("", "")
    """Why the address could not be reached, as `reason` and `subject` of `ConnectError`."""
    junk: int = 0
    """How many messages could not be used, such as lines of text on a child's standard output."""
    on_stage: Callable[[str], None] | None = None
    """Called with each stage as it begins, the first included."""

    def __post_init__(self) -> None:
        self.enter(self.stage)

    def enter(self, stage: str) -> None:
        """Begin a stage."""
        self.stage = stage
        if self.on_stage is not None:
            self.on_stage(stage)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the child, if it exited by itself."""
        return None if self.end is None else self.end.exit_code

    @property
    def refused(self) -> bool:
        """Whether a server answered at this address but does not support this transport.

        A network failure, a required login or an error inside the server says nothing about the transport.
        """
        status = self.http_status
        return status is not None and status < _SERVER_ERROR and status not in _NO_REFUSAL
