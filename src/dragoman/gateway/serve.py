"""Run the gateway over HTTP as a program."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import uvicorn

from dragoman.errors import ConfigError
from dragoman.gateway.http_protocol import Connections, LimitedProtocol
from dragoman.server.process.signals import on_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from starlette.types import Receive, Scope, Send

GRACE_SECONDS = 10.0
BACKLOG = 2048
ACCEPT_AT_ONCE = 32
"""How many connections are accepted before they are counted: fewer than the descriptors kept free."""
KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: longer than load balancers keep theirs, since one that both sides
close at the same time loses a request."""


class _Uvicorn(uvicorn.Server):
    """Leaves signals to `serve_http`, which lets requests finish first."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Report when requests are accepted."""
        await super().startup(sockets)
        for listener in sockets or ():
            # asyncio takes one number for the queue of the system and for its own loop.
            listener.listen(BACKLOG)
        if not self.should_exit:
            self._on_ready()


class Application(Protocol):
    """What is served: an ASGI application that can be told to end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the life of the application."""

    async def drain(self, seconds: float) -> None:
        """Take no new requests, wait for those in progress, and end what is left."""


async def serve_http(
    app: Application,
    listener: socket.socket,
    *,
    grace: float = GRACE_SECONDS,
    on_ready: Callable[[], None] = lambda: None,
    proxy: str = "",
) -> None:
    """Serve HTTP on a bound socket until SIGTERM or SIGINT, then drain.

    Args:
        app: The application.
        listener: Where to listen.
        grace: How many seconds requests in progress may take after the signal; a second signal ends them.
        on_ready: Called when requests are accepted.
        proxy: The address of a proxy whose word about the address of a client is taken.
    """
    protocol = type("ListenerProtocol", (LimitedProtocol,), {"limits": Connections()})
    config = uvicorn.Config(
        app,
        http=protocol,
        proxy_headers=bool(proxy),
        forwarded_allow_ips=proxy or None,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        backlog=ACCEPT_AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    server = _Uvicorn(config, on_ready)
    ending = asyncio.Event()

    def end() -> None:
        if ending.is_set():
            server.force_exit = True
        ending.set()

    undo = [on_signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)]

    async def drain() -> None:
        await ending.wait()
        await app.drain(grace)
        server.should_exit = True

    draining = asyncio.create_task(drain())
    try:
        await server.serve(sockets=[listener])
    finally:
        draining.cancel()
        for one in undo:
            one()


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket; port 0 is any free one.

    Raises:
        ConfigError: The address cannot be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)  # noqa: FBT003 -- its only parameter
        except BaseException:
            listener.close()
            raise
    except OSError as exc:
        msg = f"cannot listen on {host}:{port}: {exc.strerror or exc}"
        raise ConfigError(msg, hint="choose another port, or end what uses it") from exc
    return listener
