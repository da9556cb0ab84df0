from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.unit.observe.conftest import CANARY, Clock, ids, note

from dragoman.errors import DragomanError
from dragoman.observe.call_history import CallHistory
from dragoman.observe.call_log import CallLog

if TYPE_CHECKING:
    from pathlib import Path


def test_calls_are_listed_the_latest_first_and_filtered(path: Path) -> None:
    clock = Clock()
    with closing(CallLog(path, clock=clock)) as log:
        for number, more in enumerate(
            (
                {"server": "fs", "tool": "mcp_fs_read"},
                {"server": "fs", "tool": "mcp_fs_write", "code": "tool.failed", "text": "Disk 100% FULL_"},
                {"server": "law", "tool": "mcp_law_find", "arguments": {"query": "合同法"}},
                {"server": "law", "tool": "mcp_law_read", "code": "tool.timeout"},
            )
        ):
            clock.now += 10
            note(log, number, **more)
        assert log.flush(20)
    history = CallHistory(path)
    assert ids(history.list()) == ["c-3", "c-2", "c-1", "c-0"]
    assert ids(history.list(limit=2)) == ["c-3", "c-2"]
    assert ids(history.list(server="law")) == ["c-3", "c-2"]
    assert ids(history.list(tool="mcp_fs_write")) == ["c-1"]
    assert ids(history.list(tool="*_read")) == ["c-3", "c-0"]
    assert ids(history.list(server="l?w", tool="*find")) == ["c-2"]
    assert ids(history.list(errors_only=True)) == ["c-3", "c-1"]
    assert ids(history.list(since=clock.now - 11)) == ["c-3", "c-2"]
    assert ids(history.list(text="合同")) == ["c-2"]
    assert ids(history.list(text="disk 100% full_")) == ["c-1"]
    assert ids(history.list(text="%")) == ["c-1"]
    assert ids(history.list(text="_FS_")) == ["c-1", "c-0"]
    assert history.list(text="\\") == history.list(text="' OR 1=1 --") == history.list(limit=-1) == []


def test_pages_join_even_where_calls_began_at_the_same_moment(path: Path) -> None:
    clock = Clock()
    with closing(CallLog(path, clock=clock)) as log:
        for number in range(7):
            clock.now += number // 5
            note(log, number, server="law" if number % 2 else "fs")
        assert log.flush(20)
    history = CallHistory(path)
    found = history.list(limit=3)
    while page := history.list(limit=3, before=(found[-1].at, found[-1].number)):
        found += page
    assert ids(found) == [f"c-{number}" for number in reversed(range(7))]
    assert history.count(since=0.0) == {"fs": 4, "law": 3}
    assert history.count(since=clock.now - 0.5) == {"fs": 1}
    assert history.count(since=0.0, user="ada") == {}


@pytest.mark.timeout(20)
def test_a_named_pipe_in_the_place_of_the_log_is_an_error(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(DragomanError, match="not a regular file"):
        CallHistory(path).list()


def test_one_call_is_shown_by_its_number_or_its_id(log: CallLog) -> None:
    note(log, 1)
    note(log, 2, arguments={"token": CANARY}, code="tool.failed", text="no")
    assert log.flush(20)
    history = CallHistory(log.path)
    record = history.show(2)
    assert record is not None
    assert record == history.show("c-2")
    assert not record.success
    assert record.obstacle == "not all of its arguments were kept: `/token` (redacted)"
    assert history.show(3) is None
    assert history.show("2") is None


def test_log_is_read_while_it_is_written(log: CallLog) -> None:
    history = CallHistory(log.path)
    seen: list[int] = []
    for number in range(20):
        note(log, number)
        assert log.flush(20)
        seen.append(len(history.list()))
    assert seen == list(range(1, 21))


def test_file_that_another_process_is_about_to_make_is_empty(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert CallHistory(path).list() == []
