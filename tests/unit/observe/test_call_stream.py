from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dragoman.events import CallFinished, CallStarted
from dragoman.model import Part, ToolResult
from dragoman.observe.call_history import CallHistory, CallRecord
from dragoman.observe.call_log import CallLog
from dragoman.observe.call_stream import KEPT, SLACK, CallStream, Follower, arguments_line

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requirement("otter-later.visual")


def started(call_id: str) -> CallStarted:
    return CallStarted(server="law", tool="mcp_law_search", call_id=call_id)


def record(call_id: str, number: int = 1, **more: object) -> CallRecord:
    known = {"at": 5.0, "server": "law", "tool": "mcp_law_search", "duration": 0.5, **more}
    return CallRecord(number=number, call_id=call_id, **known)


def log(path: Path, *ids: str) -> None:
    writer = CallLog(path, clock=lambda: 10.0)
    for call_id in ids:
        writer.note(server="law", tool="t", call_id=call_id, arguments={}, duration=0.1)
    writer.close()


def test_a_call_runs_then_ends_then_is_known_in_full() -> None:
    stream = CallStream()
    stream.begin(started("1"), 100.0)
    entry = stream.get("1")
    assert entry is not None
    assert (entry.outcome, entry.duration, entry.arguments) == ("running", None, "")
    stream.end(
        CallFinished(server="law", tool="mcp_law_search", call_id="1", success=True, duration=0.5), 100.5
    )
    assert (entry.outcome, entry.duration) == ("ok", 0.5)
    stream.take([record("1", arguments={"text": "rent"}, result="3 articles")])
    assert (entry.arguments, entry.result, entry.is_here) == ('text="rent"', "3 articles", True)
    assert stream.entries() == [entry]


def test_a_failed_call_is_told_by_its_code() -> None:
    stream = CallStream()
    stream.take([record("1", error_code="tool.timeout")])
    (entry,) = stream.entries()
    assert (entry.outcome, entry.is_here) == ("tool.timeout", False)


def test_every_change_is_a_new_version() -> None:
    stream = CallStream()
    stream.begin(started("1"), 1.0)
    first = stream.entries()[0].version
    stream.attach(ToolResult(success=True, call_id="1", parts=[Part(kind="image", data=b"x")]))
    assert stream.entries()[0].version > first
    assert stream.entries()[0].parts[0].data == b"x"


def test_a_result_without_a_call_is_passed_over() -> None:
    stream = CallStream()
    stream.attach(ToolResult(success=True, call_id="unknown"))
    assert stream.entries() == []


def test_words_are_looked_for_in_names_arguments_results_and_outcomes() -> None:
    stream = CallStream()
    stream.take(
        [record("1", arguments={"text": "Rent"}), record("2", result="a deposit", error_code="tool.failed")]
    )
    found = {
        words: [one.call_id for one in stream.entries(words)]
        for words in ("rent", "DEPOSIT", "failed", "law", "zzz")
    }
    assert found == {"rent": ["1"], "DEPOSIT": ["2"], "failed": ["2"], "law": ["1", "2"], "zzz": []}


def test_the_oldest_calls_are_dropped_all_at_once() -> None:
    stream = CallStream()
    for number in range(KEPT + SLACK):
        stream.begin(started(str(number)), float(number))
    assert len(stream.entries()) == KEPT + SLACK
    stream.begin(started("last"), 1e6)
    ids = [entry.call_id for entry in stream.entries()]
    assert len(ids) == KEPT
    assert ids[-1] == "last"


def test_only_what_is_new_in_the_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite3"
    follower = Follower(CallHistory(path))
    assert follower.poll() == []
    log(path, "a", "b")
    assert [one.call_id for one in follower.poll()] == ["a", "b"]
    assert follower.poll() == []
    log(path, "c")
    assert [one.call_id for one in follower.poll()] == ["c"]


def test_a_log_that_began_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite3"
    follower = Follower(CallHistory(path))
    log(path, "a", "b", "c")
    assert len(follower.poll()) == 3
    for file in tmp_path.glob("calls.sqlite3*"):
        file.unlink()
    log(path, "d")
    assert [one.call_id for one in follower.poll()] == ["d"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (None, ""),
        ({}, ""),
        ({"a": 1, "b": "x\ny", "c": [1, 2]}, 'a=1, b="x\\ny", c=[1, 2]'),
        ([1], "[1]"),
        ("…", '"…"'),
    ],
)
def test_arguments_are_written_as_in_a_call(arguments: object, line: str) -> None:
    assert arguments_line(arguments) == line
