"""Our wires under the SDK's session: a `Dispatcher` over one `Rpc` and one `Wire`.

It turns the SDK's requests into messages and answers into results, hands the server's requests and
notifications to the session in their order, and keeps raw listings for us while the session gets cleaned
ones: one bad definition, or an output schema that would be compiled in Python, must not reach it. A call ends
by its answer, its deadline, its caller's cancellation or the end of the wire; no task stands between them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.dispatcher import Dispatcher, run_notify_intercept
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data, progress_token_from_params
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT

from dragoman.errors import ConnectionLostError, DragomanError, ProtocolError
from dragoman.observe.telemetry import Peer, find
from dragoman.server.cleaning import clean_listing, completed
from dragoman.server.deadlines import Deadlines
from dragoman.server.rpc import Rpc
from dragoman.server.wire import Envelope, traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from anyio.abc import TaskStatus
    from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest, ProgressFnT
    from mcp.shared.message import MessageMetadata

    from dragoman.observe.telemetry import Request, Telemetry
    from dragoman.server.rpc import RequestId
    from dragoman.server.wire import Traffic, Wire

logger = logging.getLogger("dragoman")

MAX_NOTIFICATIONS = 10_000
"""Notifications that may wait for their handlers; beyond it the oldest are dropped."""
TURN_DELIVERIES = 50
"""How many of them are handed over in one turn of the loop."""
MAX_REQUESTS = 100
"""Requests of the server's that are worked on at once; beyond it they are refused."""
SERVER_BUSY = -32000
QUESTIONS = {"elicitation_callback": "elicitation/create", "sampling_callback": "sampling/createMessage"}
"""Requests of the server's that a person, or a model, answers in their own time."""
HANDSHAKE = frozenset({"initialize", "server/discover"})
"""Requests whose failure must not look like an answer: the session takes any answer for an old server."""
JUNK_LOGGED = 5
"""How many junk messages are logged each; later ones are only counted."""


raw_result: ContextVar[dict[str, Any] | None] = ContextVar("raw_result", default=None)
"""The last raw result that the current task's request got, before the session read it."""
known_outcome: ContextVar[dict[str, Any] | MCPError | None] = ContextVar("known_outcome", default=None)
"""What the current task's next request comes to, if that is known before it is sent."""


