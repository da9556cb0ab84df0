"""Ends a child with everything that it has started: the one way to do so, on every system.

`RunningChild` has the order of events: its input is closed, it is asked to end, then it is killed, and so
are its descendants. A `Family` has what a system knows of them: `ProcessGroup` on POSIX, `Job` on Windows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from dragoman.server.closing import uninterrupted
from dragoman.server.process.orphans import ProcessMatch, descendants, identify, kill_relatives

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

logger = logging.getLogger("dragoman")

STDIN_GRACE = 2.0
TERM_GRACE = 2.0
KILL_GRACE = 2.0
"""How long the exit of a killed child may take to be reported; then we check ourselves."""
FAMILY_GRACE = 0.5
TOGETHER = 0.05
"""How long the end of a child waits for others that are being stopped, to look for what all of them left."""
POLL = 0.02
"""How often a group without a leader is checked while it ends: the system does not report its end."""

_HAS_PROC = Path("/proc/self/stat").exists()


class Family(Protocol):
    """The processes of one child: itself, and all that it has started."""

    def end(self, *, force: bool) -> None:
        """Ask them to end, or kill them."""

    async def end_rest(self) -> None:
        """End what the exited child has left running, and release what belongs to it."""


class RunningChild:
    """A child process; there is a subclass for each way to start one."""

    def __init__(self) -> None:
        self.pid = 0
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Gets the exit code when the child itself has exited; minus the signal if it was killed."""
        self.signalled = False
        """Whether we sent it a signal."""
        self.family: Family | None = None

    def poll(self) -> int | None:
        """Return the exit code if the child has exited, even before the event loop has noticed."""
        return self.exited.result() if self.exited.done() else None

    async def stop(self, close_stdin: Callable[[], None], *, grace: float = STDIN_GRACE) -> None:
        """Stop the child and everything it started; a cancellation is raised only after that.

        Args:
            close_stdin: Closes its input, which ends a well-behaved server.
            grace: Seconds that it has to exit by itself before it gets a signal.
        """
        close_stdin()
        stopped = asyncio.ensure_future(self._stop(grace))
        cancelled = await uninterrupted(stopped)
        stopped.result()
        if cancelled is not None:
            raise cancelled

    def nudge(self) -> None:
        """Let whatever reports the exit go on, if it can be stopped."""

    def check_killed(self) -> None:
        """Notice the exit of a killed child that is not reported."""

    async def _stop(self, grace: float) -> None:
        assert self.family is not None  # noqa: S101 -- set with the process id
        with _leftovers().expecting(self):
            if not await self._gone(grace):
                self.signalled = True
                self.family.end(force=False)
                if not await self._gone(TERM_GRACE):
                    self.family.end(force=True)
                    while not await self._gone(KILL_GRACE):
                        self.check_killed()
        await self.family.end_rest()

    async def _gone(self, seconds: float) -> bool:
        self.nudge()
        done, _ = await asyncio.wait({self.exited}, timeout=seconds)
        return bool(done)


