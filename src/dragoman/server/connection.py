"""One connection to one server: open it, list its tools, call them, probe it, close it.

`serve` lasts as long as the connection. It belongs to one task, because the SDK's contexts must be entered
and left by the same task; every other method is for any task. A call runs in its caller's task, since nothing
below can cancel it. It ends by its answer, its deadline, its caller's cancellation or the end of the
connection.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from dragoman.errors import AuthRequiredError, ConnectError, ConnectionLostError, DragomanError
from dragoman.events import offer_changed
from dragoman.model import Handlers, Http, Sse, Stdio
from dragoman.server.attempt import ConnectAttempt, ConnectionEnd
from dragoman.server.protocol import sdk
from dragoman.server.protocol.context import current_deadline
from dragoman.struct import MutableStruct
from dragoman.trust.addresses import read_link
from dragoman.trust.limits import Limits
from dragoman.trust.pin_checker import declared_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from pydantic import BaseModel

    from dragoman.model import Handler, ServerSpec, Transport
    from dragoman.server.connection_events import ConnectionEvents
    from dragoman.server.process.spawn import Prespawn
    from dragoman.server.protocol.deadlines import Deadline
    from dragoman.server.protocol.outgoing import Outgoing, Unfinished
    from dragoman.server.transports.http_client import HttpAuth
    from dragoman.tools.result.render import ServerAnswer


logger = logging.getLogger("dragoman")

LOGGED_CHARS = 2_000
"""How much of a server's log message goes into our log."""

_SAMPLED: TypeAdapter[Any] = TypeAdapter(types.CreateMessageResult | types.CreateMessageResultWithTools)


def sdk_answers(handlers: Handlers, server: str) -> dict[str, Any]:
    """Return the callbacks for the SDK's session."""
    answers: dict[str, Any] = {}
    if (sampling := handlers.sampling) is not None:

        async def sample(_context: object, params: BaseModel) -> Any:
            return await _answer(sampling, server, params, _SAMPLED.validate_python)

        answers["sampling_callback"] = sample
        answers["sampling_capabilities"] = types.SamplingCapability(tools=types.SamplingToolsCapability())
    elicitation = handlers.elicitation
    if elicitation is None and handlers.durable_questions:
        # Only calls that wait get here: a server of the older protocol cannot be asked to wait.
        elicitation = _cannot_ask
    if elicitation is not None:

        async def elicit(_context: object, params: BaseModel) -> Any:
            if (url := getattr(params, "url", None)) is not None:
                try:
                    params = params.model_copy(update={"url": read_link(str(url)).url})
                except ValueError as exc:
                    logger.warning("%s: declined to open an address that is not safe: %s", server, exc)
                    return types.ElicitResult(action="decline")
            return await _answer(elicitation, server, params, types.ElicitResult.model_validate)

        answers["elicitation_callback"] = elicit
    if (ask_roots := handlers.list_roots) is not None:

        async def forward_roots(_context: object) -> Any:
            return await _answer(
                ask_roots, server, types.RequestParams(), types.ListRootsResult.model_validate
            )

        answers["list_roots_callback"] = forward_roots
    elif _roots_of(handlers, server) is not None:

        async def list_roots(_context: object) -> types.ListRootsResult:
            roots = _roots_of(handlers, server) or ()
            listed = [{"uri": uri, "name": uri.rstrip("/").rpartition("/")[2]} for uri in roots]
            return types.ListRootsResult.model_validate({"roots": listed})

        answers["list_roots_callback"] = list_roots
    if (completed := handlers.elicitation_complete) is not None:

        async def complete(params: BaseModel) -> None:
            await _call(completed, server, params)

        answers["elicitation_complete"] = complete
    log = handlers.logging

    async def take_log(params: types.LoggingMessageNotificationParams) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            data = f"{params.data!s:.{LOGGED_CHARS}}"
            logger.debug("%s: log message (%s, %s): %s", server, params.level, params.logger or "-", data)
        if log is not None:
            await _call(log, server, params)

    answers["logging_callback"] = take_log
    return answers


REFUSED = -1
"""The code of the protocol's own example for a request that the user has refused."""


