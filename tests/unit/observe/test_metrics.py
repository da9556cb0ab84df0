from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.events import CallFinished, CallStarted, ConfigReloaded, StateChanged, ToolsChanged
from dragoman.model import ServerState
from dragoman.observe import metrics as module
from dragoman.observe.metrics import CANCELLED, OTHER, RECENT, Latency, Metrics, ServerMetrics

pytestmark = pytest.mark.requirement("otter-p2.metrics")

ERROR = 2 ** (1 / 32) - 1
"""Half a bucket."""


def finished(tool: str = "t", duration: float = 0.1, code: str = "", server: str = "s") -> CallFinished:
    return CallFinished(
        server=server, tool=tool, call_id="c", success=not code, duration=duration, error_code=code
    )


def moved(before: ServerState, after: ServerState) -> StateChanged:
    return StateChanged(server="s", before=before, after=after)


def timed(*durations: float) -> Latency:
    metrics = Metrics()
    for duration in durations:
        metrics.ended("s", "t", duration)
    return metrics.server("s", 0.0).latency


def test_nothing_is_known_of_a_server_without_calls() -> None:
    metrics = Metrics()
    assert metrics.read(0.0) == {}
    nothing = metrics.server("s", 0.0)
    assert nothing == ServerMetrics(server="s")
    assert nothing.as_json() == {
        "calls": 0,
        "in_flight": 0,
        "failed": 0,
        "errors": {},
        "latency": None,
        "sent_bytes": None,
        "received_bytes": None,
        "restarts": 0,
        "failed_connects": 0,
        "states": {},
        "tools": {},
    }


@pytest.mark.requirement("otter-p2.metrics")
def test_calls_are_counted_by_server_tool_and_error_code() -> None:
    metrics = Metrics()
    for event in (
        finished("read", 0.1),
        finished("read", 0.3, "tool.failed"),
        finished("write", 0.2, "tool.timeout"),
        finished("write", 0.2, "tool.timeout"),
        finished("read", 0.5, server="other"),
    ):
        metrics.take(event, 0.0)
    found = metrics.read(0.0)
    server = found["s"]
    assert (server.calls, server.failed, server.errors) == (4, 3, {"tool.failed": 1, "tool.timeout": 2})
    assert server.latency.count == 4
    assert math.isclose(server.latency.mean, 0.2)
    assert server.latency.longest == 0.3
    assert (server.tools["read"].calls, server.tools["read"].failed) == (2, 1)
    assert server.tools["write"].errors == {"tool.timeout": 2}
    assert list(server.tools) == ["read", "write"]
    assert found["other"].calls == 1
    assert server.as_json()["tools"]["read"]["latency"]["longest"] == 0.3


def test_calls_under_way_are_counted_until_they_end() -> None:
    metrics = Metrics()
    started = CallStarted(server="s", tool="t", call_id="c")
    metrics.take(started, 0.0)
    metrics.take(started, 0.0)
    assert metrics.server("s", 0.0).in_flight == 2
    metrics.take(finished(), 0.0)
    assert metrics.server("s", 0.0).tools["t"].in_flight == 1
    metrics.take(finished(), 0.0)
    metrics.take(finished(), 0.0)
    assert metrics.server("s", 0.0).in_flight == 0


def test_what_never_reached_the_server_does_not_change_its_latency() -> None:
    metrics = Metrics()
    metrics.ended("s", "t", 1.0)
    for code in ("tool.invalid_arguments", "tool.denied", "tool.unavailable", "tool.unknown", CANCELLED):
        metrics.ended("s", "t", 0.000_01, code)
    server = metrics.server("s", 0.0)
    assert (server.calls, server.failed, server.latency.count) == (6, 5, 1)
    assert math.isclose(server.latency.p50, 1.0, rel_tol=ERROR)
    assert server.recent == (1.0,)


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=200))
def test_quantile_is_within_half_a_bucket_of_the_nearest_rank(durations: list[float]) -> None:
    latency = timed(*durations)
    ranked = sorted(durations)
    for share, value in ((0.5, latency.p50), (0.95, latency.p95), (0.99, latency.p99)):
        exact = ranked[max(1, math.ceil(share * len(ranked))) - 1]
        assert math.isclose(value, exact, rel_tol=ERROR * 1.01)
    assert latency.longest == ranked[-1]
    assert latency.p50 <= latency.p95 <= latency.p99 <= latency.longest


