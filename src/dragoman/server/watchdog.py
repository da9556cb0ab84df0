"""The client's side of its watchdog: one process beside us that starts all servers and ends them with us.

The program is `watchdog_program`. An order carries the pipes of a server and one more, on which the
watchdog tells how the start went and, later, how the server ended; if that pipe ends without a word, the
watchdog is gone and its servers with it. It works on Linux; elsewhere, and where it cannot be started,
servers are started directly.
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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger("dragoman")

ANSWER_SECONDS = 30.0
"""How long the watchdog may take to start a server."""
CLOSE_SECONDS = 15.0
"""How long the watchdog may take to end what is left; its own limit is shorter."""

_PROGRAM = Path(__file__).with_name("watchdog_program.py")
# Imported, so that its bytecode is used. Its folder comes last: it has modules with names of Python's own.
_RUN = "import sys; sys.path.append(sys.argv.pop(1)); import watchdog_program; watchdog_program.run()"
_PYTHON = re.compile(r"(python|pypy)[\d.]*[a-z]*$")
_LONGEST_LINES = 200
_HIGHEST_TAG = 2**63 - 1
_LOWEST_TAG = 2**48


class WatchdogError(Exception):
    """The watchdog does not answer: it is gone, or never came up."""


class Order(NamedTuple):
    """A server to be started."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None
    tag: int
    """What marks its limits; 0 is nothing."""


class Running(Protocol):
    """A process that was started: by the watchdog, or directly by us."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    @property
    def watchdog(self) -> Watchdog | None:
        """Who watches over it, if there is one."""
        ...

    def fileno(self) -> int | None:
        """Return a descriptor that can be read once it has ended; nothing where the system has none."""
        ...

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        ...

    def wait(self) -> int:
        """Wait until it has ended; returns its exit code."""
        ...

    def close(self) -> None:
        """Let go of it, once it has ended."""
        ...


class Ward:
    """A server that the watchdog started."""

    def __init__(self, watchdog: Watchdog, pid: int, status: int, told: bytes) -> None:
        """Take over what is told about it.

        Args:
            watchdog: Who started it.
            pid: Its number.
            status: The descriptor on which its end is told.
            told: What was told already.
        """
        self.watchdog = watchdog
        self.pid = pid
        self._status = status
        self._code: int | None = _code(told) if told else None

    def fileno(self) -> int:
        """Return a descriptor that can be read once the server has ended."""
        return self._status

    def poll(self) -> int | None:
        """Return the exit code if the server has ended."""
        if self._code is None and select.select([self._status], [], [], 0)[0]:
            self._read()
        return self._code

    def wait(self) -> int:
        """Wait until the server has ended; returns its exit code."""
        if self._code is None:
            self._read()
        return self._code or 0

    def close(self) -> None:
        """Let go of it, once it has ended."""
        os.close(self._status)

    def _read(self) -> None:
        self._code = _code(os.read(self._status, _LONGEST_LINES))


def _code(told: bytes) -> int:
    """Return the exit code that is told; without a word the watchdog was killed, and its servers with it."""
    word, _, code = told.partition(b" ")
    return int(code) if word == b"ended" else -signal.SIGKILL


class Watchdog:
    """One running watchdog."""

    def __init__(self, folder: Path) -> None:
        """Start it, without waiting until it is up.

        Args:
            folder: Where the ledgers lie: if we die, it also ends what they list.

        Raises:
            OSError: It cannot be started.
        """
        self.users = 0
        """How many servers were started through it and are not done with."""
        self.rights = rights()
        self._is_up = False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders = ours
        given = (str(_PROGRAM.parent), str(theirs.fileno()), str(os.getpid()), str(folder))
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
                # Ctrl-C at the terminal is for the client alone.
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()

    def start(self, order: Order, pipes: Sequence[int]) -> Ward:
        """Have a server started.

        Args:
            order: What is started.
            pipes: Its standard input, output and error.

        Raises:
            OSError: It cannot be started.
            WatchdogError: The watchdog does not answer.
            ValueError: The order has something that no program can be given.
        """
        text = _encoded(order)
        with ExitStack() as ours:
            status, theirs = os.pipe()
            ours.callback(os.close, status)
            with ExitStack() as given:
                given.callback(os.close, theirs)
                here = os.open(".", os.O_DIRECTORY | getattr(os, "O_PATH", 0))
                given.callback(os.close, here)
                memory = os.memfd_create("dragoman")
                given.callback(os.close, memory)
                os.pwrite(memory, text, 0)
                rights = array.array("i", [memory, *pipes, theirs, here])
                try:
                    self._orders.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                except OSError as error:
                    raise WatchdogError(error.strerror) from error
            pid, told = self._answer(status, order)
            ours.pop_all()
        return Ward(self, pid, status, told)

    def _answer(self, status: int, order: Order) -> tuple[int, bytes]:
        """Wait for the answer to an order; returns the number of the process, and what else was told."""
        poll = select.poll()
        poll.register(status, select.POLLIN)
        told = os.read(status, _LONGEST_LINES) if poll.poll(ANSWER_SECONDS * 1000) else b""
        line, _, more = told.partition(b"\n")
        word, *rest = line.split() or (b"",)
        if word == b"started":
            return int(rest[0]), more
        if word == b"failed":
            number = int(rest[0])
            what = order.cwd if rest[1] == b"folder" else order.argv[0]
            raise OSError(number, os.strerror(number), what)
        msg = "it gave no answer"
        raise WatchdogError(msg)

    def close(self) -> int:
        """Have it end all that is left below it, and wait for that; returns its exit code."""
        with suppress(OSError):
            # Said, and not only closed: a process that was forked off us may have the socket too.
            self._orders.send(b".", socket.MSG_DONTWAIT)
        self._orders.close()
        try:
            return self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    @property
    def is_up(self) -> bool:
        """Whether it has said that it takes orders."""
        if not self._is_up:
            with suppress(OSError):
                self._is_up = self._orders.recv(1, socket.MSG_DONTWAIT) == b"+"
        return self._is_up

    @property
    def is_unable(self) -> bool:
        """Whether it ended by itself before it took orders: this system lacks something."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0) >= 0 and not self.is_up
        return False

    def forget(self) -> None:
        """Let go of our copy of it, in a process that was forked off."""
        self._orders.close()


