"""The supervisor of one server: connects it, keeps it connected, and hands out its connection.

One owner task opens the connection, stays with it and closes it, because the SDK's contexts must be entered
and left by the same task. Any other task may start, stop, restart or use the server. What happens goes as a
signal to the table in `lifecycle.py`; the supervisor carries out the orders that come back. Closing ends in
bounded time, even if the task that closes is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from contextvars import Context
from typing import TYPE_CHECKING, Any, Literal

from dragoman.config.templates import input_ids
from dragoman.errors import AuthRequiredError, ConnectError, DragomanError, ServerNotReadyError
from dragoman.events import StateChanged
from dragoman.languages import fill
from dragoman.model import ServerState, ServerStatus, Stdio, Texts
from dragoman.server.acquired import Acquired
from dragoman.server.authorizer_slot import AuthorizerSlot
from dragoman.server.closing import wait_closed
from dragoman.server.connection_events import ConnectionEvents
from dragoman.server.in_progress import InProgress
from dragoman.server.lifecycle import Backoff, Order, Signal, step, verdict
from dragoman.server.prepare import (
    connection_module,
    download_of,
    is_imported,
    prepare,
    with_time_to_download,
)
from dragoman.server.process.environment import copy_of, sandbox_state
from dragoman.server.process.spawn import hold_watchdog, let_go_of_watchdog, prespawn
from dragoman.server.process.stderr_log import kept_path
from dragoman.trust.gate import Gate
from dragoman.trust.limits import TokenBucket
from dragoman.trust.redaction import current_redactor
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.config.templates import ExpansionContext
    from dragoman.events import OfferChanged
    from dragoman.model import Auth, Handlers, LoginUI, ServerSpec, Transport
    from dragoman.server.attempt import ConnectionEnd
    from dragoman.server.connection import Connection
    from dragoman.server.lifecycle import Delay
    from dragoman.server.observer import Observer, Room
    from dragoman.server.process.environment import StderrTail
    from dragoman.server.process.spawn import Prespawn
    from dragoman.server.protocol.deadlines import Deadline
    from dragoman.server.protocol.sdk import KnownProtocol
    from dragoman.server.protocol.session import Session
    from dragoman.server.sharing import SharedConnections

logger = logging.getLogger("dragoman")

_NUMBER = re.compile(r"\d+")
PATIENCE = 2.0
"""Seconds that a call waits for the next connection attempt; if it is due later, the call fails at once."""
MAX_WAITING = 10_000
"""Calls that may wait for their turn on a server with `max_concurrency`."""


class Supervisor(ConnectionEvents):
    """Runs one server, from its spec to its end."""

    def __init__(
        self,
        spec: ServerSpec,
        *,
        expansion: ExpansionContext,
        answers: Callable[[], Mapping[str, str]] = dict,
        observer: Observer,
        slots: asyncio.Semaphore | None = None,
        health_check_interval: float = 30.0,
        handlers: Handlers | None = None,
        gate: Gate | None = None,
        keeps_stderr: bool = False,
        texts: Texts | None = None,
        failure_level: Literal["error", "warning"] = "error",
        connections: SharedConnections | None = None,
        user: str = "",
        room: Room | None = None,
    ) -> None:
        """Prepare a server without starting it.

        Args:
            spec: The server.
            expansion: Resolves its variables, again for each connection.
            answers: Returns the values of its `${input:id}`, again for each connection; may block.
            observer: Gets every change of state and every listing.
            slots: Limits how many servers start at once.
            health_check_interval: Seconds without a message after which an idle connection is probed.
            handlers: The application's handlers for requests from the server.
            gate: The rules for all servers; the default allows everything.
            keeps_stderr: Whether the standard error of a child without `log_file` is kept for some days.
            texts: The application's own words for the log.
            failure_level: The level of the log for failures of the server.
            connections: The connections that several managers share; by default this server has its own.
            user: Whose server it is, in a program with many users.
            room: Asked before each connection, and told when the server is not in use any more.
        """
        self._user = user
        self._room = room
        self._keeps_stderr = keeps_stderr
        self._texts = texts or Texts()
        self._failure_level = logging.WARNING if failure_level == "warning" else logging.ERROR
        self._logged = ""
        """What the latest line of the log about a failure said, until the server is ready or restarted."""
        self._gate = gate = gate or Gate()
        self.error: DragomanError | None = gate.refusal(spec) if spec.enabled else None
        """Why the server is not ready, or was not ready the last time."""
        self.adopt(spec)
        self.expansion = expansion
        """What its variables are looked up in."""
        self._answers = answers
        self._observer = observer
        self._slots = slots
        self._handlers = handlers
        self._connections = connections
        self._health_check_interval = spec.health_check_interval or health_check_interval
        self._state = ServerState.IDLE if spec.enabled else ServerState.CLOSED
        if self.error is not None:
            self._state = ServerState.FAILED
        self._settled = asyncio.Event()
        self._settled.set()
        self._owner: asyncio.Task[None] | None = None
        self._holds_watchdog = False
        self._connection: Connection | None = None
        self._stderr: StderrTail | None = None
        """The captured standard error of the latest connection."""
        self._backoff = Backoff()
        self._downloading = ""
        """The package that its command downloads in this attempt to connect."""
        self._was_ready = False
        """Whether it was ever connected with this spec: then it is always tried again."""
        self._asks_person = True
        """Whether this attempt may ask for a login; one that was scheduled while it waits for one may not."""
        self._refused_login = False
        """Whether the server requires a login although it was sent one."""
        self._retry: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._last_used = 0.0
        self._known_protocol: KnownProtocol | None = None
        self.handshake = ""
        """The hash of what the server said in the older handshake; empty if its protocol is not known."""
        self.server_version = ""
        """The version that the server reported when it last connected, sanitized and without secrets."""
        self.tools = 0
        """How many of its tools are exposed; before it is connected, those of its manifest."""
        self._users = 0
        self.in_progress = InProgress()
        """Whose requests are in progress."""
        self._unused: asyncio.Future[None] | None = None
        self._earlier: asyncio.Future[None] | None = None
        self._turns = asyncio.Semaphore(spec.max_concurrency) if spec.max_concurrency else None
        self._waiting = 0
        self._authorizer_slot = AuthorizerSlot(
            spec.name,
            handlers.login if handlers else None,
            on_needed=lambda error: self._signal(Signal.AUTH_REQUIRED, error),
            on_granted=lambda: self._signal(Signal.LOGGED_IN),
            on_secrets=gate.redactor.add,
            user=user,
        )

    @property
    def state(self) -> ServerState:
        """The state of the server."""
        return self._state

    @property
    def doing(self) -> str:
        """The state of the server in words: a first start may have to download the server."""
        if self._state is ServerState.CONNECTING and self._downloading:
            return f"{self._state} (downloading `{self._downloading}`)"
        return str(self._state)

    @property
    def is_connected(self) -> bool:
        """Whether it is connected, or connecting."""
        return self._state in (ServerState.CONNECTING, ServerState.READY)

    @property
    def may_connect_first(self) -> bool:
        """Whether it was never connected, and nothing is known that stands against it."""
        is_possible = self._state in (ServerState.IDLE, ServerState.CONNECTING)
        return is_possible and not self._was_ready and not self._backoff.is_failing

    @property
    def is_refused(self) -> bool:
        """Whether the user has not approved it: nothing of it is read, used or cached."""
        error = self.error
        return isinstance(error, ConnectError) and error.stage == "approval"

    def refuse(self, error: ConnectError) -> None:
        """Mark a server that has not started as not approved in its current form."""
        if self._state is ServerState.IDLE:
            self.error, self._state = error, ServerState.FAILED

    def adopt(self, spec: ServerSpec) -> None:
        """Replace the spec by one with the same transport, without reconnecting."""
        self.spec = spec
        self.limits = limits = self._gate.limits_of(spec)
        rate = limits.calls_per_second
        self.bucket = TokenBucket(rate, limits.burst) if rate else None
        """The rate limit of calls, if there is one."""

    @property
    def listing(self) -> Sequence[dict[str, Any]]:
        """The tools as the connected server listed them; empty if it is not connected."""
        return self._connection.tools if self._connection is not None else ()

    @property
    def session(self) -> Session | None:
        """The session while the server is connected."""
        return self._connection.session if self._connection is not None else None

    @property
    def instructions(self) -> str:
        """The instructions of the connected server."""
        session = self._connection.session if self._connection else None
        return (session.instructions if session else None) or ""

    def stderr(self) -> str:
        """Return the last lines of the server's standard error, of this connection or the one before.

        Known secrets are masked. The text is empty for a server with a URL.
        """
        if self._connection is not None and self._connection.attempt.stderr is not None:
            self._stderr = self._connection.attempt.stderr
        return self._gate.redactor.mask(self._stderr.text()) if self._stderr is not None else ""

    def status(self) -> ServerStatus:
        """Return the current status; this never starts the server."""
        connection = self._connection
        session = connection.session if connection else None
        retry = self._retry
        return ServerStatus(
            name=self.spec.name,
            state=self._state,
            transport=connection.attempt.kind if connection else self.spec.kind,
            protocol_version=session.protocol_version if session else None,
            server_name=self._gate.shown(session.server_name) if session else None,
            server_version=(self.server_version or None) if session else None,
            pid=connection.attempt.pid if connection and session else None,
            tools=self.tools,
            downloading=self._downloading if self._state is ServerState.CONNECTING else "",
            last_error=str(self.error) if self.error else None,
            error_code=self.error.code if self.error else None,
            error=self.error,
            login_url=self.error.url if isinstance(self.error, AuthRequiredError) else "",
            retry_in=None if retry is None else max(0.0, retry.when() - asyncio.get_running_loop().time()),
            crash_loop=self._backoff.slow(time.monotonic()),
            sandbox=sandbox_state(self.spec),
            origin=self.spec.origin,
        )

    def start(self) -> None:
        """Begin to connect unless the server is connecting or connected; do not wait."""
        self._signal(Signal.START)

    def retry(self) -> None:
        """Try to connect at once if the server waits for its next attempt."""
        self._signal(Signal.RETRY_DUE)

    async def wait_settled(self) -> ServerState:
        """Wait while the server is connecting; return the state after that."""
        while self._state is ServerState.CONNECTING:
            await self._settled.wait()
        return self._state

    def acquire(self, deadline: Deadline) -> Acquired:
        """Return the connection for one request, as an async context manager, for any task.

        Entering waits for a concurrency slot and for the server to be ready, and starts a server that is not
        connected. Inside, the request races its deadline, its caller's cancellation and the loss of the
        connection: `Connection` ends it by whichever comes first. Leaving without an error tells the backoff
        that the server has answered.

        Args:
            deadline: When the request must end, waiting and connecting included.

        Raises:
            ServerNotReadyError: The server is not connected, and could not be in time.
            TimeoutError: Time ran out while waiting for a concurrency slot.
        """
        return Acquired(self._take(deadline), self._give_back)

    async def _take(self, deadline: Deadline) -> Connection:
        self._last_used = time.monotonic()
        self._users += 1
        self.in_progress.begin()
        # `async with` does not call `__aexit__` for an entry that failed or was cancelled, so each step gives
        # back what was taken up to there.
        if self._turns is not None:
            try:
                await self._wait_turn(self._turns, deadline)
            except BaseException:
                self._end_use(answered=True)
                raise
        connection = self._connection
        if connection is None or connection.session is None:
            try:
                connection = await self._connected(deadline)
            except BaseException as exc:
                self._give_back(type(exc), was_sent=False)
                raise
        return connection

    def _give_back(self, failure: type[BaseException] | None, *, was_sent: bool = True) -> None:
        if failure is None:
            self._backoff.answered()
        if self._turns is not None:
            self._turns.release()
        self._end_use(answered=not was_sent or failure is None or issubclass(failure, DragomanError))

    def _end_use(self, *, answered: bool) -> None:
        self.in_progress.end(answered=answered)
        self._users -= 1
        self._last_used = time.monotonic()
        if not self._users:
            if self._unused is not None and not self._unused.done():
                self._unused.set_result(None)
            if self._room is not None:
                self._room.released()

    @property
    def busy(self) -> bool:
        """Whether a request is in progress."""
        return self._users > 0

    @property
    def was_ready(self) -> bool:
        """Whether it was ever connected with this spec."""
        return self._was_ready

    @property
    def is_resting(self) -> bool:
        """Whether nothing of it is under way: no request, no attempt to connect, no login."""
        return not (self._users or self._state is ServerState.CONNECTING or self._authorizer_slot.is_asking)

    def begin_rest(self) -> asyncio.Task[None] | None:
        """Begin to disconnect a server that is not in use; the next use connects it again.

        Returns:
            The task that ends with the connection, for `end_rest`.
        """
        self._signal(Signal.UNUSED)
        return self._owner

    async def end_rest(self, owner: asyncio.Task[None] | None) -> None:
        """Wait until the connection is closed, even when cancelled."""
        if owner is not None:
            await wait_closed(owner, self.spec.name)
        if self._owner is owner and self._holds_watchdog:
            self._owner, self._holds_watchdog = None, False
            await let_go_of_watchdog()

    async def wait_unused(self, seconds: float | None = None) -> bool:
        """Wait up to `seconds` until no request is in progress; return whether that is the case."""
        if self._users:
            # Several may wait, each for its own time.
            if self._unused is None or self._unused.done():
                self._unused = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._unused}, timeout=seconds)
        return not self._users

    def follow(self, earlier: asyncio.Future[None]) -> None:
        """Open no connection before `earlier` is done: the end of a server that this one replaces.

        Both may need the same port, file or lock.
        """
        self._earlier = earlier

    def need_listing(self) -> None:
        """Fetch the listing again if the server says that it is outdated by now; do not wait."""
        if (connection := self._connection) is not None and connection.session is not None:
            connection.need_listing()

    def has_private_listing(self, *, adds_headers: bool) -> bool:
        """Return whether the listing belongs to the credentials in use, and must not be kept for others.

        Args:
            adds_headers: Whether the application adds headers of its own.
        """
        connection = self._connection
        if connection is None or not connection.is_private or isinstance(self.spec.transport, Stdio):
            return False
        return bool(
            adds_headers
            or self.spec.transport.headers
            or (self.spec.auth is not None and self.spec.auth.mode != "none")
            or self._authorizer_slot.has_login
        )

    def offer(self) -> None:
        """Offer the tools of the latest listing again, if the server is ready."""
        if self._state is ServerState.READY:
            self._carry_out(Order.OFFER)

    async def _wait_turn(self, turns: asyncio.Semaphore, deadline: Deadline) -> None:
        if self._waiting >= MAX_WAITING:
            msg = f"{self._waiting} calls already wait for server `{self.spec.name}`"
            raise ServerNotReadyError(msg, server=self.spec.name, state=self._state)
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline.at):
                await turns.acquire()
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Begin to stop, without waiting; from here on calls are refused."""
        self._signal(Signal.STOP)

    async def stop(self) -> None:
        """Stop the server and wait for its end, even when cancelled."""
        self.close()
        try:
            if self._owner is not None:
                await wait_closed(self._owner, self.spec.name)
        finally:
            try:
                await self._authorizer_slot.close()
            finally:
                if self._holds_watchdog:
                    self._holds_watchdog = False
                    if self._was_ready:
                        logger.info("%s", fill(self._texts.closed, server=self.spec.name))
                    await let_go_of_watchdog()

    async def restart(self) -> None:
        """Stop the server if it runs, start it again, and forget its past failures."""
        self._signal(Signal.RESTART)

    async def login(self, ui: LoginUI) -> None:
        """Have a person log in, and connect with the new login.

        Raises:
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The login was refused, or took too long.
        """
        await self._authorizer_slot.login(*await self._prepared(), ui)
        if self._state is not ServerState.READY:
            self._signal(Signal.RESTART)

    async def begin_login(self) -> str:
        """Begin a login, and return the address that a person has to open; the server connects after it.

        Raises:
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The login was refused.
        """
        return await self._authorizer_slot.begin_login(*await self._prepared())

    async def complete_login(self, address: str) -> bool:
        """Take the address that a login ended at, and connect; return False if it is another login's.

        Raises:
            AuthRequiredError: The login was refused.
        """
        if not await self._authorizer_slot.complete_login(address):
            return False
        if self._state in (ServerState.NEEDS_AUTH, ServerState.FAILED, ServerState.BACKOFF):
            self._signal(Signal.RESTART)
        await self.wait_settled()
        return True

    async def logout(self) -> bool:
        """Forget the login and reconnect without it; return whether there was one."""
        found = await self._authorizer_slot.logout(*await self._prepared())
        if found and self._connection is not None:
            self._signal(Signal.RESTART)
        return found

    # Signals and orders

    def _signal(self, signal: Signal, error: DragomanError | None = None) -> None:
        before = self._state
        state, orders = step(before, signal)
        if error is not None:
            self._gate.scrub(error)
            self.error = error
        if signal is Signal.AUTH_REQUIRED and self._connection is not None:
            self._refused_login = self._connection.attempt.sent_login
        if state is not before:
            self._state = state
            self._cancel_timers()
            if state is ServerState.CONNECTING:
                self._settled.clear()
                is_again = signal in (Signal.RETRY_DUE, Signal.CALL)
                self._asks_person = before is not ServerState.NEEDS_AUTH or not is_again
            else:
                self._settled.set()
            if state is ServerState.READY:
                self._plan_watch()
            reason = for_log(str(error)) if error is not None else signal.value
            change = StateChanged(server=self.spec.name, before=before, after=state, reason=reason)
            self._observer.on_event(self, change)
        for order in orders:
            self._carry_out(order)
        if self._room is not None and before is ServerState.CONNECTING and not self._users:
            self._room.released()
        if error is not None and state is not before and state is not ServerState.CLOSED:
            self._log_failure(error, was_connecting=before is ServerState.CONNECTING)
        elif state is ServerState.READY or signal is Signal.RESTART:
            self._logged = ""

    def _log_failure(self, error: DragomanError, *, was_connecting: bool) -> None:
        """Log why the server is not ready: loudly, then quietly while retries fail in the same way."""
        # Attempts differ in process ids, ports and times, which say nothing new.
        said = _NUMBER.sub("", f"{error.code} {error}")
        level = logging.INFO if said == self._logged else self._failure_level
        self._logged = said
        text = Texts().not_connected
        if self._state is ServerState.DEGRADED:
            text = self._texts.not_listed
        elif was_connecting:
            text = self._texts.not_connected
        # A program that shows the log explains the error in its own words.
        more = {"failure": (error, self.spec)}
        logger.log(level, "%s", fill(text, server=self.spec.name, error=error), extra=more)

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
                owner = self._run_owner(self._owner)
                # Not the context of the call that happens to open the connection, which outlives it.
                context = Context()
                context.run(current_redactor.set, current_redactor.get())
                name = f"dragoman server {self.spec.name}"
                self._owner = asyncio.create_task(owner, name=name, context=context)
            case Order.PLAN_RETRY:
                self._plan_retry(self._backoff.failed(time.monotonic(), random.random()))  # noqa: S311 -- jitter
            case Order.PLAN_SLOW_RETRY:
                if self.spec.reconnect:
                    self._plan_retry(self._backoff.refused(time.monotonic(), random.random()))  # noqa: S311 -- jitter
            case Order.RESET_BACKOFF:
                self._backoff.reset()
            case Order.OFFER:
                if self._connection is not None:
                    self.tools = self._observer.on_tools(self, self._connection.tools)
            case Order.WITHDRAW:
                self.tools = self._observer.on_tools(self, [])

    def _plan_retry(self, delay: Delay) -> None:
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(delay.seconds, self._signal, Signal.RETRY_DUE)

    def _cancel_timers(self) -> None:
        for timer in (self._retry, self._idle):
            if timer is not None:
                timer.cancel()
        self._retry = self._idle = None

    # Waiting for the connection

    async def _connected(self, deadline: Deadline) -> Connection:
        if self._state is not ServerState.NEEDS_AUTH or self._may_be_mistaken():
            self._signal(Signal.CALL)
        retry_in = self.status().retry_in
        patience = min(PATIENCE, deadline.left())
        if self._state is ServerState.BACKOFF and retry_in is not None and retry_in <= patience:
            await asyncio.sleep(retry_in)
        try:
            async with asyncio.timeout_at(deadline.at):
                await self.wait_settled()
        except TimeoutError:
            pass  # The error below says more: the state, and when the next attempt is due.
        connection = self._connection
        if connection is not None and connection.session is not None:
            return connection
        raise self._not_ready() from self.error

    def _not_ready(self) -> ServerNotReadyError:
        name = self.spec.name
        msg = f"server `{name}` is {self.doing}"
        if self._state is ServerState.READY:
            msg = f"server `{name}` has not answered since a call timed out"
        elif self.error is not None and self._state is not ServerState.CLOSED:
            msg += f": {self.error}"
        return ServerNotReadyError(msg, server=name, state=self._state, retry_in=self.status().retry_in)

    async def why_switch(self) -> ServerNotReadyError | None:
        """Return why a fallback should answer instead; `None` if a call may be sent or wait for the server.

        It should while the server is lost, and from a time-out on until the server answers anything.
        """
        is_lost = self._state is ServerState.BACKOFF
        is_lost |= self._state is ServerState.CONNECTING and self._backoff.is_failing
        connection = self._connection
        if not is_lost and (connection is None or connection.session is None or await connection.responds()):
            return None
        return self._not_ready()

    def _may_be_mistaken(self) -> bool:
        """Return whether a server that requires a login is worth an attempt without one.

        A login that it has refused is not repeated, and one that a person is about to give not disturbed.
        """
        grant = self.spec.auth.grant if self.spec.auth is not None else "authorization_code"
        if self._refused_login or grant != "authorization_code" or self._authorizer_slot.is_asking:
            return False
        return self._backoff.allows_call(time.monotonic())

    # The owner

    async def _run_owner(self, previous: asyncio.Task[None] | None) -> None:
        me = asyncio.current_task()
        # The process before this one must be gone first: both may need the same port, file or lock.
        for earlier in (previous, self._earlier):
            if earlier is not None:
                await asyncio.wait({earlier})
        # A restart in the meantime has started another owner: only the last one connects.
        if self._owner is not me:
            return
        error: DragomanError | None = None
        try:
            await self._connect()
        except DragomanError as exc:
            error = exc
            if self._downloading and isinstance(exc, ConnectError) and exc.reason == "timeout":
                exc.hint = (
                    f"it was downloading `{self._downloading}`: raise `timeouts.connect` if that takes longer"
                )
        except Exception as exc:
            logger.exception("%s: the connection failed unexpectedly", self.spec.name)
            msg = f"cannot connect to server `{self.spec.name}`: {type(exc).__name__}: {exc}"
            error = ConnectError(msg, server=self.spec.name, stage="connect")
        # A restart or a stop has already set the state: the failure of a former owner must not change it.
        if self._owner is me and error is not None:
            signal = verdict(error, reconnect=self.spec.reconnect, was_ready=self._was_ready)
            self._signal(signal, error)

    async def _connect(self) -> None:
        if self._room is not None:
            before = self.error
            await self._room.enter(self._wait_for_room)
            self.error = before
            # The server may have been stopped or restarted meanwhile.
            if self._state is not ServerState.CONNECTING or self._owner is not asyncio.current_task():
                return
        transport, auth = await self._prepared()
        self._downloading = "" if self._was_ready else await download_of(transport, self.expansion)
        start = None if is_imported() else await prespawn(self.spec, transport, copy_of(self.expansion.env))
        try:
            await self._serve(transport, auth, start)
        finally:
            if start is not None:
                await start.drop()

    async def _serve(self, transport: Transport, auth: Auth | None, start: Prespawn | None) -> None:
        module = await connection_module()
        authorizer = await self._authorizer_slot.authorizer(transport, auth)
        if authorizer is not None:
            authorizer.asks_person = self._asks_person
        key = None
        if self._connections is not None:
            key = await self._connections.key(self.spec, transport, self.expansion.env, self._handlers)
        # The server may have been stopped or restarted during the import.
        if self._state is not ServerState.CONNECTING or self._owner is not asyncio.current_task():
            return
        spec = self.spec.replace(max_message_bytes=self.limits.message_bytes)
        if not self._was_ready:
            spec = with_time_to_download(spec, transport)

        def make(events: ConnectionEvents, handlers: Handlers | None) -> Connection:
            return module.Connection(
                spec,
                transport,
                events=events,
                env=copy_of(self.expansion.env),
                known_protocol=self._known_protocol,
                was_legacy=self._known_protocol is None and self.handshake != "",
                slots=self._slots,
                health_check_interval=self._health_check_interval,
                handlers=handlers,
                auth=authorizer,
                limits=self.limits,
                start=start,
            )

        if self._connections is not None and key is not None:
            lease = self._connections.lease(
                key, spec, make, events=self, handlers=self._handlers, user=self._user
            )
            connection = lease.as_connection()
        else:
            connection = make(self, self._handlers)
        self._connection = connection
        try:
            await connection.serve()
        finally:
            self._known_protocol = connection.known_protocol
            if not self._was_ready:
                self.handshake = ""
            self._stderr = connection.attempt.stderr or self._stderr

    def _wait_for_room(self, why: DragomanError) -> None:
        """Note what calls that run out of time waited for."""
        self.error = why

    async def _prepared(self) -> tuple[Transport, Auth | None]:
        # Variables are read again for each connection.
        expansion = self.expansion.replace(env=copy_of(self.expansion.env))
        if input_ids(self.spec):
            expansion = expansion.replace(inputs=await asyncio.to_thread(self._answers))
        transport, auth = await prepare(self.spec, expansion, self._gate)
        if self._keeps_stderr and isinstance(transport, Stdio) and transport.log_file is None:
            transport = transport.replace(log_file=str(kept_path(self.spec)))
        return transport, auth

    # The events of the connection. A connection that was replaced may still end or list: it is ignored.

    async def admit(self, connection: Connection) -> None:  # noqa: ARG002 -- the same for every connection
        """Check the approval of the server right before it is started."""
        if self._gate.needs_approval(self.spec):
            await asyncio.to_thread(self._gate.admit, self.spec)

    async def check_listing(
        self, connection: Connection, listing: Sequence[dict[str, Any]], instructions: str
    ) -> None:
        """Compare a listing with the pins."""
        checker = self._gate.pin_checker
        await checker.check_listing(self.spec, listing, instructions, declared=connection.declared)
        if self._connection is connection:
            await self._observer.read_ahead(self, listing)

    def on_ready(self, connection: Connection) -> None:
        """Offer the tools of a connection that has just opened."""
        if self._connection is not connection:
            return
        self.error = None
        self._was_ready = True
        self._authorizer_slot.allow_asking()
        session = connection.session
        self.server_version = self._gate.shown(session.server_version if session else None) or ""
        said = session.handshake if session else ""
        # A server that says something else than the last time is asked for its protocol at the next start.
        self.handshake = said if self.handshake in ("", said) else ""
        self._backoff.ready(time.monotonic())
        self._last_used = time.monotonic()
        if connection.listing_error is not None:
            self._signal(Signal.LISTING_FAILED, connection.listing_error)
            return
        self._signal(Signal.CONNECTED)
        said = f"{self.tools} tool{'' if self.tools == 1 else 's'}"
        for text in filter(None, (self._texts.connected, self._texts.loaded)):
            logger.info("%s", fill(text, server=self.spec.name, count=self.tools, tools=said))

    def on_listing(self, connection: Connection, error: DragomanError | None) -> None:
        """Offer the tools of a later listing, or withdraw them if it failed."""
        if self._connection is connection:
            self.error = error
            self._signal(Signal.LISTED if error is None else Signal.LISTING_FAILED, error)

    def on_changed(self, connection: Connection, event: OfferChanged) -> None:  # noqa: ARG002 -- an event is enough
        """Publish a change of prompts or resources."""
        self._observer.on_event(self, event)

    def on_timed_out(self, connection: Connection, error: DragomanError) -> None:
        """Change the state at once, so that nothing waits for the end of a process that hangs."""
        if self._connection is connection and self._state is ServerState.CONNECTING:
            self._signal(verdict(error, reconnect=self.spec.reconnect), error)

    def on_lost(self, connection: Connection, end: ConnectionEnd) -> None:
        """Change the state at once: closing the rest of the connection takes up to `CLOSE_SECONDS`."""
        if self._connection is connection:
            signal = Signal.LOST if self.spec.reconnect else Signal.HOPELESS
            self._signal(signal, end.error(self.spec.name))

    def _plan_watch(self) -> None:
        """Schedule the next check whether a lazy server is still used."""
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
