"""The client of the watchdog: a helper process that starts all servers, and kills them when we exit.

The program is `watchdog_program`. An order has the pipes of a server and one more, on which the watchdog
reports how the start went and, later, how the server ended. If that pipe is closed without a report, the
watchdog is gone, and on Linux its servers too. On another POSIX system it knows only the servers that it has
started itself, and ends their process groups. Where it cannot be started, servers are started directly.
"""

from __future__ import annotations

import array
import logging
import os
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger("dragoman")

ANSWER_SECONDS = 30.0
"""How long the watchdog may take to start a server."""
CLOSE_SECONDS = 15.0
"""How long the watchdog may take to kill what is left; its own limit is shorter."""
WAKE_SECONDS = 0.2
"""How often it is woken meanwhile: a server can stop it (SIGSTOP) at any time."""

IS_LINUX = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""Whether the watchdog has what only Linux has: it adopts descendants, and sees the client exit."""

_PROGRAM = Path(__file__).with_name("watchdog_program.py")
# Imported, so that its bytecode is used. Its folder comes last: it may hide modules of Python.
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); import watchdog_program; watchdog_program.run()"
_PYTHON = re.compile(r"(python|pypy)[\d.]*[a-z]*$")
_LONGEST_LINES = 200
_HIGHEST_TAG = 2**63 - 1
_LOWEST_TAG = 2**48


class WatchdogError(Exception):
    """The watchdog does not answer: it has exited, or never started."""


class StartOrder(NamedTuple):
    """A server to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None
    tag: int
    """The mark in its resource limits; 0 for none."""
    box: Sequence[str] = ()
    """Its sandbox, as `landlock` reads it; empty for none."""


class Running(Protocol):
    """A process that was started by the watchdog, or directly."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def watchdog(self) -> Watchdog | None:
        """The watchdog that started it, if there is one."""
        ...

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when it has ended; `None` if the system has none."""
        ...

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        ...

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether it has ended and is known to have left no descendant."""
        ...

    def close(self) -> None:
        """Release it after it has ended."""
        ...


class Ward:
    """A server that the watchdog started."""

    def __init__(self, watchdog: Watchdog, pid: int, status: int, told: bytes) -> None:
        """Take over its status pipe.

        Args:
            watchdog: The watchdog that started it.
            pid: Its process id.
            status: The descriptor on which its end is reported.
            told: What was read from it already.
        """
        self.watchdog = watchdog
        self.pid = pid
        self._status = status
        self._code: int | None = None
        self.is_alone = False
        """Whether it has ended and left no descendant: the watchdog has adopted none."""
        if told:
            self._note(told)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the server has ended."""
        return self._status

    def poll(self) -> int | None:
        """Return the exit code if the server has ended."""
        if self._code is None and select.select([self._status], [], [], 0)[0]:
            self._read()
        return self._code

    def wait(self) -> int:
        """Wait until the server has ended, and return its exit code."""
        if self._code is None:
            self._read()
        return self._code or 0

    def close(self) -> None:
        """Release it after it has ended."""
        os.close(self._status)

    def _read(self) -> None:
        self._note(os.read(self._status, _LONGEST_LINES))

    def _note(self, told: bytes) -> None:
        """Take the reported exit code; without a report the watchdog was killed, and its servers too."""
        word, *rest = told.split() or (b"",)
        self._code = int(rest[0]) if word == b"ended" else -signal.SIGKILL
        self.is_alone = word == b"ended" and rest[1:] == [b"alone"]


