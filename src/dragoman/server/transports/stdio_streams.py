"""The stdio transport where the system has no POSIX pipes: over the subprocess transport of the event loop.

Messages, limits and the end of the connection are those of `stdio.py`. Two things are different: the loop
decides how much it reads at once, and no watchdog starts the child.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

from dragoman.server.process.family import ProcessGroup, RunningChild
from dragoman.server.process.orphans import MARK, ProcessMatch
from dragoman.server.process.spawn import found, guarded
from dragoman.server.process.watchdog import StartOrder
from dragoman.server.transports.stdio import LinePipe

if sys.platform == "win32":
    from dragoman.server.process.family import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.model import Stdio
    from dragoman.server.process.environment import StderrTail
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.protocol.wire import SendInfo

LAST_SECONDS = 0.1
"""How long the output of an exited child may still come in; a grandchild may hold it open for ever."""


class StreamChild(RunningChild, asyncio.SubprocessProtocol):
    """A running child that the event loop has started."""

    def __init__(self, stderr: StderrTail, mark: str) -> None:
        super().__init__()
        self.on_output: Callable[[bytes], object] = _nothing
        """Called with what it writes; an empty text is the end."""
        self.is_writable = True
        self.on_writable: Callable[[], None] | None = None
        self._stderr = stderr
        self._mark = mark
        self._transport: asyncio.SubprocessTransport | None = None
        self._has_exited = False
        self._has_closed_output = False

    @property
    def stdin(self) -> asyncio.WriteTransport:
        """Our end of its standard input."""
        assert self._transport is not None  # noqa: S101 -- set before anything is sent
        return cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def poll(self) -> int | None:
        """Return the exit code if the child has exited."""
        return None if self._transport is None else self._transport.get_returncode()

    async def _stop(self, grace: float) -> None:
        await super()._stop(grace)
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a child that has just been started."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()
        if sys.platform == "win32":
            self.family = Job(self.pid)
        else:
            self.family = ProcessGroup(self.pid, mark=self._mark, kin=ProcessMatch(groups=[self.pid]))
        # The queue of messages is ours, so that one that was not written can be withdrawn.
        self.stdin.set_write_buffer_limits(high=0)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on what the child writes."""
        if fd == 1:
            self.on_output(data)
        else:
            self._stderr.add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of a pipe."""
        del exc
        if fd == 1:
            self._has_closed_output = True
            self.on_output(b"")
            if self._has_exited:
                self._report()

    def process_exited(self) -> None:
        """Report the exit, once the rest of the output is read."""
        self._has_exited = True
        if self._has_closed_output:
            self._report()
        else:
            asyncio.get_running_loop().call_later(LAST_SECONDS, self._report)

    def pause_writing(self) -> None:
        """Note that the child does not read."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Write what was queued meanwhile."""
        self.is_writable = True
        if self.on_writable is not None:
            self.on_writable()

    def _report(self) -> None:
        code = self.poll()
        if code is not None and not self.exited.done():
            self.exited.set_result(code)


async def start_child(stdio: Stdio, env: Mapping[str, str], stderr: StderrTail, name: str) -> StreamChild:
    """Start a child in a process group of its own.

    Raises:
        ConfigError: Its sandbox cannot be kept on this system.
        OSError: It cannot be started.
    """
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    mark = secrets.token_hex(8)
    wanted = StartOrder([stdio.command, *stdio.args], {**env, MARK: mark}, stdio.cwd, 0)
    order = await asyncio.to_thread(found, wanted, stdio, name)
    command = await asyncio.to_thread(guarded, order.argv, order.box)
    _, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: StreamChild(stderr, mark),
        *command,
        env=dict(order.env),
        cwd=order.cwd,
        **apart,
    )
    return child


class StreamPipe(LinePipe):
    """The standard input and output of one child, as streams of the event loop."""

    def __init__(
        self, rpc: Rpc, *, server: str, child: StreamChild, limit: int, on_end: Callable[[str], None]
    ) -> None:
        """Use a child; the other arguments are those of `LinePipe`."""
        super().__init__(rpc, server=server, limit=limit, on_end=on_end)
        self._child = child
        child.on_output = self._receive
        child.on_writable = self._flush

    def was_read(self) -> bool:
        """Return whether the child may have read anything: more is not known of a stream."""
        return bool(self._written)

    def close(self) -> None:
        """Close its input, and receive nothing any more."""
        self.close_stdin()
        self._stop_reading()

    def read_rest(self) -> None:
        """Do nothing: the exit is reported after the rest of the output."""

    def _write(self, envelope: SendInfo) -> None:
        del envelope
        self._flush()

    def _flush(self) -> None:
        stdin = self._child.stdin
        while self._queue and self._child.is_writable and self._is_open:
            if stdin.is_closing():
                self._fail_writing("it was closed")
                return
            message = self._queue.popleft()[0]
            self._written += len(message)
            stdin.write(message + b"\n")

    def _close_stdin(self) -> None:
        self._child.stdin.close()

    def _stop_reading(self) -> None:
        self._child.on_output = _nothing


def _nothing(_chunk: bytes) -> None:
    """Receive nothing."""
