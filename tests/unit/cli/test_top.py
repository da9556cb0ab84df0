"""`dragoman top` in a real terminal, and where it refuses to start."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyte
import pytest
from tests.unit.cli.program import PROGRAM, configure, dragoman, entry

from dragoman.cli.top import has_light_background

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COLUMNS, ROWS = 80, 24
PATIENCE = 40.0


class Terminal:
    """The screen, and everything that was ever written to it."""

    def __init__(self, controller: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.written = b""
        self._controller = controller
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def type(self, text: str) -> None:
        os.write(self._controller, text.encode())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            assert self._read(), f"the program ended:\n{self.text}"

    def wait_for_end(self) -> int:
        while self._read():
            pass
        return self.process.wait()

    def _read(self) -> bool:
        readable, _, _ = select.select([self._controller], [], [], PATIENCE)
        assert readable, f"nothing came for {PATIENCE} s after:\n{self.text}"
        try:
            data = os.read(self._controller, 65536)
        except OSError:  # on Linux the end of a terminal is an error
            return False
        self.written += data
        # The emulator does not know the sequences by which programs ask what a terminal can.
        self._stream.feed(re.sub(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z$]+", b"", data))
        return bool(data)


@contextmanager
def at_terminal(*command: str, **environment: str) -> Iterator[Terminal]:
    controller, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=env, start_new_session=True)
    os.close(end)
    try:
        with process:
            try:
                yield Terminal(controller, process)
            finally:
                process.kill()
    finally:
        os.close(controller)


def colours(written: bytes) -> set[tuple[int, ...]]:
    """Return every colour that is no shade of grey."""
    found: set[tuple[int, ...]] = set()
    for sequence in re.findall(rb"\x1b\[([0-9;]*)m", written):
        numbers = [int(number or 0) for number in sequence.split(b";")]
        while numbers:
            first = numbers.pop(0)
            if first in (38, 48) and numbers[0] == 2:
                shade, numbers = tuple(numbers[1:4]), numbers[4:]
                found |= {shade} if len(set(shade)) > 1 else set()
            elif first in (38, 48):
                found.add((first, *numbers[:2]))
                numbers = numbers[2:]
            elif first in {*range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108)}:
                found.add((first,))
    return found


def children_of(pid: int) -> set[int]:
    lists = [task.joinpath("children").read_text("ascii") for task in Path(f"/proc/{pid}/task").iterdir()]
    return {int(child) for listed in lists for child in listed.split()}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for child processes in /proc")
def test_the_dashboard_at_a_terminal_is_left_by_ctrl_c_and_leaves_nothing_behind() -> None:
    configure(shop=entry("plain.py"), broken=entry("dying.py"))
    with at_terminal(*PROGRAM, "top") as person:
        person.wait_until(lambda: "● ready" in person.text and "shop" in person.text)
        children = children_of(person.process.pid)
        assert children
        assert "1 Offers" in person.text
        person.type("?")
        person.wait_until(lambda: "restart the server" in person.text)
        person.type("\x1b")
        person.wait_until(lambda: "restart the server" not in person.text)
        person.type("\x03")
        assert person.wait_for_end() == 0
    assert colours(person.written)
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    # It had a screen of its own and gave it back; no log line about the broken server was ever written.
    assert person.written.count(b"\x1b[?1049h") == person.written.count(b"\x1b[?1049l") == 1
    assert b"Traceback" not in person.written
    assert b"ERROR" not in person.written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(number: signal.Signals) -> None:
    configure(shop=entry("plain.py"))
    with at_terminal(*PROGRAM, "top") as person:
        person.wait_until(lambda: "● ready" in person.text)
        person.process.send_signal(number)
        assert person.wait_for_end() == 0
    assert b"\x1b[?1049l" in person.written
    assert b"Traceback" not in person.written


def test_no_color_means_no_colour_and_the_words_stay() -> None:
    configure(shop=entry("plain.py"))
    with at_terminal(*PROGRAM, "top", NO_COLOR="1") as person:
        person.wait_until(lambda: "● ready" in person.text)
        person.type("q")
        assert person.wait_for_end() == 0
    assert colours(person.written) == set()


def test_without_a_terminal_one_line_points_elsewhere() -> None:
    done = dragoman("top")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "needs a terminal" in done.stderr
    assert "`dragoman status`" in done.stderr


def test_programs_are_sent_to_status() -> None:
    done = dragoman("top", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["hint"] == "`dragoman status --json` is for programs"


def test_without_textual_one_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['textual'] = None; from dragoman.cli.main import main; main(['top'])"
    with at_terminal(sys.executable, "-c", script) as person:
        assert person.wait_for_end() == 1
    assert b"install `dragoman[tui]`, or use `dragoman status`" in person.written
    assert person.written.count(b"\n") == 1


def test_neither_the_command_nor_its_help_loads_textual() -> None:
    script = "import sys; import dragoman.cli.top; print('textual' in sys.modules, 'mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize(
    ("value", "light"), [("0;15", True), ("0;default;7", True), ("15;0", False), ("", False), ("7", True)]
)
def test_the_terminal_may_say_that_its_background_is_light(value: str, light: bool) -> None:
    assert has_light_background({"COLORFGBG": value}) is light
