"""The watchdog: starts the servers of one client, and kills all their descendants when the client is gone.

`dragoman.server.process.watchdog` runs it as a program, once per client, with four arguments: the socket for
orders, the process id of the client, the folder of its ledgers, and whether this is Linux. There it is a
subreaper: it adopts every descendant that loses its parent, so a daemon cannot escape, whatever it does to
its session, environment or descriptors. When the client exits, or closes the socket, all descendants are
killed. If the client died, its ledger file is processed too: that lists what is not a descendant, such as a
container.

On another POSIX system the end of the socket tells the end of the client, and the process groups of the
servers are killed: what has left its group stays.

It runs without `site` and avoids slow imports: the first server waits for it.
"""

from __future__ import annotations

import _socket
import errno
import resource
import select
import sys
import time

TYPE_CHECKING = False
# The modules `os`, `signal`, `socket` and `typing` take longer to import than all the rest here.
if not TYPE_CHECKING:
    import _signal as signal
    import posix as os
else:
    import os
    import signal
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

END_SECONDS = 10.0
"""How long to kill descendants; what is left after that runs as another user."""
_WALKS = 50
"""How often to search for new processes before the found ones are killed."""
_REAPED_AT_ONCE = 100
_GROUP_PAUSE = 1000
"""Milliseconds between looks at what ended servers have left: the end of a group is not reported."""
_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_MOST_DESCRIPTORS = 6
_LONGEST_ORDER = 64 * 1024 * 1024
_SWEEP = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from dragoman.server.process.orphans import sweep
sweep(Path(sys.argv[2]))
"""


def main(orders: int, client: int, folder: str, *, is_linux: bool) -> None:
    """Serve a client until it is gone."""
    life, prctl = None, None
    if is_linux:
        prctl = _prctl()
        life = os.pidfd_open(client)
        _children(os.getpid())
        if prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            sys.exit("cannot become a subreaper on this system")
    if os.getppid() != client:
        sys.exit("the client is gone")
    died = True
    watchdog = Watchdog(orders, life, prctl)
    try:
        died = watchdog.serve()
    finally:
        if is_linux:
            end_descendants()
        else:
            end_groups(watchdog.groups)
    if life is not None:
        # The socket closes before the client has exited; its ledger file is safe to process only after that.
        select.select([life], [], [], END_SECONDS if died else 0)
        if died and f"{client}.jsonl" in _names_in(folder):
            package = __file__.rsplit("/", 4)[0]
            os.execv(sys.executable, [sys.executable, "-I", "-c", _SWEEP, package, folder])  # noqa: S606 -- our own code
    os._exit(0)


def _prctl() -> Callable[..., int]:
    """Return the system call `prctl`, without `ctypes` if possible: its import takes 2 ms."""
    try:
        from _ctypes import call_cdeclfunction, dlopen, dlsym
    except ImportError:
        import ctypes

        return ctypes.CDLL(None).prctl
    address = dlsym(dlopen(None, 0), "prctl")  # type: ignore[arg-type] -- `None` is this program
    return lambda *numbers: call_cdeclfunction(address, numbers)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 -- pathlib takes too long to import
    except OSError:
        return []


class Watchdog:
    """The servers of one client."""

    def __init__(self, orders: int, life: int | None, prctl: Callable[..., int] | None) -> None:
        """Take over the socket for orders, and what Linux has: the client's end, and `prctl`."""
        os.set_inheritable(orders, False)  # noqa: FBT003 -- it takes no keyword
        self._orders = _socket.socket(fileno=orders)
        self._life = life
        self._prctl = prctl
        self._statuses: dict[int, int] = {}
        """The status pipe of each server, by process id."""
        self._starting: dict[int, int] = {}
        """Servers that have not called `exec` yet, by the descriptor that reports it."""
        self.groups: set[int] = set()
        """Without `prctl`: the process groups of running servers, and those that ended ones have left."""
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # The client decides when its servers end. A handler, because servers would inherit SIG_IGN.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                signal.signal(number, _pass)
        self._poll = select.poll()
        for descriptor in (orders, life, self._wake):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)

    def serve(self) -> bool:
        """Carry out orders until the client is done or has died; return whether it has died."""
        try:  # noqa: SIM105 -- contextlib takes too long to import
            self._orders.send(b"+")
        except OSError:
            pass  # Its last order may still be in the socket.
        more = False
        while True:
            left = self.groups - self._statuses.keys()
            self.groups -= {group for group in left if not _lives(group)}
            patience = 0 if more else _GROUP_PAUSE if left else None
            ready = {descriptor for descriptor, _ in self._poll.poll(patience)}
            if self._life in ready:
                return True
            for descriptor in ready & self._starting.keys():
                self._settle(descriptor)
            if self._orders.fileno() in ready and (order := self._take()) != b"+":
                return order != b"."
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._wake in ready or more:
                more = self._reap()

    def _take(self) -> bytes:
        """Carry out one order and return it: `+` starts, `.` ends; empty if the client is gone."""
        space = _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS)
        try:
            data, ancillary, _, _ = self._orders.recvmsg(1, space)
        except ConnectionResetError:
            # The client closed its end before reading our message: reported once, before its last order.
            data, ancillary, _, _ = self._orders.recvmsg(1, space)
        if data != b"+":
            return data
        raw = b"".join(found for _, _, found in ancillary)
        given = [int.from_bytes(raw[at : at + 4], sys.byteorder) for at in range(0, len(raw), 4)]
        for descriptor in given:
            os.set_inheritable(descriptor, False)  # noqa: FBT003 -- it takes no keyword
        text, *pipes, status, here = given
        try:
            self._start(os.pread(text, _LONGEST_ORDER, 0).split(b"\0"), pipes, status, here)
        except OSError as error:
            _tell(status, b"failed %d program\n" % (error.errno or errno.EIO))
            os.close(status)
        for descriptor in (text, *pipes, here):
            os.close(descriptor)
        return data

    def _start(self, words: list[bytes], pipes: list[int], status: int, here: int) -> None:
        if words[3] != b"0":
            __import__("landlock")  # Once, and not again in every child.
        told, tell = os.pipe()
        watchdog = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._enter(words, pipes, here, tell, watchdog)
        os.close(tell)
        self._statuses[pid] = status
        if self._prctl is None:
            self.groups.add(pid)
        self._starting[told] = pid
        self._poll.register(told, select.POLLIN)

    def _enter(self, words: list[bytes], pipes: list[int], here: int, tell: int, watchdog: int) -> NoReturn:
        """Do in the new process what comes before the server's program, and run that.

        What restricts a server belongs here; for a server that the watchdog does not start, into `guarded`
        of `spawn.py`.
        """
        tag, cwd, count, boxed, *rest = words
        argv, env = rest[: int(count)], rest[int(count) + int(boxed) :]
        box = rest[int(count) : int(count) + int(boxed)]
        stage = b"program"
        try:
            os.setsid()
            if self._prctl is not None:
                self._prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != watchdog:
                os._exit(0)
            _mark_limits(int(tag))
            for number, descriptor in enumerate(pipes):
                os.dup2(descriptor, number)
            stage = b"folder"
            os.fchdir(here)
            os.chdir(cwd)
            if box:
                stage = b"sandbox"
                _apply(box)
            stage = b"program"
            # Python ignores these signals; other programs expect the default.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            _execute(argv, dict(one.split(b"=", 1) for one in env))
        except (OSError, ValueError) as error:
            number = getattr(error, "errno", None) or errno.EIO
            os.write(tell, b"failed %d %s\n" % (number, stage))
        finally:
            os._exit(127)

    def _settle(self, told: int) -> None:
        """Report how the start of a server went; nothing is read if `exec` succeeded."""
        pid = self._starting.pop(told)
        self._poll.unregister(told)
        failure = os.read(told, 100)
        os.close(told)
        _tell(self._statuses[pid], failure or b"started %d\n" % pid)

    def _reap(self) -> bool:
        """Reap processes that have ended: servers, whose end is reported, and adopted ones.

        Returns:
            Whether there may be more: processes that fork and exit quickly must not keep us here.
        """
        ended: list[tuple[int, int]] = []
        more = True
        for _ in range(_REAPED_AT_ONCE):
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid, code = 0, 0
            if pid == 0:
                more = False
                break
            for told in [told for told, one in self._starting.items() if one == pid]:
                self._settle(told)
            if (status := self._statuses.pop(pid, None)) is not None:
                ended.append((status, os.waitstatus_to_exitcode(code)))
        if ended:
            line = b"ended %d alone\n" if self._has_only_servers() else b"ended %d\n"
            for status, code in ended:
                _tell(status, line % code)
                os.close(status)
        return more

    def _has_only_servers(self) -> bool:
        """Return whether all our children are running servers, so that those that ended have left nothing.

        We have adopted what an ended server left before we could reap it, and only we take a child from the
        list. So the list is complete. Without `prctl` nothing is adopted, and nothing known.
        """
        return self._prctl is not None and self._statuses.keys() >= set(_children(os.getpid()))


