"""The terminal during a session: what is printed stays, and below it a few lines change while work is done.

Every change is one write in which each line is written over and then cleared to its end, so nothing blinks;
what has scrolled off is never written to again. Where there is no terminal only what stays is printed.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, Group
from rich.text import Text

from dragoman.cli.output import safe
from dragoman.cli.session.markdown import THEME

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence

    from rich.console import RenderableType

TICK = 0.1
"""Seconds between two drawings while nothing happens."""
SOON = 0.04
"""Seconds that pass at least between two drawings."""
MARGIN = 3
"""Lines of the screen that the changing part leaves to what was printed."""

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"


def make_console() -> Console:
    """Return a console for a session; in a pipe lines are not broken at 80 columns."""
    console = Console(theme=THEME, highlight=False)
    if not console.is_terminal:
        console = Console(theme=THEME, highlight=False, width=max(console.width, 160), color_system=None)
    return console


class Screen:
    """Owns what is written to the terminal while no line is edited."""

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or make_console()
        self.is_live = self.console.is_terminal and not self.console.is_dumb_terminal
        """Whether lines can be drawn over."""
        self._clock = clock
        self._views: list[tuple[float, Callable[[], RenderableType]]] = []
        """Each with the moment from which on it is drawn."""
        self._drawn: list[str] = []
        self._width = 0
        self._at = float("-inf")
        self._paused = 0

    def print(self, renderable: RenderableType = "") -> None:
        """Print something that stays, above what changes."""
        if not self._drawn:
            self.console.print(renderable)
            return
        text = self._captured(renderable)
        self._write(self._back() + "".join(f"\x1b[K{line}\r\n" for line in text) + self._redrawn([]))

    def complain(self, text: str) -> None:
        """Print one line about something that is not as it should be."""
        self.print(Text(f"! {safe(' '.join(text.split()))}", style="yellow"))

    def remark(self, text: str, *, style: str = "yellow") -> None:
        """Print a remark that takes one line and not more, whatever it says."""
        mark = "!" if style == "yellow" else "·"
        line = f"{mark} {safe(' '.join(text.split()))}"
        # Alone it would be wrapped: rich joins plain texts into one of its own.
        self.print(Group(Text(line, style=style, no_wrap=True, overflow="ellipsis")))

    @asynccontextmanager
    async def working(
        self, view: Callable[[], RenderableType], *, after: float = 0.0
    ) -> AsyncGenerator[None]:
        """Show a view at the bottom until the block is left; the innermost one is seen.

        Args:
            view: Gives what is shown, as often as it is drawn.
            after: Seconds before anything is: what is over in a moment would only flash.
        """
        if not self.is_live:
            yield
            return
        began = self._clock() + after
        shown = (began, view)
        self._views.append(shown)
        ticking = asyncio.create_task(self._tick(), name="dragoman screen") if len(self._views) == 1 else None
        try:
            with no_echo():
                self.refresh()
                yield
        finally:
            self._views.remove(shown)
            if ticking is not None:
                ticking.cancel()
                with suppress(asyncio.CancelledError):
                    await ticking
            self._clear()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Leave the terminal to somebody else, such as a question, until the block is left."""
        self._clear()
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def refresh(self) -> None:
        """Draw the view anew, unless that was done just now."""
        now = self._clock()
        if not self._views or self._paused or now - self._at < SOON or now < self._views[-1][0]:
            return
        self._at = now
        lines = self._captured(self._views[-1][1](), narrower=1)
        most = max(1, self.console.height - MARGIN)
        self._write(_HIDE + self._back() + self._redrawn(lines[-most:] or [""]))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self.refresh()

    def _clear(self) -> None:
        if self._drawn:
            self._write(f"{self._back()}\x1b[J{_SHOW}")
            self._drawn = []
        self._at = float("-inf")

    def _back(self) -> str:
        """Go to the start of what is drawn; a terminal that got narrower has broken its lines."""
        width = self.console.width
        rows = len(self._drawn)
        if width < self._width:
            rows = sum(max(1, -(-_width_of(line) // width)) for line in self._drawn)
        return f"\r\x1b[{rows - 1}A" if rows > 1 else "\r"

    def _redrawn(self, lines: Sequence[str]) -> str:
        """Write lines over those that are drawn; those that did not change are passed over."""
        # A terminal that got narrower has broken the lines, so that none of them stands where it was.
        is_broken = bool(self._drawn) and self.console.width < self._width
        fresh = not lines or is_broken
        lines = lines or self._drawn
        written: list[str] = ["\x1b[J"] if is_broken else []
        shrinks = len(lines) < len(self._drawn)
        for at, line in enumerate(lines):
            same = not fresh and at < len(self._drawn) and self._drawn[at] == line
            is_last = at == len(lines) - 1
            if not same or (is_last and shrinks):
                written.append(f"{line}\x1b[K")
            if not is_last:
                written.append("\r\n")
        if shrinks:
            written.append("\x1b[J")
        self._drawn = list(lines)
        self._width = self.console.width
        return "".join(written)

    def _captured(self, renderable: RenderableType, narrower: int = 0) -> list[str]:
        """Return what would be printed, line by line, with its colours."""
        with self.console.capture() as captured:
            self.console.print(renderable, width=max(1, self.console.width - narrower))
        return captured.get().split("\n")[:-1]

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self.console.file.write(text)
            self.console.file.flush()


def _width_of(line: str) -> int:
    return cell_len(_ESCAPE.sub("", line))


@contextmanager
def no_echo() -> Generator[None]:
    """Do not show what is typed meanwhile: it would land in the middle of the screen. It is not lost."""
    if os.name != "posix" or not sys.stdin.isatty():
        yield
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    termios.tcsetattr(descriptor, termios.TCSANOW, [*before[:3], before[3] & ~termios.ECHO, *before[4:]])
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
