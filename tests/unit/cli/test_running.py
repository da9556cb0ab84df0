"""Signals and closed terminals: servers end first, with all they started, and the exit code says why."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.cli.program import SERVERS, configure, dragoman, dragoman_command, dragoman_process
from tests.unit.cli.terminal import CTRL_C, PROMPT, Terminal, at_terminal

from dragoman.cli.exits import EndedError, run
from dragoman.server.process.orphans import identify

if TYPE_CHECKING:
    from collections.abc import Callable

ECHO = Path(__file__).resolve().parents[3] / "bench" / "echo_server.py"
SERVER = f"""
import os, signal, subprocess, sys
sys.path.insert(0, {str(SERVERS)!r})
from jsonrpc import serve, tool
daemon = subprocess.Popen(["sleep", "600"], env={{}}, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("new", "w") as file:
    file.write(f"{{os.getpid()}} {{daemon.pid}}")
os.rename("new", "pids")
def called(*_):
    open("called", "w").close()
    signal.pause()
if sys.argv[1] == "mute":
    signal.pause()
serve({{"tools/list": lambda _: {{"tools": [tool("slow")]}}, "tools/call": called}})
"""
"""A server that does not answer, neither a call nor SIGTERM, and has a daemon that hides."""

PYTHON = sys.executable
SIGNALS = [signal.SIGTERM, signal.SIGHUP]
pytestmark = pytest.mark.usefixtures("warm_python")


def server(kind: str = "answers", **more: Any) -> None:
    configure(s={"command": PYTHON, "args": ["-S", "-c", SERVER, kind], **more})


def wait_for(path: str) -> str:
    until = time.monotonic() + 40
    while not Path(path).exists():
        assert time.monotonic() < until, f"there is no {path}"
        time.sleep(0.01)
    return Path(path).read_text()


def pids() -> list[int]:
    return [int(pid) for pid in wait_for("pids").split()]


def insist_on_their_end(numbers: list[int]) -> None:
    assert numbers
    assert [pid for pid in numbers if identify(pid) is not None] == []


def hang_up(person: Terminal) -> int:
    """Close the terminal under the program, and return its exit code."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, person.controller)
    os.close(nothing)
    return person.process.wait(40)


@pytest.mark.parametrize(
    ("words", "kind", "sign", "number"),
    [
        (["call", "s", "slow"], "answers", "called", signal.SIGTERM),
        (["status"], "mute", "pids", signal.SIGTERM),
        (["chat"], "answers", "pids", signal.SIGHUP),
    ],
    ids=("call", "status", "chat"),
)
def test_signal_ends_the_servers_and_then_the_program(
    words: list[str], kind: str, sign: str, number: signal.Signals
) -> None:
    signal_ends_the_servers_and_then_the_program(words, kind, sign, number)


def signal_ends_the_servers_and_then_the_program(
    words: list[str], kind: str, sign: str, number: signal.Signals
) -> None:
    """For every command in tests/prove/test_signals.py."""
    server(kind)
    with subprocess.Popen(
        [*dragoman_command(), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(sign)
        numbers = pids()
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stderr is not None
        # Its input stays open, so that nothing else ends it.
        said = process.stdout.read() + process.stderr.read()
        assert process.wait(40) == 128 + number, said
    assert "Traceback" not in said
    insist_on_their_end(numbers)


@pytest.mark.parametrize(
    ("words", "how"), [(["call", "s", "slow"], signal.SIGTERM), (["chat"], "closed")], ids=("call", "chat")
)
def test_terminal_that_is_closed_ends_the_servers_as_a_signal_does(words: list[str], how: Any) -> None:
    terminal_that_is_closed_ends_the_servers_as_a_signal_does(words, how)


def terminal_that_is_closed_ends_the_servers_as_a_signal_does(words: list[str], how: Any) -> None:
    server()
    with at_terminal(*words) as person:
        if words == ["chat"]:
            person.wait_until(lambda: person.current == PROMPT)
        else:
            wait_for("called")
        numbers = pids()
        if how == "closed":
            assert hang_up(person) == 128 + signal.SIGHUP
        else:
            person.process.send_signal(how)
            assert person.wait_for_end() == 128 + how
    assert "Traceback" not in person.written
    insist_on_their_end(numbers)


@pytest.mark.parametrize("how", [signal.SIGTERM, "closed"])
def test_question_at_the_terminal_is_broken_off(how: Any) -> None:
    question_at_the_terminal_is_broken_off(how)


def question_at_the_terminal_is_broken_off(how: Any) -> None:
    server()
    path = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "mcp.json")
    path.with_name("config.toml").write_text('[[mcp.policy]]\naction = "ask"\n')
    with at_terminal("call", "s", "slow") as person:
        person.wait_until(lambda: "Call it?" in person.text)
        numbers = pids()
        if how == "closed":
            assert hang_up(person) == 128 + signal.SIGHUP
        else:
            person.process.send_signal(how)
            assert person.wait_for_end() == 128 + how
    assert "Traceback" not in person.written
    insist_on_their_end(numbers)


def test_question_is_asked_again_until_the_answer_is_one() -> None:
    server()
    path = Path(os.environ["XDG_CONFIG_HOME"], "dragoman", "config.toml")
    path.write_text('[[mcp.policy]]\naction = "ask"\n')
    with at_terminal("call", "s", "slow") as person:
        person.wait_until(lambda: "Call it? [y/N]:" in person.text)
        person.type("perhaps\r")
        person.wait_until(lambda: person.text.count("Call it?") == 2)
        person.type("yes\r")
        wait_for("called")
        person.process.send_signal(signal.SIGTERM)
        assert person.wait_for_end() == 128 + signal.SIGTERM
    server()
    with at_terminal("call", "s", "slow") as person:
        person.wait_until(lambda: "Call it? [y/N]:" in person.text)
        person.type("\r")
        assert person.wait_for_end() == 8
    assert "the user declined" in person.text


def test_demo_ends_with_both_of_its_servers() -> None:
    demo_ends_with_both_of_its_servers(signal.SIGHUP)


def demo_ends_with_both_of_its_servers(number: signal.Signals) -> None:
    with at_terminal("demo") as person:
        person.wait_until(lambda: person.current == PROMPT)
        family = family_of(person.process.pid)
        assert len(family) > 2
        person.process.send_signal(number)
        assert person.wait_for_end() == 128 + number
    assert "Traceback" not in person.written
    insist_on_their_end(family)


def family_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *family_of(int(child))]
    return found


def test_second_signal_does_not_break_off_what_the_first_one_began() -> None:
    server()
    with subprocess.Popen([*dragoman_command(), "call", "s", "slow"], stderr=subprocess.PIPE) as process:
        wait_for("called")
        numbers = pids()
        process.send_signal(signal.SIGTERM)
        while process.poll() is None and identify(numbers[0]) is not None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGHUP)
            time.sleep(0.05)
        # Which of two signals at the same moment is the first is up to the kernel.
        assert process.wait(40) in {128 + number for number in SIGNALS}
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    insist_on_their_end(numbers)


