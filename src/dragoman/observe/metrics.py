"""Counts and durations of calls by server and tool, in bounded memory, without a clock or I/O.

It is cheap enough to be always on: a call costs two updates of one small object (`begun`, `ended`) and needs
no event. Rare things such as a change of state come in as events (`take`). Sums and quantiles are computed
when they are read.

Accuracy:

- Counts, sums, the mean and the maximum are exact.
- Quantiles are nearest-rank, from buckets that grow by `2**(1/16)`: within 2.2 % of a measured duration, from
  1 µs to 12 days; shorter and longer ones count as the nearest of these.
- Durations are those of calls that a server answered or that timed out. A call that was never sent, or that
  its caller cancelled, says nothing about the server's speed; it only counts as failed.
- At most `MAX_TOOLS` tools of a server are counted separately, since a model may invent any number of names;
  the others are counted together under `OTHER`.

Only the thread of the manager's event loop uses it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from dragoman.events import CallFinished, CallStarted, ConfigReloaded, StateChanged
from dragoman.model import ServerState
from dragoman.struct import Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dragoman.events import Event

CANCELLED = "cancelled"
"""The code of a call that its caller cancelled; `errors.py` has no class for it."""
UNTIMED = frozenset(
    {"tool.unknown", "tool.invalid_arguments", "tool.denied", "tool.unavailable", CANCELLED},
)
"""Codes of calls whose durations say nothing about their server."""
MAX_TOOLS = 1000
OTHER = "…"
"""Stands for all tools of a server beyond `MAX_TOOLS`."""
RECENT = 60
"""How many of the latest durations are kept of a server: enough for a sparkline."""

_STEPS = 16
"""Buckets for each doubling."""
_SHORTEST = 2.0**-20
_SHIFT = 20
_LONGEST = 2.0**20
_LIVE = frozenset({ServerState.READY, ServerState.DEGRADED})
_UNMADE = frozenset({ServerState.BACKOFF, ServerState.FAILED, ServerState.NEEDS_AUTH})


class Latency(Struct, kw_only=True):
    """How long calls took, in seconds."""

    count: int = 0
    """The number of calls; if it is 0, so is the rest."""
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    longest: float = 0.0

    def as_json(self) -> dict[str, Any] | None:
        """Return it as JSON data; `None` if there was no call."""
        if not self.count:
            return None
        return {
            "count": self.count,
            "mean": self.mean,
            "p50": self.p50,
            "p95": self.p95,
            "p99": self.p99,
            "longest": self.longest,
        }


class ToolMetrics(Struct, kw_only=True):
    """A reading of one tool's calls."""

    tool: str
    """The exposed name."""
    calls: int = 0
    """How many have ended."""
    in_flight: int = 0
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many failed, by the stable code of the error."""
    latency: Latency = field(default_factory=Latency)
    sent_bytes: int | None = None
    """`None` where sizes are not known."""
    received_bytes: int | None = None

    @property
    def failed(self) -> int:
        """How many calls failed."""
        return sum(self.errors.values())

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data; the shape is stable."""
        return {
            "calls": self.calls,
            "in_flight": self.in_flight,
            "failed": self.failed,
            "errors": dict(self.errors),
            "latency": self.latency.as_json(),
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
        }


