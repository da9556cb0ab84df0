"""Opens the connection of a transport: stdio, Streamable HTTP or legacy SSE."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dragoman.model import Http, Sse, Stdio
from dragoman.server.late_import import late_import_module
from dragoman.server.protocol.wire import PLAIN
from dragoman.server.transports.stdio import open_pipe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from dragoman.model import Transport
    from dragoman.server.attempt import ConnectAttempt, ConnectionEnd
    from dragoman.server.process.spawn import Prespawn
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.protocol.wire import HttpOptions, Wire


@runtime_checkable
class Opener(Protocol):
    """A transport that opens its own connection, such as the in-process server of `dragoman.testing`."""

    def open(
        self, *, name: str, attempt: ConnectAttempt, rpc: Rpc, on_end: Callable[[ConnectionEnd], None]
    ) -> AbstractAsyncContextManager[Wire]:
        """Return the connection; the same task must enter and leave it."""
        ...


def open_wire(
    transport: Transport,
    *,
    name: str,
    env: Mapping[str, str],
    attempt: ConnectAttempt,
    rpc: Rpc,
    on_end: Callable[[ConnectionEnd], None],
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
        on_end: Called once if the connection ends by itself.
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
        case Http() | Sse():
            return _open_late(transport, name=name, attempt=attempt, rpc=rpc, on_end=on_end, options=options)


@asynccontextmanager
async def _open_late(transport: Http | Sse, **fields: Any) -> AsyncGenerator[Wire]:
    """Open a connection whose module is imported at its first use.

    The import takes 0.1 s and 9 MiB, which programs with only local servers do not need.
    """
    module = f"dragoman.server.transports.{'sse' if isinstance(transport, Sse) else 'http'}"
    loaded = await late_import_module(module)
    open_it = loaded.open_sse if module.endswith("sse") else loaded.open_http
    async with open_it(transport, **fields) as wire:
        yield wire
