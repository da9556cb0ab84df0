"""The wire to a child process: JSON-RPC lines straight on its pipes, without streams or tasks between.

Reading is done as the loop says there is something, a bounded amount at a time, so that a flood delays
nobody else. Writing goes out at once if the pipe takes it, else as it does; a message that has not begun to
go out can be taken back. The wire ends when the child's output ends, or when the child does, even if a
grandchild still holds the pipe.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import deque
from typing import TYPE_CHECKING

from dragoman.server.lines import Lines, TooLong

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.server.rpc import Rpc

READ_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)


class Pipe:
    """Both pipes of one child, bound to one conversation."""

    def __init__(
        self, rpc: Rpc, *, stdin: int, stdout: int, limit: int, on_end: Callable[[str], None]
    ) -> None:
        """Take over two descriptors; they are closed with the wire.

        Args:
            rpc: The conversation.
            stdin: What the child reads; we write it.
            stdout: What the child writes; we read it.
            limit: Bytes of one message, at most.
            on_end: Told once why the wire ended by itself.
        """
        self._rpc = rpc
        self._stdin: int | None = stdin
        self._stdout: int | None = stdout
        self._on_end = on_end
        self._lines = Lines(limit)
        self._queue: deque[bytes | memoryview] = deque()
        self._begun = False
        self._drained: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        for descriptor in (stdin, stdout):
            os.set_blocking(descriptor, False)
            _widen(descriptor)
        self._loop.add_reader(stdout, self._on_readable)

    def send(self, message: bytes) -> bool:
        """Send a message; returns whether all of it is out, or else it is queued."""
        if self._stdin is None:
            return False
        line = message + b"\n"
        if not self._queue:
            written = self._write(line)
            if written == len(line):
                return True
            if self._stdin is None:
                return False
            self._begun = written > 0
            self._loop.add_writer(self._stdin, self._on_writable)
            self._queue.append(memoryview(line)[written:] if written else line)
        else:
            self._queue.append(line)
        return False

    async def drain(self) -> None:
        """Wait until everything queued is out."""
        while self._queue and self._stdin is not None:
            if self._drained is None or self._drained.done():
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def take_back(self, message: bytes) -> bool:
        """Remove a message that has not begun to go out; returns whether it was still here."""
        line = message + b"\n"
        for index, queued in enumerate(self._queue):
            if queued == line and (index or not self._begun):
                del self._queue[index]
                return True
        return False

    def close_stdin(self) -> None:
        """Close what the child reads, which asks it to end."""
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = None
        self._queue.clear()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def close(self) -> None:
        """Close both pipes."""
        self.close_stdin()
        if self._stdout is not None:
            self._loop.remove_reader(self._stdout)
            os.close(self._stdout)
            self._stdout = None

    def read_rest(self) -> None:
        """Read what is there now: the last words of a child that is gone."""
        for _ in range(64):
            if self._stdout is None or not self._read():
                return

    def _on_readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Read once; returns whether there may be more."""
        if self._stdout is None:
            return False
        try:
            chunk = os.read(self._stdout, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._end(f"its output cannot be read: {error.strerror}")
            return False
        if not chunk:
            self._end("it closed its output")
            return False
        receive = self._rpc.receive
        for line in self._lines.feed(chunk):
            if isinstance(line, TooLong):
                limit = self._lines.limit
                reason = f"the message has {line.size} bytes, the limit `max_message_bytes` is {limit}"
                self._rpc.received += 1
                self._rpc.salvage(line.head, line.tail, reason)
            else:
                receive(line)
        return True

    def _on_writable(self) -> None:
        while self._queue:
            line = self._queue[0]
            written = self._write(line)
            if self._stdin is None:
                return
            if written < len(line):
                self._begun = self._begun or written > 0
                self._queue[0] = memoryview(line)[written:] if written else line
                return
            self._queue.popleft()
            self._begun = False
        if self._stdin is not None:
            self._loop.remove_writer(self._stdin)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _write(self, line: bytes | memoryview) -> int:
        if self._stdin is None:
            return 0
        try:
            return os.write(self._stdin, line)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close_stdin()
            self._end(f"its input cannot be written: {error.strerror}")
            return 0

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
