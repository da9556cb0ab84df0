"""Readings of all servers, as the dashboard and the console show them: state, cause, next step, calls.

`read_server` and `count_fleet` are pure: they get statuses and metrics, and return texts and numbers for a
person. What is styled, drawn or encoded is left to the face that shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.diagnosis.explain import explain, explain_status, state_word
from dragoman.errors import ConnectionLostError, InvalidSpecError, SessionGoneError, ToolUnavailableError
from dragoman.struct import Report, Struct, field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.model import ServerSpec, ServerStatus, Settings
    from dragoman.observe.metrics import ServerMetrics

OFF, BROKEN = "off", "broken"
"""States that a supervisor does not have: a disabled server, and an entry that does not describe one."""
LOSSES = frozenset({ConnectionLostError.code, SessionGoneError.code, ToolUnavailableError.code})
"""Codes of calls that failed because their server was away."""


class FleetRow(Report, kw_only=True):
    """One server, or one broken entry of the configuration."""

    name: str
    state: str
    """A `ServerState`, `off` or `broken`."""
    word: str
    """The state in a word or two for people."""
    is_on: bool = True
    transport: str = ""
    protocol: str = ""
    server_label: str = ""
    """The name and version that the server gives itself."""
    tools: int = 0
    cause: str = ""
    """Why it is not ready."""
    next_step: str = ""
    """The command that helps."""
    retry_in: float | None = None
    """Seconds until the next try."""
    crash_loop: bool = False
    in_state: float | None = None
    """Seconds since the last change of state."""
    pid: int | None = None
    sandbox: str = ""
    calls: int = 0
    failed: int = 0
    in_flight: int = 0
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    """Failed calls by the code of the error."""
    p50: float | None = None
    p95: float | None = None
    recent: Sequence[float] = ()
    """The latest durations, the oldest first."""
    restarts: int = 0
    failed_connects: int = 0
    lost_calls: int = 0
    """Calls that failed because the server was away."""


class FleetCount(Struct, kw_only=True):
    """All servers and calls as numbers."""

    servers: int
    ready: int
    running: int
    calls: int
    failed: int


def read_server(
    status: ServerStatus,
    metrics: ServerMetrics | None = None,
    *,
    spec: ServerSpec | None = None,
    is_on: bool = True,
) -> FleetRow:
    """Return the reading of one server.

    Args:
        status: Its status.
        metrics: Its calls.
        spec: Its configuration, for a more exact cause.
        is_on: Whether it is enabled.
    """
    found = explain_status(status, spec) if is_on and status.last_error else None
    timed = metrics.latency if metrics is not None and metrics.latency.count else None
    label = " ".join(part for part in (status.server_name, status.server_version) if part)
    row = FleetRow(
        name=status.name,
        state=status.state.value if is_on else OFF,
        word=state_word(status) if is_on else OFF,
        is_on=is_on,
        transport=status.transport,
        protocol=status.protocol_version or "",
        server_label=label,
        tools=status.tools,
        cause=found.cause if found is not None else "",
        next_step=found.next_step if found is not None else "",
        # One that waits for a person is asked again, too, but nobody should wait for that.
        retry_in=status.retry_in if is_on and status.state.value != "needs_auth" else None,
        crash_loop=status.crash_loop,
        pid=status.pid,
        sandbox="" if status.sandbox == "off" else status.sandbox,
    )
    if metrics is None:
        return row
    return row.replace(
        in_state=metrics.in_state,
        calls=metrics.calls,
        failed=metrics.failed,
        in_flight=metrics.in_flight,
        errors=metrics.errors,
        p50=timed.p50 if timed is not None else None,
        p95=timed.p95 if timed is not None else None,
        recent=metrics.recent,
        restarts=metrics.restarts,
        failed_connects=metrics.failed_connects,
        lost_calls=sum(count for code, count in metrics.errors.items() if code in LOSSES),
    )


def read_broken(settings: Settings) -> list[FleetRow]:
    """Return the reading of each entry that does not describe a server."""
    return [
        FleetRow(name=name, state=BROKEN, word=BROKEN, cause=found.cause, next_step=found.next_step)
        for name, found in ((name, explain(one)) for name, one in broken_entries(settings).items())
    ]


def broken_row(settings: Settings, name: str) -> FleetRow | None:
    """Return the reading of the broken entry with this name."""
    return next((row for row in read_broken(settings) if row.name == name), None)


def count_fleet(statuses: Iterable[ServerStatus], metrics: Mapping[str, ServerMetrics]) -> FleetCount:
    """Return the numbers of servers and calls."""
    states = [status.state.value for status in statuses]
    return FleetCount(
        servers=len(states),
        ready=states.count("ready"),
        running=sum(one.in_flight for one in metrics.values()),
        calls=sum(one.calls for one in metrics.values()),
        failed=sum(one.failed for one in metrics.values()),
    )


def broken_entries(settings: Settings) -> dict[str, InvalidSpecError]:
    """Return the entries that do not describe a server, by name; a server of the same name hides one."""
    names = {spec.name for spec in settings.servers}
    found: dict[str, InvalidSpecError] = {}
    for problem in settings.problems:
        if isinstance(problem, InvalidSpecError) and problem.server and problem.server not in names:
            found.setdefault(problem.server, problem)
    return found
