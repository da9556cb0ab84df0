"""From a transport to an open wire: a child's pipes, Streamable HTTP or legacy SSE."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dragoman.model import Http, Sse, Stdio
from dragoman.server.child import spawn
from dragoman.server.http_options import PLAIN
from dragoman.server.late import late_import_module
from dragoman.server.pipe import Pipe
from dragoman.server.process import StderrTail, stderr_log, whole_environment
from dragoman.server.rpc import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from dragoman.model import Transport
    from dragoman.server.headstart import HeadStart
    from dragoman.server.http_options import HttpOptions
    from dragoman.server.rpc import Rpc
    from dragoman.server.trail import Trail
    from dragoman.server.wire import Wire

EXIT_GRACE = 0.1
"""Seconds between the end of a child's output and its exit, if it is exiting at all."""
ENDED_BY_US = "dragoman ended the process, since it went on when its input was closed"


@runtime_checkable
class Opener(Protocol):
    """A transport that opens its own wire, as that of a server inside this process (`dragoman.testing`)."""

    def open(
        self, *, name: str, trail: Trail, rpc: Rpc, on_end: Callable[[str], None]
    ) -> AbstractAsyncContextManager[Wire]:
        """Return the wire, to be entered by the task that also leaves it."""
        ...


def exit_reason(code: int) -> str:
    """Say how a process ended."""
    return f"the process was killed by signal {-code}" if code < 0 else f"the process ended with code {code}"


def open_wire(
    transport: Transport,
    *,
    name: str,
    env: Mapping[str, str],
    trail: Trail,
    rpc: Rpc,
    on_end: Callable[[str], None],
    options: HttpOptions = PLAIN,
    start: HeadStart | None = None,
) -> AbstractAsyncContextManager[Wire]:
    """Return the wire of a transport, to be entered by the task that also leaves it.

    Args:
        transport: What to reach, expanded.
        name: The server's name, for logs and errors.
        env: Our environment, for what a child may inherit.
        trail: Filled in on the way.
        rpc: The conversation.
        on_end: Told once why the wire ended by itself.
        options: The limit of a message, and whom to ask for headers.
        start: The child, if it was started already.
    """
    # A protocol is looked at attribute by attribute, which costs more than opening a pipe.
    if type(transport) not in (Stdio, Http, Sse) and isinstance(transport, Opener):
        return transport.open(name=name, trail=trail, rpc=rpc, on_end=on_end)
    match transport:
        case Stdio():
            return open_pipe(
                transport,
                name=name,
                env=env,
                trail=trail,
                rpc=rpc,
                on_end=on_end,
                limit=options.limit,
                start=start,
            )
        case Http():
            return _open_late(
                "dragoman.server.http",
                transport,
                name=name,
                trail=trail,
                rpc=rpc,
                on_end=on_end,
                options=options,
            )
        case Sse():
            return _open_late(
                "dragoman.server.sse",
                transport,
                name=name,
                trail=trail,
                rpc=rpc,
                on_end=on_end,
                options=options,
            )


@asynccontextmanager
async def _open_late(module: str, *args: Any, **fields: Any) -> AsyncGenerator[Wire]:
    """Open a wire whose module is imported at its first use.

    That takes a tenth of a second and some 9 MiB, which children need not pay.
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
    trail: Trail,
    rpc: Rpc,
    on_end: Callable[[str], None],
    limit: int = MAX_MESSAGE_BYTES,
    start: HeadStart | None = None,
) -> AsyncGenerator[Wire]:
    """Start a child and speak to it over its pipes; leaving ends it with everything it started."""
    trail.stage = "variables"
    given = whole_environment(stdio, env)
    trail.stage = "spawn"
    child = start.take() if start is not None else None
    if child is None:
        child = await spawn(stdio.command, stdio.args, env=given, cwd=stdio.cwd, name=name)
    trail.pid = child.pid
    with StderrTail(child.stderr, stderr_log(stdio, name, given)) as stderr:
        trail.stderr = stderr

        def end(reason: str) -> None:
            if not trail.ended_by_probe:
                trail.ended_by_probe = rpc.waits_for("server/discover") and pipe.was_read()
            # First those whose request has not gone out: they may be sent again.
            pipe.close_stdin(reason)
            on_end(reason)

        def on_silence(reason: str) -> None:
            # A dying process closes its pipes before it is gone; a moment later its exit code says more.
            asyncio.get_running_loop().call_later(EXIT_GRACE, on_grace_over, reason)

        def on_grace_over(reason: str) -> None:
            if not child.signalled:
                trail.exit_code = child.poll()
            end(reason if trail.exit_code is None else exit_reason(trail.exit_code))

        pipe = Pipe(
            rpc,
            server=name,
            stdin=child.stdin,
            stdout=child.stdout,
            limit=limit,
            on_end=on_silence,
        )

        def on_exit(_: asyncio.Future[int]) -> None:
            pipe.read_rest()
            if child.signalled:
                # The code would be that of our own signal, and tell nothing of the server.
                end(ENDED_BY_US)
                return
            trail.exit_code = child.exited.result()
            end(exit_reason(trail.exit_code))

        child.exited.add_done_callback(on_exit)
        try:
            yield pipe
        finally:
            try:
                await child.stop(pipe.close_stdin)
            finally:
                pipe.close()
