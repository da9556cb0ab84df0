"""Sends the requests of one conversation with a server, and takes what the server sends.

It turns requests into messages and answers into results. The requests and notifications of the server go to
the SDK's session, in order: for that it has the methods of the SDK's `Dispatcher`. A request ends by its
answer, its deadline, its caller's cancellation or the end of the wire, without a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import anyio
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT
from pydantic import ValidationError

from dragoman.errors import ConnectionLostError, DragomanError, ProtocolError
from dragoman.observe.served_request import served
from dragoman.observe.telemetry import TracedServer, find
from dragoman.server.attempt import ConnectionEnd
from dragoman.server.protocol.context import received_at
from dragoman.server.protocol.deadlines import Deadline, Deadlines
from dragoman.server.protocol.rpc import Rpc
from dragoman.server.protocol.wire import SendInfo
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from anyio.abc import TaskStatus
    from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
    from mcp.shared.message import MessageMetadata
    from mcp.shared.transport_context import TransportContext

    from dragoman.observe.served_request import ServedRequest
    from dragoman.observe.telemetry import Telemetry, TracedRequest
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.protocol.outgoing import Traffic
    from dragoman.server.protocol.rpc import RequestId
    from dragoman.server.protocol.wire import Wire


KNOWN_RESULTS = ("complete", "input_required", "task")
"""The types of results of the protocol and of the extensions that we declare."""
_USUAL = {"resultType": "complete"}
_USUAL_OF_KEPT = {**_USUAL, "ttlMs": 0, "cacheScope": "private"}
"""For results that a client may cache."""


def completed(method: str, result: dict[str, Any]) -> dict[str, Any]:
    """Add the fields that a modern result requires, if they are missing: it is final and not cached."""
    usual = _USUAL_OF_KEPT if method.endswith(("/list", "/read")) else _USUAL
    return result if usual.keys() <= result.keys() else {**usual, **result}


def _unknown_result(method: str, kind: object) -> ProtocolError:
    """Return the error for a result that would be taken for a complete one."""
    named = for_log(kind, 80) if isinstance(kind, str) else type(kind).__name__
    return ProtocolError(f"the answer to `{method}` has the unknown type `{named}`")


logger = logging.getLogger("dragoman")

MAX_NOTIFICATIONS = 10_000
"""The limit of the queue of notifications; the oldest are dropped beyond it."""
TURN_DELIVERIES = 50
"""How many notifications are handled before the event loop gets a turn."""
DELIVERY_SECONDS = 1.0
"""How long an answer waits for the handlers of the notifications before it."""
MAX_REQUESTS = 100
"""The limit of concurrent requests from the server; more are refused."""
SERVER_BUSY = -32000
QUESTIONS = {"elicitation_callback": "elicitation/create", "sampling_callback": "sampling/createMessage"}
"""Requests from the server that the user or a model answers; calls wait without a deadline meanwhile."""
HANDSHAKE = frozenset({"initialize", "server/discover"})
"""Requests whose failure must not look like an answer: the session takes any answer for an older server's."""
JUNK_LOGGED = 5
"""How many junk messages are logged; later ones are only counted."""


