"""Readings of servers, as the dashboard and the console show them."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.diagnosis.fleet import broken_row, count_fleet, read_server
from dragoman.errors import ConnectError, InvalidSpecError
from dragoman.model import ServerSpec, ServerState, ServerStatus, Settings, Stdio
from dragoman.observe.metrics import Metrics


def status(state: ServerState = ServerState.READY, **more: Any) -> ServerStatus:
    return ServerStatus(name="law", state=state, transport="stdio", **more)


def test_a_server_that_is_down_has_a_cause_a_command_and_a_next_try() -> None:
    error = ConnectError("cannot connect", server="law", stage="spawn", reason="program")
    spec = ServerSpec(name="law", transport=Stdio(command="lawd"))
    down = status(ServerState.BACKOFF, last_error=str(error), error=error, retry_in=3.0, crash_loop=True)
    row = read_server(down, spec=spec)
    assert (row.state, row.word) == ("backoff", "retrying")
    assert (row.cause, row.next_step) == ("the program `lawd` was not found", "dragoman doctor law")
    assert (row.retry_in, row.crash_loop) == (3.0, True)
    waiting = status(ServerState.NEEDS_AUTH, last_error="no token", retry_in=48.0)
    assert read_server(waiting).retry_in is None


def test_a_disabled_server_is_off_and_has_no_cause() -> None:
    row = read_server(status(ServerState.FAILED, last_error="it died", retry_in=3.0), is_on=False)
    assert (row.state, row.word, row.is_on, row.cause, row.retry_in) == ("off", "off", False, "", None)


def test_calls_that_restarts_cost_are_counted_apart() -> None:
    metrics = Metrics()
    for code in ("", "server.lost", "tool.unavailable", "server.session_gone", "tool.failed", "tool.timeout"):
        metrics.begun("law", "t")
        metrics.ended("law", "t", 0.5, code)
    row = read_server(status(), metrics.server("law", 0.0))
    assert (row.calls, row.failed, row.lost_calls) == (6, 5, 3)
    assert row.p50 == pytest.approx(0.5, rel=0.03)


def test_the_time_in_a_state_is_since_its_last_change() -> None:
    from dragoman.events import StateChanged

    metrics = Metrics()
    metrics.watch("law", ServerState.IDLE, 10.0)
    assert read_server(status(), metrics.server("law", 12.0)).in_state == 2.0
    metrics.take(StateChanged(server="law", before=ServerState.IDLE, after=ServerState.READY), 15.0)
    assert read_server(status(), metrics.server("law", 16.0)).in_state == 1.0
    assert read_server(status()).in_state is None


def test_an_entry_that_is_no_server_is_shown_as_broken() -> None:
    problem = InvalidSpecError("not a server", server="lwa", problems=["no command"])
    settings = Settings(servers=[], problems=[problem])
    row = broken_row(settings, "lwa")
    assert row is not None
    assert (row.state, row.next_step) == ("broken", "dragoman config check")
    assert broken_row(settings, "law") is None


def test_the_fleet_is_counted() -> None:
    metrics = Metrics()
    metrics.begun("law", "t")
    metrics.ended("law", "t", 0.1, "tool.failed")
    metrics.begun("law", "t")
    one = count_fleet([status(), status(ServerState.FAILED)], metrics.read(0.0))
    assert (one.servers, one.ready, one.running, one.calls, one.failed) == (2, 1, 1, 1, 1)
