"""A server's life in simulated time: the table and the backoff as the supervisor uses them, and chance.

One seed is one life: a server that connects, crashes, hangs, wants a login, is called, restarted, stopped. Time
is a number, so that ten hours take a millisecond, and a failing seed replays exactly.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dragoman.model import ServerState
from dragoman.server.lifecycle import Backoff, Order, Signal, step

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

PATIENCE = 2.0
S = ServerState


@dataclass(eq=False)
class Call:
    """One call, and every outcome that it was given."""

    deadline: float
    outcomes: list[str] = field(default_factory=list)


@dataclass
class Connection:
    """One connection; `shaken` once its handshake is done."""

    shaken: bool = False
    closed: bool = False
    carried: list[Call] = field(default_factory=list)


class Life:
    """One server, its supervisor and its callers; invariants are asserted at every step."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now = 0.0
        self.state = S.IDLE
        self.backoff = Backoff()
        self.connection: Connection | None = None
        self.opened: list[float] = []
        self.restarts = 0
        self.calls: list[Call] = []
        self._waiting: list[Call] = []
        self._retry: int | None = None
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._cancelled: set[int] = set()

    # Time

    def after(self, seconds: float, job: Callable[[], None]) -> int:
        number = next(self._count)
        heapq.heappush(self._timers, (self.now + seconds, number, job))
        return number

    def run(self, until: float) -> None:
        while self._timers and self._timers[0][0] <= until:
            self.now, number, job = heapq.heappop(self._timers)
            if number not in self._cancelled:
                job()
                self.check()
        self.now = until

    # What the supervisor does

    def signal(self, signal: Signal) -> None:
        before = self.state
        self.state, orders = step(before, signal)
        if self.state is S.READY and before is not S.READY:
            assert self.connection is not None, "ready without a connection"
            assert self.connection.shaken, "ready without a handshake"
        if self.state is not before and self._retry is not None:
            self._cancelled.add(self._retry)
            self._retry = None
        for order in orders:
            self._carry_out(order)
        if self.state is not S.CONNECTING:
            self._settle()

    def _carry_out(self, order: Order) -> None:
        match order:
            case Order.CLOSE:
                connection, self.connection = self.connection, None
                if connection is not None:
                    connection.closed = True
                    for call in connection.carried:
                        self.resolve(call, "lost")
                    connection.carried = []
            case Order.OPEN:
                assert self.connection is None, "two connections at once"
                self.connection = connection = Connection()
                self.opened.append(self.now)
                self.serve(connection)
            case Order.PLAN_RETRY:
                delay = self.backoff.failed(self.now, self.chance.random())
                self._retry = self.after(delay.seconds, self._retry_due)
            case Order.RESET_BACKOFF:
                self.backoff.reset()
            case Order.OFFER | Order.WITHDRAW:
                pass

    def _retry_due(self) -> None:
        self._retry = None
        self.signal(Signal.RETRY_DUE)

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self._send(call)

    def _send(self, call: Call) -> None:
        if call.outcomes:
            return
        connection = self.connection
        if connection is None or not connection.shaken or self.state not in (S.READY, S.DEGRADED):
            self.resolve(call, "not ready")
            return
        connection.carried.append(call)
        if self.chance.random() < 0.8:
            self.after(self.chance.expovariate(2), lambda: self._answer(connection, call))

    def _answer(self, connection: Connection, call: Call) -> None:
        if not connection.closed and call in connection.carried:
            connection.carried.remove(call)
            self.backoff.answered()
            self.resolve(call, "answered")

    # What callers and people do

    def call(self) -> None:
        call = Call(self.now + self.chance.uniform(0.1, 40))
        self.calls.append(call)
        self.after(call.deadline - self.now, lambda: self._time_out(call))
        self.signal(Signal.CALL)
        if self.state is S.CONNECTING:
            self._waiting.append(call)
        elif self.state is S.BACKOFF and self.chance.random() < 0.5:
            self.after(PATIENCE, lambda: self._after_patience(call))
        else:
            self._send(call)

    def _after_patience(self, call: Call) -> None:
        if self.state is S.CONNECTING and not call.outcomes:
            self._waiting.append(call)
        else:
            self._send(call)

    def _time_out(self, call: Call) -> None:
        if call.outcomes:
            return
        if call in self._waiting:
            self._waiting.remove(call)
        if self.connection is not None and call in self.connection.carried:
            self.connection.carried.remove(call)
        self.resolve(call, "timed out")

    def resolve(self, call: Call, outcome: str) -> None:
        call.outcomes.append(outcome)
        assert len(call.outcomes) == 1, f"resolved more than once: {call.outcomes}"

    # What the server does

    def serve(self, connection: Connection) -> None:
        chance, pause = self.chance, self.chance.expovariate(1)
        fate = chance.choices(
            ["ready", "degraded", Signal.UNREACHABLE, Signal.LOST, Signal.HOPELESS, Signal.AUTH_REQUIRED],
            [60, 5, 15, 10, 5, 5],
        )[0]
        if fate in ("ready", "degraded"):
            signal = Signal.CONNECTED if fate == "ready" else Signal.LISTING_FAILED
            self.after(pause, lambda: self._shake(connection, signal))
        else:
            self.after(pause, lambda: self.tell(connection, Signal(fate)))

    def _shake(self, connection: Connection, signal: Signal) -> None:
        if connection.closed:
            return
        connection.shaken = True
        self.backoff.ready(self.now)
        self.tell(connection, signal)
        life = self.chance.expovariate(1 / self.chance.choice([0.5, 30, 600]))
        self.after(life, lambda: self.tell(connection, Signal.LOST))
        for _ in range(self.chance.randrange(3)):
            late = self.chance.choice(
                [Signal.LISTED, Signal.LISTING_FAILED, Signal.UNUSED, Signal.AUTH_REQUIRED]
            )
            self.after(self.chance.expovariate(1 / 20), lambda late=late: self.tell(connection, late))

    def tell(self, connection: Connection, signal: Signal) -> None:
        """Pass on what a connection says; one that was left says nothing more."""
        if self.connection is connection:
            self.signal(signal)

    # What must hold

    def check(self) -> None:
        assert (self.state is S.BACKOFF) == (self._retry is not None), (
            "a retry is planned in backoff, and only there"
        )
        if self.state in (S.READY, S.DEGRADED):
            assert self.connection is not None
            assert self.connection.shaken
        if self.state not in (S.READY, S.DEGRADED, S.CONNECTING):
            assert self.connection is None
        assert not self._waiting or self.state is S.CONNECTING

    def finish(self) -> None:
        """Stop, and let every deadline pass: no caller may be left waiting."""
        self.signal(Signal.STOP)
        self.run(self.now + 100)
        assert self.state is S.CLOSED
        assert all(len(call.outcomes) == 1 for call in self.calls)