class WireDispatcher:
    """One conversation with one server; has the methods of the SDK's `Dispatcher`, which is a protocol."""

    def __init__(
        self,
        server: str,
        *,
        probe_seconds: float = math.inf,
        attempt: ConnectAttempt | None = None,
        on_end: Callable[[ConnectionEnd], None] | None = None,
        traced: bool = True,
    ) -> None:
        self.server = server
        self._attempt = attempt
        self._on_end = on_end
        self._probe_seconds = probe_seconds
        """How long the server may take to answer the question for its protocol version."""
        self._loop = asyncio.get_running_loop()
        # The task that delivers notifications serves all calls: it must not run in the context of one.
        self._context = copy_context()
        self._deadlines = Deadlines(self._loop)
        self.rpc = Rpc(self)
        self.wire: Wire | None = None
        """The open wire; set before the session calls `run`."""
        self.is_modern = False
        """Whether the server speaks the modern protocol, whose results have a type."""
        self.asks: frozenset[str] = frozenset()
        """The `QUESTIONS` that have a handler; the others are refused at once and extend no deadline."""
        self.peer = TracedServer()
        """The attributes of the server in traces."""
        self._telemetry = find() if traced else None
        self.ended: asyncio.Future[ConnectionEnd] = self._loop.create_future()
        """Done when the conversation has ended."""
        self._running = False
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None
        self._deliveries: deque[tuple[float, Callable[[], Awaitable[None]]]] = deque(maxlen=MAX_NOTIFICATIONS)
        """With the times at which they were received."""
        self._delivery_due = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None
        """The task that runs the handlers; most servers never send a notification."""
        self.on_task: Callable[[dict[str, Any]], None] | None = None
        """Called with the state of a task that the server announces."""
        self._delivers = False
        """Whether a delivery has begun and is not done."""
        self._serving: dict[RequestId, _Context] = {}

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request of the SDK's session, and wait for its result.

        Raises:
            MCPError: The server answered with an error, time ran out, or the connection ended.
            DragomanError: The same, if the session must not take it for an answer.
        """
        return await self.request(method, params, opts or {})

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions,
        *,
        end: Deadline | None = None,
        traffic: Traffic | None = None,
        on_task: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Send a request, and wait for its result.

        Args:
            method: The method's name.
            params: Its parameters.
            opts: The HTTP headers of the request, and what else the SDK knows as options.
            end: When the request must end, if not only by the timeout of `opts`.
            traffic: Counts the bytes of the messages.
            on_task: Called with the answer to a call that has become a task, as soon as it is read.

        Raises:
            MCPError: The server answered with an error, time ran out, or the connection ended.
            DragomanError: The connection ended, for a call or the handshake.
        """
        if self._telemetry is not None:
            return self._traced(self._telemetry, method, params, opts, end, traffic, on_task)
        return self._exchange(method, params, opts, end, traffic, on_task)

    async def _traced(
        self,
        telemetry: Telemetry,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions,
        *how: Any,
    ) -> dict[str, Any]:
        with telemetry.request(method, self.peer, **_subject(method, params or {})) as request:
            if (carrier := request.meta()) is not None:
                params = dict(params or {})
                params["_meta"] = {**(params.get("_meta") or {}), **carrier}
            outcome = await self._exchange(method, params, opts, *how, traced=request)
            request.answered(outcome)
            return outcome

    async def _exchange(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions,
        end: Deadline | None,
        counted: Traffic | None,
        on_task: Callable[[Mapping[str, Any]], None] | None,
        *,
        traced: TracedRequest | None = None,
    ) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any] | BaseException] = self._loop.create_future()
        resolve = partial(self._resolve, future, counted)
        on_progress = opts.get("on_progress")
        try:
            request_id, message = self.rpc.request(
                method,
                params,
                resolve=resolve if on_task is None else partial(_resolve_or_task, on_task, resolve),
                request_id=opts.get("request_id"),
                on_progress=None if on_progress is None else partial(self._queue_progress, on_progress),
                lenient=method.endswith("/list"),
            )
        except DragomanError as exc:
            refused = self._for_session(exc, method)
            if isinstance(refused, ConnectionLostError):
                refused.may_have_run = False  # The connection had ended before: nothing was sent.
            raise refused  # noqa: B904 -- it has its cause
        if counted is not None:
            counted.sent += len(message)
        if traced is not None:
            traced.numbered(request_id)
        envelope = SendInfo(method, request_id, opts.get("headers"))
        timeout = opts.get("timeout")
        if method == "server/discover" and timeout is not None:
            timeout = min(timeout, self._probe_seconds)
        self._deadlines.add(future, timeout, end)
        try:
            self._open_wire().send(message, envelope)
            outcome = await future
            if on_progress is not None:
                await self.wait_delivered()
        except asyncio.CancelledError:
            self._give_up(message, envelope, opts, "the caller cancelled it")
            raise
        finally:
            self._deadlines.drop(future)
        if type(outcome) is dict:
            if self.is_modern and method not in HANDSHAKE:
                outcome = completed(method, outcome)
                if outcome["resultType"] not in KNOWN_RESULTS:
                    raise self._for_session(_unknown_result(method, outcome["resultType"]), method)
            return outcome
        if isinstance(outcome, TimeoutError):
            self._give_up(message, envelope, opts, "it took too long")
            raise MCPError(code=REQUEST_TIMEOUT, message="no answer in time") from outcome
        assert isinstance(outcome, DragomanError)  # noqa: S101 -- nothing else resolves a call
        raise self._for_session(outcome, method)

    async def notify(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
    ) -> None:
        """Send a notification; after the end of the conversation it is dropped."""
        if not self.ended.done():
            headers = (opts or {}).get("headers")
            self._open_wire().send(self.rpc.notification(method, params), SendInfo(method, None, headers))

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Deliver messages from the server to the SDK's session, as `serve` does."""
        await self.serve(on_request, on_notify, on_notify_intercept, started=task_status.started)

    async def serve(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        intercept: OnNotifyIntercept | None = None,
        *,
        started: Callable[[], None],
    ) -> None:
        """Deliver messages from the server until the wire ends; raise nothing but a cancellation."""
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, intercept
        self._running = True
        began = self._loop.time()
        try:
            started()
            await asyncio.wait({self.ended})
        finally:
            self._running = False
            if self._telemetry is not None:
                error = self.ended.result().error(self.server) if self.ended.done() else None
                seconds = self._loop.time() - began
                self._telemetry.session_ended(self.peer, seconds, error)
            self.end(ConnectionEnd(reason="the session was closed"))
            serving = (context.task for context in self._serving.values())
            tasks = {task for task in (self._delivering, *serving) if task is not None}
            for task in tasks:
                task.cancel()
            if tasks:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait(tasks)

    def end(self, end: ConnectionEnd) -> None:
        """End the conversation: every pending and later request fails, and the connection is told."""
        is_first = not self.ended.done()
        if is_first:
            self.ended.set_result(end)
        self.rpc.close(self.ended.result().error(self.server))
        self._deadlines.stop()
        if is_first and self._on_end is not None:
            self._on_end(end)

    # Messages from the server, called by `Rpc`

    def on_request(self, request_id: RequestId, method: str, params: dict[str, Any] | None) -> None:
        """Handle a request from the server in a task of its own."""
        if not self._running or len(self._serving) >= MAX_REQUESTS or request_id in self._serving:
            refusal = self.rpc.error(request_id, SERVER_BUSY, "too many requests at once, or a repeated id")
            self._open_wire().send(refusal, SendInfo())
            return
        context = self._serving[request_id] = _Context(self, request_id, params)
        # A plain asyncio task: this runs in a callback of the loop, where anyio cannot start one.
        own = copy_context()
        own.run(received_at.set, self._loop.time())
        context.task = self._loop.create_task(self._serve(context, method, params), context=own)

    def on_notification(self, method: str, params: dict[str, Any] | None) -> None:
        """Queue a notification, in the order of receipt."""
        if method == "notifications/cancelled" and params is not None:
            request_id = params.get("requestId")
            if isinstance(request_id, int | str) and (context := self._serving.get(request_id)) is not None:
                context.cancel()
        if method == "notifications/tasks" and self.on_task is not None:
            if params is not None and isinstance(params.get("taskId"), str):
                self.on_task(params)
            return
        if self._is_intercepted(method, params) or self._on_notify is None:
            return
        self._queue(partial(self._on_notify, _Context(self, None, None), method, params))

    def _is_intercepted(self, method: str, params: dict[str, Any] | None) -> bool:
        """Return whether the session takes a notification before its turn: it must not fail the reader."""
        try:
            return self._intercept is not None and self._intercept(method, params)
        except Exception:
            logger.exception("%s: the session could not take %s early", self.server, method)
            return False

    def on_junk(self, reason: str, sample: bytes) -> None:
        """Log the first few messages that cannot be used, and count all of them for the attempt."""
        if self._attempt is not None:
            self._attempt.junk = self.rpc.junk
        if self.rpc.junk <= JUNK_LOGGED:
            more = "; further ones are only counted" if self.rpc.junk == JUNK_LOGGED else ""
            logger.warning("%s: an unusable message (%s): %.80r%s", self.server, reason, sample, more)

    # Inside

    async def _serve(self, context: _Context, method: str, params: dict[str, Any] | None) -> None:
        assert self._on_request is not None  # noqa: S101 -- set before anything can arrive
        request_id = context.request_id
        try:
            try:
                with (
                    self.trace_service(method, params, request_id),
                    self._deadlines.held() if method in self.asks else nullcontext(),
                ):
                    result = await self._on_request(context, method, params)
                answer = self.rpc.result(request_id, result)
            except Exception as exc:  # noqa: BLE001 -- an error of a handler becomes an error answer
                answer = self._refusal(request_id, method, exc)
            if not context.cancel_requested.is_set() and not self.ended.done():
                self._open_wire().send(answer, SendInfo())
        finally:
            self._serving.pop(request_id, None)
            context.closed = True

    def trace_service(
        self, method: str, params: dict[str, Any] | None, request_id: RequestId | None
    ) -> ServedRequest | nullcontext[None]:
        """Return the trace of a question of the server."""
        telemetry = self._telemetry
        return (
            nullcontext() if telemetry is None else served(telemetry, self.peer, method, params, request_id)
        )

    def _refusal(self, request_id: RequestId, method: str, exc: Exception) -> bytes:
        if isinstance(exc, MCPError):
            return self.rpc.error(request_id, exc.code, exc.message, exc.data)
        if isinstance(exc, ValidationError):
            return self.rpc.error(request_id, INVALID_PARAMS, "Invalid request parameters", "")
        logger.error("%s: the handler of %s failed", self.server, method, exc_info=exc)
        return self.rpc.error(request_id, INTERNAL_ERROR, "the client could not answer")

    async def _deliver(self) -> None:
        """Run the handlers of notifications, one after the other."""
        while True:
            turn = 0
            while self._deliveries:
                at, delivery = self._deliveries.popleft()
                received_at.set(at)
                self._delivers = True
                try:
                    await delivery()
                except Exception:
                    logger.exception("%s: the handler of a notification failed", self.server)
                turn += 1
                if turn % TURN_DELIVERIES == 0:
                    # Handlers that never await would block the event loop.
                    await asyncio.sleep(0)
            self._delivers = False
            self._delivery_due.clear()
            await self._delivery_due.wait()

    def _queue(self, delivery: Callable[[], Awaitable[None]]) -> None:
        self._deliveries.append((self._loop.time(), delivery))
        self._delivery_due.set()
        if self._delivering is None and self._running:
            self._delivering = self._loop.create_task(self._deliver(), context=self._context.copy())

    def _queue_progress(
        self, handler: ProgressFnT, progress: float, total: float | None, message: str | None
    ) -> None:
        self._queue(partial(handler, progress, total, message))

    async def wait_delivered(self) -> None:
        """Wait until what came before an answer is delivered: its last reports of progress, for example."""
        if self._deliveries or self._delivers:
            delivered: asyncio.Future[None] = self._loop.create_future()
            self._queue(partial(_done, delivered))
            await asyncio.wait({delivered}, timeout=DELIVERY_SECONDS)

    def _resolve(
        self,
        future: asyncio.Future[Any],
        counted: Traffic | None,
        outcome: dict[str, Any] | BaseException,
    ) -> None:
        if counted is not None and type(outcome) is dict:
            counted.received += self.rpc.size
        if not future.done():
            future.set_result(outcome)

    def _give_up(self, message: bytes, envelope: SendInfo, opts: CallOptions, reason: str) -> None:
        if envelope.request_id is None or self.ended.done():
            return
        self.rpc.forget(envelope.request_id)
        tell = opts.get("cancel_on_abandon", True)
        self._open_wire().abandon(message, envelope, reason, tell=tell)

    def _open_wire(self) -> Wire:
        if self.wire is None:
            msg = f"the wire of server `{self.server}` is not open"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False)
        return self.wire

    def _for_session(self, error: DragomanError, method: str) -> Exception:
        """Return an error of the SDK's type, with our error as its cause."""
        if isinstance(error, ProtocolError) and error.rpc_code is not None:
            refusal = MCPError(code=error.rpc_code, message=error.message, data=error.data)
        elif method in HANDSHAKE or (method == "tools/call" and not isinstance(error, ProtocolError)):
            # A dying server may end thousands of calls: do not wrap an error that is unwrapped right after.
            return _own(error)
        else:
            refusal = MCPError(code=CONNECTION_CLOSED, message=error.message)
        refusal.__cause__ = error
        return refusal


