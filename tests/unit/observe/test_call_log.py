from __future__ import annotations

import sqlite3
import subprocess
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tests.unit.observe.conftest import CANARY, Clock, ids, note, records

from dragoman.observe import call_log as module
from dragoman.observe.call_history import CallHistory
from dragoman.observe.call_log import CallLog
from dragoman.trust.redaction import Redactor

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_call_is_logged_with_all_that_is_needed_to_run_it_again(path: Path) -> None:
    clock = Clock()
    with closing(CallLog(path, clock=clock)) as log:
        note(log, arguments={"path": "/tmp/名", "deep": {"list": [1, 2.5, None, True]}})
        (record,) = records(log)
    assert (record.server, record.tool, record.call_id) == ("fs", "mcp_fs_read", "c-1")
    assert (record.at, record.duration, record.success) == (clock.now - 0.25, 0.25, True)
    assert record.arguments == {"path": "/tmp/名", "deep": {"list": [1, 2.5, None, True]}}
    assert record.obstacle == ""
    assert record.result == "contents 1"


def test_nothing_is_made_before_there_is_something_to_log(path: Path) -> None:
    log = CallLog(path)
    log.close()
    assert not path.parent.exists()
    assert CallHistory(path).list() == []
    assert CallHistory(path).show(1) is None


def test_default_place_is_the_users_own_state_folder(home: Path) -> None:
    expected = home / ".local" / "state" / "dragoman" / "calls.sqlite3"
    assert CallLog().path == CallHistory().path == expected


def test_no_secret_is_in_any_file(path: Path) -> None:
    redactor = Redactor()
    with closing(CallLog(path, mask=redactor.mask)) as log:
        redactor.add([CANARY])
        note(log, arguments={"text": f"it is {CANARY}", "password": "hunter2-hunter2"}, text=f"saw {CANARY}")
        note(
            log,
            arguments={"x": "y" * 8180 + CANARY + "z" * 50_000},
            text="y" * 16_370 + CANARY + "z" * 50_000,
        )
        note(log, tool=f"invented_{CANARY}", arguments=f"not an object: {CANARY}", code="tool.unknown")
        assert len(records(log)) == 3
        # Another process reads: closing a descriptor of the file here would drop SQLite's locks.
        content = subprocess.check_output(["cat", *path.parent.iterdir()])
    content += path.read_bytes()
    assert b"invented_" in content
    assert b"canary" not in content
    assert b"hunter2" not in content


def test_place_that_cannot_be_written_costs_only_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    log = CallLog(tmp_path / "file" / "calls.sqlite3")
    for number in range(3):
        note(log, number)
        assert log.flush(20)
    log.close()
    assert log.dropped == 3
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"calls are not logged in {log.path}",
        f"3 calls are missing from the call log {log.path}",
    ]


def test_file_that_another_process_holds_costs_the_calls_of_that_time(path: Path) -> None:
    with closing(CallLog(path, busy_seconds=0.0)) as log:
        note(log, 1)
        assert log.flush(20)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            note(log, 2)
            assert log.flush(20)
            other.execute("ROLLBACK")
        note(log, 3)
        assert ids(records(log)) == ["c-3", "c-1"]
        assert log.dropped == 1


def test_what_does_not_fit_into_the_queue_is_dropped_and_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    entered, go_on = threading.Event(), threading.Event()

    def mask(text: str) -> str:
        entered.set()
        assert go_on.wait(20)
        return text

    with closing(CallLog(path, mask=mask)) as log:
        note(log, 0)
        assert entered.wait(20)
        for number in range(1, 8):
            note(log, number)
        assert log.dropped == 4
        assert not log.flush(0.0)
        go_on.set()
        assert ids(records(log)) == ["c-3", "c-2", "c-1", "c-0"]


def test_waiting_calls_hold_a_bounded_amount_of_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_CHARS", 100_000)
    entered, go_on = threading.Event(), threading.Event()

    def mask(text: str) -> str:
        entered.set()
        assert go_on.wait(20)
        return text

    with closing(CallLog(path, mask=mask)) as log:
        note(log, 0)
        assert entered.wait(20)
        for number in range(1, 11):
            note(log, number, text="x" * 1_000_000)
        assert log.dropped == 7
        go_on.set()
        assert len(records(log)) == 4


def test_mask_and_arguments_that_raise_cost_only_their_own_call(path: Path) -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError(CANARY)

    def mask(text: str) -> str:
        if text == "bad":
            raise ValueError(CANARY)
        return text

    with closing(CallLog(path, mask=mask)) as log:
        note(log, 1, arguments={"a": "bad"})
        note(log, 2, arguments=Hostile(a=1))
        note(log, 3)
        assert ids(records(log)) == ["c-3"]
        assert log.dropped == 2


def test_closing_writes_what_waits_and_ends_the_thread(path: Path) -> None:
    log = CallLog(path)
    for number in range(300):
        note(log, number)
    log.close(30)
    log.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "dragoman call log"]
    assert not path.with_name("calls.sqlite3-wal").exists()
    assert len(CallHistory(path).list(limit=1000)) == 300
    note(log, 999)
    assert log.dropped == 1


def test_threads_may_note_at_the_same_time(log: CallLog) -> None:
    def run(name: str) -> None:
        for number in range(100):
            note(log, number, server=name)

    threads = [threading.Thread(target=run, args=(f"s{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(records(log, limit=1000)) + log.dropped == 400


def test_old_calls_are_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRUNE_EVERY", 1)
    clock = Clock()
    with closing(CallLog(path, clock=clock, max_age=100.0)) as log:
        note(log, 1)
        assert log.flush(20)
        clock.now += 60
        note(log, 2)
        assert log.flush(20)
        clock.now += 60
        note(log, 3)
        assert ids(records(log)) == ["c-3", "c-2"]


def test_old_calls_are_removed_when_the_log_is_opened(path: Path) -> None:
    clock = Clock()
    with closing(CallLog(path, clock=clock)) as log:
        note(log, 1)
    clock.now += module.MAX_AGE + 10
    with closing(CallLog(path, clock=clock)) as log:
        note(log, 2)
        (record,) = records(log)
    assert (record.call_id, record.number) == ("c-2", 2)


def test_file_keeps_to_its_size_and_loses_the_oldest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRUNE_EVERY", 20)
    limit = 300_000
    with closing(CallLog(path, max_bytes=limit)) as log:
        for number in range(200):
            note(log, number, text=f"{number}:" + "word " * 3000)
            if number % 10 == 0:
                assert log.flush(20)
        found = ids(records(log, limit=1000))
    assert found[0] == "c-199"
    assert found == [f"c-{number}" for number in range(199, 199 - len(found), -1)]
    # Between two checks twenty calls come in, of sixteen thousand characters each.
    assert path.stat().st_size < limit + 20 * 20_000
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_pruning_that_is_not_possible_now_loses_nothing(
    log: CallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(module, "prune", refuse)
    note(log)
    assert len(records(log)) == 1
    assert log.dropped == 0
