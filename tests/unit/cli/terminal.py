"""A real pseudo-terminal with a person at it: what the program writes becomes a screen, keys go the other way."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from tests.warm import Warm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LINES = 60
PROMPT = "dragoman>"
CTRL_C, CTRL_D, TAB = "\x03", "\x04", "\t"
PATIENCE = 30.0
ASK_CURSOR = "\x1b[6n"
_PIECE = re.compile(
    r"\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])|(?P<other>\x1b[@-Z\\-_])|(?P<char>[^\x1b])", re.DOTALL
)


class Screen:
    """As much of a terminal as the program uses; its rows never scroll away."""

    def __init__(self, columns: int = 80) -> None:
        self.columns = columns
        self.cells: list[list[str]] = [[" "] * columns]
        self.row = self.column = 0
        self.wrapped = 0
        """How often a line was wider than the screen."""
        self._rest = ""

    def feed(self, text: str) -> None:
        text, at = self._rest + text, 0
        while (piece := _PIECE.match(text, at)) is not None:
            at = piece.end()
            if piece["char"]:
                self._write(piece["char"])
            elif piece["final"]:
                number = int(piece["numbers"]) if piece["numbers"].isdigit() else 0
                self._control(piece["final"], number)
        self._rest = text[at:]

    def lines(self, start: int = 0) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells[start:]]

    def cursor(self) -> tuple[int, int]:
        """Return where a terminal would say that its cursor is; what scrolled off counts no more."""
        return self.row + 1 - max(0, len(self.cells) - LINES), self.column + 1

    def _write(self, char: str) -> None:
        match char:
            case "\r":
                self.column = 0
            case "\n":
                self._down(1)
            case "\b":
                self.column = max(0, self.column - 1)
            case _ if char >= " ":
                width = cell_len(char)
                if self.column + width > self.columns:
                    self.wrapped += 1
                    self.column = 0
                    self._down(1)
                self.cells[self.row][self.column : self.column + width] = [char, *[""] * (width - 1)]
                self.column += width

    def _control(self, final: str, number: int) -> None:
        match final:
            case "A":
                self.row = max(0, self.row - max(1, number))
            case "B":
                self._down(max(1, number))
            case "C":
                self.column = min(self.columns - 1, self.column + max(1, number))
            case "D":
                self.column = max(0, self.column - max(1, number))
            case "G":
                self.column = max(1, number) - 1
            case "K" | "J":
                start = 0 if number == 2 else self.column
                self.cells[self.row][start:] = [" "] * (self.columns - start)
                for row in range(self.row + 1, len(self.cells) if final == "J" else 0):
                    self.cells[row] = [" "] * self.columns

    def _down(self, count: int) -> None:
        self.row += count
        while len(self.cells) <= self.row:
            self.cells.append([" "] * self.columns)


class Terminal:
    """A person at the screen: types, and looks until something is there."""

    def __init__(self, controller: int, process: subprocess.Popen[bytes] | Warm, screen: Any) -> None:
        self.process = process
        self.controller = controller
        self.screen = screen
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def type(self, text: str) -> None:
        os.write(self.controller, text.encode())

    def typed(self, text: str, shown: str) -> None:
        """Type, and wait until the line at the prompt reads as it should."""
        self.type(text)
        self.wait_until(lambda: self.current == f"{PROMPT} {shown}".rstrip())

    def enter(self, line: str) -> str:
        """Type a line, wait for the next prompt, and return what was printed in between."""
        self.typed(line, line)
        return self.send_off()

    def send_off(self) -> str:
        """Press Enter, wait for the next prompt, and return what was printed in between."""
        start = self.screen.row
        self.type("\r")
        self.wait_until(lambda: self.screen.row > start and self.current == PROMPT)
        return "\n".join(self.screen.lines(start + 1)[: self.screen.row - start - 1])

    @property
    def current(self) -> str:
        """The line that the cursor is in."""
        return "".join(self.screen.cells[self.screen.row]).rstrip()

    @property
    def text(self) -> str:
        return "\n".join(self.screen.lines())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self._read(), f"the program ended:\n{self.text}"

    def wait_for_end(self) -> int:
        while self._read():
            pass
        return self.process.wait()

    def wait_until_busy(self) -> None:
        """Wait until the prompt has let go of the keyboard, so that Ctrl-C is a signal and not a key."""
        while not termios.tcgetattr(self.controller)[3] & termios.ISIG:
            os.sched_yield()

    def _read(self) -> bool:
        readable, _, _ = select.select([self.controller], [], [], PATIENCE)
        assert readable, f"nothing came for {PATIENCE} s after:\n{self.text}"
        try:
            data = os.read(self.controller, 65536)
        except OSError:  # on Linux the end of a terminal is an error
            return False
        text = self._decoder.decode(data)
        self.written += text
        self.screen.feed(text)
        if ASK_CURSOR in text:
            row, column = self.screen.cursor()
            os.write(self.controller, f"\x1b[{row};{column}R".encode())
        return bool(data)


@contextmanager
def at_terminal(
    *arguments: str,
    columns: int = 80,
    rows: int = LINES,
    screen: Any = None,
    program: Sequence[str] | None = None,
    **environment: str,
) -> Iterator[Terminal]:
    """Run a program as the leader of a session of its own, in a terminal of that size.

    Args:
        arguments: What the program is started with.
        columns: How wide the terminal is.
        rows: How high it says it is.
        screen: What shows the output; a `Screen`, which is for lines, unless given.
        program: What is started as a process; `dragoman` by the warm server of tests/warm.py unless given.
        environment: Variables beside those of the test.
    """
    controller, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    variables = os.environ | {"TERM": "xterm-256color"} | environment
    # The terminal becomes the session's own, so that Ctrl-C reaches its processes as it does at a desk.
    process = (
        Warm(arguments, (end, end, end), variables, terminal=True)
        if program is None
        else subprocess.Popen(
            [*program, *arguments],
            stdin=end,
            stdout=end,
            stderr=end,
            env=variables,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 -- the test has no threads
        )
    )
    os.close(end)
    try:
        with process:
            try:
                yield Terminal(controller, process, screen or Screen(columns))
            finally:
                process.kill()
    finally:
        os.close(controller)


def children_of(pid: int) -> set[int]:
    lists = [task.joinpath("children").read_text("ascii") for task in Path(f"/proc/{pid}/task").iterdir()]
    return {int(child) for listed in lists for child in listed.split()}
