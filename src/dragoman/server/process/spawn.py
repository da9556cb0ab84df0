"""Starts child processes.

Each child leads its own session and process group. The watchdog starts it, so that it ends with us, and on
Linux with all its descendants. Without a watchdog, or before it is up, the child is started from a thread
that lives as long as this process: the signal at the parent's death (PDEATHSIG) is tied to the starting
*thread*. Each child has two marks by which its descendants are found wherever they are: one in its
environment, one in its resource limits. `family.py` stops a child.
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
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dragoman.errors import ConfigError, DragomanError
from dragoman.model import Stdio
from dragoman.server.closing import uninterrupted
from dragoman.server.process.environment import whole_environment
from dragoman.server.process.family import ProcessGroup, RunningChild
from dragoman.server.process.orphans import (
    MARK,
    Container,
    Ledger,
    ProcessMatch,
    began,
    child_ends,
    default_folder,
    end,
    identify,
    kill_relatives,
    sweep,
    with_id,
)
from dragoman.server.process.watchdog import (
    StartOrder,
    Ward,
    Watchdog,
    WatchdogError,
    adopts,
    is_possible,
    mark_limits,
    new_tag,
    rights,
)
from dragoman.storage.files import private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dragoman.model import ServerSpec, Transport
    from dragoman.server.process.watchdog import Running

logger = logging.getLogger("dragoman")

HAS_POSIX_PIPES = find_spec("fcntl") is not None
"""Whether children are spoken to over POSIX pipes; else over the streams of the event loop."""

T = TypeVar("T")


class _Spawner:
    """Threads, watchdog and ledger: what this process needs to start children.

    A forked process cannot use its copies: the threads do not exist there, a lock may stay held forever, and
    the ledger belongs to the parent.
    """

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="dragoman-spawn")
        self.once = Lock()
        """Held during initialization: two ledgers would overwrite each other."""
        self._ledger: Ledger | None = None
        self._watchdog: Watchdog | None = None
        self._has_watchdog = is_possible()
        self._holders = 0
        self._using = Lock()
        self.starting = 0
        """How many children are being started."""

    def counted(self, start: Callable[[], T]) -> Callable[[], T]:
        """Return a start that counts from now until it is done; the last one completes the ledger."""
        with self._using:
            self.starting += 1

        def run() -> T:
            try:
                return start()
            finally:
                with self._using:
                    self.starting -= 1
                    is_last = not self.starting
                if is_last and self._ledger is not None:
                    self._ledger.flush()

        return run

    def launch(self, order: StartOrder, pipes: Sequence[int], *, waits: bool) -> Running:
        """Start a child through the watchdog, or directly if there is none or we cannot wait for it.

        Raises:
            OSError: It cannot be started.
        """
        waits = waits or not adopts()
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
        # Start the watchdog now: it cleans up after us, and starts the next children.
        child.watchdog = self.take()
        return child

    def release(self, process: Running) -> None:
        """Release a child that has ended; with the last one the watchdog ends, and kills what is left."""
        process.close()
        if process.watchdog is not None:
            self.leave(process.watchdog)

    def hold(self) -> None:
        """Keep the watchdog even while there are no children."""
        with self._using:
            self._holders += 1

    def let_go(self) -> Watchdog | None:
        """Undo `hold`; return the watchdog if it is not needed any more, to be closed."""
        with self._using:
            self._holders -= 1
            watchdog = self._watchdog
            if watchdog is None or watchdog.users or self._holders:
                return None
            self._watchdog = None
        return watchdog

    def _is_watched(self) -> bool:
        with self._using:
            return self._watchdog is not None and self._watchdog.is_up

    def take(self) -> Watchdog | None:
        """Return the watchdog, or `None` if it is not possible; `leave` must follow."""
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
        """Undo `take`."""
        with self._using:
            watchdog.users -= 1
            if watchdog.users or (self._holders and self._watchdog is watchdog):
                return
            if self._watchdog is watchdog:
                self._watchdog = None
        watchdog.close()

    def _give_up(self, watchdog: Watchdog, error: WatchdogError) -> None:
        """Drop a watchdog that does not answer; try no other one if it cannot work on this system."""
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
        """Close the copies in a forked process, without locks: one may stay held forever."""
        if self._watchdog is not None:
            self._watchdog.forget()

    def ledger(self) -> Ledger:
        """Return this process's ledger; the first call kills the orphans of dead processes."""
        with self.once:
            if self._ledger is None:
                folder = default_folder()
                sweep(folder)
                self._ledger = Ledger(folder)
            return self._ledger


_spawner = _Spawner()