class Watchdog:
    """One running watchdog."""

    def __init__(self, folder: Path) -> None:
        """Start it, without waiting until it is up.

        Args:
            folder: The folder of the ledgers: if we die, it also kills what they list.

        Raises:
            OSError: It cannot be started.
        """
        self.users = 0
        """How many users it has: servers that it started, and starts in progress."""
        self.rights = rights()
        self._is_up = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._orders = ours
        given = (
            str(_PROGRAM.parent),
            str(theirs.fileno()),
            str(os.getpid()),
            str(folder),
            "linux" if IS_LINUX else "",
        )
        command = [sys.executable, "-I", "-S", "-c", _RUN, *given]
        nothing = subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                command,
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                pass_fds=[theirs.fileno()],
                cwd="/",
                # Ctrl-C at the terminal is only for the client.
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def start(self, order: StartOrder, pipes: Sequence[int]) -> Ward:
        """Start a server.

        Args:
            order: The server.
            pipes: Its standard input, output and error.

        Raises:
            OSError: It cannot be started.
            WatchdogError: The watchdog does not answer.
            ValueError: An argument or a variable is not valid.
        """
        text = _encoded(order)
        with ExitStack() as ours:
            status, theirs = os.pipe()
            ours.callback(os.close, status)
            with ExitStack() as given:
                given.callback(os.close, theirs)
                here = os.open(".", os.O_DIRECTORY | getattr(os, "O_PATH", 0))
                given.callback(os.close, here)
                memory = given.enter_context(_memory())
                memory.write(text)
                rights = array.array("i", [memory.fileno(), *pipes, theirs, here])
                try:
                    self._orders.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                except OSError as error:
                    raise WatchdogError(error.strerror) from error
            pid, told = self._answer(status, order)
            ours.pop_all()
        return Ward(self, pid, status, told)

    def _answer(self, status: int, order: StartOrder) -> tuple[int, bytes]:
        """Wait for the reply to an order; return the process id, and what else was read."""
        poll = select.poll()
        poll.register(status, select.POLLIN)
        told = os.read(status, _LONGEST_LINES) if self._replies(poll) else b""
        line, _, more = told.partition(b"\n")
        word, *rest = line.split() or (b"",)
        if word == b"started":
            return int(rest[0]), more
        if word == b"failed":
            number = int(rest[0])
            what = {b"folder": order.cwd, b"sandbox": "its sandbox"}.get(rest[1], order.argv[0])
            raise OSError(number, os.strerror(number), what)
        msg = "it did not reply"
        raise WatchdogError(msg)

    def _replies(self, poll: select.poll) -> bool:
        until = time.monotonic() + ANSWER_SECONDS
        while not poll.poll(WAKE_SECONDS * 1000):
            if time.monotonic() > until:
                return False
            self.wake()
        return True

    def close(self) -> int:
        """Let it kill all its descendants, wait for that, and return its exit code."""
        with suppress(OSError):
            # Closing is not enough: a process forked from us may hold the socket too.
            self._orders.send(b".", socket.MSG_DONTWAIT)
        self._orders.close()
        until = time.monotonic() + CLOSE_SECONDS
        while time.monotonic() < until:
            self.wake()
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(WAKE_SECONDS)
        self._process.kill()
        return self._process.wait()

    def wake(self) -> None:
        """Let it go on if it was stopped: it runs as the same user as its servers."""
        self._process.send_signal(signal.SIGCONT)

    @property
    def is_up(self) -> bool:
        """Whether it has reported that it accepts orders."""
        if not self._is_up:
            with suppress(OSError):
                self._is_up = self._orders.recv(1, socket.MSG_DONTWAIT) == b"+"
        return self._is_up

    @property
    def is_unable(self) -> bool:
        """Whether it exited before it accepted orders: this system lacks something."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0) >= 0 and not self.is_up
        return False

    def forget(self) -> None:
        """Close our copy of its socket, in a forked process."""
        self._orders.close()


def is_possible() -> bool:
    """Return whether a watchdog can be tried: on POSIX, if we run in a regular Python."""
    return (
        os.name == "posix"
        and not getattr(sys, "frozen", False)
        and _PYTHON.match(Path(sys.executable or "").name) is not None
        and _PROGRAM.is_file()
    )


def adopts() -> bool:
    """Return whether a watchdog also ends servers that it has not started."""
    return IS_LINUX


def _memory() -> BinaryIO:
    """Return a file without a name and without a buffer."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("dragoman"), "wb", buffering=0)
    return cast("BinaryIO", TemporaryFile(buffering=0))


def rights() -> tuple[object, ...]:
    """Return our user and groups: a server must not get rights that we dropped after the watchdog started."""
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid(), tuple(os.getgroups())


def new_tag() -> int:
    """Return a number that marks the resource limits of a server and its descendants; 0 if not possible.

    It is at most half of our own limit, which may itself be a mark, and which cannot be raised.
    """
    if sys.platform != "linux":
        return 0
    import resource

    highest = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
    if highest == resource.RLIM_INFINITY:
        highest = _HIGHEST_TAG
    if highest < _LOWEST_TAG:
        return 0
    return highest // 4 + secrets.randbelow(highest // 4)


def mark_limits(pid: int, tag: int) -> None:
    """Mark the resource limits of a running process."""
    if tag and sys.platform == "linux":
        import resource

        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_RTTIME, (tag, tag))


def _encoded(order: StartOrder) -> bytes:
    if any(not name or "=" in name for name in order.env):
        msg = "the environment has a variable whose name is empty or contains `=`"
        raise ValueError(msg)
    words = [
        str(order.tag),
        order.cwd or ".",
        str(len(order.argv)),
        str(len(order.box)),
        *order.argv,
        *order.box,
        *map("=".join, order.env.items()),
    ]
    text = "\0".join(words)
    if text.count("\0") != len(words) - 1:
        msg = "embedded null byte"
        raise ValueError(msg)
    # All at once: there are dozens of variables.
    return os.fsencode(text)