@pytest.mark.parametrize(
    ("words", "kind", "sign"),
    [
        (["call", "s", "slow"], "answers", "called"),
        (["status"], "mute", "pids"),
        (["chat"], "answers", "pids"),
    ],
    ids=("call", "status", "chat"),
)
def test_more_interrupts_change_nothing_while_the_first_one_ends_the_command(
    words: list[str], kind: str, sign: str
) -> None:
    server(kind)
    with subprocess.Popen(
        [*dragoman_command(), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(sign)
        numbers = pids()
        # Until the very end: also while it reports the first one, and while Python ends.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.002)
        assert process.stderr is not None
        said = process.stderr.read()
    # At the very end Python has no handlers any more, and the system ends the process.
    assert process.returncode in (130, -signal.SIGINT), said
    assert said.endswith("interrupted\n")
    assert said.count("interrupted") == 1
    assert "Traceback" not in said
    assert "Exception" not in said
    insist_on_their_end(numbers)


def test_thirty_interrupts_at_the_prompt_end_a_session_quietly() -> None:
    server()
    with at_terminal("chat") as person:
        person.wait_until(lambda: person.current == PROMPT)
        numbers = pids()
        person.type(30 * CTRL_C)
        assert person.wait_for_end() in (0, 130)
    assert "Traceback" not in person.written
    assert "Exception" not in person.written
    insist_on_their_end(numbers)


@pytest.mark.parametrize(
    ("words", "stream"),
    [
        ("chat", "<&- >&- 2>&-"),
        ("call echo echo text=hi", ">&-"),
        ("call echo echo text=hi", "2>&-"),
    ],
)
def test_closed_streams_are_as_good_as_none(words: str, stream: str) -> None:
    closed_streams_are_as_good_as_none(words, stream)


def closed_streams_are_as_good_as_none(words: str, stream: str) -> None:
    configure(echo={"command": PYTHON, "args": [str(ECHO)]})
    line = f'exec "$@" {words} {stream}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, "sh", PYTHON, "-m", "dragoman"],
        input="/tools\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr.lower()
    # The first file that the program opens must not get the number of the closed stream.
    assert words != "call echo echo text=hi" or ">&-" in stream.split() or done.stdout == "hi\n"


@pytest.mark.parametrize(
    ("words", "has_daemon"),
    [("tools", False), ("chat", False), ("call echo echo text=hi", False), ("call echo echo text=hi", True)],
)
def test_a_full_disk_is_an_error_of_one_line(words: str, has_daemon: bool) -> None:
    configure(echo={"command": PYTHON, "args": [str(ECHO)]})
    if has_daemon:
        assert dragoman_process("daemon", "start").returncode == 0
    try:
        with open("/dev/full", "wb") as full:  # noqa: PTH123 -- a device
            done = subprocess.run(
                [*dragoman_command(), *words.split()], input=b"/tools\n", stdout=full, stderr=-1, check=False
            )
    finally:
        if has_daemon:
            assert dragoman_process("daemon", "stop").returncode == 0
    assert done.returncode == 1
    assert done.stderr.decode() == "error: the output cannot be written: No space left on device\n"


def test_input_without_an_end_is_an_error() -> None:
    with open("/dev/zero", "rb") as endless:  # noqa: PTH123 -- a device
        done = subprocess.run(
            [*dragoman_command(), "chat"], stdin=endless, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert "a line of standard input is longer than" in done.stderr


def test_an_exit_code_does_not_depend_on_where_errors_go() -> None:
    configure(gone={"command": "no-such-program"})
    with open("/dev/full", "wb") as full:  # noqa: PTH123 -- a device
        done = subprocess.run([*dragoman_command(), "status"], stdout=-1, stderr=full, check=False)
    assert done.returncode == dragoman("status").returncode == 4
    assert b"gone" in done.stdout


def test_hang_up_that_is_ignored_stays_so() -> None:
    server()
    with subprocess.Popen(
        ["nohup", PYTHON, "-m", "dragoman", "call", "s", "slow"], stdout=-3, stderr=-3, stdin=-3
    ) as process:
        wait_for("called")
        numbers = pids()
        process.send_signal(signal.SIGHUP)
        handle = os.pidfd_open(process.pid)
        assert not select.select([handle], [], [], 0.5)[0]
        os.close(handle)
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 128 + signal.SIGTERM
    insist_on_their_end(numbers)


async def _signalled(then: Callable[[], Any]) -> Any:
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return then()


async def _nothing() -> int:
    return 5


def test_signal_counts_whatever_the_work_makes_of_it() -> None:
    def fail() -> None:
        raise OSError(5, "it is closed")

    for then in (lambda: 5, fail):
        with pytest.raises(EndedError) as caught:
            run(_signalled(then))
        assert caught.value.number == signal.SIGTERM
    assert run(_nothing()) == 5
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
