"""The stdio transport where the system has no POSIX pipes: over the subprocess transport of the event loop.

Messages, limits and the end of the connection are those of `stdio.py`. Two things are different: the loop
decides how much it reads at once, and no watchdog starts the child. Its family is ended by `end_family`.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import ConnectionLostError
from dragoman.server.process.family import end_family
from dragoman.server.process.orphans import MARK
from dragoman.server.process.spawn import TERM_GRACE, uninterrupted
from dragoman.server.transports.stdio import ENDLESS, MAX_UNREAD_ANSWERS, NO_ENVELOPE, Lines, feed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.model import Stdio
    from dragoman.server.process.environment import StderrTail
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.protocol.wire import Envelope

LAST_SECONDS = 0.1
"""How long the output of an exited child may still come in; a grandchild may hold it open for ever."""


class StreamChild(asyncio.SubprocessProtocol):
    """A running child; has what `Child` has."""

    def __init__(self, stderr: StderrTail, mark: str) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Gets the exit code when the child itself has exited; minus the signal if it was killed."""
        self.signalled = False
        """Whether we sent it a signal."""
        self.pid = 0
        self.on_output: Callable[[bytes], None] = _nothing
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

    async def stop(self, close_stdin: Callable[[], None], *, grace: float) -> None:
        """Stop the child and its family; a cancellation is raised only after that."""
        close_stdin()
        stopped = asyncio.ensure_future(self._stop(grace))
        cancelled = await uninterrupted(stopped)
        stopped.result()
        if cancelled is not None:
            raise cancelled

    async def _stop(self, grace: float) -> None:
        if not await self._gone(grace):
            self.signalled = True
            await end_family(self.pid, self._mark, force=False)
            if not await self._gone(TERM_GRACE):
                await end_family(self.pid, self._mark, force=True)
                await self._gone(TERM_GRACE)
        await end_family(self.pid, self._mark, force=True)
        if self._transport is not None:
            self._transport.close()

    async def _gone(self, seconds: float) -> bool:
        done, _ = await asyncio.wait({self.exited}, timeout=seconds)
        return bool(done)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a child that has just been started."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()
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


async def start_child(stdio: Stdio, env: Mapping[str, str], stderr: StderrTail) -> StreamChild:
    """Start a child in a process group of its own.

    Raises:
        OSError: It cannot be started.
    """
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    mark = secrets.token_hex(8)
    _, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: StreamChild(stderr, mark),
        stdio.command,
        *stdio.args,
        env={**env, MARK: mark},
        cwd=stdio.cwd,
        **apart,
    )
    return child


class StreamPipe:
    """The standard input and output of one child; has what `Pipe` has."""

    def __init__(
        self, rpc: Rpc, *, server: str, child: StreamChild, limit: int, on_end: Callable[[str], None]
    ) -> None:
        """Use a child; the arguments are those of `Pipe`."""
        self._rpc = rpc
        self._server = server
        self._child = child
        self._on_end: Callable[[str], None] | None = on_end
        self._lines = Lines(limit)
        self._queue: deque[tuple[bytes, Envelope]] = deque()
        self._is_open = True
        self._written = 0
        child.on_output = self._receive
        child.on_writable = self._flush

    def send(self, message: bytes, envelope: Envelope = NO_ENVELOPE) -> None:
        """Send a message, or queue it while the child does not read."""
        if not self._is_open:
            self._refuse(envelope, "its input is closed")
        elif envelope.request_id is not None or len(self._queue) < MAX_UNREAD_ANSWERS:
            self._queue.append((message, envelope))
            self._flush()

    def abandon(self, message: bytes, envelope: Envelope, reason: str, *, tell: bool = True) -> bool:
        """Withdraw a queued request, or send the server a cancellation."""
        for index, (queued, _) in enumerate(self._queue):
            if queued is message:
                del self._queue[index]
                return True
        if tell:
            params = {"requestId": envelope.request_id, "reason": reason}
            self.send(self._rpc.notification("notifications/cancelled", params))
        return False

    def close_stdin(self, reason: str = "it was closed") -> None:
        """Close the child's input, which asks it to exit; requests that were not written fail."""
        if self._is_open:
            self._is_open = False
            self._child.stdin.close()
        while self._queue:
            self._refuse(self._queue.popleft()[1], reason)

    def was_read(self) -> bool:
        """Return whether the child may have read anything: more is not known of a stream."""
        return bool(self._written)

    def close(self) -> None:
        """Receive nothing any more."""
        self.close_stdin()
        self._child.on_output = _nothing

    def read_rest(self) -> None:
        """Do nothing: the exit is reported after the rest of the output."""

    def _flush(self) -> None:
        stdin = self._child.stdin
        while self._queue and self._child.is_writable and self._is_open:
            if stdin.is_closing():
                reason = "its input cannot be written: it was closed"
                self.close_stdin(reason)
                self._end(reason)
                return
            message = self._queue.popleft()[0]
            self._written += len(message)
            stdin.write(message + b"\n")

    def _receive(self, chunk: bytes) -> None:
        if not chunk:
            self._end("it closed its output")
            return
        feed(self._lines, chunk, self._rpc)
        if self._lines.pending > ENDLESS * self._lines.limit:
            self._end(f"a line of its output has no end ({self._lines.pending} bytes so far)")

    def _refuse(self, envelope: Envelope, reason: str) -> None:
        """Fail a request that was not written: it certainly has not run."""
        if envelope.request_id is not None:
            msg = f"the connection to server `{self._server}` ended before the request was sent: {reason}"
            lost = ConnectionLostError(msg, server=self._server, may_have_run=False)
            self._rpc.fail(envelope.request_id, lost)

    def _end(self, reason: str) -> None:
        self._child.on_output = _nothing
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(reason)


def _nothing(_chunk: bytes) -> None:
    """Receive nothing."""
