"""The wire to a child process: JSON-RPC lines straight on its pipes, without streams or tasks between.

Reading is done as the loop says there is something, a bounded amount at a time: the more lines there
were in the last one, the less is read next, so that a flood delays nobody else. Writing goes out at once if
the pipe takes it, else as it does; a message that has not begun to go out can be taken back. The wire ends
when the child's output ends, when a line has no end, or when the child ends, even if a grandchild still
holds the pipe.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import termios
from array import array
from collections import deque
from typing import TYPE_CHECKING

from dragoman.errors import ConnectionLostError
from dragoman.server.lines import Lines, TooLong
from dragoman.server.wire import Envelope

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.server.rpc import Rpc

READ_BYTES = 64 * 1024
LEAST_READ_BYTES = 4096
TURN_LINES = 100
"""How many lines one turn of the loop should take in."""
PIPE_BYTES = 256 * 1024
"""The system grants a user 64 MiB of pipes in all, then even shells get tiny ones; a server has two."""
LAST_BYTES = 2 * PIPE_BYTES
"""How much is read of what a dead child has left in its pipe; a grandchild may go on writing for ever."""
ENDLESS = 8
"""A line so many times beyond the limit of a message has no end, and nothing will ever follow it."""
MAX_UNREAD_ANSWERS = 1000
"""Answers and notifications that wait for a server which does not read; beyond it they are dropped."""
NO_ENVELOPE = Envelope()
_UNREAD = getattr(termios, "FIONREAD", None)
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)


class Pipe:
    """Both pipes of one child, bound to one conversation."""

    def __init__(
        self, rpc: Rpc, *, server: str, stdin: int, stdout: int, limit: int, on_end: Callable[[str], None]
    ) -> None:
        """Take over two descriptors; they are closed with the wire.

        Args:
            rpc: The conversation.
            server: The server's name, for errors.
            stdin: What the child reads; we write it.
            stdout: What the child writes; we read it.
            limit: Bytes of one message, at most.
            on_end: Told once why the wire ended by itself.
        """
        self._rpc = rpc
        self._server = server
        self._stdin: int | None = stdin
        self._stdout: int | None = stdout
        self._on_end = on_end
        self._lines = Lines(limit)
        self._queue: deque[tuple[bytes, Envelope]] = deque()
        """Messages of which nothing has gone out."""
        self._rest: memoryview | None = None
        """What is left of a write that the pipe took in part."""
        self._blocked = False
        self._written = 0
        self._read_bytes = LEAST_READ_BYTES
        self._loop = asyncio.get_running_loop()
        for descriptor in (stdin, stdout):
            os.set_blocking(descriptor, False)
            _widen(descriptor)
        self._loop.add_reader(stdout, self._on_readable)

    def send(self, message: bytes, envelope: Envelope = NO_ENVELOPE) -> None:
        """Send a lone request at once; what else is sent in one turn of the loop goes out in one write."""
        if self._stdin is None:
            self._refuse(envelope, "its input is closed")
            return
        if envelope.request_id is None and len(self._queue) >= MAX_UNREAD_ANSWERS:
            return
        self._queue.append((message, envelope))
        if len(self._queue) > 1 or self._blocked:
            return
        if envelope.request_id is not None and self._rpc.waiting <= 1:
            # Nobody else calls: waiting for more to send along would cost a turn of the loop.
            self._flush()
        else:
            self._loop.call_soon(self._flush)

    def abandon(self, message: bytes, envelope: Envelope, reason: str, *, tell: bool = True) -> bool:
        """Take a queued request back, or tell the server that nobody waits for it."""
        for index, (queued, _) in enumerate(self._queue):
            if queued is message:
                del self._queue[index]
                return True
        if tell:
            params = {"requestId": envelope.request_id, "reason": reason}
            self.send(self._rpc.notification("notifications/cancelled", params))
        return False

    def close_stdin(self, reason: str = "it was closed") -> None:
        """Close what the child reads, which asks it to end; requests that have not gone out fail."""
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = None
        self._rest = None
        while self._queue:
            self._refuse(self._queue.popleft()[1], reason)

    def was_read(self) -> bool:
        """Tell whether the child has taken anything of what went out; where that is unknown, it has."""
        if self._stdin is None or _UNREAD is None or not self._written:
            return bool(self._written)
        unread = array("i", [0])
        try:
            fcntl.ioctl(self._stdin, _UNREAD, unread)
        except OSError:
            return True
        return unread[0] < self._written

    def close(self) -> None:
        """Close both pipes."""
        self.close_stdin()
        if self._stdout is not None:
            self._loop.remove_reader(self._stdout)
            os.close(self._stdout)
            self._stdout = None

    def read_rest(self) -> None:
        """Read what is there now: the last words of a child that is gone."""
        left = LAST_BYTES
        while left > 0 and (count := self._read()):
            left -= count

    def _on_readable(self) -> None:
        self._read()

    def _read(self) -> int:
        """Read once; returns how many bytes there were."""
        if self._stdout is None:
            return 0
        try:
            chunk = os.read(self._stdout, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._end(f"its output cannot be read: {error.strerror}")
            return 0
        if not chunk:
            self._end("it closed its output")
            return 0
        receive = self._rpc.receive
        for line in self._lines.feed(chunk):
            if isinstance(line, TooLong):
                limit = self._lines.limit
                reason = f"the message has {line.size} bytes, the limit `max_message_bytes` is {limit}"
                self._rpc.received += 1
                self._rpc.salvage(line.head, line.tail, reason)
            else:
                receive(line)
        if self._lines.pending > ENDLESS * self._lines.limit:
            self._end(f"a line of its output has no end ({self._lines.pending} bytes so far)")
            return 0
        if chunk.count(b"\n") > TURN_LINES:
            self._read_bytes = max(LEAST_READ_BYTES, self._read_bytes // 2)
        elif len(chunk) == self._read_bytes:
            self._read_bytes = min(READ_BYTES, self._read_bytes * 2)
        return len(chunk)

    def _flush(self) -> None:
        """Write what is queued, as far as the pipe takes it."""
        while self._stdin is not None and (self._rest is not None or self._queue):
            if self._rest is None:
                self._rest = memoryview(self._joined())
            try:
                written = os.write(self._stdin, self._rest)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError as error:
                reason = f"its input cannot be written: {error.strerror}"
                self.close_stdin(reason)
                self._end(reason)
                return
            self._written += written
            if written < len(self._rest):
                self._rest = self._rest[written:]
                if not self._blocked:
                    self._blocked = True
                    self._loop.add_writer(self._stdin, self._flush)
                return
            self._rest = None
        if self._blocked and self._stdin is not None:
            self._blocked = False
            self._loop.remove_writer(self._stdin)

    def _joined(self) -> bytes:
        """Take messages off the queue, up to what a pipe holds, as one piece."""
        lines: list[bytes] = []
        size = 0
        while self._queue and size < PIPE_BYTES:
            message = self._queue.popleft()[0]
            lines.append(message)
            size += len(message)
        lines.append(b"")
        return b"\n".join(lines)

    def _refuse(self, envelope: Envelope, reason: str) -> None:
        """Fail a request of which nothing has gone out: it surely has not run."""
        if envelope.request_id is not None:
            msg = f"the connection to server `{self._server}` ended before the request went out: {reason}"
            lost = ConnectionLostError(msg, server=self._server, may_have_run=False)
            self._rpc.fail(envelope.request_id, lost)

    def _end(self, reason: str) -> None:
        if self._stdout is not None:
            self._loop.remove_reader(self._stdout)
        on_end, self._on_end = self._on_end, _nobody
        on_end(reason)


def _nobody(_reason: str) -> None:
    """Stand in for a listener that has been told."""


def _widen(descriptor: int) -> None:
    """Make a pipe larger where the system can: a large message then takes fewer turns."""
    if _SET_PIPE_SIZE is not None:
        try:
            fcntl.fcntl(descriptor, _SET_PIPE_SIZE, PIPE_BYTES)
        except OSError:
            return
