from __future__ import annotations

import pytest

from dragoman.errors import ConfigError, ConnectError, DragomanError
from dragoman.model import ServerState
from dragoman.server.lifecycle import TABLE, Order, Signal, Step, step, verdict

pytestmark = pytest.mark.requirement(
    "kode-lifecycle.reconnect",
    "otter-crash",
    "legal-error.lost",
    "kode-discovery.failure",
)

S = ServerState
CONNECTED_STATES = {S.READY, S.DEGRADED}


def test_every_state_has_a_row() -> None:
    assert set(TABLE) == set(ServerState)


def test_every_signal_and_every_order_is_of_use() -> None:
    assert {signal for row in TABLE.values() for signal in row} == set(Signal)
    assert {order for row in TABLE.values() for one in row.values() for order in one.orders} == set(Order)


@pytest.mark.parametrize("state", list(ServerState))
def test_restart_leads_to_a_new_connection_from_everywhere(state: ServerState) -> None:
    assert step(state, Signal.RESTART) == Step(S.CONNECTING, (Order.CLOSE, Order.RESET_BACKOFF, Order.OPEN))


@pytest.mark.parametrize("state", [state for state in ServerState if state is not S.CLOSED])
def test_stop_closes_from_everywhere_and_takes_the_tools_away(state: ServerState) -> None:
    assert step(state, Signal.STOP) == Step(S.CLOSED, (Order.CLOSE, Order.WITHDRAW))


@pytest.mark.parametrize("signal", [signal for signal in Signal if signal is not Signal.RESTART])
def test_closed_is_left_by_a_restart_alone(signal: Signal) -> None:
    assert step(S.CLOSED, signal) == Step(S.CLOSED)


@pytest.mark.parametrize("state", list(ServerState))
@pytest.mark.parametrize("signal", list(Signal))
def test_signal_without_an_entry_changes_nothing(state: ServerState, signal: Signal) -> None:
    if signal not in TABLE[state]:
        assert step(state, signal) == Step(state, ())


def test_ready_is_reached_through_a_handshake_or_from_a_connection_only() -> None:
    ways = {
        (state, signal) for state, row in TABLE.items() for signal, one in row.items() if one.state is S.READY
    }
    assert ways == {
        (S.CONNECTING, Signal.CONNECTED),
        (S.READY, Signal.LISTED),
        (S.DEGRADED, Signal.LISTED),
    }


def test_connecting_is_entered_with_an_order_to_open_and_left_without_one() -> None:
    for row in TABLE.values():
        for one in row.values():
            assert (Order.OPEN in one.orders) == (one.state is S.CONNECTING)


def test_connection_is_closed_before_another_is_opened_and_whenever_it_is_left() -> None:
    for state, row in TABLE.items():
        for one in row.values():
            if state in CONNECTED_STATES | {S.CONNECTING} and one.state not in CONNECTED_STATES:
                assert one.orders[0] is Order.CLOSE, (state, one)


def test_backoff_and_needs_auth_always_have_a_planned_retry_and_nothing_else_has() -> None:
    for row in TABLE.values():
        for one in row.values():
            assert (Order.PLAN_RETRY in one.orders) == (one.state is S.BACKOFF)
            assert (Order.PLAN_SLOW_RETRY in one.orders) == (one.state is S.NEEDS_AUTH)


SPAWN = ConnectError("not found", server="a", stage="spawn")
VARIABLES = ConnectError("unset", server="a", stage="variables")
APPROVAL = ConnectError("not approved", server="a", stage="approval")
CONFIG = ConfigError("cannot read an env file")


@pytest.mark.parametrize("error", [SPAWN, VARIABLES, CONFIG], ids=["spawn", "variables", "config"])
def test_server_that_was_ready_is_always_tried_again(error: DragomanError) -> None:
    assert verdict(error, reconnect=True, was_ready=True) is Signal.UNREACHABLE
    assert verdict(error, reconnect=True) is Signal.HOPELESS
    assert verdict(error, reconnect=False, was_ready=True) is Signal.HOPELESS


def test_server_that_is_not_approved_is_not_tried_again() -> None:
    assert verdict(APPROVAL, reconnect=True, was_ready=True) is Signal.HOPELESS


def test_no_state_is_dead_for_good() -> None:
    for state in ServerState:
        reached, frontier = {state}, [state]
        while frontier:
            for one in TABLE[frontier.pop()].values():
                if one.state not in reached:
                    reached.add(one.state)
                    frontier.append(one.state)
        assert S.READY in reached, state


def test_call_starts_what_is_idle_or_failed_or_waits_for_a_login_and_leaves_a_planned_retry_alone() -> None:
    opened = [state for state in ServerState if Order.OPEN in step(state, Signal.CALL).orders]
    assert opened == [S.IDLE, S.NEEDS_AUTH, S.FAILED]