def _renew_spawner() -> None:
    global _spawner  # noqa: PLW0603 -- one for each process, and this is a new one
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
    kin: ProcessMatch
    container: Container | None = None


class Child(RunningChild):
    """A running child; the user of its descriptors closes them."""

    def __init__(self, started: Started, mark: str) -> None:
        super().__init__()
        process = self.process = started.process
        self.pid = process.pid
        self.stdin = started.stdin
        """Our end of the child's standard input."""
        self.stdout = started.stdout
        self.stderr = started.stderr
        self.mark = mark
        self.family = ProcessGroup(
            process.pid,
            mark=mark,
            kin=started.kin,
            is_alone=lambda: process.is_alone,
            release=partial(_release, process, started.container),
        )
        self._watch()

    def poll(self) -> int | None:
        """Return the exit code if the child has exited, even before the event loop has noticed."""
        return self.process.poll()

    async def abandon(self) -> None:
        """Stop a child that was never connected, and close our ends of its pipes."""

        def close() -> None:
            os.close(self.stdin)

        try:
            await self.stop(close)
        finally:
            os.close(self.stdout)
            os.close(self.stderr)

    def nudge(self) -> None:
        """Wake the watchdog, which reports the exit; a server can have stopped it."""
        if self.process.watchdog is not None:
            self.process.watchdog.wake()

    def check_killed(self) -> None:
        """Notice the exit of a killed child even if its watchdog hangs and does not report it."""
        if isinstance(self.process, Ward) and identify(self.pid) is None and not self.exited.done():
            asyncio.get_running_loop().remove_reader(self.process.fileno())
            self.exited.set_result(-signal.SIGKILL)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        descriptor = self.process.fileno()
        if descriptor is None:
            loop.run_in_executor(None, self.process.wait).add_done_callback(lambda _: self._reap())
            return

        def on_exit() -> None:
            loop.remove_reader(descriptor)
            self._reap()

        loop.add_reader(descriptor, on_exit)

    def _reap(self) -> None:
        code = self.process.wait()
        if not self.exited.done():
            self.exited.set_result(code)


def hold_watchdog() -> None:
    """Keep the watchdog while servers start and stop, until `let_go_of_watchdog`."""
    _spawner.hold()


async def let_go_of_watchdog() -> None:
    """Let the watchdog exit if no other server needs it."""
    if (watchdog := _spawner.let_go()) is not None:
        await uninterrupted(asyncio.get_running_loop().run_in_executor(None, watchdog.close))


async def spawn(
    command: str,
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    name: str,
    stdio: Stdio | None = None,
    waits: bool = False,
) -> Child:
    """Start a child without blocking the event loop.

    Args:
        command: The program.
        args: Its arguments.
        env: Its whole environment.
        cwd: Its working directory; the default is our own.
        name: The server's name.
        stdio: Its entry, which says what its sandbox is.
        waits: Whether to wait for the watchdog if it is not up yet.

    Raises:
        OSError: It cannot be started.
    """
    mark = secrets.token_hex(8)
    loop = asyncio.get_running_loop()
    wanted = StartOrder([command, *args], {**env, MARK: mark}, cwd, 0)
    start = partial(_start, wanted, stdio, name=name, waits=waits)
    started = asyncio.ensure_future(loop.run_in_executor(_spawner.threads, _spawner.counted(start)))
    # A start cannot be cancelled half-way: wait for it, then stop the child.
    cancelled = await uninterrupted(started)
    if cancelled is not None:
        if started.exception() is None:
            await uninterrupted(loop.run_in_executor(_spawner.threads, _discard, started.result(), mark))
        raise cancelled
    return Child(started.result(), mark)


def _start(wanted: StartOrder, stdio: Stdio | None, *, name: str, waits: bool) -> Started:
    spawner = _spawner
    # The first watchdog starts while the rest is prepared, and exits again if no child is started.
    watchdog = spawner.take() if waits else None
    try:
        order = found(wanted, stdio, name)
        ledger, mark = spawner.ledger(), order.env[MARK]
        argv, container = with_id(order.argv, env=order.env, folder=ledger.folder, mark=mark)
        if container is not None:
            private_folder(ledger.folder)
        order = order._replace(argv=argv, tag=new_tag())
        theirs_in, stdin = os.pipe()
        stdout, theirs_out = os.pipe()
        stderr, theirs_err = os.pipe()
        pipes = (theirs_in, theirs_out, theirs_err)
        try:
            # Without the watchdog, a sandbox costs the start of one more Python.
            process = spawner.launch(order, pipes, waits=waits or bool(order.box))
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
    identity = identify(process.pid)
    ledger.add(identity, name, mark, tag=order.tag, container=container, more=spawner.starting > 1)
    ends = child_ends(stdin, stdout, stderr)
    kin = ProcessMatch(groups=[process.pid], ends=ends, since=began(identity), tags=[order.tag])
    return Started(process, stdin, stdout, stderr, kin, container)