class _Channel(NamedTuple):
    """The fields of the SDK's `TransportContext`."""

    kind: str = "jsonrpc"
    can_send_request: bool = True
    headers: Mapping[str, str] | None = None


_CHANNEL = cast("TransportContext", _Channel())


class _Context:
    """The context that a handler of the SDK's session gets with a message."""

    def __init__(
        self, owner: WireDispatcher, request_id: RequestId | None, params: dict[str, Any] | None
    ) -> None:
        self._owner = owner
        self._request_id = request_id
        self._token = _progress_token(params)
        self.transport = _CHANNEL
        self.message_metadata: MessageMetadata = None
        self.cancel_requested = anyio.Event()
        self.task: asyncio.Task[None] | None = None
        """The task that handles the request."""
        self.closed = False

    @property
    def request_id(self) -> Any:
        """The id of the request from the server."""
        return self._request_id

    @property
    def can_send_request(self) -> bool:
        """Whether the handler can still send requests to the server."""
        return not self.closed

    def cancel(self) -> None:
        """Stop handling the request: the server has cancelled it."""
        self.cancel_requested.set()
        if self.task is not None:
            self.task.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request to the server."""
        if self.closed:
            raise NoBackChannelError(method)
        return await self._owner.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification to the server."""
        if not self.closed:
            await self._owner.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the server has asked for it."""
        if self._token is None:
            return
        facts = {"progress": progress, "total": total, "message": message}
        params = {key: value for key, value in facts.items() if value is not None}
        await self.notify("notifications/progress", {"progressToken": self._token, **params})


def _progress_token(params: dict[str, Any] | None) -> str | int | None:
    match params:
        case {"_meta": {"progressToken": str() | int() as token}} if not isinstance(token, bool):
            return token
        case _:
            return None


def _subject(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the subject of a request, as an attribute of its trace."""
    match method:
        case "tools/call":
            return {"tool": str(params.get("name", "")), "arguments": params.get("arguments")}
        case "prompts/get":
            return {"prompt": str(params.get("name", ""))}
        case _:
            return {"resource": str(params.get("uri", ""))}


def _resolve_or_task(
    on_task: Callable[[Mapping[str, Any]], None],
    resolve: Callable[[dict[str, Any] | BaseException], None],
    outcome: dict[str, Any] | BaseException,
) -> None:
    """Report a task while its answer is being read: before the event loop can do anything else."""
    if type(outcome) is dict and outcome.get("resultType") == "task":
        on_task(outcome)
    resolve(outcome)


async def _done(delivered: asyncio.Future[None]) -> None:
    if not delivered.done():
        delivered.set_result(None)


def _own(error: DragomanError) -> DragomanError:
    """Return a copy for one caller: the same error object ends every call of a connection."""
    if type(error) is ConnectionLostError:
        return ConnectionLostError(
            error.message, server=error.server, may_have_run=error.may_have_run, hint=error.hint
        )
    return error