def live(chance: random.Random, *, hours: float = 0.2) -> Life:
    """Live one life: callers call, people restart, stop and log in, in any order."""
    life = Life(chance)
    end = hours * 3600
    if chance.random() < 0.7:
        life.after(0, lambda: life.signal(Signal.START))
    for _ in range(chance.randrange(1, 60)):
        life.after(chance.uniform(0, end), life.call)
    for _ in range(chance.randrange(8)):
        odd = chance.choice([Signal.RESTART, Signal.RESTART, Signal.START, Signal.LOGGED_IN, Signal.STOP])
        life.after(chance.uniform(0, end), lambda odd=odd: life.signal(odd))
    for _ in range(chance.randrange(4)):
        # Signals that come late, twice, or out of turn; those of a connection come through it alone.
        stray = chance.choice([Signal.RETRY_DUE, Signal.START, Signal.CALL])
        if stray is not Signal.RETRY_DUE:
            life.after(chance.uniform(0, end), lambda stray=stray: life.signal(stray))
    life.run(end)
    life.finish()
    return life


class CrashLoop(Life):
    """A server that never comes up, or dies right after."""

    def serve(self, connection: Connection) -> None:
        if self.chance.random() < 0.5:
            self.after(0.01, lambda: self.tell(connection, Signal.UNREACHABLE))
        else:
            self.after(0.01, lambda: self._come_and_go(connection))

    def _come_and_go(self, connection: Connection) -> None:
        connection.shaken = True
        self.backoff.ready(self.now)
        self.tell(connection, Signal.CONNECTED)
        self.backoff.answered()
        self.after(self.chance.uniform(0, 50), lambda: self.tell(connection, Signal.LOST))


def crash_for_hours(chance: random.Random, *, hours: float = 10) -> Life:
    """Let a server crash in a loop, with impatient callers; the starts must stay within the table."""
    life = CrashLoop(chance)
    life.signal(Signal.START)
    for _ in range(200):
        life.after(chance.uniform(0, hours * 3600), life.call)
    life.run(hours * 3600)
    gaps = [later - earlier for earlier, later in itertools.pairwise(life.opened)]
    table = [0.5, 1, 2, 4]
    for gap, least in zip(gaps, table, strict=False):
        assert gap >= 0.8 * least, f"a start {gap:.2f} s after the last one"
    assert all(gap >= 0.8 * 4 for gap in gaps[4:])
    within = [start for start in life.opened if start > 600]
    assert len(within) <= (hours * 3600 - 600) / 48 + 1, f"{len(life.opened)} starts"
    life.finish()
    return life
