from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dragoman.cli.dashboard.lists import server_cells, spark, summary, took
from dragoman.diagnosis.explain import STATE_WORDS
from dragoman.diagnosis.fleet import read_server
from dragoman.model import ServerState, ServerStatus
from dragoman.observe.metrics import Metrics, ServerMetrics

if TYPE_CHECKING:
    from rich.text import Text

pytestmark = pytest.mark.requirement("otter-later.visual")


def status(state: ServerState = ServerState.READY, **more: Any) -> ServerStatus:
    return ServerStatus(name="law", state=state, transport="stdio", **more)


def cells(one: ServerStatus, metrics: ServerMetrics | None = None) -> dict[str, Text]:
    return server_cells(read_server(one, metrics))


@pytest.mark.parametrize("state", list(ServerState))
def test_every_state_has_a_mark_a_word_and_a_colour(state: ServerState) -> None:
    shown = cells(status(state))["state"]
    mark, word = shown.plain.split(" ", 1)
    assert len(mark) == 1
    assert word == STATE_WORDS[state.value]
    assert shown.style


def test_states_that_want_attention_have_colours_of_their_own() -> None:
    colours = {state: str(cells(status(state))["state"].style) for state in ServerState}
    assert colours[ServerState.READY] == "green"
    assert colours[ServerState.FAILED] == "red"
    assert colours[ServerState.NEEDS_AUTH] == "magenta"
    assert colours[ServerState.BACKOFF] == colours[ServerState.CONNECTING] == "yellow"


def test_a_server_that_is_off_says_so_whatever_its_state() -> None:
    assert server_cells(read_server(status(ServerState.IDLE), is_on=False))["state"].plain == "○ off"


def test_counts_come_from_the_metrics() -> None:
    metrics = Metrics()
    metrics.begun("law", "a")
    metrics.begun("law", "a")
    metrics.ended("law", "a", 0.25)
    metrics.begun("law", "b")
    metrics.ended("law", "b", 0.5, "tool.failed")
    shown = cells(status(tools=7, protocol_version="2025-11-25"), metrics.server("law", 0))
    plain = [shown[name].plain for name in ("tools", "calls", "err", "run", "protocol", "latency")]
    assert plain == ["7", "2", "1", "1", "2025-11-25", "▅█"]
    assert shown["p50"].plain.endswith(" ms")


def test_the_modern_protocol_is_told_apart() -> None:
    assert cells(status(protocol_version="2026-07-28"))["protocol"].plain == "2026-07-28"


def test_trouble_and_the_next_try_are_told_on_one_harmless_line() -> None:
    bad = status(ServerState.BACKOFF, last_error="it\x1b[2J died\nbadly", retry_in=3.4, crash_loop=True)
    note = cells(bad)["note"].plain
    assert note.startswith("it")
    assert note.endswith("died badly → /mcp doctor law · retrying in 3 s (failed repeatedly)")
    assert "\x1b" not in note
    assert "\n" not in note


def test_a_server_that_wants_a_login_names_the_key() -> None:
    waiting = status(ServerState.NEEDS_AUTH, last_error="401")
    assert cells(waiting)["note"].plain == "401 → press l"


@pytest.mark.parametrize(
    ("durations", "bars", "drawn"),
    [
        ((), 5, ""),
        ((0.0, 0.0), 5, "▁▁"),
        ((1.0,), 5, "█"),
        ((0.0, 0.5, 1.0), 5, "▁▅█"),
        ((9.0, 1.0, 1.0), 2, "██"),
    ],
)
def test_the_longest_of_the_shown_durations_is_the_tallest_bar(
    durations: tuple[float, ...], bars: int, drawn: str
) -> None:
    assert spark(durations, bars) == drawn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "<1 ms"),
        (0.0004, "<1 ms"),
        (0.012, "12 ms"),
        (1.26, "1.3 s"),
        (99.94, "99.9 s"),
        (130, "130 s"),
        (3600, "60 min"),
    ],
)
def test_durations_fit_into_seven_columns(seconds: float, text: str) -> None:
    assert took(seconds) == text
    assert len(text) <= 7


def test_coarse_durations_tick_by_the_second() -> None:
    assert [took(seconds, coarse=True) for seconds in (0.2, 3.4, 119, 600)] == [
        "0 s",
        "3 s",
        "119 s",
        "10 min",
    ]


def test_the_summary_counts_everything() -> None:
    servers = [status(), status(ServerState.FAILED)]
    metrics = {"law": ServerMetrics(server="law", calls=2, in_flight=1, errors={"x": 1})}
    assert summary(servers, metrics) == "1 of 2 servers ready · 1 running · 2 calls · 1 failed"
