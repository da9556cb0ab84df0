"""The stdio transport: JSON-RPC lines on the pipes of a child process, without asyncio streams or tasks.

The pipe is read when the event loop reports data, a limited amount at a time: the more lines the last read
had, the less is read next, so a flood does not delay other servers. Messages are written at once if the pipe
has room; a message that was not started can still be withdrawn. The connection ends when the child's output
ends, when a line never ends, or when the child exits, even if a grandchild still holds the pipe.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from dragoman.errors import ConnectionLostError
from dragoman.server.protocol.rpc import SALVAGE_BYTES, TOO_LARGE, Bounded
from dragoman.server.protocol.wire import MAX_MESSAGE_BYTES, Envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dragoman.server.protocol.rpc import Rpc

try:
    import fcntl
    import termios
except ImportError:  # Not a POSIX system.
    fcntl = termios = None


_BLANK = b" \t\r"


class TooLong(NamedTuple):
    """Both ends of a line that is longer than the limit."""

    head: bytes
    tail: bytes
    size: int


class Lines:
    """Splits a stream of bytes into lines."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self._begun = Bounded(limit, ends=SALVAGE_BYTES)

    @property
    def pending(self) -> int:
        """How many bytes the unfinished line has so far."""
        return self._begun.size

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """Yield the lines that a chunk completes, without line ends and blank lines."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            line = self._finish(chunk[start:end])
            start = end + 1
            if line:
                yield line
        if start < len(chunk):
            self._begun.add(chunk[start:] if start else chunk)

    def _finish(self, piece: bytes) -> bytes | TooLong:
        begun = self._begun
        if not begun.size and len(piece) <= self.limit:
            return piece.strip(_BLANK)
        begun.add(piece)
        if begun.is_whole:
            return begun.take().strip(_BLANK)
        line = TooLong(*begun.ends, begun.size)
        begun.take()
        return line


def feed(lines: Lines, chunk: bytes, rpc: Rpc) -> None:
    """Handle the messages that a chunk completes."""
    receive = rpc.receive
    for line in lines.feed(chunk):
        if isinstance(line, TooLong):
            rpc.received += 1
            rpc.salvage(line.head, line.tail, f"the message has {line.size} bytes, {TOO_LARGE} {lines.limit}")
        else:
            receive(line)


READ_BYTES = 64 * 1024
LEAST_READ_BYTES = 4096
TURN_LINES = 100
"""How many lines to read in one iteration of the event loop."""
PIPE_BYTES = 256 * 1024
"""Linux allows a user 64 MiB of pipe buffers in all, and each server has two pipes."""
LAST_BYTES = 2 * PIPE_BYTES
"""How much is read from the pipe of an exited child; a grandchild may go on writing forever."""
ENDLESS = 8
"""A line this many times longer than the limit of a message counts as endless."""
MAX_UNREAD_ANSWERS = 1000
"""How many responses and notifications wait for a server that does not read; more are dropped."""
NO_ENVELOPE = Envelope()
_UNREAD = getattr(termios, "FIONREAD", None)
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)


class Pipe:
    """Both pipes of one child."""

    def __init__(
        self, rpc: Rpc, *, server: str, stdin: int, stdout: int, limit: int, on_end: Callable[[str], None]
    ) -> None:
        """Take over two descriptors; `close` closes them.

        Args:
            rpc: The JSON-RPC layer.
            server: The server's name, for errors.
            stdin: Our end of the child's standard input.
            stdout: Our end of the child's standard output.
            limit: The size limit of a message, in bytes.
            on_end: Called once with the reason if the connection ends by itself.
        """
        self._rpc = rpc
        self._server = server
        self._stdin: int | None = stdin
        self._stdout: int | None = stdout
        self._on_end = on_end
        self._lines = Lines(limit)
        self._queue: deque[tuple[bytes, Envelope]] = deque()
        """Messages of which nothing was written yet."""
        self._rest: memoryview | None = None
        """The rest of a write for which the pipe had no room."""
        self._blocked = False
        self._written = 0
        self._read_bytes = LEAST_READ_BYTES
        self._loop = asyncio.get_running_loop()
        for descriptor in (stdin, stdout):
            os.set_blocking(descriptor, False)
            _widen(descriptor)
        self._loop.add_reader(stdout, self._read)

    def send(self, message: bytes, envelope: Envelope = NO_ENVELOPE) -> None:
        """Send a single request at once; several messages in one loop iteration are written together."""
        if self._stdin is None:
            self._refuse(envelope, "its input is closed")
            return
        if envelope.request_id is None and len(self._queue) >= MAX_UNREAD_ANSWERS:
            return
        self._queue.append((message, envelope))
        if len(self._queue) > 1 or self._blocked:
            return
        if envelope.request_id is not None and self._rpc.waiting <= 1:
            # No other call is in progress, so waiting to batch would only cost a loop iteration.
            self._flush()
        else:
            self._loop.call_soon(self._flush)

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
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = None
        self._rest = None
        while self._queue:
            self._refuse(self._queue.popleft()[1], reason)

    def was_read(self) -> bool:
        """Return whether the child has read anything that we wrote; `True` if that cannot be found out."""
        if self._stdin is None or fcntl is None or _UNREAD is None or not self._written:
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
        """Read the remaining output of a child that has exited."""
        left = LAST_BYTES
        while left > 0 and (count := self._read()):
            left -= count

    def _read(self) -> int:
        """Read once, and return the number of bytes."""
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
        feed(self._lines, chunk, self._rpc)
        if self._lines.pending > ENDLESS * self._lines.limit:
            self._end(f"a line of its output has no end ({self._lines.pending} bytes so far)")
            return 0
        # Most chunks of a large message have no line end: that is known much sooner than their number.
        if b"\n" in chunk and chunk.count(b"\n") > TURN_LINES:
            self._read_bytes = max(LEAST_READ_BYTES, self._read_bytes // 2)
        elif len(chunk) == self._read_bytes:
            self._read_bytes = min(READ_BYTES, self._read_bytes * 2)
        return len(chunk)

    def _flush(self) -> None:
        """Write queued messages until the pipe is full."""
        while self._stdin is not None and (self._rest is not None or self._queue):
            data = self._joined() if self._rest is None else self._rest
            try:
                written = os.write(self._stdin, data)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError as error:
                reason = f"its input cannot be written: {error.strerror}"
                self.close_stdin(reason)
                self._end(reason)
                return
            self._written += written
            if written < len(data):
                self._rest = memoryview(data)[written:]
                if not self._blocked:
                    self._blocked = True
                    self._loop.add_writer(self._stdin, self._flush)
                return
            self._rest = None
        if self._blocked and self._stdin is not None:
            self._blocked = False
            self._loop.remove_writer(self._stdin)

    def _joined(self) -> bytes:
        """Remove messages from the queue, up to the size of a pipe, and return them as lines."""
        if len(self._queue) == 1:
            return self._queue.popleft()[0] + b"\n"
        lines: list[bytes] = []
        size = 0
        while self._queue and size < PIPE_BYTES:
            message = self._queue.popleft()[0]
            lines.append(message)
            size += len(message)
        lines.append(b"")
        return b"\n".join(lines)

    def _refuse(self, envelope: Envelope, reason: str) -> None:
        """Fail a request that was not written: it certainly has not run."""
        if envelope.request_id is not None:
            msg = f"the connection to server `{self._server}` ended before the request was sent: {reason}"
            lost = ConnectionLostError(msg, server=self._server, may_have_run=False)
            self._rpc.fail(envelope.request_id, lost)

    def _end(self, reason: str) -> None:
        if self._stdout is not None:
            self._loop.remove_reader(self._stdout)
        on_end, self._on_end = self._on_end, _nothing
        on_end(reason)


def _nothing(_reason: str) -> None:
    """Do nothing: `on_end` is called only once."""


def _widen(descriptor: int) -> None:
    """Enlarge a pipe where the system can, so that large messages need fewer writes."""
    if fcntl is not None and _SET_PIPE_SIZE is not None:
        try:
            fcntl.fcntl(descriptor, _SET_PIPE_SIZE, PIPE_BYTES)
        except OSError:
            return