def found(wanted: StartOrder, stdio: Stdio | None, name: str) -> StartOrder:
    """Return the order for a server, with its program found, in the sandbox that its entry wants.

    Raises:
        ConfigError: The sandbox cannot be kept on this machine.
    """
    command, *args = wanted.argv
    program = shutil.which(command, path=wanted.env.get("PATH")) or command
    order = wanted._replace(argv=[program, *args])
    if stdio is None or stdio.sandbox in (None, "off"):
        return order
    from dragoman.server.process.sandbox import confine  # it takes 5 ms to import

    return confine(stdio, order, name)


class _Direct:
    """A child that was started without the watchdog."""

    def __init__(self, order: StartOrder, pipes: Sequence[int]) -> None:
        stdin, stdout, stderr = pipes
        self._process = subprocess.Popen(
            guarded(order.argv, order.box, order.env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=dict(order.env),
            cwd=order.cwd,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.watchdog: Watchdog | None = None
        self.is_alone = False
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


def guarded(argv: Sequence[str], box: Sequence[str] = (), env: Iterable[str] = ()) -> list[str]:
    """Return a command that does what must happen to a server before it runs, where it is not our own fork.

    A child of the watchdog does the same in `watchdog_program._enter`.

    Raises:
        ConfigError: A variable of the server decides what our own programs load, before its sandbox is on.
    """
    if box and (early := sorted(one for one in env if one.startswith(("LD_", "DYLD_", "GCONV_")))):
        msg = f"the sandbox cannot be kept without the watchdog if `{early[0]}` is set"
        raise ConfigError(msg, hint=f"remove `{early[0]}` from its `env`")
    with _spawner.once:
        prefix = _death_guard()
    if box:
        from dragoman.server.process import landlock

        argv = [sys.executable, "-I", "-S", landlock.__file__, str(len(box)), *box, *argv]
    if prefix and os.access(argv[0], os.X_OK) and Path(argv[0]).is_file():
        return [*prefix, *argv]
    return list(argv)


@cache
def _death_guard() -> tuple[str, ...]:
    """Return a command prefix that makes a child die with us; empty if the system has none."""
    program = shutil.which("setpriv") if sys.platform == "linux" else None
    if program is None:
        return ()
    check = subprocess.run(
        [program, "--pdeathsig", "KILL", "--", "true"], capture_output=True, check=False, timeout=5
    )
    return (program, "--pdeathsig", "KILL", "--") if check.returncode == 0 else ()


def _discard(started: Started, mark: str) -> None:
    """Stop a child whose start was cancelled."""
    process, *descriptors, kin, container = started
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kill_relatives(mark, **kin)
    for descriptor in descriptors:
        os.close(descriptor)
    _release(process, container)


def _release(process: Running, container: Container | None) -> None:
    """Clean up after a child and its descendants have exited."""
    if container is not None:
        end(container)
    _spawner.ledger().remove(process.pid)
    _spawner.release(process)


MAX_PRESPAWNED = 32
"""How many children may be started before the import: as many as servers start in parallel."""

_prespawned = 0


class Prespawn:
    """One child that was started ahead of its connection."""

    def __init__(self, child: Child) -> None:
        self._child: Child | None = child

    def take(self) -> Child | None:
        """Return the child, the first time."""
        child, self._child = self._child, None
        return child

    async def drop(self) -> None:
        """Stop the child if it was not taken."""
        if (child := self.take()) is not None:
            await child.abandon()


async def prespawn(spec: ServerSpec, transport: Transport, env: Mapping[str, str]) -> Prespawn | None:
    """Start the child of a server ahead of its connection; return `None` if that is not possible.

    An error is not raised here: the connection starts the child again, and reports it.

    Args:
        spec: The server.
        transport: Its transport, expanded.
        env: Our environment, from which a child may inherit.
    """
    global _prespawned  # noqa: PLW0603 -- a counter of this process
    if type(transport) is not Stdio or not HAS_POSIX_PIPES or _prespawned >= MAX_PRESPAWNED:
        return None
    _prespawned += 1
    try:
        given = whole_environment(transport, env)
        # There is time for the watchdog: the import takes longer.
        child = await spawn(
            transport.command,
            transport.args,
            env=given,
            cwd=transport.cwd,
            name=spec.name,
            stdio=transport,
            waits=True,
        )
    except (DragomanError, OSError, TypeError, ValueError):
        return None
    return Prespawn(child)