class ProcessGroup:
    """A family on POSIX: the group of the child, and on Linux whatever has left it but has its marks."""

    def __init__(
        self,
        pid: int,
        *,
        mark: str,
        kin: ProcessMatch,
        is_alone: Callable[[], bool] = lambda: False,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over the family of a child that leads a group.

        Args:
            pid: The child.
            mark: The mark in its environment.
            kin: How its descendants are recognized otherwise.
            is_alone: Returns whether the exited child is known to have left no descendant.
            release: Called in a thread when all have exited.
        """
        self.pid = pid
        self.mark = mark
        self.kin = kin
        self.is_alone = is_alone
        self.release = release

    def end(self, *, force: bool) -> None:
        """Send a signal to the group."""
        # macOS reports PermissionError if only zombies are left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL if force else signal.SIGTERM)

    async def end_rest(self) -> None:
        """End what is left, together with what other children have left that exit now."""
        await _leftovers().finish(self)

    def lives(self) -> bool:
        """Return whether the group has processes; only without `/proc`, because here zombies count too."""
        if _HAS_PROC:
            return False
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


if sys.platform == "win32":
    import ctypes

    class Job:
        """A family on Windows: a job object, which the system ends when its last handle is closed.

        So it ends too when we are killed. Written from the documentation of Windows; it has never run there.
        """

        def __init__(self, pid: int) -> None:
            """Put a process that has just been started into a job, with all that it will start."""
            handle, number = ctypes.c_void_p, ctypes.c_ulong
            kernel = self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            kernel.CreateJobObjectW.restype = kernel.OpenProcess.restype = handle
            kernel.SetInformationJobObject.argtypes = [handle, ctypes.c_int, ctypes.c_void_p, number]
            kernel.AssignProcessToJobObject.argtypes = [handle, handle]
            kernel.TerminateJobObject.argtypes = [handle, ctypes.c_uint]
            kernel.CloseHandle.argtypes = [handle]
            self._pid = pid
            self._job = kernel.CreateJobObjectW(None, None)
            # JOBOBJECT_EXTENDED_LIMIT_INFORMATION: all zeros but LimitFlags, after two 64-bit integers.
            limits = ctypes.create_string_buffer(144 if sys.maxsize > 2**32 else 112)
            limits[16:20] = (0x2000).to_bytes(4, "little")  # KILL_ON_JOB_CLOSE
            kernel.SetInformationJobObject(self._job, 9, limits, len(limits))
            process = kernel.OpenProcess(0x0101, False, pid)  # noqa: FBT003 -- PROCESS_SET_QUOTA | PROCESS_TERMINATE
            self._is_held = bool(kernel.AssignProcessToJobObject(self._job, process))
            kernel.CloseHandle(process)
            if not self._is_held:
                logger.debug("process %d is in no job: what it starts may outlive it", pid)

        def end(self, *, force: bool) -> None:
            """Send Ctrl-Break to the group of the child, or terminate the job."""
            with suppress(OSError):
                if not force:
                    os.kill(self._pid, signal.CTRL_BREAK_EVENT)
                elif self._is_held:
                    self._kernel.TerminateJobObject(self._job, 1)
                else:
                    os.kill(self._pid, signal.SIGTERM)

        async def end_rest(self) -> None:
            """Terminate what is left, and close the job."""
            self._kernel.TerminateJobObject(self._job, 1)
            self._kernel.CloseHandle(self._job)


class _Leftovers:
    """Ends what exited children have left running; children that exit together share one search.

    A search looks at every process of the machine, so twenty of them would take longer than the exits.
    """

    def __init__(self) -> None:
        self._expected: set[RunningChild] = set()
        """Children that are being stopped and have not exited."""
        self._all_exited: asyncio.Future[None] | None = None
        self._exited: list[ProcessGroup] = []
        self._work: asyncio.Task[None] | None = None

    @contextmanager
    def expecting(self, child: RunningChild) -> Generator[None]:
        """Expect the exit of a child inside."""
        self._expected.add(child)
        try:
            yield
        finally:
            self._expected.remove(child)
            if not self._expected and self._all_exited is not None:
                self._all_exited.set_result(None)
                self._all_exited = None

    async def finish(self, group: ProcessGroup) -> None:
        """Clean up after a child that has exited; wait until its descendants have exited too."""
        self._exited.append(group)
        if self._work is None:
            self._work = asyncio.create_task(self._finish_all(), name="dragoman stops processes")
        work = self._work
        await asyncio.wait({work})
        work.result()

    async def _finish_all(self) -> None:
        loop = asyncio.get_running_loop()
        if self._expected:
            self._all_exited = self._all_exited or loop.create_future()
            await asyncio.wait({self._all_exited}, timeout=TOGETHER)
        groups, self._exited = self._exited, []
        self._work = None
        if searched := [group for group in groups if not group.is_alone()]:
            await _stop_descendants(searched)
        await asyncio.gather(*(loop.run_in_executor(None, group.release) for group in groups))


async def _stop_descendants(groups: Sequence[ProcessGroup]) -> None:
    """Stop the rest of the process groups, and descendants that have left them."""
    loop = asyncio.get_running_loop()
    marks, kin = [group.mark for group in groups], _joined(group.kin for group in groups)
    for force in (False, True):
        number = signal.SIGKILL if force else signal.SIGTERM
        look = partial(descendants, *marks, number=number, **kin)
        left = await loop.run_in_executor(None, look)
        if not left and not any(group.lives() for group in groups):
            return
        for group in groups:
            group.end(force=force)
        until = loop.time() + FAMILY_GRACE
        while loop.time() < until and (  # noqa: ASYNC110 -- see POLL
            any(map(identify, left)) or any(group.lives() for group in groups)
        ):
            await asyncio.sleep(POLL)
    await loop.run_in_executor(None, partial(kill_relatives, *marks, **kin))


def _joined(kins: Iterable[ProcessMatch]) -> ProcessMatch:
    """Return how the descendants of any of these children are recognized."""
    all_of = list(kins)
    return ProcessMatch(
        groups={group for kin in all_of for group in kin.get("groups", ())},
        ends={name: mode for kin in all_of for name, mode in kin.get("ends", {}).items()},
        since=min(kin.get("since", 0) for kin in all_of),
        tags=[tag for kin in all_of for tag in kin.get("tags", ())],
    )


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Leftovers] = WeakKeyDictionary()


def _leftovers() -> _Leftovers:
    """Return the `_Leftovers` of this event loop."""
    return _of_loops.setdefault(asyncio.get_running_loop(), _Leftovers())