def is_possible() -> bool:
    """Return whether a watchdog may be tried here: on Linux, where our own program is a plain Python."""
    return (
        sys.platform == "linux"
        and hasattr(os, "pidfd_open")
        and not getattr(sys, "frozen", False)
        and _PYTHON.match(Path(sys.executable or "").name) is not None
        and _PROGRAM.is_file()
    )


def rights() -> tuple[object, ...]:
    """Return whose rights we have: a server never gets those that we gave up after the watchdog started."""
    return os.getuid(), os.geteuid(), os.getgid(), os.getegid(), tuple(os.getgroups())


def new_tag() -> int:
    """Return a number that marks the limits of a server and of what it starts; 0 where that is impossible.

    It is half of the limit that we have ourselves at most: that one may mark us, and may not be raised.
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
    """Mark the limits of a process that is running already."""
    if tag and sys.platform == "linux":
        import resource

        with suppress(OSError, ValueError):
            resource.prlimit(pid, resource.RLIMIT_RTTIME, (tag, tag))


def _encoded(order: Order) -> bytes:
    names = [os.fsencode(name) for name in order.env]
    if any(not name or b"=" in name for name in names):
        msg = "the environment has a name that is empty or has `=` in it"
        raise ValueError(msg)
    values = [os.fsencode(value) for value in order.env.values()]
    words = [
        str(order.tag).encode(),
        os.fsencode(order.cwd or "."),
        str(len(order.argv)).encode(),
        *map(os.fsencode, order.argv),
        *(b"%s=%s" % pair for pair in zip(names, values, strict=True)),
    ]
    if any(b"\0" in word for word in words):
        msg = "embedded null byte"
        raise ValueError(msg)
    return b"\0".join(words)
