"""One task that owns one server's whole life, as the table in `lifecycle.py` has it.

The owner task opens the connection, stays with it and closes it; any other task may start, stop, restart or
use the server through here. Signals go to the table, orders come back, and this carries them out. Closing
ends in bounded time, whoever is cancelled meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dragoman.errors import AuthRequiredError, ConnectError, DragomanError, ServerNotReadyError
from dragoman.events import StateChanged
from dragoman.guard import Guard
from dragoman.model import ServerState, ServerStatus
from dragoman.pinboard import declared_by
from dragoman.server.auth_gate import Gate
from dragoman.server.backoff import Backoff
from dragoman.server.child import hold_watchdog, let_go_of_watchdog
from dragoman.server.farewell import see_off
from dragoman.server.headstart import head_start
from dragoman.server.lifecycle import Order, Signal, step, verdict
from dragoman.server.reach import connection_module, is_imported, reach
from dragoman.trust.limits import TokenBucket
from dragoman.trust.sanitize import for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dragoman.config.expand import Surroundings
    from dragoman.events import Event
    from dragoman.model import Auth, Handlers, ServerSpec, Transport
    from dragoman.server.connection import Connection
    from dragoman.server.headstart import HeadStart
    from dragoman.server.process import StderrTail
    from dragoman.server.sdk import Era

logger = logging.getLogger("dragoman")

PATIENCE = 2.0
"""Seconds that a call waits for a planned retry; if it is later than that, the call fails at once."""
MAX_WAITING = 10_000
"""Calls that may wait for their turn on a server with `max_concurrency`."""

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
        slots: asyncio.Semaphore | None = None,
        health_check_interval: float = 30.0,
        handlers: Handlers | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Keep `spec`, without starting it.

        Args:
            spec: The server.
            surroundings: What its variables are looked up in, at each connection anew.
            publish: Told of every change of state.
            listed: Given the raw listing of every new connection; returns how many tools are exposed.
            slots: Bounds how many servers are starting at once.
            health_check_interval: Seconds of silence after which an idle connection is probed.
            handlers: What the application answers when the server asks.
            guard: The rules that hold for all servers; it lets everything pass unless given.
        """
        self._guard = guard = guard or Guard()
        self.error: DragomanError | None = guard.refusal(spec) if spec.enabled else None
        """Why the server is not ready, or why it was not the last time."""
        self.adopt(spec)
        self._surroundings = surroundings
        self._publish = publish
        self._listed = listed
        self._slots = slots
        self._handlers = handlers
        self._health_check_interval = spec.health_check_interval or health_check_interval
        self._state = ServerState.IDLE if spec.enabled else ServerState.CLOSED
        if self.error is not None:
            self._state = ServerState.FAILED
        self._settled = asyncio.Event()
        self._settled.set()
        self._owner: asyncio.Task[None] | None = None
        self._holds_watchdog = False
        self._connection: Connection | None = None
        self._ear: StderrTail | None = None
        """What took the standard error of the latest connection."""
        self._backoff = Backoff()
        self._retry: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._last_used = 0.0
        self._era: Era | None = None
        self.server_version = ""
        """What the server said of its version when it was last connected, harmless and without secrets."""
        self.tools = 0
        """How many tools of it are exposed; known ones count before it is connected."""
        self._users = 0
        self._unused: asyncio.Future[None] | None = None
        self._earlier: asyncio.Future[None] | None = None
        self._turns = asyncio.Semaphore(spec.max_concurrency) if spec.max_concurrency else None
        self._waiting = 0
        self._gate = Gate(
            spec.name,
            handlers.login if handlers else None,
            on_needed=lambda error: self._signal(Signal.AUTH_REQUIRED, error),
            on_granted=lambda: self._signal(Signal.LOGGED_IN),
            on_secrets=guard.redactor.add,
        )

    @property
    def state(self) -> ServerState:
        """Where the server is in its life."""
        return self._state

    @property
    def is_refused(self) -> bool:
        """Whether nobody has approved it: nothing of it is known, read or remembered."""
        error = self.error
        return isinstance(error, ConnectError) and error.stage == "approval"

    def refuse(self, error: ConnectError) -> None:
        """Take in, before it is started, that the server is not approved as it is now."""
        if self._state is ServerState.IDLE:
            self.error, self._state = error, ServerState.FAILED

    def adopt(self, spec: ServerSpec) -> None:
        """Go on by the rules of a spec that is reached in the same way."""
        self.spec = spec
        self.limits = limits = self._guard.limits_of(spec)
        rate = limits.calls_per_second
        self.bucket = TokenBucket(rate, limits.burst) if rate else None
        """What calls have to take from before they are sent, where they are limited."""

    @property
    def instructions(self) -> str:
        """What the connected server says about its use."""
        session = self._connection.session if self._connection else None
        return (session.instructions if session else None) or ""

    def stderr(self) -> str:
        """Return the end of what the server wrote to its standard error, of this connection or the last one.

        It is without known secrets; empty for a server behind a URL.
        """
        if self._connection is not None and self._connection.trail.stderr is not None:
            self._ear = self._connection.trail.stderr
        return self._guard.redactor.mask(self._ear.text()) if self._ear is not None else ""

    def status(self) -> ServerStatus:
        """Return a reading; it starts nothing."""
        connection = self._connection
        session = connection.session if connection else None
        retry = self._retry
        return ServerStatus(
            name=self.spec.name,
            state=self._state,
            transport=connection.trail.kind if connection else self.spec.kind,
            protocol_version=session.protocol_version if session else None,
            server_name=self._guard.shown(session.server_name) if session else None,
            server_version=(self.server_version or None) if session else None,
            pid=connection.trail.pid if connection and session else None,
            tools=self.tools,
            last_error=str(self.error) if self.error else None,
            error_code=self.error.code if self.error else None,
            login_url=self.error.url if isinstance(self.error, AuthRequiredError) else "",
            retry_in=None if retry is None else max(0.0, retry.when() - asyncio.get_running_loop().time()),
            crash_loop=self._backoff.slow(time.monotonic()),
            origin=self.spec.origin,
        )

    def start(self) -> None:
        """Begin to connect, unless that is under way or done; does not wait."""
        self._signal(Signal.START)

    async def wait_settled(self) -> ServerState:
        """Wait while the server is connecting; return the state it came to."""
        while self._state is ServerState.CONNECTING:
            await self._settled.wait()
        return self._state

    async def request(self, send: Callable[[Connection, float], Awaitable[T]], *, seconds: float) -> T:
        """Use the connection, from any task; a server that is not connected is started first.

        Args:
            send: Given the connection and the seconds that are left.
            seconds: For everything, waiting and connecting included.

        Raises:
            ServerNotReadyError: There is no connection, and none could be made in time.
            ServerError: The connection ended under the request.
            TimeoutError: Time ran out after the request was sent.
        """
        self._last_used = time.monotonic()
        until = self._last_used + seconds
        self._users += 1
        try:
            if self._turns is not None:
                return await self._in_turn(self._turns, send, until)
            connection = self._connection
            if connection is None or connection.session is None:
                return await self._request(send, until)
            # The way of nearly every call, without a frame of its own.
            result = await send(connection, seconds)
            self._backoff.answered()
            return result
        finally:
            self._users -= 1
            self._last_used = time.monotonic()
            if not self._users and self._unused is not None and not self._unused.done():
                self._unused.set_result(None)

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._users > 0

    async def wait_unused(self, seconds: float | None = None) -> bool:
        """Wait until no request is under way, but no longer than that; tell whether none is."""
        if self._users:
            self._unused = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._unused}, timeout=seconds)
        return not self._users

    def follow(self, earlier: asyncio.Future[None]) -> None:
        """Open no connection before that has ended: another server's end, which is in the way."""
        self._earlier = earlier

    def offer(self) -> None:
        """Offer the tools of the latest listing once more, if the server is ready."""
        if self._state is ServerState.READY:
            self._carry_out(Order.OFFER)

    async def _in_turn(
        self, turns: asyncio.Semaphore, send: Callable[[Connection, float], Awaitable[T]], until: float
    ) -> T:
        if self._waiting >= MAX_WAITING:
            msg = f"{self._waiting} calls already wait for server `{self.spec.name}`"
            raise ServerNotReadyError(msg, server=self.spec.name, state=self._state)
        self._waiting += 1
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await turns.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._request(send, until)
        finally:
            turns.release()

    async def _request(self, send: Callable[[Connection, float], Awaitable[T]], until: float) -> T:
        connection = self._connection
        if connection is None or connection.session is None:
            connection = await self._connected(until)
        result = await send(connection, until - time.monotonic())
        self._backoff.answered()
        return result

    def close(self) -> None:
        """Begin to stop, without waiting: no call is taken from here on."""
        self._signal(Signal.STOP)

    async def stop(self) -> None:
        """Stop the server and wait until it is gone; a cancellation waits for that too."""
        self.close()
        try:
            if self._owner is not None:
                await see_off(self._owner, self.spec.name)
        finally:
            try:
                await self._gate.close()
            finally:
                if self._holds_watchdog:
                    self._holds_watchdog = False
                    await let_go_of_watchdog()

    async def restart(self) -> None:
        """Stop the server if it runs, and start it, with its past failures forgotten."""
        self._signal(Signal.RESTART)

    async def login(
        self,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], Awaitable[str]] | None = None,
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Have a person log in, and connect with that.

        Raises:
            ConfigError: It is no server that one logs in to.
            AuthRequiredError: It was refused, or nobody logged in.
        """
        reached = await self._reached()
        await self._gate.login(*reached, open_url=open_url, paste=paste, on_refused=on_refused)
        if self._state is not ServerState.READY:
            self._signal(Signal.RESTART)

    async def logout(self) -> bool:
        """Forget the login; returns whether there was one. A connection that stands is closed."""
        found = await self._gate.logout(*await self._reached())
        if found and self._connection is not None:
            self._signal(Signal.RESTART)
        return found

    # Signals and orders

    def _signal(self, signal: Signal, error: DragomanError | None = None) -> None:
        before = self._state
        state, orders = step(before, signal)
        if error is not None:
            self._guard.scrub(error)
            self.error = error
        if state is not before:
            self._state = state
            self._cancel_timers()
            if state is ServerState.CONNECTING:
                self._settled.clear()
            else:
                self._settled.set()
            if state is ServerState.READY:
                self._plan_watch()
            reason = for_log(str(error)) if error is not None else signal.value
            self._publish(StateChanged(server=self.spec.name, before=before, after=state, reason=reason))
        for order in orders:
            self._carry_out(order)
        if error is not None and state is not before and state is not ServerState.CLOSED:
            logger.error("%s: %s", self.spec.name, error)

    def _carry_out(self, order: Order) -> None:
        match order:
            case Order.CLOSE:
                connection, self._connection = self._connection, None
                if connection is not None:
                    connection.close()
            case Order.OPEN:
                if not self._holds_watchdog:
                    self._holds_watchdog = True
                    hold_watchdog()
                owner = self._live(self._owner)
                self._owner = asyncio.create_task(owner, name=f"dragoman server {self.spec.name}")
            case Order.PLAN_RETRY:
                delay = self._backoff.failed(time.monotonic(), random.random())  # noqa: S311 -- jitter
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(delay.seconds, self._signal, Signal.RETRY_DUE)
            case Order.RESET_BACKOFF:
                self._backoff.reset()
            case Order.OFFER:
                if self._connection is not None:
                    self.tools = self._listed(self.spec, self._connection.tools)
            case Order.WITHDRAW:
                self.tools = self._listed(self.spec, [])

    def _cancel_timers(self) -> None:
        for timer in (self._retry, self._idle):
            if timer is not None:
                timer.cancel()
        self._retry = self._idle = None

    # What a call needs

    async def _connected(self, until: float) -> Connection:
        self._signal(Signal.CALL)
        retry_in = self.status().retry_in
        patience = min(PATIENCE, until - time.monotonic())
        if self._state is ServerState.BACKOFF and retry_in is not None and retry_in <= patience:
            await asyncio.sleep(retry_in)
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self.wait_settled()
        except TimeoutError:
            pass
        connection = self._connection
        if connection is not None and connection.session is not None:
            return connection
        name = self.spec.name
        msg = f"server `{name}` is {self._state}"
        if self.error is not None and self._state is not ServerState.CLOSED:
            msg += f": {self.error}"
        raise ServerNotReadyError(
            msg, server=name, state=self._state, retry_in=self.status().retry_in
        ) from self.error

    # The owner

    async def _live(self, previous: asyncio.Task[None] | None) -> None:
        me = asyncio.current_task()
        for earlier in (previous, self._earlier):
            if earlier is not None:
                await asyncio.wait({earlier})
        if self._owner is not me:
            return
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
        if self._owner is me and error is not None:
            self._signal(verdict(error, reconnect=self.spec.reconnect), error)

    async def _connect(self) -> None:
        transport, auth = await self._reached()
        start = None if is_imported() else await head_start(self.spec, transport, self._surroundings.env)
        try:
            await self._serve(transport, auth, start)
        finally:
            if start is not None:
                await start.drop()

    async def _serve(self, transport: Transport, auth: Auth | None, start: HeadStart | None) -> None:
        module = await connection_module()
        authorizer = await self._gate.authorizer(transport, auth)
        if self._state is not ServerState.CONNECTING or self._owner is not asyncio.current_task():
            return
        spec = replace(self.spec, max_message_bytes=self.limits.message_bytes)
        connection: Connection = module.Connection(
            spec,
            transport,
            env=self._surroundings.env,
            era=self._era,
            slots=self._slots,
            health_check_interval=self._health_check_interval,
            handlers=self._handlers,
            auth=authorizer,
            limits=self.limits,
            start=start,
        )
        self._connection = connection
        # What is declared is what it was made with, whatever roots there are later.
        connection.vet = partial(self._vet, declared_by(self._handlers, self.spec.name))
        if self._guard.binds(self.spec):
            connection.admit = self._admit
        connection.on_ready = lambda: self._on_ready(connection)
        connection.on_listing = lambda error: self._on_listing(connection, error)
        connection.on_lost = lambda error: self._on_lost(connection, error)
        connection.on_changed = self._publish
        try:
            await connection.serve()
        finally:
            self._era = connection.era
            self._ear = connection.trail.stderr or self._ear

    async def _reached(self) -> tuple[Transport, Auth | None]:
        return await reach(self.spec, self._surroundings, self._guard)

    async def _admit(self) -> None:
        await asyncio.to_thread(self._guard.admit, self.spec)

    async def _vet(self, declared: str, listing: Sequence[dict[str, Any]], instructions: str) -> None:
        await self._guard.pinboard.vet(self.spec, listing, instructions, declared=declared)

    def _on_ready(self, connection: Connection) -> None:
        if self._connection is not connection:
            return
        self.error = None
        session = connection.session
        self.server_version = self._guard.shown(session.server_version if session else None) or ""
        self._backoff.ready(time.monotonic())
        self._last_used = time.monotonic()
        if connection.listing_error is not None:
            self._signal(Signal.LISTING_FAILED, connection.listing_error)
            return
        self._signal(Signal.CONNECTED)
        logger.info("%s: connected with %d tools", self.spec.name, self.tools)

    def _on_listing(self, connection: Connection, error: DragomanError | None) -> None:
        if self._connection is connection:
            self.error = error
            self._signal(Signal.LISTED if error is None else Signal.LISTING_FAILED, error)

    def _on_lost(self, connection: Connection, error: DragomanError) -> None:
        """Say so at once: closing what is left of the connection takes its time."""
        if self._connection is connection:
            self._signal(Signal.LOST if self.spec.reconnect else Signal.HOPELESS, error)

    def _plan_watch(self) -> None:
        """Plan to look whether a lazy server is still used."""
        idle = self.spec.timeouts.get("idle")
        if idle is not None and self.spec.lazy:
            left = idle - (time.monotonic() - self._last_used)
            self._idle = asyncio.get_running_loop().call_later(max(left, 0.05), self._watch_use)

    def _watch_use(self) -> None:
        unused = time.monotonic() - self._last_used
        if self._users or unused < self.spec.timeouts.get("idle", 0.0):
            self._plan_watch()
        else:
            self._signal(Signal.UNUSED)