def _pass(_number: int, _frame: object) -> None:
    """Do nothing: a signal with a handler wakes the loop, and is not inherited."""


def _tell(status: int, line: bytes) -> None:
    try:
        os.write(status, line)
    except OSError:
        return  # The client does not wait for it.


def _mark_limits(tag: int) -> None:
    """Mark a server with a resource limit that its descendants inherit; it is too high to have an effect."""
    if tag:
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (tag, tag))
        except (OSError, ValueError):
            return


def _apply(box: list[bytes]) -> None:
    __import__("landlock").apply([text.decode("utf-8", "surrogateescape") for text in box])


def _execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    try:
        if b"/" in argv[0]:
            os.execve(argv[0], argv, env)  # noqa: S606 -- the configured command
        import os as whole

        # The client has not found it on the PATH; mostly this only says why.
        whole.execvpe(argv[0], argv, env)  # noqa: S606 -- as above
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # A script without a shebang line: shells run it with sh.
        os.execve("/bin/sh", [b"/bin/sh", *argv], env)  # noqa: S606 -- as above


def end_descendants() -> None:
    """Kill all descendants and wait for their end; without a child there is no descendant left.

    They are stopped first, until a search finds no new one: a process that sees another die could start a
    third.
    """
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        try:
            for _ in range(_REAPED_AT_ONCE):
                os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        frozen: set[int] = set()
        for _ in range(_WALKS):
            new = [pid for pid in _descendants(os.getpid()) if pid not in frozen]
            if not new:
                break
            for pid in new:
                _kill(pid, signal.SIGSTOP)
            frozen.update(new)
        for pid in frozen:
            _kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def end_groups(groups: set[int]) -> None:
    """Kill process groups, and wait for their end."""
    until = time.monotonic() + END_SECONDS
    while groups and time.monotonic() < until:
        for group in list(groups):
            try:
                os.killpg(group, signal.SIGKILL)
            except OSError:
                groups.discard(group)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.001)


def _lives(group: int) -> bool:
    """Return whether a process group has processes."""
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return  # It has exited, or runs as another user.


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    ahead = [pid]
    while ahead:
        try:
            children = list(_children(ahead.pop()))
        except OSError:
            continue
        found += children
        ahead += children
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process.

    Raises:
        OSError: The process does not exist, or this system does not list children.
    """
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 -- as above
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 -- as above
            found += [int(child) for child in file.read(1024 * 1024).split()]
    return found


def run() -> None:
    """Run as a program."""
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], is_linux=bool(sys.argv[4]))
