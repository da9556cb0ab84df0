"""What a result says: ratios, who is ahead, which goals are met."""

from __future__ import annotations

import pytest
from bench.peers.result import Figure, Result, Row, from_json, shown
from tests.unit.bench.recorded import recorded


def row_of(result: Result, name: str) -> Row:
    row = result.row(name)
    assert row is not None
    return row


def test_a_result_survives_being_recorded() -> None:
    assert from_json(recorded().to_json()) == recorded()


def test_a_row_that_is_not_there_is_none() -> None:
    assert recorded().row("novelty") is None


def test_a_ratio_needs_both_figures() -> None:
    row = row_of(recorded(), "import-name")
    assert row.ratio("dragoman", "sdk-client") == pytest.approx(0.1)
    assert row.ratio("dragoman", "floor") is None
    assert row.ratio("fastmcp", "dragoman") is None


def test_the_floor_is_ahead_of_no_peer_and_a_close_one_is_level() -> None:
    row = row_of(recorded(), "start-20-all")
    assert row.ahead() == {}
    assert row.level() == {"sdk-client": pytest.approx(0.98)}


def test_a_smaller_figure_is_ahead() -> None:
    assert row_of(recorded(), "memory-stdio").ahead() == {"sdk-client": pytest.approx(7 / 9)}


def test_behaviour_is_ahead_where_ours_is_bad_and_theirs_is_not() -> None:
    assert row_of(recorded(), "left-crash").ahead() == {"fastmcp": None}


def test_a_peer_without_a_figure_is_not_ahead() -> None:
    row = row_of(recorded(), "mixed-5")
    assert row.ahead() == {}
    assert row.level() == {}


def test_goals_are_bounds_on_ratios() -> None:
    goals = recorded().goals()
    assert [(goal.bound, goal.met) for goal in goals] == [
        (3.5, True),
        (1.1, False),
        (1.25, True),
        (0.15, True),
    ]
    assert [round(goal.ratio or 0.0, 3) for goal in goals] == [3.0, 1.286, 1.023, 0.1]


def test_a_goal_without_a_figure_is_not_met() -> None:
    assert not any(goal.met for goal in Result({}, {}).goals())


@pytest.mark.parametrize(
    ("figure", "unit", "text"),
    [
        (Figure(0.000123), "µs", "123 µs"),
        (Figure(0.0042), "ms", "4.2 ms"),
        (Figure(1.2345), "ms", "1234 ms"),
        (Figure(3 * 2**20), "MiB", "3.0 MiB"),
        (Figure(1.5), "s", "1.50 s"),
        (Figure(text="hangs (> 10 s)"), "", "hangs (> 10 s)"),
        (Figure(), "ms", "—"),
    ],
)
def test_figures_are_written_with_their_unit(figure: Figure, unit: str, text: str) -> None:
    assert shown(figure, unit) == text
