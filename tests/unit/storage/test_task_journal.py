from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dragoman.storage import task_journal
from dragoman.storage.task_journal import TaskJournal
from dragoman.storage.tasks import TaskRecord, TaskStore

if TYPE_CHECKING:
    from pathlib import Path

NOTING = """
import os, signal, sys
from pathlib import Path
from dragoman.storage.tasks import TaskRecord, TaskStore
store = TaskStore(Path(sys.argv[1]))
store.open()
def record(id, **more):
    return TaskRecord(id=id, server="s", server_key="k", task_id=f"secret-{id}", tool="t", original_name="t", created=4e9, **more)
"""


def record(identifier: str, **more: object) -> TaskRecord:
    fields = {"server": "s", "server_key": "k", "task_id": f"secret-{identifier}", "tool": "t", **more}
    return TaskRecord(id=identifier, original_name="t", created=4e9, **fields)


def killed(folder: Path, program: str) -> None:
    """Run a program that kills itself at its end."""
    end = "os.kill(os.getpid(), signal.SIGKILL)"
    done = subprocess.run([sys.executable, "-c", f"{NOTING}{program}\n{end}", folder], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tasks"


def journals(folder: Path) -> list[Path]:
    return list(folder.glob("*.journal"))


def test_a_task_that_was_noted_is_found_after_a_kill(folder: Path) -> None:
    killed(folder, 'store.note(record("a")); store.note(record("b")); store.save(record("b"))')
    (journal,) = journals(folder)
    assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    assert TaskStore(folder).get("a") == record("a")
    assert [one.id for one in TaskStore(folder).all()] == ["a", "b"]
    assert journals(folder) == []


def test_an_answer_that_was_noted_is_found_after_a_kill(folder: Path) -> None:
    killed(folder, 'store.save(record("a")); store.note(record("a", answers={"q": {"action": "accept"}}))')
    assert TaskStore(folder).all() == [record("a", answers={"q": {"action": "accept"}})]


def test_a_task_that_was_stored_and_forgotten_stays_forgotten(folder: Path) -> None:
    forgotten = 'store.note(record("a")); store.save(record("a")); store.forget("a")'
    killed(folder, f'store.note(record("b")); {forgotten}')
    assert [one.id for one in TaskStore(folder).all()] == ["b"]


def test_a_line_that_was_cut_off_spoils_no_other(folder: Path) -> None:
    cut = 'os.write(store._journal._number, b\'\\n{"id":"x","rec\')'
    killed(folder, f'store.note(record("a")); {cut}; store.note(record("b"))')
    assert [one.id for one in TaskStore(folder).all()] == ["a", "b"]


def test_a_pipe_in_the_place_of_a_journal_is_not_waited_for(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "planted.journal")
    assert TaskStore(folder).all() == []


def test_the_journal_of_a_running_program_is_left_alone(folder: Path) -> None:
    running = TaskStore(folder)
    running.open()
    running.note(record("a"))
    assert TaskStore(folder).all() == []
    assert len(journals(folder)) == 1
    running.close()
    assert TaskStore(folder).all() == [record("a")]


def test_a_journal_stays_small_and_leaves_nothing(folder: Path) -> None:
    store = TaskStore(folder)
    store.open()
    (journal,) = journals(folder)
    for number in range(100):
        store.note(record(str(number)))
        store.save(record(str(number)))
        assert journal.stat().st_size == 0
    store.close()
    assert journals(folder) == []


def test_a_closed_journal_writes_into_no_other_file(tmp_path: Path) -> None:
    journal = TaskJournal(tmp_path)
    number = journal._number
    journal.note("a", {})
    journal.close()
    with (tmp_path / "other").open("wb") as other:
        assert other.fileno() == number
        other.write(b"content")
        other.flush()
        journal.note("b", {})
        journal.stored("a")
        journal.stored("b")
    assert (tmp_path / "other").read_bytes() == b"content"


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tasks").write_text("a file")
    store = TaskStore(tmp_path / "tasks")
    store.open()
    store.note(record("a"))
    assert store.is_open
    assert "tasks are not stored" in caplog.text


def test_a_journal_that_another_program_recovers_before_its_lock_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = task_journal._lock
    taken: list[Path] = []

    def late(number: int) -> bool:
        if not taken:
            taken.extend(journals(folder))
            monkeypatch.setattr(task_journal, "_lock", lock)
            task_journal.recover(folder, lambda _: None)
        return lock(number)

    monkeypatch.setattr(task_journal, "_lock", late)
    journal = TaskJournal(folder)
    journal.note("a", {"id": "a"})
    assert len(taken) == 1
    assert b'"a"' in b"".join(path.read_bytes() for path in journals(folder))
    journal.stored("a")
    journal.close()
