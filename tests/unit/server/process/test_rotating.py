from __future__ import annotations

import asyncio
import logging
import os
import stat
from typing import TYPE_CHECKING

import pytest

from dragoman.model import Stdio
from dragoman.server.process import environment
from dragoman.server.process.environment import RotatingLog, StderrTail
from dragoman.server.process.stderr_log import stderr_log

if TYPE_CHECKING:
    from pathlib import Path


def test_whole_lines_are_written_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "s.log"
    log = RotatingLog(str(path), server="s")
    log.write(b"one\ntw")
    assert path.read_bytes() == b"one\n"
    log.write(b"o\nthr\xffee")
    assert path.read_bytes() == b"one\ntwo\n"
    log.close()
    assert path.read_bytes() == b"one\ntwo\nthr\xef\xbf\xbdee\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = RotatingLog(str(path), server="s")
    again.write(b"four\n")
    again.close()
    assert path.read_bytes().endswith(b"thr\xef\xbf\xbdee\nfour\n")


def test_log_is_bounded_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MAX_BYTES", 100)
    monkeypatch.setattr(environment, "LONGEST_LINE", 50)
    log = RotatingLog(str(tmp_path / "s.log"), server="s")
    for number in range(200):
        log.write(b"line %03d\n" % number)
    log.write(b"x" * 1000)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["s.log", "s.log.1", "s.log.2"]
    assert all(file.stat().st_size <= 100 for file in files)
    kept = b"".join(file.read_bytes() for file in reversed(files))
    assert kept.endswith(b"x" * 200 + b"\n")
    assert b"line 000" not in kept


async def test_secrets_are_masked_even_if_they_come_in_two_pieces(tmp_path: Path) -> None:
    stdio = Stdio("x", env={"API_TOKEN": "hunter2-secret"}, log_file=str(tmp_path / "s.log"))
    log = stderr_log(stdio, "s", {"PASSWORD": "inherited-pw"})
    assert log is not None
    log.write(b"token hunter2-")
    log.write(b"secret\nand inherited-pw \xff\n")
    log.close()
    await log.finish()
    written = await asyncio.to_thread((tmp_path / "s.log").read_bytes)
    assert b"hunter2" not in written
    assert b"inherited-pw" not in written
    assert written.startswith(b"token ")
    assert written.endswith(b" \xef\xbf\xbd\n")


def test_two_connections_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "MAX_BYTES", 20)
    path = tmp_path / "s.log"
    old, new = (RotatingLog(str(path), server="s") for _ in range(2))
    for number in range(4):
        old.write(b"old %d\n" % number)
        new.write(b"new %d\n" % number)
    old.close()
    new.close()
    kept = b"".join((tmp_path / name).read_bytes() for name in ("s.log.2", "s.log.1", "s.log"))
    assert kept == b"".join(b"old %d\nnew %d\n" % (number, number) for number in range(4))


@pytest.mark.parametrize("kind", ["pipe", "folder", "below a file", "terminal"])
def test_file_that_cannot_be_written_is_given_up_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    path = tmp_path / "s.log"
    terminal: tuple[int, ...] = ()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "below a file":
            path.write_bytes(b"")
            path = path / "s.log"
        case _:
            terminal = os.openpty()
            path.symlink_to(os.ttyname(terminal[1]))
    with caplog.at_level(logging.WARNING, "dragoman"):
        log = RotatingLog(str(path), server="srv")
        log.write(b"one\n")
        log.write(b"two\n")
        log.close()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("srv: `log_file` (")
    for descriptor in terminal:
        os.close(descriptor)


def test_folder_that_vanishes_ends_the_log_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = RotatingLog(str(tmp_path / "logs" / "s.log"), server="srv")
    (tmp_path / "logs" / "s.log").unlink()
    (tmp_path / "logs").rmdir()
    with caplog.at_level(logging.WARNING, "dragoman"):
        for _ in range(3):
            log.write(b"one\n")
        log.close()
    assert len(caplog.messages) == 1


def test_no_file_is_made_unless_it_is_wanted() -> None:
    assert stderr_log(Stdio("x"), "s", {}) is None


@pytest.mark.anyio
async def test_tail_passes_everything_on_to_the_log(tmp_path: Path) -> None:
    log = RotatingLog(str(tmp_path / "s.log"), server="s")
    with StderrTail(log=log) as tail:
        tail.add(b"first\nlast")
        assert tail.text() == "first\nlast"
    assert (tmp_path / "s.log").read_bytes() == b"first\nlast\n"


def test_what_would_steer_a_terminal_is_written_as_a_mark(tmp_path: Path) -> None:
    log = RotatingLog(str(tmp_path / "log"), server="a")
    log.write(
        "ok \x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil.example\x1b\\x\x1b[2J \u202e\x9b1m é\r\nnext\n".encode()
    )
    log.write(b"\xff\x1b[31m\x00no end")
    log.close()
    text = (tmp_path / "log").read_text("utf-8")
    assert not set(text) & set("\x1b\x07\x9b\u202e\r\x00")
    assert text.startswith("ok \ufffd]52;")
    assert " é\nnext\n" in text
