"""The terminal of a session: printed lines stay, and a few lines below them are redrawn during work.

Each redraw is a single write that overwrites lines and clears only their ends, so nothing flickers. Without a
terminal, only the lines that stay are printed.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

from pygments.token import (
    Comment,
    Error,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    Token,
)
from rich import markdown as rich_markdown
from rich.cells import cell_len
from rich.console import Console, Group
from rich.segment import Segment
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.text import Text
from rich.theme import Theme

from dragoman.cli.output import safe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Sequence

    from rich.console import ConsoleOptions, JustifyMethod, RenderableType, RenderResult

THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold dim",
        "markdown.block_quote": "dim",
        "markdown.hr": "dim",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
        "markdown.link": "none",
        "markdown.link_url": "blue underline",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        "bar.back": "dim",
        "bar.complete": "cyan",
        "bar.finished": "green",
    }
)
"""Overrides styles of rich that have a black background."""

CODE = ANSISyntaxTheme(
    {
        Token: Style(),
        Comment: Style(dim=True),
        Keyword: Style(color="magenta"),
        Operator.Word: Style(color="magenta"),
        Name.Builtin: Style(color="cyan"),
        Name.Class: Style(bold=True),
        Name.Decorator: Style(color="cyan"),
        Name.Function: Style(bold=True),
        Name.Tag: Style(color="magenta"),
        Number: Style(color="cyan"),
        String: Style(color="green"),
        Generic.Deleted: Style(color="red"),
        Generic.Inserted: Style(color="green"),
        Error: Style(),
    }
)
"""Only colors that are readable on white and on black."""
CONTEXT = 100
"""Lines of code above the newest one that are used to highlight it."""


class _Heading(rich_markdown.Heading):
    """A heading aligned left instead of centered."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Markdown(rich_markdown.Markdown):
    elements: ClassVar[dict[str, Any]] = {**rich_markdown.Markdown.elements, "heading_open": _Heading}


class Markdown:
    """Markdown from a model or server, without escape codes; the URLs of links are shown."""

    def __init__(self, source: str) -> None:
        self._whole = _Markdown(safe(source), code_theme="ansi_light", hyperlinks=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._whole, options, pad=False)
        filled = [at for at, line in enumerate(lines) if any(piece.text.strip() for piece in line)]
        for line in lines[filled[0] : filled[-1] + 1] if filled else ():
            yield from line
            yield Segment.line()


def code_tail(above: Sequence[str], line: str, language: str) -> Text:
    """Highlight the newest line of code, in the context of the lines above."""
    lexer = Syntax("", language or "text", theme=CODE)
    drawn = lexer.highlight(safe("\n".join([*above, line])))
    newest = drawn.split("\n", allow_blank=True)[len(above)]
    return Text.assemble("  ", newest)


TICK = 0.1
"""Seconds between redraws without events."""
SOON = 0.04
"""The minimum number of seconds between redraws."""
MARGIN = 3
"""Lines of the screen that are not used by the redrawn part."""

_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"


def make_console() -> Console:
    """Return a console for a session; in a pipe, lines are at least 160 columns wide."""
    console = Console(theme=THEME, highlight=False)
    if not console.is_terminal:
        console = Console(theme=THEME, highlight=False, width=max(console.width, 160), color_system=None)
    return console


class Screen:
    """Writes to the terminal while no line is being edited."""

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or make_console()
        self.is_live = self.console.is_terminal and not self.console.is_dumb_terminal
        """Whether lines can be redrawn."""
        self._clock = clock
        self._views: list[tuple[float, Callable[[], RenderableType]]] = []
        """Each with the time from which it is drawn."""
        self._drawn: list[str] = []
        self._width = 0
        self._at = float("-inf")
        self._paused = 0

    def print(self, renderable: RenderableType = "") -> None:
        """Print something that stays, above the redrawn lines."""
        if not self._drawn:
            self.console.print(renderable)
            return
        text = self._captured(renderable)
        self._write(self._back() + "".join(f"\x1b[K{line}\r\n" for line in text) + self._redrawn([]))

    def clear(self) -> None:
        """Clear the terminal; elsewhere nothing happens."""
        if self.is_live:
            self._clear()
            self.console.clear()

    def complain(self, text: str) -> None:
        """Print a warning."""
        self.print(Text(f"! {safe(' '.join(text.split()))}", style="yellow"))

    def print_line(self, text: str, *, style: str = "yellow") -> None:
        """Print a note on exactly one line; long notes are cut."""
        mark = "!" if style == "yellow" else "·"
        line = f"{mark} {safe(' '.join(text.split()))}"
        # In a Group, because rich would wrap a plain Text.
        self.print(Group(Text(line, style=style, no_wrap=True, overflow="ellipsis")))

    @asynccontextmanager
    async def working(
        self, view: Callable[[], RenderableType], *, after: float = 0.0
    ) -> AsyncGenerator[None]:
        """Show a view at the bottom until the block ends; the innermost view is visible.

        Args:
            view: Called for each redraw.
            after: Seconds to wait before showing it, so that short work does not flash.
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
        """Leave the terminal to other code, such as a question, until the block ends."""
        self._clear()
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def refresh(self) -> None:
        """Redraw the view, unless that was done just now."""
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
        """Move to the first drawn line; a terminal that got narrower has wrapped lines."""
        width = self.console.width
        rows = len(self._drawn)
        if width < self._width:
            rows = sum(max(1, -(-_width_of(line) // width)) for line in self._drawn)
        return f"\r\x1b[{rows - 1}A" if rows > 1 else "\r"

    def _redrawn(self, lines: Sequence[str]) -> str:
        """Overwrite the drawn lines; unchanged lines are skipped."""
        # A terminal that got narrower has wrapped the lines, so all positions changed.
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
        """Return the rendered lines, with color codes."""
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
    """Turn off the terminal's echo, so that typed keys do not disturb the screen; they are not lost."""
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
