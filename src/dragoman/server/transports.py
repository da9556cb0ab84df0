"""From a transport to an open wire: a child's pipes, Streamable HTTP or legacy SSE."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dragoman.server.child import spawn
from dragoman.server.pipe import Pipe
from dragoman.server.process import StderrTail, child_environment, removed_variables, safe_environment
from dragoman.server.rpc import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dragoman.model import Stdio
    from dragoman.server.rpc import Rpc
    from dragoman.server.trail import Trail
    from dragoman.server.wire import Wire

EXIT_GRACE = 0.1
"""Seconds between the end of a child's output and its exit, if it is exiting at all."""


def exit_reason(code: int) -> str:
    """Say how a process ended."""
    return f"the process was killed by signal {-code}" if code < 0 else f"the process ended with code {code}"


@asynccontextmanager
async def open_pipe(
    stdio: Stdio,
    *,
    name: str,
    env: Mapping[str, str],
    trail: Trail,
    rpc: Rpc,
    on_end: Callable[[str], None],
) -> AsyncGenerator[Wire]:
    """Start a child and speak to it over its pipes; leaving ends it with everything it started.

    Args:
        stdio: What to start, expanded.
        name: The server's name, for logs.
        env: Our environment, for what the child may inherit.
        trail: Filled in on the way.
        rpc: The conversation.
        on_end: Told once why the wire ended by itself.
    """
    trail.stage = "variables"
    given = safe_environment(env) | child_environment(stdio, env)
    for removed in removed_variables(stdio):
        given.pop(removed, None)
    trail.stage = "spawn"
    child = await spawn(stdio.command, stdio.args, env=given, cwd=stdio.cwd, name=name)
    trail.pid = child.pid
    with StderrTail(child.stderr) as stderr:
        trail.stderr = stderr

        def on_silence(reason: str) -> None:
            # A dying process closes its pipes before it is gone; a moment later its exit code says more.
            asyncio.get_running_loop().call_later(EXIT_GRACE, on_end, reason)

        pipe = Pipe(
            rpc,
            server=name,
            stdin=child.stdin,
            stdout=child.stdout,
            limit=MAX_MESSAGE_BYTES,
            on_end=on_silence,
        )

        def on_exit(_: asyncio.Future[int]) -> None:
            trail.exit_code = child.exited.result()
            pipe.read_rest()
            on_end(exit_reason(trail.exit_code))

        child.exited.add_done_callback(on_exit)
        try:
            yield pipe
        finally:
            try:
                await child.stop(pipe.close_stdin)
            finally:
                pipe.close()
