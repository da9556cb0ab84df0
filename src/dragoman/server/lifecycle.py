"""The life of a server as a table: which state it is in, what may happen, what has to be done then.

Everything that affects the state is here. `step` is pure: it gives the next state and the orders, and the
supervisor carries them out, in their order. What is not in the table changes nothing: a signal that comes
late, twice or out of turn is answered by the state as it is. No state is a dead end but `closed`, and even
from there a restart leads out.

| state | the server |
| --- | --- |
| idle | is not wanted yet, or no longer: a call starts it |
| connecting | is being started, shaken hands with and listed |
| ready | is connected and its tools are offered |
| degraded | is connected, but its last listing failed: its tools are withheld |
| backoff | was lost or could not be reached; the next try is planned, what it offered last is still known |
| needs_auth | waits for a person to log in |
| failed | cannot be mended by trying again; a call, a restart or a changed configuration tries all the same |
| closed | is stopped for good, or switched off |
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dragoman.errors import AuthRequiredError, ConfigError, ConnectError, ConnectionLostError
from dragoman.model import ServerState

if TYPE_CHECKING:
    from dragoman.errors import DragomanError

_HOPELESS_STAGES = frozenset({"approval", "variables", "spawn"})
"""What fails there fails again until somebody has done something about it."""


class Signal(StrEnum):
    """What can happen to a server."""

    START = "start"
    """It is wanted from the beginning."""
    CALL = "call"
    """A call wants it."""
    CONNECTED = "connected"
    """The handshake is done and its tools are listed."""
    LISTED = "listed"
    """A later listing succeeded."""
    LISTING_FAILED = "listing_failed"
    """It is connected, but a listing failed."""
    UNREACHABLE = "unreachable"
    """It could not be connected; trying again may help."""
    HOPELESS = "hopeless"
    """It could not be connected, or was lost, and trying again is useless or unwanted."""
    AUTH_REQUIRED = "auth_required"
    """It wants a login."""
    LOGGED_IN = "logged_in"
    """A person has logged in."""
    LOST = "lost"
    """Its connection ended, or it stopped answering."""
    RETRY_DUE = "retry_due"
    """The planned time of the next try has come."""
    UNUSED = "unused"
    """Nobody has used it for its idle time."""
    RESTART = "restart"
    """Somebody wants it started anew, now."""
    STOP = "stop"
    """It is to end."""


class Order(StrEnum):
    """What the supervisor has to do."""

    CLOSE = "close"
    """Close the connection, whatever is left of it."""
    OPEN = "open"
    """Open a connection."""
    PLAN_RETRY = "plan_retry"
    """Ask the backoff for a delay, and plan the next try."""
    RESET_BACKOFF = "reset_backoff"
    """Forget past failures."""
    OFFER = "offer"
    """Offer the tools of the latest listing."""
    WITHDRAW = "withdraw"
    """Offer none of its tools."""


class Step(NamedTuple):
    """The next state, and what has to be done on the way."""

    state: ServerState
    orders: tuple[Order, ...] = ()


_S, _O = ServerState, Order
_RESTARTED = Step(_S.CONNECTING, (_O.CLOSE, _O.RESET_BACKOFF, _O.OPEN))
_OPENED = Step(_S.CONNECTING, (_O.OPEN,))
_STOPPED = Step(_S.CLOSED, (_O.CLOSE, _O.WITHDRAW))
_RETRIED = Step(_S.BACKOFF, (_O.CLOSE, _O.PLAN_RETRY))
_GIVEN_UP = Step(_S.FAILED, (_O.CLOSE,))
_AUTH = Step(_S.NEEDS_AUTH, (_O.CLOSE,))
_OFFERED = Step(_S.READY, (_O.OFFER,))
_DEGRADED = Step(_S.DEGRADED, (_O.WITHDRAW,))

TABLE: dict[ServerState, dict[Signal, Step]] = {
    _S.IDLE: {
        Signal.START: _OPENED,
        Signal.CALL: _OPENED,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.CONNECTING: {
        Signal.CONNECTED: _OFFERED,
        Signal.LISTING_FAILED: _DEGRADED,
        Signal.UNREACHABLE: _RETRIED,
        Signal.LOST: _RETRIED,
        Signal.HOPELESS: _GIVEN_UP,
        Signal.AUTH_REQUIRED: _AUTH,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.READY: {
        Signal.LISTED: _OFFERED,
        Signal.LISTING_FAILED: _DEGRADED,
        Signal.LOST: _RETRIED,
        Signal.HOPELESS: _GIVEN_UP,
        Signal.AUTH_REQUIRED: _AUTH,
        Signal.UNUSED: Step(_S.IDLE, (_O.CLOSE,)),
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.DEGRADED: {
        Signal.LISTED: _OFFERED,
        Signal.LOST: _RETRIED,
        Signal.HOPELESS: _GIVEN_UP,
        Signal.AUTH_REQUIRED: _AUTH,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.BACKOFF: {
        Signal.RETRY_DUE: _OPENED,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.NEEDS_AUTH: {
        Signal.LOGGED_IN: _OPENED,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.FAILED: {
        Signal.START: _OPENED,
        Signal.CALL: _OPENED,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.CLOSED: {
        Signal.RESTART: _RESTARTED,
    },
}


def step(state: ServerState, signal: Signal) -> Step:
    """Return where a signal leads; one that the state has no use for leads nowhere."""
    return TABLE[state].get(signal, Step(state))


def verdict(error: DragomanError, *, reconnect: bool) -> Signal:
    """Decide what a failure means: try again, wait for a person, or leave it."""
    if isinstance(error, AuthRequiredError):
        return Signal.AUTH_REQUIRED
    if isinstance(error, ConnectionLostError):
        return Signal.LOST if reconnect else Signal.HOPELESS
    if isinstance(error, ConfigError) or not reconnect:
        return Signal.HOPELESS
    if isinstance(error, ConnectError) and error.stage in _HOPELESS_STAGES:
        return Signal.HOPELESS
    return Signal.UNREACHABLE
