"""Share the process of a stdio server between managers, or users, that would start the same one.

What counts is the content: the expanded entry, its folder, and the environment that the process would get.
Each manager has its own supervisor, names, pins and rules; `Lease` stands for its `Connection`, and `_Hub`
holds the real one. The process ends with its last lease.

A question of the server goes to the lease whose request it belongs to. A modern server asks in its answer to
that request. An older one does not say for which request it asks: that is clear only while requests of one
owner can be meant. One that ended without an answer still counts, since the server may ask for it late.
Between users so does one that was answered: nothing keeps a server from speaking of it afterwards.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dragoman.errors import ConnectionLostError, DragomanError, InvalidArgumentsError, ProtocolError
from dragoman.model import Handlers, ServerSpec, Stdio
from dragoman.model.keys import keys
from dragoman.server.connection_events import ConnectionEvents
from dragoman.server.in_progress import LATE_SECONDS
from dragoman.server.process.environment import whole_environment
from dragoman.server.protocol.context import received_at
from dragoman.server.protocol.outgoing import Unfinished
from dragoman.struct import Report, asdict
from dragoman.trust.redaction import current_redactor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from dragoman.events import OfferChanged
    from dragoman.model import Handler, Transport
    from dragoman.server.attempt import ConnectAttempt, ConnectionEnd
    from dragoman.server.connection import Connection
    from dragoman.server.protocol.deadlines import Deadline
    from dragoman.server.protocol.outgoing import Outgoing
    from dragoman.server.protocol.sdk import KnownProtocol
    from dragoman.server.protocol.session import Session
    from dragoman.tools.result.render import ServerAnswer

_OF_TERMINALS = frozenset({"TERM", "SHELL"})
"""Variables of a child's environment that differ between terminals and mean nothing to a server."""

T = TypeVar("T")

logger = logging.getLogger("dragoman")