class ServerMetrics(Struct, kw_only=True):
    """A reading of one server: its calls, tool by tool, and its life."""

    server: str
    """Its name; empty for built-in tools, and for calls of tools that do not exist."""
    calls: int = 0
    in_flight: int = 0
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    latency: Latency = field(default_factory=Latency)
    recent: Sequence[float] = ()
    """The latest durations, the oldest first."""
    sent_bytes: int | None = None
    received_bytes: int | None = None
    restarts: int = 0
    """How often it was connected again after the first time."""
    failed_connects: int = 0
    states: Mapping[str, float] = field(default_factory=dict[str, float])
    """Seconds spent in each state, the current one included."""
    in_state: float | None = None
    """Seconds since the last change of state; `None` if no state is known."""
    tools: Mapping[str, ToolMetrics] = field(default_factory=dict[str, ToolMetrics])
    """By exposed name."""

    @property
    def failed(self) -> int:
        """How many calls failed."""
        return sum(self.errors.values())

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data; the shape is stable."""
        return {
            "calls": self.calls,
            "in_flight": self.in_flight,
            "failed": self.failed,
            "errors": dict(self.errors),
            "latency": self.latency.as_json(),
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "restarts": self.restarts,
            "failed_connects": self.failed_connects,
            "states": dict(self.states),
            "tools": {name: tool.as_json() for name, tool in self.tools.items()},
        }


class Metrics:
    """Adds up what happens; `read` gives a frozen reading of it."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def begun(self, server: str, tool: str) -> None:
        """Count a call that is under way from now on."""
        try:
            self._servers[server].tools[tool].in_flight += 1
        except KeyError:
            self._tool(server, tool).in_flight += 1

    def ended(
        self, server: str, tool: str, seconds: float, code: str = "", *, sent: int = 0, received: int = 0
    ) -> None:
        """Count a call that has ended, however it did.

        Args:
            server: The tool's server; empty for a built-in tool.
            tool: Its exposed name.
            seconds: How long the call took.
            code: The stable code of its error, or `CANCELLED`; empty if it went well.
            sent: The size of the request in bytes, if that is known.
            received: The size of the answer.
        """
        try:
            life = self._servers[server]
            meter = life.tools[tool]
        except KeyError:
            meter = self._tool(server, tool)
            life = self._servers[server]
        if meter.in_flight:
            meter.in_flight -= 1
        meter.calls += 1
        if sent or received:
            meter.sent += sent
            meter.received += received
        if code:
            meter.errors[code] = meter.errors.get(code, 0) + 1
            if code in UNTIMED:
                return
        if not seconds < _LONGEST:
            seconds = _LONGEST
        meter.timed += 1
        meter.total += seconds
        if seconds > meter.longest:
            meter.longest = seconds
        index = int((math.log2(seconds) + _SHIFT) * _STEPS) if seconds > _SHORTEST else 0
        meter.buckets[index] = meter.buckets.get(index, 0) + 1
        life.recent.append(seconds)

    def withdrawn(self, server: str, tool: str) -> None:
        """Forget a call that has begun but is not made yet: a person is asked first."""
        meter = self._tool(server, tool)
        if meter.in_flight:
            meter.in_flight -= 1

    def watch(self, server: str, state: ServerState, now: float) -> None:
        """Start to measure how long a server is in each state; no event tells its first state."""
        life = self._server(server)
        if life.state is None:
            life.state, life.since = state, now

    def forget(self, server: str) -> None:
        """Drop everything about a server that was removed."""
        self._servers.pop(server, None)

    def take(self, event: Event, now: float) -> None:
        """Count an event.

        Calls are counted either this way or by `begun` and `ended`, never both.
        """
        match event:
            case CallStarted():
                self.begun(event.server, event.tool)
            case CallFinished():
                self.ended(event.server, event.tool, event.duration, event.error_code)
            case StateChanged():
                self._server(event.server).move(event.before, event.after, now)
            case ConfigReloaded():
                for name in event.stopped:
                    self.forget(name)
            case _:
                pass

    def read(self, now: float, *, by_tool: bool = True) -> dict[str, ServerMetrics]:
        """Return a reading of every known server, by name; without its tools it costs less."""
        return {name: life.read(name, now, by_tool=by_tool) for name, life in self._servers.items()}

    def server(self, name: str, now: float) -> ServerMetrics:
        """Return a reading of one server; all zero if it is not known."""
        life = self._servers.get(name)
        return ServerMetrics(server=name) if life is None else life.read(name, now)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the known servers."""
        return iter(self._servers)

    def _server(self, name: str) -> _Server:
        life = self._servers.get(name)
        if life is None:
            life = self._servers[name] = _Server()
        return life

    def _tool(self, server: str, tool: str) -> _Tool:
        tools = self._server(server).tools
        meter = tools.get(tool)
        if meter is None:
            if len(tools) >= MAX_TOOLS:
                tool = OTHER
            meter = tools.get(tool)
            if meter is None:
                meter = tools[tool] = _Tool()
        return meter


class _Tool:
    """What is added up for one tool."""

    __slots__ = (
        "buckets",
        "calls",
        "errors",
        "in_flight",
        "longest",
        "received",
        "sent",
        "timed",
        "total",
    )

    def __init__(self) -> None:
        self.calls = self.in_flight = self.timed = self.sent = self.received = 0
        self.total = self.longest = 0.0
        self.errors: dict[str, int] = {}
        self.buckets: dict[int, int] = {}
        """By index; only those in use."""

    def read(self, name: str) -> ToolMetrics:
        known = bool(self.sent or self.received)
        return ToolMetrics(
            tool=name,
            calls=self.calls,
            in_flight=self.in_flight,
            errors=dict(self.errors),
            latency=_latency([self]),
            sent_bytes=self.sent if known else None,
            received_bytes=self.received if known else None,
        )


class _Server:
    """What is added up for one server beside its tools."""

    __slots__ = (
        "connects",
        "failed_connects",
        "recent",
        "since",
        "state",
        "states",
        "tools",
    )

    def __init__(self) -> None:
        self.tools: dict[str, _Tool] = {}
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.connects = self.failed_connects = 0
        self.state: ServerState | None = None
        self.since = 0.0
        self.states: dict[str, float] = {}

    def move(self, before: ServerState, after: ServerState, now: float) -> None:
        if self.state is not None:
            self.states[before.value] = self.states.get(before.value, 0.0) + max(0.0, now - self.since)
        self.state, self.since = after, now
        if after in _LIVE and before not in _LIVE:
            self.connects += 1
        elif after in _UNMADE and before is ServerState.CONNECTING:
            self.failed_connects += 1

    def read(self, name: str, now: float, *, by_tool: bool = True) -> ServerMetrics:
        tools = list(self.tools.values())
        states = dict(self.states)
        if self.state is not None:
            states[self.state.value] = states.get(self.state.value, 0.0) + max(0.0, now - self.since)
        sent = sum(tool.sent for tool in tools)
        received = sum(tool.received for tool in tools)
        known = bool(sent or received)
        errors = Counter[str]()
        for tool in tools:
            errors.update(tool.errors)
        return ServerMetrics(
            server=name,
            calls=sum(tool.calls for tool in tools),
            in_flight=sum(tool.in_flight for tool in tools),
            errors=dict(errors),
            latency=_latency(tools),
            recent=tuple(self.recent),
            sent_bytes=sent if known else None,
            received_bytes=received if known else None,
            restarts=max(0, self.connects - 1),
            failed_connects=self.failed_connects,
            states=states,
            in_state=None if self.state is None else max(0.0, now - self.since),
            tools={name: tool.read(name) for name, tool in sorted(self.tools.items())} if by_tool else {},
        )


def _latency(tools: Iterable[_Tool]) -> Latency:
    count, total, longest = 0, 0.0, 0.0
    buckets: Counter[int] = Counter()
    for tool in tools:
        count += tool.timed
        total += tool.total
        longest = max(longest, tool.longest)
        buckets.update(tool.buckets)
    if not count:
        return Latency()
    p50, p95, p99 = (min(longest, value) for value in _quantiles(buckets, count, (0.5, 0.95, 0.99)))
    return Latency(count=count, mean=total / count, p50=p50, p95=p95, p99=p99, longest=longest)


def _quantiles(buckets: Mapping[int, int], count: int, shares: Sequence[float]) -> list[float]:
    """Return the nearest-rank quantiles, for rising shares."""
    ranks = [max(1, math.ceil(share * count)) for share in shares]
    found: list[float] = []
    seen = 0
    for index in sorted(buckets):
        seen += buckets[index]
        while len(found) < len(ranks) and seen >= ranks[len(found)]:
            # The geometric middle is at most half a bucket away from every duration in it.
            found.append(2.0 ** ((index + 0.5) / _STEPS - _SHIFT))
    return found
