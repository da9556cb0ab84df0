"""`dragoman top` in a real terminal, and where it refuses to start."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyte
import pytest
from tests.unit.cli.program import configure, dragoman, entry
from tests.unit.cli.terminal import at_terminal, children_of

from dragoman.cli.commands.top import has_light_background

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from tests.unit.cli.terminal import Terminal

COLUMNS, ROWS = 80, 24


class FullScreen:
    """A screen that a program draws on all over, as the dashboard does."""

    def __init__(self) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        # The emulator does not know the sequences by which programs ask what a terminal can.
        self._stream.feed(re.sub(r"\x1b\[[<>=?][0-9;]*[a-zA-Z$]+", "", text))

    def lines(self) -> list[str]:
        return list(self._screen.display)

    def cursor(self) -> tuple[int, int]:
        return self._screen.cursor.y + 1, self._screen.cursor.x + 1


def at_dashboard(
    *arguments: str, program: Sequence[str] | None = None, **environment: str
) -> AbstractContextManager[Terminal]:
    return at_terminal(
        *arguments,
        columns=COLUMNS,
        rows=ROWS,
        screen=FullScreen(),
        program=program,
        COLORTERM="truecolor",
        **environment,
    )


def colours(written: str) -> set[tuple[int, ...]]:
    """Return every colour that is no shade of grey."""
    found: set[tuple[int, ...]] = set()
    for sequence in re.findall(r"\x1b\[([0-9;]*)m", written):
        numbers = [int(number or 0) for number in sequence.split(";")]
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


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for child processes in /proc")
def test_the_dashboard_at_a_terminal_is_left_by_ctrl_c_and_leaves_nothing_behind() -> None:
    configure(shop=entry("plain.py"), broken=entry("dying.py"))
    with at_dashboard("top") as person:
        person.wait_until(lambda: "● ready" in person.text and "shop" in person.text)
        children = children_of(person.process.pid)
        assert children
        assert "1 Tools" in person.text
        person.type("?")
        person.wait_until(lambda: "restart the server" in person.text)
        person.type("\x1b")
        person.wait_until(lambda: "restart the server" not in person.text)
        person.type("\x03")
        assert person.wait_for_end() == 0
    assert colours(person.written)
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    # It had a screen of its own and gave it back; no log line about the broken server was ever written.
    assert person.written.count("\x1b[?1049h") == person.written.count("\x1b[?1049l") == 1
    assert "Traceback" not in person.written
    assert "ERROR" not in person.written


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(number: signal.Signals) -> None:
    configure(shop=entry("plain.py"))
    with at_dashboard("top") as person:
        person.wait_until(lambda: "● ready" in person.text)
        person.process.send_signal(number)
        assert person.wait_for_end() == 0
    assert "\x1b[?1049l" in person.written
    assert "Traceback" not in person.written


def test_no_color_means_no_colour_and_the_words_stay() -> None:
    configure(shop=entry("plain.py"))
    with at_dashboard("top", NO_COLOR="1") as person:
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
    assert json.loads(done.stdout)["error"]["hint"] == "use `dragoman status --json`"


def test_without_textual_one_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['textual'] = None; from dragoman.cli.main import main; main(['top'])"
    with at_dashboard(program=(sys.executable, "-c", script)) as person:
        assert person.wait_for_end() == 1
    assert "`dragoman top` needs Textual (install it: " in person.written
    assert "install 'dragoman[tui]')" in person.written
    assert person.written.count("\n") == 1


def test_neither_the_command_nor_its_help_loads_textual() -> None:
    script = (
        "import sys; import dragoman.cli.commands.top; print('textual' in sys.modules, 'mcp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize(
    ("value", "light"), [("0;15", True), ("0;default;7", True), ("15;0", False), ("", False), ("7", True)]
)
def test_the_terminal_may_say_that_its_background_is_light(value: str, light: bool) -> None:
    assert has_light_background({"COLORFGBG": value}) is light
