"""Kept logs of standard error: masked, one file a day, bounded, and never in the way."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from datetime import datetime
from typing import TYPE_CHECKING

from dragoman import ServerSpec, Stdio
from dragoman.model import Origin
from dragoman.server.process.stderr_log import (
    MAX_WAITING,
    BackgroundLog,
    KeptLog,
    kept_files,
    kept_folder,
    kept_path,
    prune,
    stderr_log,
)

if TYPE_CHECKING:
    from pathlib import Path

SPEC = ServerSpec("files", Stdio("x", env={"API_TOKEN": "canary-77ab19"}))
DAY = 86_400.0


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


async def test_a_childs_stderr_is_kept_masked_and_private() -> None:
    stdio = Stdio("x", env={"API_TOKEN": "canary-77ab19"}, log_file=str(kept_path(SPEC)))
    log = stderr_log(stdio, "files", {"API_TOKEN": "canary-77ab19"})
    assert log is not None
    log.write(b"using canary-77ab19\nAuthorization: Bearer abcdefghijklmnop1234567890\n\x1b[31mred\x1b[0m\n")
    log.close()
    await log.finish()
    (path,) = kept_files(SPEC)
    started, *kept = lines(path)
    assert started.startswith("--- started 20")
    text = "\n".join(kept)
    assert "canary" not in text
    assert "abcdefghijklmnop" not in text
    assert "red" in text
    assert "\x1b" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_day_has_a_file_and_old_ones_go(tmp_path: Path) -> None:
    now = [datetime.fromisoformat("2026-03-01T12:00:00+00:00").timestamp()]
    log = KeptLog(tmp_path / "files-1.log", server="files", secrets=set(), now=lambda: now[0])
    for day in range(10):
        now[0] += DAY
        log.write(f"day {day}\n".encode())
    log.close()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept[0] == "files-1.2026-03-04.log"
    assert kept[-1] == "files-1.2026-03-11.log"


def test_the_oldest_logs_go_when_all_are_too_large(tmp_path: Path) -> None:
    for day in range(1, 6):
        (tmp_path / f"files-1.2026-03-0{day}.log").write_bytes(b"x" * 100)
    (tmp_path / "else.txt").write_bytes(b"x" * 1000)
    prune(tmp_path, now=datetime.fromisoformat("2026-03-05T00:00:00+00:00"), max_bytes=250)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "else.txt",
        "files-1.2026-03-04.log",
        "files-1.2026-03-05.log",
    ]


async def test_a_home_that_cannot_be_written_breaks_nothing() -> None:
    folder = kept_folder()
    folder.parent.mkdir(parents=True)
    folder.write_text("a file, not a folder", "utf-8")
    stdio = Stdio("x", log_file=str(kept_path(SPEC)))
    log = stderr_log(stdio, "files", {})
    assert log is not None
    for _ in range(3):
        log.write(b"lost\n")
    log.close()
    await log.finish()
    assert kept_files(SPEC) == []


async def test_a_disk_that_hangs_delays_neither_the_loop_nor_the_end() -> None:
    hangs, entered = threading.Event(), threading.Event()
    written: list[bytes] = []

    class Stuck:
        def write(self, data: bytes) -> None:
            entered.set()
            hangs.wait(30)
            written.append(data)

        def close(self) -> None:
            pass

    log = BackgroundLog(Stuck)
    log.write(b"first")
    await asyncio.to_thread(entered.wait, 30)
    for _ in range(3):
        log.write(b"x" * (MAX_WAITING // 2))
    log.close()
    await log.finish()
    assert written == []
    hangs.set()
    while any(thread.name == "dragoman stderr log" for thread in threading.enumerate()):
        await log.finish()
    assert b"bytes were not kept" in b"".join(written)


async def test_a_log_that_is_being_opened_when_its_server_ends_is_closed() -> None:
    opening, opened, done = threading.Event(), threading.Event(), list[str]()

    class Sink:
        def write(self, data: bytes) -> None:
            done.append(data.decode())

        def close(self) -> None:
            done.append("closed")

    def open_log() -> Sink:
        opening.set()
        assert opened.wait(20)
        return Sink()

    log = BackgroundLog(open_log)
    log.write(b"the last words")
    assert opening.wait(20)
    log.close()
    opened.set()
    await log.finish()
    assert done == ["the last words", "closed"]


def test_servers_of_the_same_name_in_different_files_have_different_logs() -> None:
    here, there = (
        ServerSpec("files/..", Stdio("x"), origin=Origin(source=source))
        for source in ("/a/mcp.json", "/b/mcp.json")
    )
    assert kept_path(here) != kept_path(there)
    assert kept_path(here).parent == kept_folder()
    assert os.sep not in kept_path(here).name
