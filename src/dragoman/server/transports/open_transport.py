"""Opens the connection of a transport: stdio, Streamable HTTP or legacy SSE."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dragoman.model import Http, Sse, Stdio
from dragoman.server.late_import import late_import_module
from dragoman.server.process.environment import StderrTail, whole_environment
from dragoman.server.process.spawn import STDIN_GRACE, spawn
from dragoman.server.process.stderr_log import stderr_log
from dragoman.server.protocol.wire import MAX_MESSAGE_BYTES, PLAIN
from dragoman.server.transports.stdio import Pipe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from dragoman.model import Transport
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.process.spawn import Prespawn
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.protocol.wire import HttpOptions, Wire

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
    child = start.take() if start is not None else None
    if child is None:
        try:
            child = await spawn(stdio.command, stdio.args, env=given, cwd=stdio.cwd, name=name)
        except FileNotFoundError as exc:
            if stdio.cwd is None or await asyncio.to_thread(Path(stdio.cwd).is_dir):
                raise
            # The system reports a missing working directory in the same way as a missing program.
            raise NotADirectoryError(errno.ENOTDIR, "its directory does not exist") from exc
    attempt.pid = child.pid
    log = stderr_log(stdio, name, given)
    try:
        with StderrTail(child.stderr, log) as stderr:
            attempt.stderr = stderr

            def end(reason: str) -> None:
                if not attempt.ended_by_probe:
                    attempt.ended_by_probe = rpc.waits_for("server/discover") and pipe.was_read()
                # First fail the requests that were not sent: they may be retried.
                pipe.close_stdin(reason)
                on_end(reason)

            def on_pipe_end(reason: str) -> None:
                # An exiting process closes its pipes first; a moment later there is an exit code to report.
                asyncio.get_running_loop().call_later(EXIT_GRACE, on_grace_over, reason)

            def on_grace_over(reason: str) -> None:
                if not child.signalled:
                    attempt.exit_code = child.poll()
                end(reason if attempt.exit_code is None else exit_reason(attempt.exit_code))

            pipe = Pipe(
                rpc,
                server=name,
                stdin=child.stdin,
                stdout=child.stdout,
                limit=limit,
                on_end=on_pipe_end,
            )

            def on_exit(_: asyncio.Future[int]) -> None:
                pipe.read_rest()
                if child.signalled:
                    # The exit code would only be our own signal.
                    end(ENDED_BY_US)
                    return
                attempt.exit_code = child.exited.result()
                end(exit_reason(attempt.exit_code))

            child.exited.add_done_callback(on_exit)
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
