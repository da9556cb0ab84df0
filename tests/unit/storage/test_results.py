from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from dragoman.storage.results import PAGE_CHARS, ResultStore

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def spill(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results", max_bytes=1000, max_files=3, max_age=100, clock=Clock())


def names(spill: ResultStore) -> set[str]:
    return {path.name for path in spill.folder.iterdir()}


def test_text_is_kept_for_its_owner_only(spill: ResultStore) -> None:
    path = spill.keep_text("whole \ud800 text")
    assert path is not None
    assert path.read_text("utf-8") == "whole \\ud800 text"
    assert path.suffix == ".txt"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(spill.folder.stat().st_mode) == 0o700


def test_bytes_get_the_ending_of_their_type(spill: ResultStore) -> None:
    for kind, ending in (
        ("audio/mpeg", ".mp3"),
        ("application/pdf; v=1", ".pdf"),
        ("odd/../x", ".bin"),
        ("", ".bin"),
    ):
        path = spill.keep(b"abc", mime_type=kind)
        assert path is not None
        assert path.suffix == ending


def test_same_content_is_kept_once_and_counts_as_used(spill: ResultStore) -> None:
    first = spill.keep_text("a")
    spill.keep_text("b")
    spill.keep_text("c")
    assert spill.keep_text("a") == first
    assert len(names(spill)) == 3
    spill.keep_text("d")
    assert first is not None
    assert first.exists()
    assert len(names(spill)) == 3


def test_damaged_file_is_written_anew(spill: ResultStore) -> None:
    path = spill.keep_text("whole")
    assert path is not None
    path.write_text("torn")
    assert spill.keep_text("whole") == path
    assert path.read_text() == "whole"


def test_oldest_make_room_for_bytes(spill: ResultStore) -> None:
    old = spill.keep(b"a" * 600)
    new = spill.keep(b"b" * 600)
    assert old is not None
    assert new is not None
    assert not old.exists()
    assert new.exists()
    assert spill.keep(b"c" * 1001) is None
    assert new.exists()


def test_what_is_too_old_or_half_written_goes(tmp_path: Path) -> None:
    clock = Clock()
    spill = ResultStore(tmp_path / "results", max_age=100, clock=clock)
    old = spill.keep_text("old")
    assert old is not None
    torn, foreign = spill.folder / ".x.new", spill.folder / "keep.me"
    torn.touch()
    foreign.touch()
    os.utime(torn, (clock.now, clock.now))
    clock.now += 50
    spill.keep_text("b")
    assert old.exists()
    assert torn.exists(), "another process may be writing it"
    clock.now += 10_000
    spill.keep_text("c")
    assert not old.exists()
    assert not torn.exists()
    assert foreign.exists()


def test_failed_write_leaves_nothing_and_warns_once(
    spill: ResultStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spill.keep_text("a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    assert spill.keep_text("b") is None
    assert spill.keep_text("c") is None
    assert len(names(spill)) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"results cannot be kept in `{spill.folder}`: No space left on device"
    ]


def test_folder_that_is_none_or_is_open_to_others(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o755)
    assert ResultStore(real).keep_text("a") is not None
    assert stat.S_IMODE(real.stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(real)
    assert ResultStore(tmp_path / "link").keep_text("b") is None
    (tmp_path / "file").touch()
    assert ResultStore(tmp_path / "file").keep_text("b") is None


def test_text_is_read_in_pages(tmp_path: Path) -> None:
    spill = ResultStore(tmp_path / "results")
    path = spill.keep_text("0123456789" * 3000)
    assert path is not None
    first = spill.read(str(path))
    assert first == ("0123456789" * 2000) + "\n[characters 0 to 20000 of 30000; go on with offset 20000]"
    assert spill.read(path.name, offset=29_995) == "56789\n[characters 29995 to 30000 of 30000]"
    assert spill.read(path.name, offset=3, limit=2).startswith("34\n")
    assert spill.read(path.name, offset=-5, limit=0).startswith("0\n")
    assert spill.read(path.name, offset=10**9) == "\n[characters 30000 to 30000 of 30000]"
    assert len(spill.read(path.name, limit=10**9)) < PAGE_CHARS + 100


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", "x.txt", f"{'0' * 32}.txt"])
def test_only_kept_files_are_read(tmp_path: Path, name: str) -> None:
    spill = ResultStore(tmp_path / "results")
    spill.keep_text("a")
    (tmp_path / "secret").write_text("x")
    (spill.folder / "x.txt").write_text("x")
    with pytest.raises(FileNotFoundError):
        spill.read(name)


def test_clear_removes_what_is_kept_and_nothing_else(spill: ResultStore) -> None:
    spill.clear()
    spill.keep_text("a")
    (spill.folder / "foreign").touch()
    spill.clear()
    assert names(spill) == {"foreign"}


def test_threads_keep_at_once_within_bounds(tmp_path: Path) -> None:
    spill = ResultStore(tmp_path / "results", max_files=5)
    threads = [threading.Thread(target=spill.keep_text, args=(str(number),)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(spill)) == 5
