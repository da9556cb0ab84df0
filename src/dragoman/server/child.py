"""One child process: started, listened to, watched, and ended with everything it started.

A child leads a process group and a session of its own. On Linux the watchdog starts it, so that it ends
with us together with all that it started. Where there is no watchdog, or none yet, it is started from a
thread that lives as long as we do, since the signal that ends a child with its parent follows the starting
*thread*. A child carries marks by which its descendants are found, wherever they have gone: one in its
environment, one in its limits. Ending it is polite first: its input is closed, then it is asked, then it is
killed, and what is left of its family with it.
"""

from __future__ import annotations

import asyncio
import logging
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

from dragoman.private import private_folder
from dragoman.server.containers import Container, end, with_id
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
from dragoman.server.watchdog import (
    Order,
    Ward,
    Watchdog,
    WatchdogError,
    is_possible,
    mark_limits,
    new_tag,
    rights,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.server.watchdog import Running

logger = logging.getLogger("dragoman")

STDIN_GRACE = 2.0
TERM_GRACE = 2.0
KILL_GRACE = 2.0
"""How long the end of a killed child may take to be told; then we look ourselves."""
FAMILY_GRACE = 0.5
POLL = 0.02
"""How often a group without a leader is looked at while it ends: nothing tells us when it does."""

_HAS_PROC = Path("/proc/self/stat").exists()

T = TypeVar("T")


class _Spawner:
    """What starting children needs, once in a process: threads, a watchdog, a ledger of who was started.

    A process that was forked off has copies of both which it cannot use: the threads are not there, a lock
    may be held for ever, and the ledger is the other process's.
    """

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="dragoman-spawn")
        self.once = Lock()
        """Held while something is found out for the first time: two ledgers would overwrite each other."""
        self._ledger: Ledger | None = None
        self._watchdog: Watchdog | None = None
        self._has_watchdog = is_possible()
        self._holders = 0
        self._using = Lock()

    def launch(self, order: Order, pipes: Sequence[int], *, waits: bool) -> Running:
        """Start a child through the watchdog; directly where there is none, or none yet and there is no time.

        Raises:
            OSError: It cannot be started.
        """
        for _ in range(2):
            if not (waits or self._is_watched()):
                break
            watchdog = self.take()
            if watchdog is None:
                break
            try:
                return watchdog.start(order, pipes)
            except WatchdogError as error:
                self._give_up(watchdog, error)
            except BaseException:
                self.leave(watchdog)
                raise
        child = _Direct(order, pipes)
        # It comes up beside the child: it sweeps after us, and starts those that follow.
        child.watchdog = self.take()
        return child

    def release(self, process: Running) -> None:
        """Let go of a child that has ended; the watchdog ends with the last one, and what is left with it."""
        process.close()
        if process.watchdog is not None:
            self.leave(process.watchdog)

    def hold(self) -> None:
        """Keep the watchdog, once there is one, although no child may be left for a while."""
        with self._using:
            self._holders += 1

    def let_go(self) -> None:
        """Keep the watchdog no longer."""
        with self._using:
            self._holders -= 1
            watchdog = self._watchdog
            if watchdog is None or watchdog.users or self._holders:
                return
            self._watchdog = None
        watchdog.close()

    def _is_watched(self) -> bool:
        with self._using:
            return self._watchdog is not None and self._watchdog.is_up

    def take(self) -> Watchdog | None:
        """Return the watchdog, to be left again; nothing where there can be none."""
        with self._using:
            if self._watchdog is not None and self._watchdog.rights != rights():
                self._watchdog = None
            if self._watchdog is None and self._has_watchdog:
                try:
                    self._watchdog = Watchdog(default_folder())
                except OSError as error:
                    logger.debug("servers are started without a watchdog: %s", error)
                    self._has_watchdog = False
            if self._watchdog is not None:
                self._watchdog.users += 1
            return self._watchdog

    def leave(self, watchdog: Watchdog) -> None:
        """Be done with the watchdog."""
        with self._using:
            watchdog.users -= 1
            if watchdog.users or (self._holders and self._watchdog is watchdog):
                return
            if self._watchdog is watchdog:
                self._watchdog = None
        watchdog.close()

    def _give_up(self, watchdog: Watchdog, error: WatchdogError) -> None:
        """Do without a watchdog that does not answer; another one may do better, unless it said why not."""
        with self._using:
            if self._watchdog is watchdog:
                self._watchdog = None
            if watchdog.is_unable and self._has_watchdog:
                logger.debug("servers are started without a watchdog: it cannot work on this system")
                self._has_watchdog = False
            elif self._has_watchdog:
                logger.debug("the watchdog does not answer: %s", error)
        self.leave(watchdog)

    def forget(self) -> None:
        """Let go of copies, in a process that was forked off; takes no lock, which may be held for ever."""
        if self._watchdog is not None:
            self._watchdog.forget()

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
    _spawner.forget()
    _spawner = _Spawner()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_spawner)


