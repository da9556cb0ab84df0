from __future__ import annotations

import os
import select
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import DragomanError
from dragoman.observe import call_database as database
from dragoman.observe import calllog as module
from dragoman.observe.call_history import CallHistory
from dragoman.observe.calllog import CallLog
from dragoman.trust.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dragoman.observe.call_rows import CallRecord

CANARY = "canary-7f3a9b2c51"
WRITER = """
import sys
from pathlib import Path
from dragoman.observe.calllog import CallLog
log, name, count = CallLog(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
number = 0
while not count or number < count:
    number += 1
    log.note(server=name, tool="t", call_id=f"{name}-{number}", arguments={"n": number}, duration=0.0)
    if not count or number % 50 == 0:
        assert log.flush(30)
        print(number, flush=True)
log.close(30)
print("dropped", log.dropped, flush=True)
"""


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "calls.sqlite3"


@pytest.fixture
def log(path: Path) -> Iterator[CallLog]:
    with closing(CallLog(path)) as log:
        yield log


def note(log: CallLog, number: int = 1, **more: Any) -> None:
    values: dict[str, Any] = {
        "server": "fs",
        "tool": "mcp_fs_read",
        "call_id": f"c-{number}",
        "arguments": {"path": f"/tmp/{number}"},
        "duration": 0.25,
        "text": f"contents {number}",
    }
    log.note(**values | more)


def records(log: CallLog, **filters: Any) -> list[CallRecord]:
    assert log.flush(20)
    return CallHistory(log.path).list(**filters)


def ids(found: list[CallRecord]) -> list[str]:
    return [record.call_id for record in found]


# Writing


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


def test_files_are_for_their_owner_alone(log: CallLog, path: Path) -> None:
    old = os.umask(0)
    try:
        note(log)
        assert records(log)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = sorted(path.parent.iterdir())
    assert {file.name for file in files} >= {"calls.sqlite3", "calls.sqlite3-wal", "calls.sqlite3-shm"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    path.chmod(0o644)
    with closing(CallLog(path)) as log:
        note(log)
        assert records(log)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


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
        for file in path.parent.iterdir():
            content = file.read_bytes()
            assert CANARY.encode() not in content
            assert b"canary" not in content
            assert b"hunter2" not in content


def test_damaged_file_is_moved_aside_with_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, whatever its name says " * 100)
    with pytest.raises(DragomanError, match="cannot be read"):
        CallHistory(path).list()
    with closing(CallLog(path)) as log:
        note(log)
        assert ids(records(log)) == ["c-1"]
    assert path.with_name("calls.sqlite3.damaged").read_bytes().startswith(b"this is no database")
    assert "the call log was damaged" in caplog.text
    assert log.dropped == 0


def test_file_that_is_damaged_while_it_is_used_is_replaced(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(CallLog(path)) as log:
        for number in range(400):
            note(log, number, text=f"{number} " * 1000)
        assert log.flush(20)
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xa5" * (len(whole) - 8192))
    with closing(CallLog(path)) as log:
        for number in range(400, 410):
            note(log, number, text="x" * 10_000)
            assert log.flush(20)
        assert "c-409" in ids(records(log))
    assert "the call log was damaged" in caplog.text
    assert path.with_name("calls.sqlite3.damaged").exists()


def test_file_that_was_removed_is_made_again(log: CallLog, path: Path) -> None:
    note(log, 1)
    assert log.flush(20)
    for file in path.parent.iterdir():
        file.unlink()
    note(log, 2)
    assert ids(records(log)) == ["c-2"]


def test_file_of_a_later_version_is_left_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other(x)")
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with closing(CallLog(path)) as log:
        note(log)
        assert log.flush(20)
    assert log.dropped == 1
    assert path.read_bytes() == before
    assert "a later version of dragoman" in caplog.text
    with pytest.raises(DragomanError, match="later version"):
        CallHistory(path).list()


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_file_of_ours_is_not_written(kind: str, path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    target = tmp_path / "somebody-elses"
    target.touch()
    if kind == "link":
        path.symlink_to(target)
    else:
        path.mkdir()
    with closing(CallLog(path)) as log:
        note(log)
        assert log.flush(20)
    assert log.dropped == 1
    assert target.read_bytes() == b""


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


# Bounds


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


# Questions


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


# Several processes


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_make_and_write_the_log_at_once_lose_nothing(path: Path) -> None:
    children = [writer(path, f"p{index}", 150) for index in range(3)]
    endings = [child.communicate(timeout=50)[0].splitlines()[-1] for child in children]
    assert endings == ["dropped 0"] * 3
    found = CallHistory(path).list(limit=1000)
    assert {record.server: len([1 for one in found if one.server == record.server]) for record in found} == {
        "p0": 150,
        "p1": 150,
        "p2": 150,
    }
    assert len({record.number for record in found}) == 450


def test_processes_that_meet_a_damaged_file_at_once_replace_it_once(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"garbage " * 1000)
    children = [writer(path, f"p{index}", 50) for index in range(2)]
    endings = [child.communicate(timeout=50)[0].splitlines()[-1] for child in children]
    assert endings == ["dropped 0"] * 2
    assert len(CallHistory(path).list(limit=1000)) == 100
    assert path.with_name("calls.sqlite3.damaged").read_bytes().startswith(b"garbage")


def test_process_that_is_killed_while_it_writes_leaves_a_whole_log(path: Path) -> None:
    child = writer(path, "victim", 0)
    assert child.stdout is not None
    last = 0
    while last < 100:
        assert select.select([child.stdout], [], [], 50)[0]
        last = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=20)
    found = CallHistory(path).list(limit=1_000_000)
    assert len(found) >= last
    assert {record.number for record in found} == set(range(1, len(found) + 1))
    with closing(CallLog(path)) as log:
        note(log, 1, duration=0.0)
        assert records(log)[0].call_id == "c-1"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_guard_that_nobody_gives_back_costs_only_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import filelock

    monkeypatch.setattr(database, "LOCK_SECONDS", 0.0)
    path.parent.mkdir()
    with filelock.FileLock(path.with_name(".calls.sqlite3.guard"), mode=0o600):
        log = CallLog(path)
        note(log)
        assert log.flush(20)
        log.close()
    assert log.dropped == 1
