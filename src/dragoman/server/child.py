"""One child process: started, listened to, watched, and ended with everything it started.

A child leads a process group and a session of its own. It is started from a thread that lives as long as
we do, since on Linux the signal that ends a child with its parent follows the starting *thread*. It carries
a mark in its environment by which its descendants are found, wherever they have gone. Ending it is polite
first: its input is closed, then it is asked, then it is killed, and what is left of its family with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dragoman.server.ledger import (
    MARK,
    Kin,
    Ledger,
    began,
    child_ends,
    default_folder,
    identify,
    kill_relatives,
    relatives,
    sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STDIN_GRACE = 2.0
TERM_GRACE = 2.0
FAMILY_GRACE = 0.5
POLL = 0.02
"""How often a group without a leader is looked at while it ends: nothing tells us when it does."""

_HAS_PROC = Path("/proc/self/stat").exists()

T = TypeVar("T")


class _Spawner:
    """What starting children needs, once in a process: threads, and a ledger of who was started.

    A process that was forked off has copies of both which it cannot use: the threads are not there, a lock
    may be held for ever, and the ledger is the other process's.
    """

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="dragoman-spawn")
        self.once = Lock()
        """Held while something is found out for the first time: two ledgers would overwrite each other."""
        self._ledger: Ledger | None = None

    def ledger(self) -> Ledger:
        """Open this process's ledger, after sweeping those of dead ones; once."""
        with self.once:
            if self._ledger is None:
                folder = default_folder()
                sweep(folder)
                self._ledger = Ledger(folder)
            return self._ledger


_spawner = _Spawner()


def _renew_spawner() -> None:
    global _spawner  # noqa: PLW0603 -- there is one of it in a process, and this is another one
    _spawner = _Spawner()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_spawner)