class Started(NamedTuple):
    """A child that has just been started, and our ends of its pipes."""

    process: Running
    stdin: int
    stdout: int
    stderr: int
    kin: Kin
    container: Container | None = None


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
        self._container = started.container
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
                while not await self._gone(KILL_GRACE):
                    self._look_for_itself()
        await self._end_family()
        await asyncio.get_running_loop().run_in_executor(None, _finish, self._process, self._container)

    def _look_for_itself(self) -> None:
        """Take a killed child for gone if it is, even if its watchdog, which hangs, does not say so."""
        if isinstance(self._process, Ward) and identify(self.pid) is None and not self.exited.done():
            asyncio.get_running_loop().remove_reader(self._process.fileno())
            self.exited.set_result(-signal.SIGKILL)

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
        descriptor = self._process.fileno()
        if descriptor is None:
            loop.run_in_executor(None, self._process.wait).add_done_callback(lambda _: self._reap())
            return

        def on_exit() -> None:
            loop.remove_reader(descriptor)
            self._reap()

        loop.add_reader(descriptor, on_exit)

    def _reap(self) -> None:
        code = self._process.wait()
        if not self.exited.done():
            self.exited.set_result(code)


def hold_watchdog() -> None:
    """Keep the watchdog while servers come and go; `let_go_of_watchdog` ends that."""
    _spawner.hold()


async def let_go_of_watchdog() -> None:
    """Let the watchdog end, if no other server needs it."""
    await _to_its_end(asyncio.get_running_loop().run_in_executor(None, _spawner.let_go))


async def spawn(
    command: str,
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    name: str,
    waits: bool = False,
) -> Child:
    """Start a child, without holding up the loop.

    Args:
        command: The program.
        args: Its arguments.
        env: Its whole environment.
        cwd: Its directory; our own unless given.
        name: The server's name.
        waits: Whether there is time to wait for the watchdog, should there be none yet.

    Raises:
        OSError: It cannot be started.
    """
    mark = secrets.token_hex(8)
    loop = asyncio.get_running_loop()
    start = partial(_start, command, args, env={**env, MARK: mark}, cwd=cwd, name=name, waits=waits)
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
    command: str, args: Sequence[str], *, env: Mapping[str, str], cwd: str | None, name: str, waits: bool
) -> Started:
    spawner = _spawner
    # The first watchdog comes up while the rest is prepared, and goes again if nothing is started.
    watchdog = spawner.take() if waits else None
    try:
        program = shutil.which(command, path=env.get("PATH")) or command
        ledger = spawner.ledger()
        argv, container = with_id([program, *args], env=env, folder=ledger.folder, mark=env[MARK])
        if container is not None:
            private_folder(ledger.folder)
        order = Order(argv, env, cwd, new_tag())
        theirs_in, stdin = os.pipe()
        stdout, theirs_out = os.pipe()
        stderr, theirs_err = os.pipe()
        pipes = (theirs_in, theirs_out, theirs_err)
        try:
            process = spawner.launch(order, pipes, waits=waits)
        except BaseException:
            for descriptor in (stdin, stdout, stderr):
                os.close(descriptor)
            raise
        finally:
            for descriptor in pipes:
                os.close(descriptor)
    finally:
        if watchdog is not None:
            spawner.leave(watchdog)
    ledger.add(process.pid, name, env[MARK], tag=order.tag, container=container)
    ends = child_ends(stdin, stdout, stderr)
    kin = Kin(group=process.pid, ends=ends, since=began(process.pid), tags=[order.tag])
    return Started(process, stdin, stdout, stderr, kin, container)


class _Direct:
    """A child that we started ourselves."""

    def __init__(self, order: Order, pipes: Sequence[int]) -> None:
        argv = list(order.argv)
        with _spawner.once:
            guard = _death_guard()
        if guard and os.access(argv[0], os.X_OK) and Path(argv[0]).is_file():
            argv = [*guard, *argv]
        stdin, stdout, stderr = pipes
        self._process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=dict(order.env),
            cwd=order.cwd,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.watchdog: Watchdog | None = None
        mark_limits(self.pid, order.tag)
        try:
            self._descriptor: int | None = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            self._descriptor = None

    def fileno(self) -> int | None:
        return self._descriptor

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self) -> int:
        return self._process.wait()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


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
    process, *descriptors, kin, container = started
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kill_relatives(mark, **kin)
    for descriptor in descriptors:
        os.close(descriptor)
    _finish(process, container)


def _finish(process: Running, container: Container | None) -> None:
    """Do what is left once a child and its family are gone."""
    if container is not None:
        end(container)
    _spawner.ledger().remove(process.pid)
    _spawner.release(process)