def _cannot_ask(_server: str, _request: dict[str, Any]) -> dict[str, Any]:
    return {"action": "cancel"}


def _roots_of(handlers: Handlers, server: str) -> Sequence[str] | None:
    roots = handlers.roots
    return roots(server) if callable(roots) else roots


async def _answer(handler: Handler, server: str, params: BaseModel, read: Callable[[Any], Any]) -> Any:
    try:
        return read(await _call(handler, server, params))
    except MCPError as exc:
        # A client behind the gateway has answered with an error of its own.
        return exc.error
    except DragomanError as exc:
        # A no of the user, or a limit: nothing has failed.
        logger.warning("%s: a request of the server was refused: %s", server, exc)
        return types.ErrorData(code=REFUSED, message=exc.message)
    except Exception:
        logger.exception("%s: the handler of a request failed", server)
        return types.ErrorData(code=types.INTERNAL_ERROR, message="the client could not answer")


async def _call(handler: Handler, server: str, params: BaseModel) -> Mapping[str, Any]:
    outcome = handler(server, params.model_dump(mode="json", by_alias=True, exclude_none=True))
    if inspect.isawaitable(outcome):
        outcome = await outcome
    return cast("Mapping[str, Any]", outcome)


def attempt_of(transport: Transport, on_stage: Callable[[str], None] | None = None) -> ConnectAttempt:
    """Begin an attempt to connect over a transport."""
    match transport:
        case Stdio():
            kind = "stdio"
        case Http():
            kind = "http"
        case Sse():
            kind = "sse"
    return ConnectAttempt(kind=kind, on_stage=on_stage)


def attempts_at(transport: Transport) -> list[Transport]:
    """Return the transports to try, in order; an alternate is tried only if the first is refused."""
    match transport:
        case Http(alternate=True):
            return [transport, _other(Sse, transport)]
        case Sse(alternate=True):
            return [transport, _other(Http, transport)]
        case _:
            return [transport]


def _other(kind: type[Http | Sse], of: Http | Sse) -> Transport:
    return kind(of.url, headers=of.headers, tls=of.tls, allow_http=of.allow_http)


def add_history(failures: list[ConnectError]) -> None:
    """Add the messages of the earlier failures to the last one."""
    failures[-1].message += "".join(f"; before that: {earlier.message}" for earlier in failures[:-1])


CLOSE_SECONDS = 10.0
"""Longer than any wire takes to close: 2 s after closing its input, 2 s after TERM, then KILL."""
CANCEL_SECONDS = 1.0
SLOT_SECONDS = 1.5
"""How long a starting server holds its slot: a server that hangs must not block the others."""
RELIST_PAUSE = 0.1
"""Changes announced within this time cause one listing; the pause grows while they continue."""
RELIST_LONGEST = 5.0
LEAST_TTL = 1.0
"""A listing is used at least this long, whatever the server says."""
PROBE_SECONDS = 10.0
PROBE_MISSES = 3
SILENT_SECONDS = 2.0
"""How long a server whose call timed out may take for a probe before its fallbacks answer."""
SILENT_PAUSE = 1.0
SILENT_LONGEST = 30.0
"""The pauses between the probes of a silent server grow from one to the other."""
T = TypeVar("T")


class _Silence(MutableStruct):
    """How long a server has been silent while calls wait for it."""

    since: float
    heard: int | None
    """How many messages had arrived by then; `None` if it was not silent."""
    calls: int = 0


class _Check(MutableStruct):
    """The probes of a server whose call timed out."""

    heard: int
    """How many messages had arrived by then."""
    answered: asyncio.Future[bool]
    """Whether the first probe was answered in time."""


