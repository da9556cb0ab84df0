"""The interface of a wire, the context of a call, the facts of a connection attempt, and its events.

A wire sends messages and feeds what comes back to an `Rpc`; it never interprets a message. Sending never
waits: a pipe writes or queues, an HTTP wire starts a request of its own. Whatever ends a call (an answer, a
refusal, a broken connection) reaches it through the `Rpc`.

Two context variables carry facts of a call past the SDK's frames, which have no parameter for them. Its HTTP
headers are set by `with_headers`; its byte counter, `current_traffic`, by `past_the_sdk` of `dispatcher.py`,
as is its deadline. A task that a connection starts for itself inherits the context of the call that opened
it, so it first calls `no_call_context`.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from dragoman.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from dragoman.errors import DragomanError
    from dragoman.events import OfferChanged
    from dragoman.model import HeaderProvider
    from dragoman.server.connection import Connection
    from dragoman.server.process.environment import StderrTail
    from dragoman.server.protocol.rpc import RequestId
    from dragoman.server.transports.http_client import HttpAuth


MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The default limit for the size of a message."""


class Envelope(NamedTuple):
    """What a wire needs to know about a message."""

    method: str = ""
    """Empty for an answer to a request from the server."""
    request_id: RequestId | None = None
    """Set for a request: the wire must report its outcome."""
    headers: Mapping[str, str] | None = None
    """For HTTP: the fields that the protocol copies into headers."""


class Wire(Protocol):
    """An open wire."""

    def send(self, message: bytes, envelope: Envelope) -> None:
        """Send a message, or queue it."""

    def abandon(self, message: bytes, envelope: Envelope, reason: str, *, tell: bool = True) -> bool:
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


class Traffic:
    """The bytes of messages sent and received for one call."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0


current_traffic: ContextVar[Traffic | None] = ContextVar("traffic", default=None)
"""The byte counter of the call that the current task makes, if it is counted."""

received_at: ContextVar[float | None] = ContextVar("received_at", default=None)
"""When the question or the notification that the current task handles was received, on the loop's clock."""

_caller: ContextVar[Mapping[str, str] | None] = ContextVar("caller", default={})  # noqa: B039 -- never changed


@contextmanager
def with_headers(headers: Mapping[str, str]) -> Generator[None]:
    """Add headers to every HTTP request that the calls inside this block cause."""
    token = _caller.set(dict(headers))
    try:
        yield
    finally:
        _caller.reset(token)


def no_call_context() -> None:
    """Detach the current task, and the tasks it starts, from the call whose context it inherited."""
    _caller.set(None)


def caller_headers() -> Mapping[str, str] | None:
    """Return the headers of the current call; `None` outside of a call."""
    return _caller.get()


# ── Calls that take more than one round


class RoundOptions(Struct):
    """How the rounds of a call differ from the usual ones."""

    pauses: bool = False
    """Whether the call ends when a person is asked, instead of waiting for the answers."""
    responses: Mapping[str, Any] | None = None
    """Answers for the first round, if the call was paused before."""
    state: str | None = None
    """The state of the paused call."""


class Unfinished(Struct):
    """The answer to a call that is not its result: the server asks a person, or goes on with a task."""

    kind: Literal["input_required", "task"]
    data: Mapping[str, Any]
    """The raw answer."""
    answered: Mapping[str, Any] | None = None
    """Answers that the application's handlers gave without a person: models and roots."""


# ── The facts of one connection attempt, for errors and status. They hold no secret


_NO_REFUSAL = frozenset({401, 403, 407, 408, 425, 429})
_SERVER_ERROR = 500


class ConnectAttempt(MutableStruct, kw_only=True):
    """The facts of one connection attempt, filled in as they become known."""

    kind: str
    """The transport in use: `stdio`, `http` or `sse`."""
    stage: str = "connect"
    """How far it came: `variables`, `spawn`, `connect`, `handshake` or `listing`."""
    pid: int | None = None
    exit_code: int | None = None
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
    def refused(self) -> bool:
        """Whether a server answered at this address but does not support this transport.

        A network failure, a required login or an error inside the server says nothing about the transport.
        """
        status = self.http_status
        return status is not None and status < _SERVER_ERROR and status not in _NO_REFUSAL


# ── The events of one connection


class ConnectionEvents:
    """Receives what happens to a connection, and decides two things for it; here every method does nothing.

    Each method gets the connection: its owner may have replaced it, and then ignores what comes late from it.
    """

    async def admit(self, connection: Connection) -> None:
        """Approve the server right before each start; raise `ConnectError` to refuse it."""

    async def check_listing(
        self, connection: Connection, listing: Sequence[dict[str, Any]], instructions: str
    ) -> None:
        """Check a listing of tools before it is used; raise to reject it."""

    def on_stage(self, stage: str) -> None:
        """Handle that an attempt to connect has reached a stage."""

    def on_ready(self, connection: Connection) -> None:
        """Handle that the connection is open and its tools are listed."""

    def on_listing(self, connection: Connection, error: DragomanError | None) -> None:
        """Handle a listing after the first one, with its error if it failed."""

    def on_changed(self, connection: Connection, event: OfferChanged) -> None:
        """Handle a change of something other than the tools."""

    def on_timed_out(self, connection: Connection, error: DragomanError) -> None:
        """Handle that the connection could not be opened in time; it is closed after this."""

    def on_lost(self, connection: Connection, error: DragomanError) -> None:
        """Handle that the connection ended and that `close` was not the reason."""
