"""Ends a child with the processes that it has started, where no watchdog does.

Proven on Linux, where a mark in the environment finds those that have left the process group. It should
work on macOS, by the group, and on Windows, by the tree of processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from functools import partial

from dragoman.server.process.orphans import kill_relatives


async def end_family(pid: int, mark: str, *, force: bool) -> None:
    """Ask a child and its family to end, or kill them; the child itself may already have exited.

    Args:
        pid: The child, which leads a process group of its own.
        mark: The value of `MARK` in its environment.
        force: Whether to kill them.
    """
    if sys.platform == "win32":
        command = ["taskkill", "/T", *(["/F"] if force else []), "/PID", str(pid)]
        nothing = asyncio.subprocess.DEVNULL
        with suppress(OSError):
            killer = await asyncio.create_subprocess_exec(*command, stdout=nothing, stderr=nothing)
            await killer.wait()
        return
    # macOS reports PermissionError if only zombies are left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL if force else signal.SIGTERM)
    if force:
        await asyncio.to_thread(partial(kill_relatives, mark, groups=[pid]))