class WireDispatcher(Dispatcher[TransportContext]):
    """One conversation with one server, in the SDK's terms."""

    def __init__(self, server: str, *, probe_seconds: float = math.inf) -> None:
        self.server = server
        self._probe_seconds = probe_seconds
        """How long the server may take to say its era, beside the SDK's own limit."""
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        self.rpc = Rpc(self)
        self.wire: Wire | None = None
        """Set before the session enters `run`."""
        self.cleans_results = False
        """Whether the session reads all of them, and would choke on some: that of a modern server does."""
        self.asks: frozenset[str] = frozenset()
        """Of the `QUESTIONS`, those that somebody answers: what is refused at once puts no deadline off."""
        self.listing: list[dict[str, Any]] = []
        """The raw entries of the latest page of `tools/list`."""
        self.peer = Peer()
        """What traces say about the server."""
        self._telemetry = find()
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Done, with the reason, when nothing more can come."""
        self._running = False
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None
        self._deliveries: deque[Callable[[], Awaitable[None]]] = deque(maxlen=MAX_NOTIFICATIONS)
        self._delivery_due = asyncio.Event()
        self._serving: dict[RequestId, _Context] = {}

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and wait for its result.

        Raises:
            MCPError: The server answered with an error, time ran out, or the connection ended.
            DragomanError: The same, where the session must not take it for an answer.
        """
        if (known := known_outcome.get()) is not None:
            known_outcome.set(None)
            if isinstance(known, MCPError):
                raise known
            raw_result.set(known)
            return known
        if self._telemetry is not None:
            return await self._traced(self._telemetry, method, params, opts or {})
        return await self._exchange(method, params, opts or {})

    async def _traced(
        self, telemetry: Telemetry, method: str, params: Mapping[str, Any] | None, opts: CallOptions
    ) -> dict[str, Any]:
        with telemetry.request(method, self.peer, **_subject(method, params or {})) as request:
            if (carrier := request.meta()) is not None:
                params = dict(params or {})
                params["_meta"] = {**(params.get("_meta") or {}), **carrier}
            outcome = await self._exchange(method, params, opts, request)
            request.answered(is_error=outcome.get("isError") is True)
            return outcome

    async def _exchange(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions,
        traced: Request | None = None,
    ) -> dict[str, Any]:
        counted = traffic.get()
        future: asyncio.Future[dict[str, Any] | BaseException] = self._loop.create_future()
        on_progress = opts.get("on_progress")
        try:
            request_id, message = self.rpc.request(
                method,
                params,
                resolve=partial(self._resolve, future, counted),
                request_id=opts.get("request_id"),
                on_progress=None if on_progress is None else partial(self._queue_progress, on_progress),
                lenient=method.endswith("/list"),
            )
        except DragomanError as exc:
            refused = self._for_session(exc, method)
            if isinstance(refused, ConnectionLostError):
                refused.may_have_run = False  # it came after the end: nothing was written
            raise refused  # noqa: B904 -- it has its cause
        if counted is not None:
            counted.sent += len(message)
        if traced is not None:
            traced.numbered(request_id)
        envelope = Envelope(method, request_id, opts.get("headers"))
        timeout = opts.get("timeout")
        if method == "server/discover" and timeout is not None:
            timeout = min(timeout, self._probe_seconds)
        self._deadlines.add(future, timeout)
        try:
            self._open_wire().send(message, envelope)
            outcome = await future
        except asyncio.CancelledError:
            self._give_up(message, envelope, opts, "the caller cancelled it")
            raise
        finally:
            self._deadlines.drop(future)
        if type(outcome) is dict:
            if self.cleans_results and method not in HANDSHAKE:
                outcome = completed(method, outcome)
                if method == "tools/list":
                    self.listing, outcome = clean_listing(outcome)
            raw_result.set(outcome)
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
        """Send a notification; after the end it goes nowhere."""
        if not self.ended.done():
            headers = (opts or {}).get("headers")
            self._open_wire().send(self.rpc.notification(method, params), Envelope(method, None, headers))

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hand over what the server sends until the wire ends; never raises anything but cancellation."""
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        delivering = asyncio.create_task(self._deliver())
        self._running = True
        began = self._loop.time()
        try:
            task_status.started()
            await asyncio.wait({self.ended})
        finally:
            self._running = False
            if self._telemetry is not None:
                seconds, error = self._loop.time() - began, self._lost() if self.ended.done() else None
                self._telemetry.session_ended(self.peer, seconds, error)
            self.end("the session was closed")
            tasks = {delivering, *(context.task for context in self._serving.values() if context.task)}
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait(tasks)

    def end(self, reason: str) -> None:
        """End the conversation: whoever waits, and whoever comes later, is told."""
        if not self.ended.done():
            self.ended.set_result(reason)
        self.rpc.close(self._lost())
        self._deadlines.stop()

    # What the rpc core tells

    def on_request(self, request_id: RequestId, method: str, params: dict[str, Any] | None) -> None:
        """Work on a request of the server's, beside everything else."""
        if not self._running or len(self._serving) >= MAX_REQUESTS or request_id in self._serving:
            refusal = self.rpc.error(request_id, SERVER_BUSY, "too many requests at once, or a repeated id")
            self._open_wire().send(refusal, Envelope())
            return
        context = self._serving[request_id] = _Context(self, request_id, params)
        # A plain task: this runs in a callback of the loop, where anyio knows of no loop.
        context.task = self._loop.create_task(self._serve(context, method, params))

    def on_notification(self, method: str, params: dict[str, Any] | None) -> None:
        """Pass a notification on, in the order of receipt."""
        if method == "notifications/cancelled" and params is not None:
            request_id = params.get("requestId")
            if isinstance(request_id, int | str) and (context := self._serving.get(request_id)) is not None:
                context.cancel()
        if run_notify_intercept(self._intercept, method, params) or self._on_notify is None:
            return
        self._queue(partial(self._on_notify, _Context(self, None, None), method, params))

    def on_junk(self, reason: str, sample: bytes) -> None:
        """Count what cannot be used; only the first few are worth a line in the log."""
        if self.rpc.junk <= JUNK_LOGGED:
            more = "; further ones are only counted" if self.rpc.junk == JUNK_LOGGED else ""
            logger.warning("%s: an unusable message (%s): %.80r%s", self.server, reason, sample, more)

    # Inside

    async def _serve(self, context: _Context, method: str, params: dict[str, Any] | None) -> None:
        assert self._on_request is not None  # noqa: S101 -- set before anything can arrive
        request_id = context.request_id
        try:
            try:
                with self._deadlines.held() if method in self.asks else nullcontext():
                    result = await self._on_request(context, method, params)
                answer = self.rpc.result(request_id, result)
            except Exception as exc:  # noqa: BLE001 -- the one border between a handler and the wire
                answer = self._refusal(request_id, method, exc)
            if not context.cancel_requested.is_set() and not self.ended.done():
                self._open_wire().send(answer, Envelope())
        finally:
            self._serving.pop(request_id, None)
            context.closed = True

    def _refusal(self, request_id: RequestId, method: str, exc: Exception) -> bytes:
        data = handler_exception_to_error_data(exc)
        if data is not None:
            return self.rpc.error(request_id, data.code, data.message, data.data)
        logger.error("%s: the handler of %s failed", self.server, method, exc_info=exc)
        return self.rpc.error(request_id, INTERNAL_ERROR, "the client could not answer")

    async def _deliver(self) -> None:
        """Run the handlers of notifications, one after the other."""
        while True:
            turn = 0
            while self._deliveries:
                delivery = self._deliveries.popleft()
                try:
                    await delivery()
                except Exception:
                    logger.exception("%s: the handler of a notification failed", self.server)
                turn += 1
                if turn % TURN_DELIVERIES == 0:
                    # Handlers that never wait would keep everybody else waiting.
                    await asyncio.sleep(0)
            self._delivery_due.clear()
            await self._delivery_due.wait()

    def _queue(self, delivery: Callable[[], Awaitable[None]]) -> None:
        self._deliveries.append(delivery)
        self._delivery_due.set()

    def _queue_progress(
        self, handler: ProgressFnT, progress: float, total: float | None, message: str | None
    ) -> None:
        self._queue(partial(handler, progress, total, message))

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

    def _give_up(self, message: bytes, envelope: Envelope, opts: CallOptions, reason: str) -> None:
        if envelope.request_id is None or self.ended.done():
            return
        self.rpc.forget(envelope.request_id)
        tell = opts.get("cancel_on_abandon", True)
        self._open_wire().abandon(message, envelope, reason, tell=tell)

    def _lost(self) -> ConnectionLostError:
        msg = f"the connection to server `{self.server}` ended: {self.ended.result()}"
        return ConnectionLostError(msg, server=self.server, may_have_run=True)

    def _open_wire(self) -> Wire:
        if self.wire is None:
            msg = f"the wire of server `{self.server}` is not open"
            raise ConnectionLostError(msg, server=self.server, may_have_run=False)
        return self.wire

    def _for_session(self, error: DragomanError, method: str) -> Exception:
        """Put an error as the session wants it; ours stays its cause."""
        if isinstance(error, ProtocolError) and error.rpc_code is not None:
            refusal = MCPError(code=error.rpc_code, message=error.message, data=error.data)
        elif method in HANDSHAKE or (method == "tools/call" and not isinstance(error, ProtocolError)):
            # A server that dies may end thousands of calls: their error would only be translated back.
            return _own(error)
        else:
            refusal = MCPError(code=CONNECTION_CLOSED, message=error.message)
        refusal.__cause__ = error
        return refusal


