"""Opens the connection of a transport: stdio, Streamable HTTP or legacy SSE."""

from __future__ import annotations

import asyncio
import errno
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dragoman.model import Http, Sse, Stdio
from dragoman.server.late_import import late_import_module
from dragoman.server.process import spawn as spawning
from dragoman.server.process.environment import StderrTail, whole_environment
from dragoman.server.process.spawn import STDIN_GRACE, spawn
from dragoman.server.process.stderr_log import stderr_log
from dragoman.server.protocol.wire import MAX_MESSAGE_BYTES, PLAIN
from dragoman.server.transports.stdio import Pipe
from dragoman.server.transports.stdio_streams import StreamPipe, start_child

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from dragoman.model import Transport
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.process.spawn import Child, Prespawn
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.protocol.wire import HttpOptions, Wire
    from dragoman.server.transports.stdio_streams import StreamChild

EXIT_GRACE = 0.1
"""How long after the end of its output a child may still exit, so that we can report its exit code."""
UNREADY_GRACE = 0.3
"""How long a child that never answered may take to exit by itself after its input was closed."""
ENDED_BY_US = "dragoman stopped the process because it did not exit when its input was closed"


@runtime_checkable
class Opener(Protocol):
    """A transport that opens its own connection, such as the in-process server of `dragoman.testing`."""

    def open(
        self, *, name: str, attempt: ConnectAttempt, rpc: Rpc, on_end: Callable[[str], None]
    ) -> AbstractAsyncContextManager[Wire]:
        """Return the connection; the same task must enter and leave it."""
        ...


def exit_reason(code: int) -> str:
    """Return how a process ended, as text."""
    return f"the process was killed by signal {-code}" if code < 0 else f"the process ended with code {code}"


def open_wire(
    transport: Transport,
    *,
    name: str,
    env: Mapping[str, str],
    attempt: ConnectAttempt,
    rpc: Rpc,
    on_end: Callable[[str], None],
    options: HttpOptions = PLAIN,
    start: Prespawn | None = None,
) -> AbstractAsyncContextManager[Wire]:
    """Return the connection of a transport; the same task must enter and leave it.

    Args:
        transport: The transport, expanded.
        name: The server's name, for logs and errors.
        env: Our environment, from which a child may inherit.
        attempt: Records the progress of the attempt.
        rpc: The JSON-RPC layer.
        on_end: Called once with the reason if the connection ends by itself.
        options: The size limit of a message, and the sources of headers.
        start: The child, if it was started already.
    """
    # The type is checked first: `isinstance` with a protocol costs more than opening a pipe.
    if type(transport) not in (Stdio, Http, Sse) and isinstance(transport, Opener):
        return transport.open(name=name, attempt=attempt, rpc=rpc, on_end=on_end)
    match transport:
        case Stdio():
            return open_pipe(
                transport,
                name=name,
                env=env,
                attempt=attempt,
                rpc=rpc,
                on_end=on_end,
                limit=options.limit,
                start=start,
            )
        case Http():
            return _open_late(
                "dragoman.server.transports.http",
                transport,
                name=name,
                attempt=attempt,
                rpc=rpc,
                on_end=on_end,
                options=options,
            )
        case Sse():
            return _open_late(
                "dragoman.server.transports.sse",
                transport,
                name=name,
                attempt=attempt,
                rpc=rpc,
                on_end=on_end,
                options=options,
            )


@asynccontextmanager
async def _open_late(module: str, *args: Any, **fields: Any) -> AsyncGenerator[Wire]:
    """Open a connection whose module is imported at its first use.

    The import takes 0.1 s and 9 MiB, which programs with only local servers do not need.
    """
    loaded = await late_import_module(module)
    open_it = loaded.open_sse if module.endswith("sse") else loaded.open_http
    async with open_it(*args, **fields) as wire:
        yield wire


@asynccontextmanager
async def open_pipe(
    stdio: Stdio,
    *,
    name: str,
    env: Mapping[str, str],
    attempt: ConnectAttempt,
    rpc: Rpc,
    on_end: Callable[[str], None],
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
    pipe: Pipe | StreamPipe
    try:
        with ExitStack() as stack:
            try:
                if spawning.HAS_POSIX_PIPES:
                    ahead = start.take() if start is not None else None
                    started = ahead or await spawn(
                        stdio.command, stdio.args, env=given, cwd=stdio.cwd, name=name
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
                    streams = await start_child(stdio, given, attempt.stderr)
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

    def __init__(self, attempt: ConnectAttempt, rpc: Rpc, on_end: Callable[[str], None]) -> None:
        self._attempt = attempt
        self._rpc = rpc
        self._on_end = on_end
        self._child: Child | StreamChild | None = None
        self._pipe: Pipe | StreamPipe | None = None

    def own(self, child: Child | StreamChild, pipe: Pipe | StreamPipe) -> None:
        """Watch a child and its pipes."""
        self._child, self._pipe = child, pipe
        child.exited.add_done_callback(self._on_exit)

    def on_pipe_end(self, reason: str) -> None:
        """Wait a moment: an exiting process closes its pipes first, and then has an exit code to report."""
        asyncio.get_running_loop().call_later(EXIT_GRACE, self._on_grace_over, reason)

    def _on_grace_over(self, reason: str) -> None:
        if self._child is not None and not self._child.signalled:
            self._attempt.exit_code = self._child.poll()
        code = self._attempt.exit_code
        self._end(reason if code is None else exit_reason(code))

    def _on_exit(self, exited: asyncio.Future[int]) -> None:
        assert self._child is not None  # noqa: S101 -- it has exited
        assert self._pipe is not None  # noqa: S101 -- as above
        self._pipe.read_rest()
        if self._child.signalled:
            # The exit code would only be our own signal.
            self._end(ENDED_BY_US)
            return
        self._attempt.exit_code = exited.result()
        self._end(exit_reason(exited.result()))

    def _end(self, reason: str) -> None:
        attempt = self._attempt
        if self._pipe is not None:
            if not attempt.ended_by_probe:
                attempt.ended_by_probe = self._rpc.waits_for("server/discover") and self._pipe.was_read()
            # First fail the requests that were not sent: they may be retried.
            self._pipe.close_stdin(reason)
        self._on_end(reason)
