"""The commands on a terminal of 80 columns: nothing wraps by itself, progress leaves no trace, Ctrl-C ends it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyte
import pytest
from tests.unit.cli.program import configure, dragoman, entry
from tests.warm import Warm

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS, ROWS = 80, 200
ILL: dict[str, dict[str, Any]] = {
    "dying": entry("dying.py"),
    "gone": {"command": "no-such-program-anywhere", "args": ["a long argument " * 10]},
}


def on_a_terminal(
    *arguments: str, watch: Callable[[str, Warm], None] | None = None
) -> tuple[int, list[str], bytes]:
    """Run the program on a terminal; return its exit code, the screen's lines, and all that was written."""
    controller, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    env.pop("COLUMNS", None)
    process = Warm(arguments, (end, end, end), env, terminal=True)
    os.close(end)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    written = b""
    try:
        while select.select([controller], [], [], 30)[0]:
            data = os.read(controller, 65536)
            written += data
            stream.feed(data)
            if watch is not None:
                watch("\n".join(screen.display), process)
    except OSError:  # on Linux the end of a terminal is an error
        pass
    finally:
        os.close(controller)
    code = process.wait()
    return code, [line.rstrip() for line in screen.display if line.strip()], written


@pytest.fixture(autouse=True)
def servers() -> None:
    configure(plain=entry("plain.py"), official=entry("official.py", "stdio"), **ILL)


def test_status_fits_the_screen_and_its_progress_is_gone_at_the_end() -> None:
    shown = Path("shown").absolute()
    late = entry("offering.py", json.dumps({"wait": str(shown)}))
    configure(late=late, plain=entry("plain.py"), **ILL)

    def release(screen: str, _: object) -> None:
        # The progress is shown after a moment, and `late` is what it waits for.
        if re.search(r"^plain +ready", screen, re.MULTILINE) and "connecting to" in screen:
            shown.touch()

    code, lines, written = on_a_terminal("status", watch=release)
    assert code == 4
    assert lines[0].split() == ["server", "state", "transport", "protocol", "tools", "latency"]
    # Each is shown as soon as it is ready, whatever their order in the file.
    assert [line.split()[:2] for line in lines if line.startswith(("plain", "late"))] == [
        ["plain", "ready"],
        ["late", "ready"],
    ]
    assert "connecting to" in written.decode()
    assert not any("connecting to" in line for line in lines)
    # A line that is as wide as the screen was broken by the terminal, not by us.
    assert max(map(len, lines)) < COLUMNS
    assert any("license file missing" in line for line in lines)


def test_tools_and_doctor_fit_the_screen() -> None:
    code, lines, _ = on_a_terminal("tools", "plain", "official")
    assert code == 0
    assert "  add(a: int, b: int)" in lines
    assert any("Cached list" in line for line in on_a_terminal("tools", "plain")[1])
    code, lines, _ = on_a_terminal("doctor", "dying", "gone")
    assert code == 4
    assert max(map(len, lines)) <= COLUMNS
    assert any("✗ handshake" in line for line in lines)
    assert any("→" in line for line in lines)
    assert lines[-1] == "0 of 2 servers OK"


def test_there_is_colour_on_a_terminal_and_none_in_a_pipe() -> None:
    assert b"\x1b[32m" in on_a_terminal("status", "plain")[2]
    done = dragoman("status", "plain")
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("server", ["plain", "stuck"])
def test_an_interrupt_ends_a_call_and_its_server(server: str) -> None:
    configure(plain=entry("plain.py"), stuck=entry("stuck.py"))
    sent: list[int] = []

    def interrupt(screen: str, process: Warm) -> None:
        if "calling slow" in screen and not sent:
            sent.append(process.pid)
            process.send_signal(signal.SIGINT)

    code, lines, written = on_a_terminal("call", server, "slow", "--timeout", "25", watch=interrupt)
    assert sent
    assert (code, lines) == (130, ["interrupted"])
    # Where ending it takes time, a person sees that the key was heard.
    assert (b"stopping" in written) or server == "plain"
