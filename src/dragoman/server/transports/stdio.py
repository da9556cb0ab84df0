"""The stdio transport: JSON-RPC lines on the pipes of a child process, without asyncio streams or tasks.

The pipe is read when the event loop reports data, a limited amount at a time: the more lines the last read
had, the less is read next, so a flood does not delay other servers. Messages are written at once if the pipe
has room; a message that was not started can still be withdrawn. The connection ends when the child's output
ends, when a line never ends, or when the child exits, even if a grandchild still holds the pipe.
"""

from __future__ import annotations

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from array import array
from collections import deque
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dragoman.errors import ConnectionLostError
from dragoman.server.attempt import ConnectionEnd
from dragoman.server.process import spawn as spawning
from dragoman.server.process.environment import StderrTail, whole_environment
from dragoman.server.process.family import STDIN_GRACE
from dragoman.server.process.spawn import spawn
from dragoman.server.process.stderr_log import stderr_log
from dragoman.server.protocol.rpc import SALVAGE_BYTES, TOO_LARGE, Bounded
from dragoman.server.protocol.wire import MAX_MESSAGE_BYTES, SendInfo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping

    from dragoman.model import Stdio
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.process.spawn import Child, Prespawn
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.protocol.wire import Wire
    from dragoman.server.transports.stdio_streams import StreamChild

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
NO_ENVELOPE = SendInfo()
_UNREAD = getattr(termios, "FIONREAD", None)
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)


class LinePipe(ABC):
    """The standard input and output of one child; how it reads and writes them is up to the system."""

    def __init__(self, rpc: Rpc, *, server: str, limit: int, on_end: Callable[[str], None]) -> None:
        """Begin without anything to write.

        Args:
            rpc: The JSON-RPC layer.
            server: The server's name, for errors.
            limit: The size limit of a message, in bytes.
            on_end: Called once with the reason if the connection ends by itself.
        """
        self._rpc = rpc
        self._server = server
        self._on_end: Callable[[str], None] | None = on_end
        self._lines = Lines(limit)
        self._queue: deque[tuple[bytes, SendInfo]] = deque()
        """Messages of which nothing was written yet."""
        self._is_open = True
        """Whether the child's input is open."""
        self._written: int = 0

    def send(self, message: bytes, envelope: SendInfo = NO_ENVELOPE) -> None:
        """Send a message, or queue it while the child does not read."""
        if not self._is_open:
            self._refuse(envelope, "its input is closed")
        elif envelope.request_id is not None or len(self._queue) < MAX_UNREAD_ANSWERS:
            self._queue.append((message, envelope))
            self._write(envelope)

    def abandon(self, message: bytes, envelope: SendInfo, reason: str, *, tell: bool = True) -> bool:
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
            self._close_stdin()
        while self._queue:
            self._refuse(self._queue.popleft()[1], reason)

    @abstractmethod
    def close(self) -> None:
        """Close both pipes."""

    @abstractmethod
    def was_read(self) -> bool:
        """Return whether the child has read anything that we wrote; `True` if that cannot be found out."""

    @abstractmethod
    def read_rest(self) -> None:
        """Read what is left in the output of a child that has exited."""

    @abstractmethod
    def _write(self, envelope: SendInfo) -> None:
        """Write what is queued, now or soon; the envelope is that of the newest message."""

    @abstractmethod
    def _close_stdin(self) -> None:
        """Close the child's input."""

    @abstractmethod
    def _stop_reading(self) -> None:
        """Receive nothing any more."""

    def _receive(self, chunk: bytes) -> bool:
        """Handle some output, which is empty at its end; return whether there may be more."""
        if not chunk:
            self._end("it closed its output")
            return False
        feed(self._lines, chunk, self._rpc)
        if self._lines.pending > ENDLESS * self._lines.limit:
            self._end(f"a line of its output has no end ({self._lines.pending} bytes so far)")
            return False
        return True

    def _refuse(self, envelope: SendInfo, reason: str) -> None:
        """Fail a request that was not written: it certainly has not run."""
        if envelope.request_id is not None:
            msg = f"the connection to server `{self._server}` ended before the request was sent: {reason}"
            lost = ConnectionLostError(msg, server=self._server, may_have_run=False)
            self._rpc.fail(envelope.request_id, lost)

    def _fail_writing(self, why: str) -> None:
        reason = f"its input cannot be written: {why}"
        self.close_stdin(reason)
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._stop_reading()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(reason)


