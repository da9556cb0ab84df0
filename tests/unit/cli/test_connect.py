"""Progress on standard error: one line on a terminal, few elsewhere, and nothing for what is quick."""

from __future__ import annotations

import asyncio
import io

import pytest

from dragoman.cli import connect
from dragoman.cli.connect import Progress


class Stream(io.StringIO):
    """A standard error that can be waited for."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self._written = asyncio.Event()

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        self._written.set()
        return super().write(text)

    async def shows(self, text: str) -> None:
        while text not in self.getvalue():
            self._written.clear()
            await self._written.wait()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "TICK", 0.001)
    monkeypatch.setattr(connect, "SOON", 0.0)
    monkeypatch.setattr(connect, "PAUSE", 0.0)


@pytest.mark.usefixtures("quick")
async def test_a_terminal_gets_one_line_that_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Stream(terminal=True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    async with Progress() as show:
        show.report(1, 4, "律师律师律师律师律师\nnext\x1b[2J")
        await terminal.shows("1/4")
    written = terminal.getvalue()
    assert written.endswith("\r\x1b[K")
    assert "\n" not in written
    assert "1/4 律师" in written
    assert "[2J" not in written.replace("\x1b[K", "")


@pytest.mark.usefixtures("quick")
async def test_what_is_no_terminal_gets_a_line_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Stream(terminal=False)
    monkeypatch.setattr("sys.stderr", pipe)
    async with Progress("connecting") as show:
        await pipe.shows("connecting")
        show.text = "calling"
        await pipe.shows("calling")
    assert pipe.getvalue() == "connecting\ncalling\n"


async def test_quick_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with Progress("connecting"):
        pass
    assert capsys.readouterr().err == ""


async def test_progress_without_a_total_is_a_number() -> None:
    show = Progress()
    show.report(3, None, None)
    assert show.text == "3"
