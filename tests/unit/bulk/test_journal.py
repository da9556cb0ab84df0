"""The journal: what a killed process leaves, and what is refused."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.bulk import journal as journal_module
from dragoman.bulk.journal import FAILED, OK, OPEN, SENT, UNKNOWN, Journal, discard, outcome_line
from dragoman.errors import BulkError
from dragoman.model import SourceRef

JOB = {"server": "s", "tool": "t", "arguments": {"a": "{b}"}}


def line(row: int, status: str = "ok", text: str = "", **more: object) -> str:
    return outcome_line(row, status, 1.0, 0.5, text, **more)


def opened(path: Path) -> Journal:
    return Journal(path, JOB)


def test_a_second_run_knows_what_the_first_recorded(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    for row in (1, 2, 3, 5, 6):
        journal.begin(row, 40 + row)
    journal.end(1, "ok", line(1, text="日本 \ud800 \n"))
    journal.end(2, "failed", line(2, "failed", error="no", code="tool.failed"))
    journal.end(3, "unknown", line(3, "unknown", error="?"))
    journal.release(6)
    journal.close()
    assert stat.S_IMODE((tmp_path / "j").stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [tmp_path / "j"]
    again = opened(tmp_path / "j")
    assert [again.state(row) for row in range(1, 8)] == [OK, FAILED, UNKNOWN, OPEN, SENT, OPEN, OPEN]
    assert [again.mark(row) for row in (1, 4, 5, 99)] == [41, 0, 45, 0]
    assert again.rows_in(SENT) == [5]
    assert again.last == 6
    first, second, third, *rest = again.outcomes()
    assert (first.text, second.error, third.status) == ("日本 \ud800 \n", "no", "unknown")
    assert rest == [None, None, None]
    again.close()


def test_the_last_outcome_of_a_repeated_row_counts(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    journal.begin(1, 7)
    journal.end(1, "unknown", line(1, "unknown"))
    journal.again(1)
    journal.begin(1, 7)
    journal.end(1, "ok", line(1, text="second", structured={"a": 1}, sources=[SourceRef(title="Act")]))
    journal.close()
    (outcome,) = journal.outcomes()
    assert (outcome.text, outcome.structured, outcome.sources[0].title) == ("second", {"a": 1}, "Act")
    assert journal.counts[OK] == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from dragoman.bulk.journal import Journal, outcome_line
journal = Journal(Path(sys.argv[1]), {"server": "s", "tool": "t", "arguments": {"a": "{b}"}})
for row in range(1, 20_001):
    journal.begin(row, row)
    if row % 2:
        journal.end(row, "ok", outcome_line(row, "ok", 1.0, 0.5, "x" * 100))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_no_entry(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "j"], check=False)
    assert done.returncode == -signal.SIGKILL
    journal = opened(tmp_path / "j")
    assert journal.counts[OK] == len(journal.rows_in(SENT)) == 10_000
    journal.begin(20_001, 1)
    journal.close()
    assert b"\0" not in (tmp_path / "j").read_bytes()
    again = opened(tmp_path / "j")
    assert again.state(20_001) == SENT
    again.close()


@pytest.mark.parametrize("rest", [b'{"row":2,"sta', b'{"row":2,"st\0\0\0":"ok"}\n\0\0\0', b"\0" * 5000])
def test_an_entry_that_a_kill_interrupted_was_not_recorded(rest: bytes, tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    journal.begin(2, 9)
    journal.close()
    with (tmp_path / "j").open("ab") as file:
        file.write(rest)
    again = opened(tmp_path / "j")
    assert again.state(2) == SENT
    again.end(2, "ok", line(2, text="later"))
    again.close()
    assert [one and one.text for one in again.outcomes()] == [None, "later"]


def test_entries_larger_than_the_mapped_part_are_kept(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    sizes = [10, 3 * journal_module.WINDOW, 70_000, journal_module.WINDOW]
    for row, size in enumerate(sizes, 1):
        journal.begin(row, row)
        journal.end(row, "ok", line(row, text="y" * size))
    journal.close()
    again = opened(tmp_path / "j")
    assert [len(one.text) for one in again.outcomes() if one] == sizes
    again.close()


def test_the_journal_of_another_job_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "j").close()
    with pytest.raises(BulkError, match=r"another job: its `tool` is 't', not 'u'"):
        Journal(tmp_path / "j", {**JOB, "tool": "u"})
    opened(tmp_path / "j").close()


@pytest.mark.parametrize("content", ["my notes\n", '{"journal": "dragoman map 9"}\n', "[1]\n"])
def test_a_file_that_is_not_a_journal_is_refused_and_stays(content: str, tmp_path: Path) -> None:
    (tmp_path / "j").write_text(content, "utf-8")
    with pytest.raises(BulkError, match="is not a journal"):
        opened(tmp_path / "j")
    assert (tmp_path / "j").read_text("utf-8") == content


def test_a_damaged_entry_is_named_by_its_line(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    journal.begin(1, 1)
    journal.close()
    with (tmp_path / "j").open("ab") as file:
        file.write(b'{"row":1,"status":"perhaps"}\n')
    with pytest.raises(BulkError, match=r"line 3: .*not an entry"):
        opened(tmp_path / "j")


@pytest.mark.parametrize(
    "entry",
    [
        b'{"sent":300000000000,"mark":1}',
        b'{"row":300000000000,"status":"ok"}',
        b'{"unsent":300000000000}',
        b'{"again":9999999999999999}',
        b'{"sent":1,"mark":4294967296}',
        b'{"sent":1,"mark":' + b"9" * 5000 + b"}",
        b'{"sent":1}',
    ],
)
def test_a_number_that_no_run_has_written_is_a_damaged_entry_and_takes_no_memory(
    entry: bytes, tmp_path: Path
) -> None:
    opened(tmp_path / "j").close()
    with (tmp_path / "j").open("ab") as file:
        file.write(entry + b"\n")
    with pytest.raises(BulkError, match=r"line 2: .*not an entry"):
        opened(tmp_path / "j")


def test_only_one_process_has_a_journal(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    script = "import sys; from pathlib import Path; from dragoman.bulk.journal import discard; discard(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "j"], capture_output=True, text=True, check=False
    )
    assert "another process is working on" in done.stderr
    journal.close()
    discard(tmp_path / "j")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_before_the_call(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, journal._file)
    os.close(full)
    journal._map_end = journal._end
    with pytest.raises(BulkError, match="cannot be written: No space left"):
        journal.begin(1, 1)
    journal._map.close()
    journal._map = None
    with pytest.raises(OSError, match="Invalid argument"):
        journal.close()