class Connection:
    """A connection that is opened, used and closed once; to reconnect, make another one."""

    def __init__(
        self,
        spec: ServerSpec,
        transport: Transport,
        *,
        events: ConnectionEvents,
        env: Mapping[str, str],
        known_protocol: sdk.KnownProtocol | None = None,
        was_legacy: bool = False,
        slots: asyncio.Semaphore | None = None,
        health_check_interval: float = math.inf,
        handlers: Handlers | None = None,
        auth: HttpAuth | None = None,
        limits: Limits | None = None,
        start: Prespawn | None = None,
    ) -> None:
        self.spec = spec
        self.attempt = attempt_of(transport, events.on_stage)
        self._was_legacy = was_legacy
        """Whether it spoke the older protocol when its tools were last listed, which may have changed."""
        self.known_protocol = sdk.KnownProtocol("legacy") if was_legacy else known_protocol
        """The protocol generation: of the last connection, then of this one."""
        self.tools: list[dict[str, Any]] = []
        """The raw listing of the server's tools."""
        self.listing_error: DragomanError | None = None
        """Why the listing failed, if the server is connected without one."""
        self.calls = 0
        """How many requests are in progress."""
        handlers = handlers or Handlers()
        self.declared = declared_by(handlers, spec.name)
        """The capabilities that the handshake declares; roots that are set later do not change them."""
        self._events = events
        self._transport = transport
        self._env = env
        self._slots = slots
        self._answers = sdk_answers(handlers, spec.name)
        self._header_provider = handlers.headers
        self._auth = auth
        self._start_ahead = start
        self._limits = limits or Limits()
        self._health_check_interval = health_check_interval
        self._session: sdk.Session | None = None
        self._scope: anyio.CancelScope | None = None
        self._loop = asyncio.get_running_loop()
        self._leave: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[ConnectionEnd] = self._loop.create_future()
        self._relist_due = asyncio.Event()
        self._keeps_listing = False
        """Whether the task that lists the tools again runs; most servers never need it."""
        self._stale_at = math.inf
        """When the listing is older than the server says it may be used, on the loop's clock."""
        self.is_private = False
        """Whether the listing may differ for other credentials."""
        self._silence = _Silence(0.0, None)
        self._check: _Check | None = None
        self._is_last_attempt = True
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def session(self) -> sdk.Session | None:
        """The session while it can be used, else `None`."""
        return self._session

    async def serve(self) -> None:
        """Open the session, list the tools, and stay until `close` or until the connection is lost.

        Raises:
            ConnectError: The connection could not be opened.
            ConnectionLostError: The connection was open and ended, but not by `close`.
        """
        attempts = attempts_at(self._transport)
        failures: list[ConnectError] = []
        seconds = self.spec.connect_timeout
        for transport in attempts:
            last = transport is attempts[-1]
            self.attempt = attempt_of(transport, self._events.on_stage)
            self._is_last_attempt = last
            try:
                await self._serve_or_ask_again(transport, seconds if last else seconds / 2)
            except ConnectError as exc:
                failures.append(exc)
                if last or not self.attempt.refused:
                    add_history(failures)
                    raise
                seconds /= 2
            else:
                return

    def close(self) -> None:
        """Begin to close, in any phase; `serve` returns when the connection is closed."""
        if not self._leave.done():
            self._leave.set_result(None)
        if self._session is None and self._scope is not None:
            self._scope.cancel()

    def call_tool(self, call: Outgoing) -> Coroutine[Any, Any, ServerAnswer | Unfinished]:
        """Call a tool.

        Raises:
            TimeoutError: The deadline passed; the server was notified.
            ConnectionLostError: The connection ended; the call may have run.
            ToolExecutionError: The server answered, but not with a result.
        """
        # A plain function that returns one coroutine: a call in flight keeps one frame less.
        session = self._session
        if session is None:
            raise self._ended_under_call(may_have_run=False)
        began = self._loop.time()
        if began >= self._stale_at:
            self.need_listing()
        return self._finish(session, session.call_tool(call), began, call.tool)

    async def use(self, job: Callable[[sdk.Session], Awaitable[T]], *, deadline: Deadline, what: str) -> T:
        """Make requests other than a tool call.

        Args:
            job: Makes them on the session it is given.
            deadline: When each of them must end.
            what: The subject of the request, for errors.

        Raises:
            TimeoutError: The deadline passed; the server was notified.
            ConnectionLostError: The connection ended; the request may have been carried out.
            ToolExecutionError: The server answered, but not with a result.
        """
        session = self._session
        if session is None:
            raise self._ended_under_call(may_have_run=False)
        before = current_deadline.get()
        current_deadline.set(deadline)
        try:
            return await self._finish(session, job(session), self._loop.time(), what)
        finally:
            # Not by token: a coroutine that is closed runs this in another context.
            current_deadline.set(before)

    async def _finish(self, session: sdk.Session, request: Awaitable[T], began: float, what: str) -> T:
        """Await a request, and turn its failure into one of our errors."""
        self.calls += 1
        heard = session.received
        try:
            return await request
        except DragomanError:
            raise
        except Exception as exc:  # noqa: BLE001 -- every error of the SDK becomes one of ours
            error = sdk.call_error(exc, server=self.spec.name, tool=what)
            if isinstance(error, TimeoutError):
                self._check_now(session)
                self._note_silence(began, None if session.received != heard else heard)
            raise error from (None if error in (exc, exc.__cause__) else exc)
        finally:
            self.calls -= 1

    # For the owner task

    async def _serve_or_ask_again(self, transport: Transport, seconds: float) -> None:
        """Serve, and try again if the server exits when asked for its version, or refuses the old one."""
        until = self._loop.time() + seconds
        try:
            await self._serve(transport, seconds)
        except ConnectError:
            if self.attempt.ended_by_probe:
                logger.info(
                    "%s: the server exited when asked for its protocol version; trying the older protocol",
                    self.spec.name,
                )
                self.known_protocol = sdk.KnownProtocol("legacy")
            elif not self._was_legacy or self.known_protocol is not None:
                raise
            self._was_legacy = False
            self.attempt = attempt_of(transport, self._events.on_stage)
            try:
                await self._serve(transport, max(1.0, until - self._loop.time()))
            except ConnectError:
                self.known_protocol = None
                raise

    async def _serve(self, transport: Transport, seconds: float) -> None:
        failure: Exception | None = None
        if self._lost.done():
            self._lost = self._loop.create_future()
        scope = anyio.CancelScope()
        is_open = False
        release = await self._take_slot()
        scope.deadline = anyio.current_time() + seconds
        limit = self._loop.call_later(seconds, self._on_timed_out)
        try:
            # The deadline for connecting belongs to a scope around the SDK's contexts: anyio's scopes must be
            # left in reverse order, so a scope inside could not end before the session does. Once the
            # connection is open the deadline is lifted; for closing it is set again.
            with scope:
                self._scope = scope
                if self._leave.done():
                    return
                await self._events.admit(self)
                async with sdk.open_session(
                    self.spec,
                    transport,
                    env=self._env,
                    attempt=self.attempt,
                    known_protocol=self.known_protocol,
                    on_end=self._on_end,
                    changed=self._on_changed,
                    answers=self._answers,
                    header_provider=self._header_provider,
                    auth=self._auth,
                    start=self._start_ahead,
                ) as session:
                    self.attempt.enter("listing")
                    await self._first_listing(session)
                    scope.deadline = math.inf
                    limit.cancel()
                    is_open = True
                    release()
                    await self._stay(session, scope)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # noqa: BLE001 -- the SDK's exception groups may hold anything
            failure = sdk.unwrap_group(exc)
        finally:
            limit.cancel()
            release()
            self._session = None
            self._scope = None
            self._cancel_tasks()
        if self._leave.done():
            return
        if is_open:
            end = self._lost.result()
            if failure is not None:
                end = sdk.unexplained_end(failure, self.spec, self.attempt)
            raise end.error(self.spec.name) from failure
        if scope.cancel_called:
            failure = TimeoutError()
        if isinstance(failure, ConnectError) and failure.stage == "approval":
            raise failure
        if failure is not None:
            if sdk.is_answer(failure):
                self.known_protocol = None
            raise sdk.connect_error(failure, self.spec, self.attempt) from failure

    async def _take_slot(self) -> Callable[[], None]:
        """Wait for a slot among the starting servers; return a function that releases it, once."""
        slots = self._slots
        if slots is None or self._leave.done():
            return lambda: None
        await slots.acquire()
        held = [slots]

        def release() -> None:
            timer.cancel()
            if held:
                held.pop().release()

        timer = self._loop.call_later(SLOT_SECONDS, lambda: held.pop().release() if held else None)
        return release

    async def _stay(self, session: sdk.Session, scope: anyio.CancelScope) -> None:
        if not self._lost.done() and not self._leave.done():
            self._session = session
            self.known_protocol = session.known_protocol
            self._events.on_ready(self)
            if self._relist_due.is_set():
                self._relist()
            self._start(self._keep_probing(session))
            if session.known_protocol.mode != "legacy":
                self._start(session.watch_changes(self._on_changed))
        try:
            await asyncio.wait({self._leave, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # An error inside the SDK's session cancels this wait before `_lost` is set.
            self._on_end(sdk.unexplained_end(None, self.spec, self.attempt))
            self._session = None
            scope.deadline = anyio.current_time() + CLOSE_SECONDS
        if tasks := self._cancel_tasks():
            # The cancelled calls notify the server while the wire is still open.
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    async def _first_listing(self, session: sdk.Session) -> None:
        try:
            self.tools = await self._list_and_check(session)
        except Exception as exc:
            # A server that was modern last time may have been downgraded: connect again and ask again.
            known = self.known_protocol
            if self._lost.done() or (known is not None and known.discover is not None):
                raise
            self.listing_error = sdk.connect_error(exc, self.spec, self.attempt)
            if isinstance(self.listing_error, AuthRequiredError):
                raise self.listing_error from exc
            self._relist_due.set()

    def _relist(self) -> None:
        """List the tools again soon; before the connection is ready, note that it is needed."""
        self._relist_due.set()
        if self._session is not None and not self._keeps_listing:
            self._keeps_listing = True
            self._start(self._keep_listing(self._session))

    async def _keep_listing(self, session: sdk.Session) -> None:
        """List the tools again when the server announces a change, or until a listing succeeds."""
        pause, last = RELIST_PAUSE, -math.inf
        while True:
            await self._relist_due.wait()
            if self.listing_error is None:
                # A server may announce a change after every listing: the growing pause ends that loop.
                calm = self._loop.time() - last > RELIST_LONGEST
                pause = RELIST_PAUSE if calm else min(RELIST_LONGEST, pause * 2)
            await asyncio.sleep(pause)
            self._relist_due.clear()
            error: DragomanError | None = None
            try:
                async with asyncio.timeout(self.spec.connect_timeout):
                    self.tools = await self._list_and_check(session)
            except Exception as exc:  # noqa: BLE001 -- every error of the SDK becomes one of ours
                error = sdk.connect_error(exc, self.spec, self.attempt)
            if self._session is None:
                return
            self._events.on_listing(self, error)
            self.listing_error, last = error, self._loop.time()
            if error is not None:
                pause = min(60.0, pause * 4)
                self._relist_due.set()

    async def _keep_probing(self, session: sdk.Session) -> None:
        """Probe an idle connection. Any message shows that it works, and a busy server is not probed."""
        if not math.isfinite(self._health_check_interval):
            return
        misses, heard = 0, session.received
        while True:
            pause = self._health_check_interval
            await asyncio.sleep(min(1.0, pause) if misses else pause)
            if session.received != heard or self.calls:
                misses, heard = 0, session.received
                continue
            alive = await session.probe(min(PROBE_SECONDS, max(1.0, self._health_check_interval)))
            misses = 0 if alive or self.calls or session.received != heard else misses + 1
            heard = session.received
            if misses:
                # A call that comes meanwhile goes to a fallback.
                self._check_now(session)
            if misses >= PROBE_MISSES:
                self._on_end(ConnectionEnd(reason=f"it did not answer {misses} probes"))
                return

    def _note_silence(self, began: float, heard: int | None) -> None:
        """Count a call that timed out while no message arrived; several count like unanswered probes.

        A server that is called all the time is never idle, so no probe would find out that it hangs.
        """
        if heard is None or heard != self._silence.heard:
            self._silence = _Silence(began, heard)
        if heard is None:
            return
        silence = self._silence
        silence.calls += 1
        seconds = self._loop.time() - silence.since
        if silence.calls >= PROBE_MISSES and seconds >= self._health_check_interval and self.calls == 1:
            reason = f"it sent nothing for {seconds:.0f} s, and {silence.calls} calls timed out"
            self._on_end(ConnectionEnd(reason=reason))

    async def responds(self) -> bool:
        """Return whether the server answers, as far as is known.

        After a time-out a probe decides, and this waits for it. A server that has sent anything since does
        answer: only its tool was slow.
        """
        check, session = self._check, self._session
        if check is None or session is None:
            return True
        await asyncio.wait({check.answered})
        return check.answered.result() or session.received != check.heard

    def _check_now(self, session: sdk.Session) -> None:
        """Probe the server now, unless that is under way and it has sent nothing since."""
        under_way = self._check is not None and self._check.heard == session.received
        if not under_way and self._session is session:
            self._check = check = _Check(session.received, self._loop.create_future())
            self._start(self._probe_silent(session, check))

    async def _probe_silent(self, session: sdk.Session, check: _Check) -> None:
        """Probe a server until it answers. That ends no connection: it may be busy with what timed out."""
        pause = SILENT_PAUSE
        try:
            while self._check is check:
                is_alive = await session.probe(SILENT_SECONDS) or session.received != check.heard
                if not check.answered.done():
                    check.answered.set_result(is_alive)
                if is_alive:
                    break
                await asyncio.sleep(pause)
                pause = min(SILENT_LONGEST, 2 * pause)
        finally:
            if not check.answered.done():
                check.answered.set_result(False)
            if self._check is check:
                self._check = None

    def need_listing(self) -> None:
        """Fetch the listing again if it is stale; without waiting, and once however many ask.

        Nothing polls: a listing that no caller needs stays as it is.
        """
        if self._loop.time() >= self._stale_at:
            self._stale_at = math.inf
            self._relist()

    async def _list_and_check(self, session: sdk.Session) -> list[dict[str, Any]]:
        tools = await self._list(session)
        ttl = session.freshness.ttl
        self._stale_at = self._loop.time() + max(ttl, LEAST_TTL) if ttl else math.inf
        self.is_private = session.freshness.is_private
        await self._events.check_listing(self, tools, session.instructions or "")
        return tools

    async def _list(self, session: sdk.Session) -> list[dict[str, Any]]:
        tools, why = await session.list_all("tools", self._limits)
        found: dict[str, dict[str, Any]] = {}
        for tool in tools:
            if found.setdefault(str(tool.get("name")), tool) is not tool:
                logger.warning("%s: tool `%s` is listed twice", self.spec.name, tool.get("name"))
        if why:
            logger.warning("%s: the listing was cut short: %s", self.spec.name, why)
        return list(found.values())

    def _on_changed(self, what: str) -> None:
        if what == "tools":
            self._relist()
        else:
            self._events.on_changed(self, offer_changed(self.spec.name, what))

    def _on_end(self, end: ConnectionEnd) -> None:
        if self._leave.done() or self._lost.done():
            return
        self._lost.set_result(end)
        if self._session is not None:
            self._session = None
            self._events.on_lost(self, end)

    def _on_timed_out(self) -> None:
        """Report the time limit at once: stopping a process that hangs takes seconds more."""
        if not self._leave.done() and (self._is_last_attempt or not self.attempt.refused):
            cause = TimeoutError()
            error = sdk.connect_error(cause, self.spec, self.attempt)
            error.__cause__ = cause
            self._events.on_timed_out(self, error)

    def _start(self, job: Any) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _cancel_tasks(self) -> set[asyncio.Future[Any]]:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            logger.debug("%s: a background task failed: %r", self.spec.name, exc)

    def _ended_under_call(self, *, may_have_run: bool) -> ConnectionLostError:
        how = "was lost" if self._lost.done() else "was closed"
        msg = f"the connection to server `{self.spec.name}` {how}"
        return ConnectionLostError(msg, server=self.spec.name, may_have_run=may_have_run)