class _Request:
    """A request of a lease; tasks that outlive it still have it in their context."""

    __slots__ = ("is_over", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.is_over = False


_current_request: ContextVar[_Request | None] = ContextVar("current_request", default=None)
"""The request that the current task makes."""


class SharedProcess(Report, kw_only=True):
    """A process of a server that the daemon keeps."""

    server: str
    pid: int | None
    users: int
    """How many workspaces share it."""
    calls: int
    """Requests in progress."""


class SharedConnections:
    """The processes that managers share, by the content of their entries."""

    def __init__(self, *, between_users: bool = False) -> None:
        """Share nothing yet.

        Args:
            between_users: Whether those who share are different people: then only servers with `share = true`
                are shared, and what cannot be attributed to one of them reaches none.
        """
        self._between_users = between_users
        self._hubs: dict[str, _Hub] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        """The tasks of connections that are closing, by key."""

    async def key(
        self, spec: ServerSpec, transport: Transport, env: Mapping[str, str], handlers: Handlers | None
    ) -> str | None:
        """Return what is equal for servers that can share a process; `None` for one that must not.

        Args:
            spec: The server.
            transport: Its transport with every variable expanded.
            env: The environment that it inherits from.
            handlers: What the application answers; directories that it names itself are its own.
        """
        roots = handlers.roots if handlers else None
        has_roots = bool(roots(spec.name) if callable(roots) else roots)
        is_shared = spec.share is True if self._between_users else spec.share is not False
        if not is_shared or not isinstance(transport, Stdio) or has_roots:
            return None
        child = await asyncio.to_thread(whole_environment, transport, env)
        parts: dict[str, Any] = {
            "name": spec.name,
            "transport": asdict(transport),
            "env": {name: value for name, value in child.items() if name not in _OF_TERMINALS},
            "spec": {
                name: getattr(spec, name) for name, key in keys(ServerSpec).items() if key.is_of_process
            },
        }
        text = json.dumps(parts, sort_keys=True, default=str)
        # Only the hash is kept: the parts have secrets in them.
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def lease(
        self,
        key: str,
        spec: ServerSpec,
        make: Callable[[ConnectionEvents, Handlers], Connection],
        *,
        events: ConnectionEvents,
        handlers: Handlers | None,
        user: str = "",
    ) -> Lease:
        """Return a lease of the process with this key; the process starts if there is none.

        Args:
            key: As `key` returns it.
            spec: The server.
            make: Makes the connection, given what receives its events and answers its questions.
            events: Receives what happens to the lease.
            handlers: What answers the questions that belong to requests of this lease.
            user: Whose lease it is, in a program with many users; empty for the program itself.
        """
        hub = self._hubs.get(key)
        if hub is None or hub.is_over:
            hub = _Hub(
                spec,
                make,
                on_end=lambda it: self._remove(key, it),
                after=self._ending.get(key),
                between_users=self._between_users,
            )
            self._hubs[key] = hub
        return Lease(
            hub,
            spec,
            events,
            handlers or Handlers(),
            owner=user if self._between_users else None,
            sees_stderr=not user,
        )

    def status(self) -> list[SharedProcess]:
        """Return the shared processes, without their arguments and variables."""
        return [
            SharedProcess(
                server=hub.spec.name,
                pid=hub.connection.attempt.pid,
                users=len(hub.leases),
                calls=sum(lease.calls for lease in hub.leases),
            )
            for hub in self._hubs.values()
        ]

    def _remove(self, key: str, hub: _Hub) -> None:
        if self._hubs.get(key) is hub:
            del self._hubs[key]
        if not hub.task.done():
            self._ending[key] = hub.task
            hub.task.add_done_callback(lambda task: self._forget(key, task))

    def _forget(self, key: str, task: asyncio.Task[None]) -> None:
        if self._ending.get(key) is task:
            del self._ending[key]


class _Hub(ConnectionEvents):
    """One real connection and its leases."""

    def __init__(
        self,
        spec: ServerSpec,
        make: Callable[[ConnectionEvents, Handlers], Connection],
        *,
        on_end: Callable[[_Hub], None],
        after: asyncio.Task[None] | None,
        between_users: bool,
    ) -> None:
        self.spec = spec
        self.between_users = between_users
        self.leases: list[Lease] = []
        self.is_over = False
        """Whether no lease can join any more."""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is open."""
        self.turns = asyncio.Semaphore(spec.max_concurrency) if spec.max_concurrency else None
        self._recent: dict[object, float] = {}
        """Until when a question may belong to a request that has ended, by its owner, on the loop's clock."""
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._refusals: dict[Lease, DragomanError | None] = {}
        answers = Handlers(
            elicitation=self._route("elicitation"), sampling=self._route("sampling"), logging=self._log
        )
        self.connection = make(self, answers)
        # Not the context of the client that happens to come first: the tasks of the connection outlive it.
        context = Context()
        context.run(current_redactor.set, current_redactor.get())
        name = f"dragoman shared server {spec.name}"
        self.task = asyncio.create_task(self._serve(after), name=name, context=context)
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def leave(self, lease: Lease) -> None:
        """End a lease; the connection closes with the last one."""
        if lease in self.leases:
            self.leases.remove(lease)
        if not self.leases and not self.is_over:
            self._end()
            self.connection.close()

    async def _serve(self, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            # Both may need the same port, file or lock.
            await asyncio.wait({after})
        try:
            await self.connection.serve()
        finally:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._on_end(self)

    async def check_listing(
        self,
        connection: Connection,  # noqa: ARG002 -- there is one
        listing: Sequence[dict[str, Any]],
        instructions: str,
    ) -> None:
        """Let each lease compare a later listing with its pins; the first one it compares when it opens."""
        for lease in list(self.leases):
            if lease.is_open:
                self._refusals[lease] = await lease.check(listing, instructions)

    def on_stage(self, stage: str) -> None:
        """Pass the stage on."""
        for lease in list(self.leases):
            lease.events.on_stage(stage)

    def on_ready(self, connection: Connection) -> None:  # noqa: ARG002 -- there is one
        """Let the leases open."""
        if not self.ready.done():
            self.ready.set_result(None)

    def on_listing(self, connection: Connection, error: DragomanError | None) -> None:  # noqa: ARG002 -- as above
        """Pass a listing on."""
        refusals, self._refusals = self._refusals, {}
        for lease in list(self.leases):
            if lease.is_open:
                lease.events.on_listing(lease.as_connection(), error or refusals.get(lease))

    def on_changed(self, connection: Connection, event: OfferChanged) -> None:  # noqa: ARG002 -- as above
        """Pass a change on."""
        for lease in list(self.leases):
            if lease.is_open:
                lease.events.on_changed(lease.as_connection(), event)

    def on_timed_out(self, connection: Connection, error: DragomanError) -> None:  # noqa: ARG002 -- as above
        """Tell the leases that are not open yet."""
        for lease in list(self.leases):
            lease.events.on_timed_out(lease.as_connection(), error)

    def on_lost(self, connection: Connection, end: ConnectionEnd) -> None:  # noqa: ARG002 -- as above
        """Let no lease join any more, and tell those that are there."""
        self._end()
        for lease in list(self.leases):
            if lease.is_open:
                lease.events.on_lost(lease.as_connection(), end)

    def ended(self, lease: Lease, *, answered: bool) -> None:
        """Note that a request has ended: what was received before, or comes late, may belong to it."""
        now = self._loop.time()
        until = now if answered and not self.between_users else now + LATE_SECONDS
        self._recent = {owner: end for owner, end in self._recent.items() if end > now - LATE_SECONDS}
        self._recent[lease.owner] = max(until, self._recent.get(lease.owner, until))

    def _route(self, kind: str) -> Handler:
        async def ask(server: str, params: dict[str, Any]) -> Any:
            lease = self._asked()
            if lease is None:
                reason = "it is not clear whose request it belongs to"
            elif (handler := getattr(lease.handlers, kind)) is None:
                reason = "the client whose request it belongs to does not answer it"
            else:
                outcome = handler(server, params)
                return await outcome if inspect.isawaitable(outcome) else outcome
            from mcp.shared.exceptions import MCPError
            from mcp_types import INVALID_REQUEST

            logger.warning("%s: a question (%s) of the shared server was refused: %s", server, kind, reason)
            raise MCPError(code=INVALID_REQUEST, message=f"the question was refused: {reason}")

        return ask

    def _asked(self) -> Lease | None:
        """Return the lease that a question or a log message belongs to; `None` if that is not clear."""
        own = _current_request.get()
        if own is not None and not own.is_over and own.lease in self.leases:
            return own.lease
        at = received_at.get()
        since = self._loop.time() if at is None else at
        calling = [lease for lease in self.leases if lease.calls]
        owners = {lease.owner for lease in calling}
        owners |= {owner for owner, until in self._recent.items() if until >= since}
        if not owners and not self.between_users:
            # No request is in progress: the server asks for itself, and those who share it are one person.
            owners = {lease.owner for lease in self.leases}
        candidates = [lease for lease in calling or self.leases if lease.owner in owners]
        return candidates[0] if len(owners) == len(candidates) == 1 else None

    async def _log(self, server: str, params: dict[str, Any]) -> None:
        calling = [one for one in self.leases if one.calls] or list(self.leases)
        if self.between_users:
            # The message may quote one user's data: it goes to the user whose it is, or to none.
            owner = self._asked()
            calling = [owner] if owner is not None else []
        for lease in calling:
            if lease.handlers.logging is not None:
                outcome = lease.handlers.logging(server, params)
                if inspect.isawaitable(outcome):
                    await outcome


class Lease:
    """The part of one manager in a shared connection; has what `Connection` has."""

    def __init__(
        self,
        hub: _Hub,
        spec: ServerSpec,
        events: ConnectionEvents,
        handlers: Handlers,
        *,
        owner: str | None,
        sees_stderr: bool = True,
    ) -> None:
        self.spec = spec
        self.owner: object = self if owner is None else owner
        """Who may answer the questions for its requests: a user, or this lease alone."""
        self._sees_stderr = sees_stderr
        self.events = events
        self.handlers = handlers
        self.calls = 0
        """How many requests of this lease are in progress."""
        self.is_open = False
        self._hub = hub
        self._leave: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hub.leases.append(self)

    @property
    def attempt(self) -> ConnectAttempt:
        """The facts of the attempt to connect.

        The standard error may quote the data of any user: only the program itself sees it.
        """
        found = self._hub.connection.attempt
        return found if self._sees_stderr else found.replace(stderr=None, on_stage=None)

    @property
    def known_protocol(self) -> KnownProtocol | None:
        """The protocol generation."""
        return self._hub.connection.known_protocol

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The raw listing of the server's tools."""
        return self._hub.connection.tools

    @property
    def listing_error(self) -> DragomanError | None:
        """Why the listing failed, if the server is connected without one."""
        return self._hub.connection.listing_error

    @property
    def declared(self) -> str:
        """The capabilities that the handshake declares."""
        return self._hub.connection.declared

    @property
    def is_private(self) -> bool:
        """Whether the listing may differ for other credentials; those of a process are part of its key."""
        return self._hub.connection.is_private

    def need_listing(self) -> None:
        """List again if the listing is older than the server allows."""
        if self.is_open:
            self._hub.connection.need_listing()

    async def responds(self) -> bool:
        """Return whether the server answers; as for a connection of its own."""
        return not self.is_open or await self._hub.connection.responds()

    @property
    def session(self) -> Session | None:
        """The session while it can be used, else `None`."""
        return self._hub.connection.session if self.is_open else None

    def as_connection(self) -> Connection:
        """Return this for those who expect a connection."""
        return cast("Connection", self)

    async def serve(self) -> None:
        """Stay until `close` or until the shared connection is lost.

        Raises:
            ConnectError: The server is not approved for this manager, or the connection could not be opened.
            ConnectionLostError: The connection was open and ended, but not by `close`.
        """
        hub = self._hub
        try:
            await self.events.admit(self.as_connection())
            await asyncio.wait({hub.task, hub.ready, self._leave}, return_when=asyncio.FIRST_COMPLETED)
            await self._open()
            await asyncio.wait({hub.task, self._leave}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_open, self.is_open = self.is_open, False
            hub.leave(self)
        if self._leave.done():
            if not hub.leases:
                # The process must be gone before the supervisor says that the server has stopped.
                await asyncio.wait({hub.task})
            return
        if hub.task.cancelled() or (failure := hub.task.exception()) is None:
            msg = f"the connection to server `{self.spec.name}` was closed"
            raise ConnectionLostError(msg, server=self.spec.name, may_have_run=was_open)
        raise failure

    def close(self) -> None:
        """Begin to leave; `serve` returns soon."""
        self.is_open = False
        if not self._leave.done():
            self._leave.set_result(None)

    async def check(self, listing: Sequence[dict[str, Any]], instructions: str) -> DragomanError | None:
        """Compare a listing with the pins of this manager; return why it is refused."""
        try:
            await self.events.check_listing(self.as_connection(), listing, instructions)
        except DragomanError as exc:
            return exc
        return None

    async def _open(self) -> None:
        """Let the manager use the connection, once its listing is checked."""
        connection = self._hub.connection
        session = connection.session
        if session is None or self._leave.done():
            return
        if connection.listing_error is None:
            refusal = await self.check(connection.tools, session.instructions or "")
            if refusal is not None:
                raise refusal
        if connection.session is not None and not self._leave.done():
            self.is_open = True
            self.events.on_ready(self.as_connection())

    def call_tool(self, call: Outgoing) -> Coroutine[Any, Any, ServerAnswer | Unfinished]:
        """Call a tool; as for a connection of its own."""
        return self._during(lambda: self._connection().call_tool(call))

    async def use(self, job: Callable[[Session], Awaitable[T]], *, deadline: Deadline, what: str) -> T:
        """Make a request other than a tool call; as for a connection of its own."""
        return await self._during(lambda: self._connection().use(job, deadline=deadline, what=what))

    def _connection(self) -> Connection:
        if self.is_open:
            return self._hub.connection
        msg = f"the connection to server `{self.spec.name}` was closed"
        raise ConnectionLostError(msg, server=self.spec.name, may_have_run=False)

    async def _during(self, request: Callable[[], Awaitable[T]]) -> T:
        turns = self._hub.turns
        if turns is None:
            return await self._noted(request)
        async with turns:
            return await self._noted(request)

    async def _noted(self, request: Callable[[], Awaitable[T]]) -> T:
        before = _current_request.get()
        own = _Request(self)
        _current_request.set(own)
        self.calls += 1
        answered = False
        try:
            outcome = await request()
            # The server goes on with a task, and may ask for it.
            answered = not (isinstance(outcome, Unfinished) and outcome.kind == "task")
        except (ProtocolError, InvalidArgumentsError):
            answered = True
            raise
        else:
            return outcome
        finally:
            self.calls -= 1
            own.is_over = True
            self._hub.ended(self, answered=answered)
            _current_request.set(before)