@pytest.mark.parametrize("duration", [0.0, -1.0, 1e-300, 1e300, math.inf, math.nan])
def test_impossible_durations_count_as_the_nearest_possible_one(duration: float) -> None:
    latency = timed(duration)
    assert latency.count == 1
    assert latency.p99 <= 2.0**20


def test_memory_is_bounded_whatever_the_durations_are() -> None:
    metrics = Metrics()
    for step in range(40_000):
        metrics.ended("s", "t", 1.001**step * 1e-6)
    assert len(metrics._servers["s"].tools["t"].buckets) <= 40 * 16 + 1
    assert len(metrics.server("s", 0.0).recent) == RECENT


def test_names_without_end_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOOLS", 3)
    metrics = Metrics()
    for number in range(10):
        metrics.begun("", f"invented_{number}")
        metrics.ended("", f"invented_{number}", 0.0, "tool.unknown")
    found = metrics.server("", 0.0)
    assert (found.calls, found.in_flight, len(found.tools)) == (10, 0, 4)
    assert found.tools[OTHER].errors == {"tool.unknown": 7}


def test_bytes_are_told_only_where_they_are_known() -> None:
    metrics = Metrics()
    metrics.ended("s", "t", 0.1)
    assert metrics.server("s", 0.0).sent_bytes is None
    metrics.ended("s", "t", 0.1, sent=10, received=2000)
    metrics.ended("s", "u", 0.1, sent=5, received=7)
    server = metrics.server("s", 0.0)
    assert (server.sent_bytes, server.received_bytes) == (15, 2007)
    assert (server.tools["t"].sent_bytes, server.tools["t"].received_bytes) == (10, 2000)


def test_time_is_added_up_for_each_state() -> None:
    metrics = Metrics()
    metrics.watch("s", ServerState.IDLE, 100.0)
    metrics.watch("s", ServerState.READY, 105.0)
    for event, now in (
        (moved(ServerState.IDLE, ServerState.CONNECTING), 110.0),
        (moved(ServerState.CONNECTING, ServerState.READY), 112.0),
        (moved(ServerState.READY, ServerState.BACKOFF), 142.0),
        (moved(ServerState.BACKOFF, ServerState.CONNECTING), 143.0),
        (moved(ServerState.CONNECTING, ServerState.BACKOFF), 145.0),
        (moved(ServerState.BACKOFF, ServerState.CONNECTING), 147.0),
        (moved(ServerState.CONNECTING, ServerState.DEGRADED), 148.0),
        (moved(ServerState.DEGRADED, ServerState.READY), 149.0),
    ):
        metrics.take(event, now)
    server = metrics.server("s", 159.0)
    assert server.states == {"idle": 10.0, "connecting": 5.0, "ready": 40.0, "backoff": 3.0, "degraded": 1.0}
    assert (server.restarts, server.failed_connects) == (1, 1)


def test_unwatched_server_is_measured_from_its_first_event() -> None:
    metrics = Metrics()
    metrics.take(moved(ServerState.CONNECTING, ServerState.READY), 50.0)
    assert metrics.server("s", 53.0).states == {"ready": 3.0}
    assert metrics.server("s", 40.0).states == {"ready": 0.0}


def test_server_that_is_stopped_by_a_reload_is_forgotten() -> None:
    metrics = Metrics()
    metrics.ended("s", "t", 0.1)
    metrics.ended("kept", "t", 0.1)
    metrics.take(ToolsChanged(server="s", added=("x",)), 0.0)
    metrics.take(ConfigReloaded(stopped=("s", "never-seen")), 0.0)
    assert list(metrics.read(0.0)) == ["kept"]


def test_reading_does_not_change_when_more_is_counted() -> None:
    metrics = Metrics()
    metrics.ended("s", "t", 0.1, "tool.failed")
    before = metrics.server("s", 0.0)
    metrics.ended("s", "t", 0.1, "tool.failed")
    metrics.ended("s", "u", 0.1)
    assert before.errors == {"tool.failed": 1}
    assert list(before.tools) == ["t"]


def test_errors_of_a_server_are_those_of_all_its_tools() -> None:
    metrics = Metrics()
    for name in ("a", "a", "b"):
        metrics.take(finished(name, code="tool.failed"), 0.0)
    assert metrics.server("s", 0.0).errors == {"tool.failed": 3}
    assert metrics.server("s", 0.0).failed == 3