class Started(NamedTuple):
    """A child that has just been started, and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int
    kin: Kin


class Child:
    """A running child; its descriptors belong to whoever reads and writes them."""

    def __init__(self, started: Started, mark: str) -> None:
        self.pid = started.process.pid
        self.stdin = started.stdin
        """The descriptor that the child reads the other end of."""
        self.stdout = started.stdout
        self.stderr = started.stderr
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Done, with the exit code, when the child itself is gone; a killed one has minus the signal."""
        self._process = started.process
        self._mark = mark
        self._kin = started.kin
        self.signalled = False
        """Whether it was asked to end, or killed, by us."""
        self._watch()

    def poll(self) -> int | None:
        """Return the exit code if the child itself is gone, even before the loop has said so."""
        return self._process.poll()

    async def stop(self, close_stdin: Callable[[], None]) -> None:
        """End the child and everything it started; a cancellation does not hurry it."""
        close_stdin()
        stopped = asyncio.ensure_future(self._stop())
        cancelled = await _to_its_end(stopped)
        stopped.result()
        if cancelled is not None:
            raise cancelled

    async def abandon(self) -> None:
        """End a child that nobody speaks to, and close our ends of its pipes."""

        def close() -> None:
            os.close(self.stdin)

        try:
            await self.stop(close)
        finally:
            os.close(self.stdout)
            os.close(self.stderr)

    async def _stop(self) -> None:
        if not await self._gone(STDIN_GRACE):
            self.signalled = True
            self._signal(signal.SIGTERM)
            if not await self._gone(TERM_GRACE):
                self._signal(signal.SIGKILL)
                await asyncio.wait({self.exited})
        await self._end_family()
        await asyncio.get_running_loop().run_in_executor(None, _spawner.ledger().remove, self.pid)

    async def _gone(self, seconds: float) -> bool:
        done, _ = await asyncio.wait({self.exited}, timeout=seconds)
        return bool(done)

    async def _end_family(self) -> None:
        """End what the leader left behind: members of its group, and descendants wherever they have gone."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGKILL):
            look = partial(relatives, self._mark, number=number, **self._kin)
            left = await loop.run_in_executor(None, look)
            if not left and not self._group_lives():
                return
            self._signal(number)
            until = loop.time() + FAMILY_GRACE
            while loop.time() < until and (any(map(identify, left)) or self._group_lives()):  # noqa: ASYNC110 -- see POLL
                await asyncio.sleep(POLL)
        await loop.run_in_executor(None, partial(kill_relatives, self._mark, **self._kin))

    def _group_lives(self) -> bool:
        """Look at the group where `/proc` does not show its members: there, zombies would count as well."""
        if _HAS_PROC:
            return False
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        # macOS refuses the signal if only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        opener = getattr(os, "pidfd_open", None)
        if opener is None:
            loop.run_in_executor(None, self._process.wait).add_done_callback(lambda _: self._reap())
            return
        try:
            descriptor: int = opener(self.pid)
        except OSError:
            loop.run_in_executor(None, self._process.wait).add_done_callback(lambda _: self._reap())
            return

        def on_exit() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._reap()

        loop.add_reader(descriptor, on_exit)

    def _reap(self) -> None:
        code = self._process.wait()
        if not self.exited.done():
            self.exited.set_result(code)


async def spawn(
    command: str, args: Sequence[str], *, env: Mapping[str, str], cwd: str | None, name: str
) -> Child:
    """Start a child, without holding up the loop.

    Raises:
        OSError: It cannot be started.
    """
    mark = secrets.token_hex(8)
    loop = asyncio.get_running_loop()
    start = partial(_start, command, args, env={**env, MARK: mark}, cwd=cwd, name=name)
    started = asyncio.ensure_future(loop.run_in_executor(_spawner.threads, start))
    # The start cannot be undone half-way: it is awaited, and undone then.
    cancelled = await _to_its_end(started)
    if cancelled is not None:
        if started.exception() is None:
            await _to_its_end(loop.run_in_executor(_spawner.threads, _discard, started.result(), mark))
        raise cancelled
    return Child(started.result(), mark)


async def _to_its_end(work: asyncio.Future[T]) -> asyncio.CancelledError | None:
    """Wait for something that must not be broken off; returns the cancellation that came meanwhile."""
    import anyio

    cancelled: asyncio.CancelledError | None = None
    # The scope keeps anyio's cancellations out, the loop asyncio's own.
    with anyio.CancelScope(shield=True):
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError as exc:
                cancelled = exc
    return cancelled


def _start(
    command: str, args: Sequence[str], *, env: Mapping[str, str], cwd: str | None, name: str
) -> Started:
    program = shutil.which(command, path=env.get("PATH")) or command
    argv = [program, *args]
    with _spawner.once:
        guard = _death_guard()
    if guard and os.access(program, os.X_OK) and Path(program).is_file():
        argv = [*guard, *argv]
    ledger = _spawner.ledger()
    theirs_in, stdin = os.pipe()
    stdout, theirs_out = os.pipe()
    stderr, theirs_err = os.pipe()
    try:
        process = subprocess.Popen(
            argv,
            stdin=theirs_in,
            stdout=theirs_out,
            stderr=theirs_err,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        raise
    finally:
        for descriptor in (theirs_in, theirs_out, theirs_err):
            os.close(descriptor)
    ledger.add(process.pid, name, env[MARK])
    kin = Kin(group=process.pid, ends=child_ends(stdin, stdout, stderr), since=began(process.pid))
    return Started(process, stdin, stdout, stderr, kin)


@cache
def _death_guard() -> tuple[str, ...]:
    """Return what is put before a command so that the child dies with us; nothing where that is unknown."""
    program = shutil.which("setpriv") if sys.platform == "linux" else None
    if program is None:
        return ()
    check = subprocess.run(
        [program, "--pdeathsig", "KILL", "--", "true"], capture_output=True, check=False, timeout=5
    )
    return (program, "--pdeathsig", "KILL", "--") if check.returncode == 0 else ()


def _discard(started: Started, mark: str) -> None:
    """End a child that nobody waits for."""
    process, *descriptors, kin = started
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kill_relatives(mark, **kin)
    for descriptor in descriptors:
        os.close(descriptor)
    _spawner.ledger().remove(process.pid)
