"""Readings of servers and users at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 -- the hints of a noun can be resolved
from enum import StrEnum
from typing import Annotated

from dragoman.errors import DragomanError  # noqa: TC001 -- as above
from dragoman.model.server import CODE, Origin
from dragoman.struct import HIDDEN, Struct, field, is_equal

MAX_USER_CHARS = 1024
"""Of the id of a user."""


class UserLimits(Struct, kw_only=True):
    """How many users of one program have connections at a time; see `McpManager.as_user`."""

    open: int = 200
    """How many users may be connected. The one who was idle for longest makes room for the next; who is busy
    is never disconnected."""
    idle: float = 600.0
    """Seconds without use after which a user is disconnected."""
    alone: bool = False
    """Whether servers run for users alone: the manager itself starts none."""

    def __post_init__(self) -> None:
        if self.open < 1 or self.idle <= 0:
            msg = "`open` is at least 1, and `idle` is more than 0 seconds"
            raise ValueError(msg)


class UserStatus(Struct, kw_only=True):
    """A user of a program, as `McpManager.users` shows it."""

    user: str
    is_open: bool
    """Whether the user may have connections."""
    is_waiting: bool
    """Whether the user waits for others to make room."""
    idle: float | None
    """Seconds since the user was last active; `None` for one who is not connected."""


class ServerState(StrEnum):
    """Where a server is in its life."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    DEGRADED = "degraded"
    BACKOFF = "backoff"
    NEEDS_AUTH = "needs_auth"
    FAILED = "failed"
    CLOSED = "closed"

    @classmethod
    def _missing_(cls, value: object) -> None:
        msg = f"unknown state {value!r}; a server is {', '.join(state.value for state in cls)}"
        raise ValueError(msg)


class ServerStatus(Struct, kw_only=True):
    """A reading of one server at one moment."""

    name: str
    state: ServerState
    transport: str
    """`stdio`, `http` or `sse`: what is in use, or what is configured while nothing is."""
    protocol_version: str | None = None
    server_name: str | None = None
    """What the server calls itself; for show only."""
    server_version: str | None = None
    pid: int | None = None
    tools: int = 0
    downloading: str = ""
    """The package that its command downloads, while it connects for the first time."""
    last_error: str | None = None
    error_code: str | None = None
    """The stable code of the last error."""
    error: Annotated[DragomanError | None, HIDDEN] = None
    """The last error itself, with its fields."""
    login_url: Annotated[str, HIDDEN] = ""
    """The address that a person has to open, while the server waits for that."""
    retry_in: float | None = None
    """Seconds until the next try to connect, where one is planned."""
    crash_loop: bool = False
    """Whether it failed so often that it is tried once a minute only."""
    sandbox: str = ""
    """`off`, `credentials`, `strict`, `network` (only that is restricted), `container` (it brings its own)
    or `unavailable` on this machine; empty for a server with a URL."""
    origin: Origin = CODE

    def __eq__(self, other: object) -> bool:
        return is_equal(self, other, ignored="error")

    def __hash__(self) -> int:
        return hash((self.name, self.state, self.last_error))


class ReadyReport(Struct, kw_only=True):
    """Which servers are ready, and why others are not; true if all of them are."""

    ready: Sequence[str] = ()
    not_ready: Mapping[str, str] = field(default_factory=dict[str, str])
    """The reason, by the name of the server."""

    def __bool__(self) -> bool:
        return not self.not_ready

    def __str__(self) -> str:
        if not self.not_ready:
            return f"{len(self.ready)} of {len(self.ready)} server{'s' * (len(self.ready) != 1)} ready"
        count = f"{len(self.ready)} of {len(self.ready) + len(self.not_ready)} servers ready"
        return "; ".join([count, *(f"`{name}`: {why}" for name, why in self.not_ready.items())])
