"""The changing lines at the bottom: drawn over in one write, below what stays; looked at through a terminal."""

from __future__ import annotations

import io
import re

import pyte
import pytest
from rich.console import Console
from rich.text import Text

from dragoman.cli.session.screen import THEME, Screen


class Paper(io.StringIO):
    """Remembers every write by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


class Desk:
    """A screen, a clock that is moved by hand, and what a terminal of that size shows."""

    def __init__(self, columns: int = 40, lines: int = 12, **how: object) -> None:
        self.paper = Paper()
        self.now = 100.0
        console = Console(
            file=self.paper,
            force_terminal=True,
            width=columns,
            height=lines,
            theme=THEME,
            highlight=False,
            **how,  # type: ignore[arg-type]
        )
        self.screen = Screen(console, clock=lambda: self.now)
        self.view: list[str] = []
        self._terminal = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self._terminal)
        self._read = 0

    def draw(self, *lines: str) -> None:
        self.view[:] = lines
        self.now += 1
        self.screen.refresh()

    def shown(self) -> list[str]:
        for text in self.paper.writes[self._read :]:
            # What is not a write of ours is `Console.print`, which ends lines as files do.
            self._stream.feed(re.sub(r"(?<!\r)\n", "\r\n", text))
        self._read = len(self.paper.writes)
        lines = [line.rstrip() for line in self._terminal.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines


@pytest.fixture
def desk() -> Desk:
    return Desk()


def view_of(desk: Desk) -> Text:
    return Text("\n".join(desk.view))


async def test_lines_change_below_what_was_printed_and_leave_no_trace(desk: Desk) -> None:
    desk.screen.print("first")
    async with desk.screen.working(lambda: view_of(desk)):
        desk.draw("one", "two", "three")
        assert desk.shown() == ["first", "one", "two", "three"]
        desk.draw("one", "2")
        assert desk.shown() == ["first", "one", "2"]
        desk.screen.print("second\nthird")
        assert desk.shown() == ["first", "second", "third", "one", "2"]
        desk.draw("a", "b", "c", "d")
        assert desk.shown() == ["first", "second", "third", "a", "b", "c", "d"]
    assert desk.shown() == ["first", "second", "third"]
    desk.screen.print("last")
    assert desk.shown() == ["first", "second", "third", "last"]


async def test_nothing_is_cleared_before_it_is_written_over(desk: Desk) -> None:
    async with desk.screen.working(lambda: view_of(desk)):
        desk.draw("same", "spinner |", "same too")
        before = len(desk.paper.writes)
        desk.draw("same", "spinner /", "same too")
        (change,) = filter(None, desk.paper.writes[before:])
        assert "spinner /" in change
        assert "same" not in change
        assert "\x1b[2J" not in change
        assert change.index("spinner /") < change.index("\x1b[K")


async def test_more_lines_than_the_screen_has_show_their_end_and_touch_nothing_above(desk: Desk) -> None:
    async with desk.screen.working(lambda: view_of(desk)):
        for count in (5, 30, 31):
            desk.draw(*(f"line {number}" for number in range(count)))
        shown = desk.shown()
        assert shown[-1] == "line 30"
        assert len(shown) <= 12 - 3
    for number in range(20):
        desk.screen.print(f"kept {number}")
    assert desk.shown()[-1] == "kept 19"


async def test_a_terminal_that_gets_narrower_is_cleaned_up_after(desk: Desk) -> None:
    async with desk.screen.working(lambda: view_of(desk)):
        desk.draw("x" * 38, "y")
        desk.screen.console.width = 20
        before = len(desk.paper.writes)
        desk.draw("z")
        assert "\x1b[2A" in "".join(desk.paper.writes[before:])


async def test_what_a_narrower_terminal_broke_off_is_written_over() -> None:
    desk = Desk(columns=20)
    desk.screen.console.width = 40
    async with desk.screen.working(lambda: view_of(desk)):
        # The terminal has 20 columns by now, and has broken the line that was drawn for 40.
        desk.draw("x" * 38, "y")
        assert desk.shown() == ["x" * 20, "x" * 18, "y"]
        desk.screen.console.width = 20
        desk.draw("z", "y")
        assert desk.shown() == ["z", "y"]


async def test_what_is_over_in_a_moment_is_never_drawn(desk: Desk) -> None:
    async with desk.screen.working(lambda: Text("slow"), after=5):
        desk.now += 4
        desk.screen.refresh()
        assert desk.shown() == []
        desk.now += 2
        desk.screen.refresh()
        assert desk.shown() == ["slow"]


async def test_a_pause_takes_the_lines_away_and_gives_the_screen_to_others(desk: Desk) -> None:
    async with desk.screen.working(lambda: view_of(desk)):
        desk.draw("working")
        with desk.screen.paused():
            desk.draw("not seen")
            desk.screen.print("a question")
            assert desk.shown() == ["a question"]
        desk.draw("working again")
        assert desk.shown() == ["a question", "working again"]
        async with desk.screen.working(lambda: Text("inner")):
            desk.draw("outer")
            assert desk.shown() == ["a question", "inner"]


async def test_without_a_terminal_only_what_stays_is_written() -> None:
    paper = io.StringIO()
    screen = Screen(Console(file=paper, width=40, color_system=None))
    async with screen.working(lambda: Text("never")):
        screen.print("kept")
        screen.complain("wrong\n  twice")
        screen.print_line("so long " * 20)
    lines = paper.getvalue().splitlines()
    assert lines[:2] == ["kept", "! wrong twice"]
    assert len(lines) == 3
    assert lines[2].endswith("…")
    assert "\x1b" not in paper.getvalue()


async def test_no_color_leaves_no_colour_in_what_changes() -> None:
    desk = Desk(no_color=True)
    async with desk.screen.working(lambda: Text("red", style="red")):
        desk.draw()
        assert "red" in "".join(desk.paper.writes)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", "".join(desk.paper.writes))
