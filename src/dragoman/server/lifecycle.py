"""The state machine of a server, as a table of states and signals.

Everything that affects the state is here. `step` is pure: it returns the next state and the orders, and the
supervisor carries them out in order. A signal that the table does not list for a state changes nothing: it
came late, twice or out of order. A restart leads out of every state, even out of `closed`.

| state | the server |
| --- | --- |
| idle | is not running because it is not in use; a call starts it |
| connecting | is starting: process, handshake, listing |
| ready | is connected, and its tools are offered |
| degraded | is connected, but its last listing failed: its tools are withheld |
| backoff | was lost or could not be reached; the next attempt is scheduled, and its tools stay offered |
| needs_auth | waits for the user to log in; a call, or some minutes, try it again; its tools stay offered |
| failed | never worked, is not approved, or has `reconnect` off; a call or a changed entry tries again |
| closed | was stopped, or is disabled |
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from dragoman.errors import AuthRequiredError, ConfigError, ConnectError, ConnectionLostError
from dragoman.model import ServerState

if TYPE_CHECKING:
    from dragoman.errors import DragomanError

_HOPELESS_STAGES = frozenset({"variables", "spawn"})
"""Stages whose failures repeat until the user fixes the cause, unless the server was ready before."""


class Signal(StrEnum):
    """What can happen to a server."""

    START = "start"
    """The manager starts it."""
    CALL = "call"
    """A call needs it."""
    CONNECTED = "connected"
    """The handshake is done and its tools are listed."""
    LISTED = "listed"
    """A later listing succeeded."""
    LISTING_FAILED = "listing_failed"
    """It is connected, but a listing failed."""
    UNREACHABLE = "unreachable"
    """It could not be connected; another attempt may succeed."""
    HOPELESS = "hopeless"
    """It could not be connected, or was lost, and another attempt is useless or disabled."""
    AUTH_REQUIRED = "auth_required"
    """It requires a login."""
    LOGGED_IN = "logged_in"
    """The user has logged in."""
    LOST = "lost"
    """Its connection ended, or it stopped answering."""
    RETRY_DUE = "retry_due"
    """The scheduled time of the next attempt has come."""
    UNUSED = "unused"
    """It was not used for its idle time, or its user's."""
    RESTART = "restart"
    """The user or the manager restarts it."""
    STOP = "stop"
    """It is stopped."""


class Order(StrEnum):
    """What the supervisor must do."""

    CLOSE = "close"
    """Close the connection."""
    OPEN = "open"
    """Open a connection."""
    PLAN_RETRY = "plan_retry"
    """Schedule the next attempt, after the delay of the backoff."""
    PLAN_SLOW_RETRY = "plan_slow_retry"
    """Schedule an attempt without a login, after minutes: the refusal may have been a mistake."""
    RESET_BACKOFF = "reset_backoff"
    """Forget past failures."""
    OFFER = "offer"
    """Offer the tools of the latest listing."""
    WITHDRAW = "withdraw"
    """Offer none of its tools."""


class Step(NamedTuple):
    """The next state, and the orders to carry out."""

    state: ServerState
    orders: tuple[Order, ...] = ()


