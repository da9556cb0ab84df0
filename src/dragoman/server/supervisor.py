"""One task that owns one server's whole life.

The owner task opens the connection, stays with it and closes it; any other task may start, stop,
restart or use the server through here. A call to a server that has failed tries again: nothing is dead
for good. Closing ends in bounded time, whoever is cancelled meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dragoman.config.expand import expand_transport
from dragoman.errors import ConnectError, DragomanError, ServerNotReadyError
from dragoman.events import StateChanged
from dragoman.model import ServerState, ServerStatus, Stdio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dragoman.config.expand import Surroundings
    from dragoman.events import Event
    from dragoman.model import ServerSpec, Transport
    from dragoman.server.connection import Connection

logger = logging.getLogger("dragoman")

# More than a connection ever takes to close; past it the owner is cancelled, then given up.
CLOSE_LIMIT = 15.0

T = TypeVar("T")


class Supervisor:
    """Keeps one server, from its spec to its end."""

    def __init__(
        self,
        spec: ServerSpec,
        *,
        surroundings: Surroundings,
        publish: Callable[[Event], None],
        listed: Callable[[ServerSpec, Sequence[dict[str, Any]]], int],
    ) -> None:
        """Keep `spec`, without starting it.

        Args:
            spec: The server.
            surroundings: What its variables are looked up in, at each connection anew.
            publish: Told of every change of state.
            listed: Given the raw listing of every new connection; returns how many tools are exposed.
        """
        self.spec = spec
        self.error: DragomanError | None = None
        """Why the server is not ready, or why it was not the last time."""
        self._surroundings = surroundings
        self._publish = publish
        self._listed = listed
        self._state = ServerState.IDLE if spec.enabled else ServerState.CLOSED
        self._settled = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._tools = 0

    @property
    def state(self) -> ServerState:
        """Where the server is in its life."""
        return self._state

    @property
    def server_version(self) -> str:
        """What the connected server says of its version."""
        session = self._connection.session if self._connection else None
        return (session.server_version if session else None) or ""

    def status(self) -> ServerStatus:
        """Return a reading; it starts nothing."""
        connection = self._connection
        session = connection.session if connection else None
        return ServerStatus(
            name=self.spec.name,
            state=self._state,
            transport=connection.trail.kind if connection else self.spec.kind,
            protocol_version=session.protocol_version if session else None,
            server_name=session.server_name if session else None,
            server_version=session.server_version if session else None,
            pid=connection.trail.pid if connection and session else None,
            tools=self._tools,
            last_error=str(self.error) if self.error else None,
            error_code=self.error.code if self.error else None,
            origin=self.spec.origin,
        )

    def start(self) -> None:
        """Begin to connect, unless that is under way or done; does not wait."""
        if self._state in {ServerState.CONNECTING, ServerState.READY}:
            return
        self._settled.clear()
        self._enter(ServerState.CONNECTING)
        self._owner = asyncio.create_task(self._live(self._owner), name=f"dragoman server {self.spec.name}")

    async def wait_settled(self) -> ServerState:
        """Wait while the server is connecting; return the state it came to."""
        if self._state is ServerState.CONNECTING:
            await self._settled.wait()
        return self._state

    async def request(self, send: Callable[[Connection, float], Awaitable[T]], *, seconds: float) -> T:
        """Use the connection, from any task; a server that is not connected is started first.

        Args:
            send: Given the connection and the seconds that are left.
            seconds: For everything, connecting included.

        Raises:
            ServerNotReadyError: There is no connection, and none could be made in time.
            ServerError: The connection ended under the request.
            TimeoutError: Time ran out after the request was sent.
        """
        until = time.monotonic() + seconds
        connection = self._connection
        if connection is None or self._state is not ServerState.READY:
            connection = await self._connected(seconds)
        return await send(connection, until - time.monotonic())

    def close(self) -> None:
        """Begin to stop, without waiting: no call is taken from here on."""
        if self._state is not ServerState.CLOSED:
            self._enter(ServerState.CLOSED)
        self._settled.set()
        if self._connection is not None:
            self._connection.close()

    async def stop(self) -> None:
        """Stop the server and wait until it is gone; a cancellation waits for that too."""
        self.close()
        if self._owner is not None:
            await _see_out(self._owner, self.spec.name)

    async def restart(self) -> None:
        """Stop the server if it runs, and start it."""
        await self.stop()
        self.start()

    async def _connected(self, seconds: float) -> Connection:
        if self._state is not ServerState.CLOSED:
            self.start()
            try:
                async with asyncio.timeout(seconds):
                    await self.wait_settled()
            except TimeoutError:
                pass
        if self._state is ServerState.READY and self._connection is not None:
            return self._connection
        name = self.spec.name
        msg = f"server `{name}` is {self._state}"
        if self._state is ServerState.FAILED and self.error is not None:
            msg += f": {self.error}"
        raise ServerNotReadyError(msg, server=name, state=self._state) from self.error

    async def _live(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
        error: DragomanError | None = None
        try:
            await self._connect()
        except DragomanError as exc:
            error = exc
        except Exception as exc:
            logger.exception("%s: the connection failed in an unforeseen way", self.spec.name)
            msg = f"cannot connect to server `{self.spec.name}`: {type(exc).__name__}: {exc}"
            error = ConnectError(msg, server=self.spec.name, stage="connect")
        # A newer owner, or whoever closed the server, has already said what is the case.
        if self._owner is asyncio.current_task():
            self._connection = None
            if error is not None:
                self._fail(error)

    async def _connect(self) -> None:
        transport = _placed(expand_transport(self.spec, self._surroundings), self._surroundings.root)
        # Importing the SDK takes a second of CPU: in a thread it delays nobody.
        module = await asyncio.to_thread(importlib.import_module, "dragoman.server.connection")
        if self._state is not ServerState.CONNECTING:
            return
        connection: Connection = module.Connection(self.spec, transport, env=self._surroundings.env)
        self._connection = connection
        await connection.serve(lambda: self._ready(connection))

    def _ready(self, connection: Connection) -> None:
        self._tools = self._listed(self.spec, connection.tools)
        self.error = None
        self._enter(ServerState.READY)
        self._settled.set()
        connection.lost.add_done_callback(lambda _: self._on_lost(connection))
        logger.info("%s: connected with %d tools", self.spec.name, self._tools)

    def _on_lost(self, connection: Connection) -> None:
        """Say so at once: closing what is left of the connection takes its time."""
        if self._connection is connection and self._state is ServerState.READY:
            self._connection = None
            self._fail(connection.loss())

    def _fail(self, error: DragomanError) -> None:
        if self._state is ServerState.CLOSED:
            return
        self.error = error
        if self._state is not ServerState.FAILED:
            self._enter(ServerState.FAILED, str(error))
            logger.error("%s: %s", self.spec.name, error)
        self._settled.set()

    def _enter(self, state: ServerState, reason: str = "") -> None:
        before, self._state = self._state, state
        self._publish(StateChanged(server=self.spec.name, before=before, after=state, reason=reason))


def _placed(transport: Transport, root: str) -> Transport:
    """Read a child's relative paths from the project's directory."""
    if not isinstance(transport, Stdio) or not root:
        return transport
    return replace(
        transport,
        cwd=str(Path(root, transport.cwd or "")),
        env_file=[str(Path(root, name)) for name in transport.env_file],
    )


async def _see_out(owner: asyncio.Task[None], name: str) -> None:
    """Wait for an owner to end, in bounded time; a cancellation is raised only after that."""
    import anyio

    cancelled: asyncio.CancelledError | None = None
    limit = time.monotonic() + CLOSE_LIMIT
    # The scope keeps anyio's cancellations out, the loop below asyncio's own.
    with anyio.CancelScope(shield=True):
        while not owner.done():
            try:
                _, late = await asyncio.wait({owner}, timeout=max(0.0, limit - time.monotonic()))
            except asyncio.CancelledError as exc:
                cancelled = exc
                continue
            if late and owner.cancelling():
                logger.error("%s: its connection does not close and was abandoned", name)
                break
            if late:
                owner.cancel()
                limit += CLOSE_LIMIT
    if cancelled is not None:
        raise cancelled
