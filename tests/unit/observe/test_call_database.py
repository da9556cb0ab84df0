from __future__ import annotations

import os
import select
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.unit.observe.conftest import ids, note, records

from dragoman.errors import DragomanError
from dragoman.observe import call_log as database
from dragoman.observe.call_history import CallHistory
from dragoman.observe.call_log import CallLog

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import sys
from pathlib import Path
from dragoman.observe.call_log import CallLog
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
    target = tmp_path / "of-another-user"
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


def test_guard_that_is_not_given_back_costs_only_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import filelock

    monkeypatch.setattr(database, "LOCK_SECONDS", 0.0)
    path.parent.mkdir()
    with filelock.FileLock(path.with_name(".calls.sqlite3.guard"), mode=0o600):
        log = CallLog(path)
        note(log)
        assert log.flush(20)
        log.close()
    assert log.dropped == 1