class _Context:
    """What a handler of the SDK's session gets beside a message."""

    def __init__(
        self, owner: WireDispatcher, request_id: RequestId | None, params: dict[str, Any] | None
    ) -> None:
        self._owner = owner
        self._request_id = request_id
        self._token = progress_token_from_params(params)
        self.transport = TransportContext(kind="jsonrpc", can_send_request=True)
        self.message_metadata: MessageMetadata = None
        self.cancel_requested = anyio.Event()
        self.task: asyncio.Task[None] | None = None
        """What works on it."""
        self.closed = False

    @property
    def request_id(self) -> Any:
        """The id of the server's request."""
        return self._request_id

    @property
    def can_send_request(self) -> bool:
        """Whether the server can be asked something meanwhile."""
        return not self.closed

    def cancel(self) -> None:
        """Stop working on it: the server has given it up."""
        self.cancel_requested.set()
        if self.task is not None:
            self.task.cancel()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the server something meanwhile."""
        if self.closed:
            raise NoBackChannelError(method)
        return await self._owner.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Tell the server something meanwhile."""
        if not self.closed:
            await self._owner.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the server asked for it."""
        if self._token is None:
            return
        facts = {"progress": progress, "total": total, "message": message}
        params = {key: value for key, value in facts.items() if value is not None}
        await self.notify("notifications/progress", {"progressToken": self._token, **params})


def _subject(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return what a request is about, as a trace names it."""
    match method:
        case "tools/call":
            return {"tool": str(params.get("name", ""))}
        case "prompts/get":
            return {"prompt": str(params.get("name", ""))}
        case _:
            return {"resource": str(params.get("uri", ""))}


def _own(error: DragomanError) -> DragomanError:
    """Return an error that one caller may raise: one error ends every call of a connection."""
    if type(error) is ConnectionLostError:
        return ConnectionLostError(
            error.message, server=error.server, may_have_run=error.may_have_run, hint=error.hint
        )
    return error