_S, _O = ServerState, Order
_RESTARTED = Step(_S.CONNECTING, (_O.CLOSE, _O.RESET_BACKOFF, _O.OPEN))
_OPENED = Step(_S.CONNECTING, (_O.OPEN,))
_STOPPED = Step(_S.CLOSED, (_O.CLOSE, _O.WITHDRAW))
_RETRIED = Step(_S.BACKOFF, (_O.CLOSE, _O.PLAN_RETRY))
_GIVEN_UP = Step(_S.FAILED, (_O.CLOSE,))
_AUTH = Step(_S.NEEDS_AUTH, (_O.CLOSE, _O.PLAN_SLOW_RETRY))
_OFFERED = Step(_S.READY, (_O.OFFER,))
_UNUSED = Step(_S.IDLE, (_O.CLOSE,))
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
        Signal.UNUSED: _UNUSED,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.DEGRADED: {
        Signal.LISTED: _OFFERED,
        Signal.LOST: _RETRIED,
        Signal.HOPELESS: _GIVEN_UP,
        Signal.AUTH_REQUIRED: _AUTH,
        Signal.UNUSED: _UNUSED,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.BACKOFF: {
        Signal.RETRY_DUE: _OPENED,
        Signal.UNUSED: _UNUSED,
        Signal.RESTART: _RESTARTED,
        Signal.STOP: _STOPPED,
    },
    _S.NEEDS_AUTH: {
        Signal.LOGGED_IN: _OPENED,
        Signal.CALL: _OPENED,
        Signal.RETRY_DUE: _OPENED,
        Signal.UNUSED: _UNUSED,
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
    """Return the next state and the orders; a signal without an entry in the table changes nothing."""
    return TABLE[state].get(signal, Step(state))


def verdict(error: DragomanError, *, reconnect: bool, was_ready: bool = False) -> Signal:
    """Return the signal for a failure: try again, wait for a login, or give up.

    Args:
        error: The failure.
        reconnect: Whether the spec allows another attempt.
        was_ready: Whether the server was ready with this spec. Then a missing program, file or variable may
            come back: an update replaces a program, a mount is late.
    """
    if isinstance(error, AuthRequiredError):
        return Signal.AUTH_REQUIRED
    if isinstance(error, ConnectionLostError):
        return Signal.LOST if reconnect else Signal.HOPELESS
    stage = error.stage if isinstance(error, ConnectError) else ""
    if not reconnect or stage == "approval":
        return Signal.HOPELESS
    if not was_ready and (isinstance(error, ConfigError) or stage in _HOPELESS_STAGES):
        return Signal.HOPELESS
    return Signal.UNREACHABLE


FIRST = 0.5
FACTOR = 2.0
LONGEST = 60.0
JITTER = 0.2
PROVEN_AFTER = 60.0
LOOP_FAILURES = 5
LOOP_WINDOW = 180.0
FIRST_REFUSED = 60.0
LONGEST_REFUSED = 600.0
"""Refused logins are tried slowly: many failures in a short time lock accounts."""


class Delay(NamedTuple):
    """The wait before the next attempt."""

    seconds: float
    slow: bool
    """Whether this is a crash loop, with one attempt a minute."""


class Backoff:
    """The failures of one server; the time and the random numbers are arguments."""

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=LOOP_FAILURES)
        self._tries = 0
        self._refusals = 0
        self._refused_at = 0.0
        self._slow = False
        self._ready_since: float | None = None
        self._answered = False

    def slow(self, now: float) -> bool:
        """Return whether the server is in a crash loop and has not been stable since."""
        return self._slow and not self._proven(now)

    @property
    def is_failing(self) -> bool:
        """Whether the server has failed and was not connected since."""
        return self._tries > 0 and self._ready_since is None

    def ready(self, now: float) -> None:
        """Note that the server is connected."""
        self._ready_since = now
        self._answered = False
        self._refusals = 0

    def answered(self) -> None:
        """Note that the server has answered a request."""
        self._answered = True

    def failed(self, now: float, chance: float) -> Delay:
        """Note a failure and return the wait.

        Args:
            now: Seconds on a monotonic clock.
            chance: A random number from 0 to 1, for the jitter.
        """
        if self._proven(now):
            self.reset()
        self._ready_since = None
        self._failures.append(now)
        if len(self._failures) == LOOP_FAILURES and now - self._failures[0] <= LOOP_WINDOW:
            self._slow = True
        wait = LONGEST if self._slow else min(LONGEST, FIRST * FACTOR**self._tries)
        self._tries = min(self._tries + 1, 16)
        return Delay(wait * (1 - JITTER + 2 * JITTER * chance), self._slow)

    def refused(self, now: float, chance: float) -> Delay:
        """Note that the server requires a login, and return the wait before an attempt without one.

        Args:
            now: Seconds on a monotonic clock.
            chance: A random number from 0 to 1, for the jitter.
        """
        self._refused_at = now
        wait = min(LONGEST_REFUSED, FIRST_REFUSED * FACTOR**self._refusals)
        self._refusals = min(self._refusals + 1, 16)
        return Delay(wait * (1 - JITTER + 2 * JITTER * chance), self._slow)

    def allows_call(self, now: float) -> bool:
        """Return whether a call may try a server that required a login; less and less often."""
        wait = min(LONGEST, FIRST * FACTOR ** max(0, self._refusals - 1))
        return now - self._refused_at >= wait

    def reset(self) -> None:
        """Forget every failure."""
        self._failures.clear()
        self._tries = 0
        self._refusals = 0
        self._slow = False

    def _proven(self, now: float) -> bool:
        since = self._ready_since
        return since is not None and self._answered and now - since >= PROVEN_AFTER