class Pipe(LinePipe):
    """Both POSIX pipes of one child."""

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
        super().__init__(rpc, server=server, limit=limit, on_end=on_end)
        self._stdin = stdin
        self._stdout: int | None = stdout
        self._rest: memoryview | None = None
        """The rest of a write for which the pipe had no room."""
        self._blocked = False
        self._read_bytes = LEAST_READ_BYTES
        self._loop = asyncio.get_running_loop()
        for descriptor in (stdin, stdout):
            os.set_blocking(descriptor, False)
            _widen(descriptor)
        self._loop.add_reader(stdout, self._read)

    def was_read(self) -> bool:
        """Return whether the child has read anything that we wrote; `True` if that cannot be found out."""
        if not self._is_open or fcntl is None or _UNREAD is None or not self._written:
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
            self._stop_reading()
            os.close(self._stdout)
            self._stdout = None

    def read_rest(self) -> None:
        """Read what is left in the pipe of a child that has exited."""
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
        if not self._receive(chunk):
            return 0
        # Most chunks of a large message have no line end: that is known much sooner than their number.
        if b"\n" in chunk and chunk.count(b"\n") > TURN_LINES:
            self._read_bytes = max(LEAST_READ_BYTES, self._read_bytes // 2)
        elif len(chunk) == self._read_bytes:
            self._read_bytes = min(READ_BYTES, self._read_bytes * 2)
        return len(chunk)

    def _write(self, envelope: SendInfo) -> None:
        """Write a single request at once; several messages in one loop iteration are written together."""
        if len(self._queue) > 1 or self._blocked:
            return
        if envelope.request_id is not None and self._rpc.waiting <= 1:
            # No other call is in progress, so waiting to batch would only cost a loop iteration.
            self._flush()
        else:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Write queued messages until the pipe is full."""
        while self._is_open and (self._rest is not None or self._queue):
            data = self._joined() if self._rest is None else self._rest
            try:
                written = os.write(self._stdin, data)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError as error:
                self._fail_writing(str(error.strerror))
                return
            self._written += written
            if written < len(data):
                self._rest = memoryview(data)[written:]
                if not self._blocked:
                    self._blocked = True
                    self._loop.add_writer(self._stdin, self._flush)
                return
            self._rest = None
        if self._blocked and self._is_open:
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

    def _close_stdin(self) -> None:
        self._loop.remove_writer(self._stdin)
        os.close(self._stdin)
        self._rest = None

    def _stop_reading(self) -> None:
        if self._stdout is not None:
            self._loop.remove_reader(self._stdout)


def _widen(descriptor: int) -> None:
    """Enlarge a pipe where the system can, so that large messages need fewer writes."""
    if fcntl is not None and _SET_PIPE_SIZE is not None:
        try:
            fcntl.fcntl(descriptor, _SET_PIPE_SIZE, PIPE_BYTES)
        except OSError:
            return


EXIT_GRACE = 0.1
"""How long after the end of its output a child may still exit, so that we can report its exit code."""
UNREADY_GRACE = 0.3
"""How long a child that never answered may take to exit by itself after its input was closed."""
ENDED_BY_US = "dragoman stopped the process because it did not exit when its input was closed"


def exit_reason(code: int) -> str:
    """Return how a process ended, as text."""
    return f"the process was killed by signal {-code}" if code < 0 else f"the process ended with code {code}"


@asynccontextmanager
async def open_pipe(
    stdio: Stdio,
    *,
    name: str,
    env: Mapping[str, str],
    attempt: ConnectAttempt,
    rpc: Rpc,
    on_end: Callable[[ConnectionEnd], None],
    limit: int = MAX_MESSAGE_BYTES,
    start: Prespawn | None = None,
) -> AsyncGenerator[Wire]:
    """Start a child and connect to its pipes; leaving stops it and everything it started."""
    attempt.enter("variables")
    given = whole_environment(stdio, env)
    attempt.enter("spawn")
    owner = ChildOwner(attempt, rpc, on_end)
    log = stderr_log(stdio, name, given)
    child: Child | StreamChild
    pipe: LinePipe
    try:
        with ExitStack() as stack:
            try:
                if spawning.HAS_POSIX_PIPES:
                    ahead = start.take() if start is not None else None
                    started = ahead or await spawn(
                        stdio.command, stdio.args, env=given, cwd=stdio.cwd, name=name, stdio=stdio
                    )
                    attempt.stderr = stack.enter_context(StderrTail(started.stderr, log))
                    pipe = Pipe(
                        rpc,
                        server=name,
                        stdin=started.stdin,
                        stdout=started.stdout,
                        limit=limit,
                        on_end=owner.on_pipe_end,
                    )
                    child = started
                else:
                    attempt.stderr = stack.enter_context(StderrTail(log=log))
                    # Imported where it is needed: with POSIX pipes it never is.
                    from dragoman.server.transports.stdio_streams import StreamPipe, start_child

                    streams = await start_child(stdio, given, attempt.stderr, name)
                    pipe = StreamPipe(rpc, server=name, child=streams, limit=limit, on_end=owner.on_pipe_end)
                    child = streams
            except FileNotFoundError as exc:
                if stdio.cwd is None or await asyncio.to_thread(Path(stdio.cwd).is_dir):
                    raise
                # The system reports a missing working directory in the same way as a missing program.
                raise NotADirectoryError(errno.ENOTDIR, "its directory does not exist") from exc
            attempt.pid = child.pid
            owner.own(child, pipe)
            try:
                yield pipe
            finally:
                try:
                    # A child that never answered has nothing to finish.
                    is_unready = attempt.stage in ("spawn", "handshake")
                    await child.stop(pipe.close_stdin, grace=UNREADY_GRACE if is_unready else STDIN_GRACE)
                finally:
                    pipe.close()
    finally:
        if log is not None:
            await log.finish()


class ChildOwner:
    """Finds out how one child ended, and reports it with the exit code, if there is one."""

    def __init__(self, attempt: ConnectAttempt, rpc: Rpc, on_end: Callable[[ConnectionEnd], None]) -> None:
        self._attempt = attempt
        self._rpc = rpc
        self._on_end = on_end
        self._child: Child | StreamChild | None = None
        self._pipe: LinePipe | None = None

    def own(self, child: Child | StreamChild, pipe: LinePipe) -> None:
        """Watch a child and its pipes."""
        self._child, self._pipe = child, pipe
        child.exited.add_done_callback(self._on_exit)

    def on_pipe_end(self, reason: str) -> None:
        """Wait a moment: an exiting process closes its pipes first, and then has an exit code to report."""
        asyncio.get_running_loop().call_later(EXIT_GRACE, self._on_grace_over, reason)

    def _on_grace_over(self, reason: str) -> None:
        exit_code = None
        if self._child is not None and not self._child.signalled:
            exit_code = self._child.poll()
        self._end(reason, exit_code)

    def _on_exit(self, exited: asyncio.Future[int]) -> None:
        assert self._child is not None  # noqa: S101 -- it has exited
        assert self._pipe is not None  # noqa: S101 -- as above
        self._pipe.read_rest()
        if self._child.signalled:
            # The exit code would only be our own signal.
            self._end(ENDED_BY_US, None)
        else:
            self._end("", exited.result())

    def _end(self, reason: str, exit_code: int | None) -> None:
        attempt = self._attempt
        if exit_code is not None:
            reason = exit_reason(exit_code)
        attempt.end = ConnectionEnd(reason=reason, exit_code=exit_code)
        if self._pipe is not None:
            if not attempt.ended_by_probe:
                attempt.ended_by_probe = self._rpc.waits_for("server/discover") and self._pipe.was_read()
            # First fail the requests that were not sent: they may be retried.
            self._pipe.close_stdin(reason)
        self._on_end(attempt.end)
