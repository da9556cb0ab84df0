"""Direct: tool calls over HTTP, answered without the SDK's server.

Nearly every request to a gateway is a tool call. The SDK's entry builds a session, streams, tasks and models
for each, which costs several times as much as the call. Here a call goes to the view as soon as its envelope
is checked, and its answer is written as it came. The response becomes a stream of events only when something
has to be said before the result: progress, a log message, or a question to a client of the older protocol.

What is not a plain, well-formed call goes to the SDK unread, which answers or refuses it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from mcp.server.runner import modern_error_data
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types import ClientCapabilities
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.gateway.principal import principal
from dragoman.gateway.sdk_server import shaped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

    from starlette.types import Message, Receive, Scope, Send

    from dragoman.gateway.announce import Client
    from dragoman.gateway.view import View

logger = logging.getLogger("dragoman")

CALL = "tools/call"
CANCELLED = "notifications/cancelled"
PING_SECONDS = 15.0
"""After how long without a word a response becomes a stream, so that no proxy closes it."""
WATCH_SECONDS = 0.2
"""After how long a call is ended if its client hangs up; shorter calls end by themselves."""
SDK_SECONDS = 300.0
"""How often a call of a session takes the SDK's road, which keeps the session from expiring."""
_META = "io.modelcontextprotocol/"
_VERSION, _CAPABILITIES, _INFO = f"{_META}protocolVersion", f"{_META}clientCapabilities", f"{_META}clientInfo"
_ENVELOPE = frozenset({"jsonrpc", "id", "method", "params"})
_PARAMS = frozenset({"name", "arguments", "_meta", "inputResponses", "requestState"})
_OLDER_PARAMS = frozenset({"name", "arguments", "_meta"})
_ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id", b"content-length")
_HEADERS_OF_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_NO_CAPABILITIES = ClientCapabilities()


@dataclass
class DirectContext:
    """What the view and the middleware need to know of a call; stands for the SDK's context of a request."""

    method: str
    params: dict[str, Any]
    protocol_version: str
    session: Exchange
    request_id: int | str
    meta: dict[str, Any] | None


class Exchange:
    """One call and its response; stands for the SDK's session of a request."""

    def __init__(
        self,
        send: Send,
        *,
        request_id: int | str,
        capabilities: ClientCapabilities,
        record: Client | None,
        asks: dict[str, asyncio.Future[Any]] | None,
    ) -> None:
        """Answer one call.

        Args:
            send: Takes the response.
            request_id: The id of the call.
            capabilities: What the client declares.
            record: The client's connection, if it is of the older protocol.
            asks: Where questions wait for their answers; `None` if the client cannot be asked in between.
        """
        self._send = send
        self._id = request_id
        self.client_capabilities = capabilities
        self.record = record
        self._asks = asks
        self._progress_token: Any = None
        self._streams = False
        self.is_dropped = False
        """Whether the client has cancelled the call, or is gone."""
        self._writing = asyncio.Lock()

    @property
    def can_send_request(self) -> bool:
        """Whether the client can be asked while its call goes on."""
        return self._asks is not None

    def expect_progress(self, token: Any) -> None:
        """Send progress under this token."""
        self._progress_token = token

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send progress, if the client wants it."""
        if self._progress_token is None:
            return
        params: dict[str, Any] = {"progressToken": self._progress_token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._event({"method": "notifications/progress", "params": params})

    async def send_notification(self, notification: Any, **_: Any) -> None:
        """Send a notification before the result."""
        await self._event(notification.model_dump())

    async def send_request(self, request: Any, _answer: Any, **_: Any) -> Any:
        """Ask the client, and wait for its answer, which comes as a request of its own.

        Raises:
            MCPError: The client answered with an error.
        """
        assert self._asks is not None  # noqa: S101 -- callers look at `can_send_request`
        number = f"dragoman-{self._id}-{len(self._asks)}-{time.monotonic_ns()}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asks[number] = answer
        try:
            await self._event({"id": number, **request.model_dump()})
            return await answer
        finally:
            self._asks.pop(number, None)

    async def ping(self) -> None:
        """Say something that means nothing, so that the connection is not taken for dead."""
        await self._write(b": ping\r\n\r\n")

    async def _event(self, message: Mapping[str, Any]) -> None:
        await self._write(_event(message))

    async def _write(self, event: bytes) -> None:
        async with self._writing:
            if not self._streams:
                self._streams = True
                await self._send(
                    {"type": "http.response.start", "status": 200, "headers": _HEADERS_OF_STREAM}
                )
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self) -> None:
        """End the response without a result."""
        if not self._streams:
            await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS_OF_STREAM})
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def finish(self, outcome: Mapping[str, Any], status: int = 200) -> None:
        """Send the result or the error, and end the response."""
        message = {"id": self._id, **outcome}
        if self._streams:
            async with self._writing:
                await self._send({"type": "http.response.body", "body": _event(message), "more_body": False})
            return
        body = _dump(message)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


@dataclass(eq=False)
class _Watched:
    """A call in progress."""

    exchange: Exchange
    task: asyncio.Task[Any]
    receive: Receive | None
    began: float
    helpers: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])
    pings: bool = False


class LongCalls:
    """Looks after calls that take long: whether their client is still there, and that the connection stays.

    One timer looks at all calls: two for each call would cost more than most calls take.
    """

    def __init__(self) -> None:
        self._calls: dict[_Watched, None] = {}
        """The oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(
        self, exchange: Exchange, task: asyncio.Task[Any], receive: Receive | None
    ) -> Callable[[], None]:
        """Look after a call; return what ends that.

        Args:
            exchange: The call.
            task: Cancelled when the client hangs up.
            receive: Tells that the client has hung up; `None` if that means nothing.
        """
        call = _Watched(exchange, task, receive, time.monotonic())
        self._calls[call] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)
        return partial(self._end, call)

    def _end(self, call: _Watched) -> None:
        del self._calls[call]
        for helper in call.helpers:
            helper.cancel()

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for call in self._calls:
            age = now - call.began
            if age < WATCH_SECONDS:
                break
            if call.receive is not None:
                call.helpers.append(asyncio.create_task(_hang_up(call.receive, call.exchange, call.task)))
                call.receive = None
            if age > PING_SECONDS and not call.pings:
                call.pings = True
                call.helpers.append(asyncio.create_task(_pings(call.exchange)))
        if self._calls:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)


async def _pings(exchange: Exchange) -> None:
    while True:
        await exchange.ping()
        await asyncio.sleep(PING_SECONDS)


async def _hang_up(receive: Receive, exchange: Exchange, task: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    exchange.is_dropped = True
    task.cancel()


class DirectCalls:
    """The direct road to one view."""

    def __init__(self, view: View, *, stateless: bool, max_body_bytes: int) -> None:
        self._view = view
        self._stateless = stateless
        self._max_body_bytes = max_body_bytes
        self._running: dict[tuple[str, Any], tuple[asyncio.Task[Any], Exchange]] = {}
        """Calls of clients of the older protocol, by session and id: they are cancelled by a notification."""
        self._asks: dict[str, dict[str, asyncio.Future[Any]]] = {}
        """Questions that wait for an answer, by session and id."""
        self._watch = LongCalls()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Answer a request if it is a plain call; if not, return the `receive` that gives it again."""
        headers = _routing(scope)
        if headers is None:
            return receive
        size = headers.get(b"content-length", b"")
        if not size.isdigit() or int(size) > self._max_body_bytes:
            return receive
        taken: list[Message] = []
        body = b""
        while True:
            message = await receive()
            taken.append(message)
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        session = headers.get(b"mcp-session-id", b"").decode("latin-1")
        if b'"tools/call"' in body:
            if await self._call(headers, session, body, receive, send):
                return None
        elif session and await self._reply(session, body, send):
            return None
        return partial(_again, iter(taken), receive)

    # ── Calls

    async def _call(
        self, headers: Mapping[bytes, bytes], session: str, body: bytes, receive: Receive, send: Send
    ) -> bool:
        message = _parsed(body)
        if message is None or message.keys() != _ENVELOPE or message["method"] != CALL:
            return False
        params, number = message["params"], message["id"]
        if not _is_call(params) or message["jsonrpc"] != "2.0" or type(number) not in (int, str):
            return False
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        meta: dict[str, Any] = params.get("_meta") or {}
        if version in MODERN_PROTOCOL_VERSIONS:
            capabilities = self._modern(headers, params, meta, version)
            record = None
        else:
            if params.keys() - _OLDER_PARAMS or (version and version not in HANDSHAKE_PROTOCOL_VERSIONS):
                return False
            record = self._record(session)
            if record is None and not self._stateless:
                return False
            capabilities = record.capabilities if record is not None else _NO_CAPABILITIES
        if capabilities is None:
            return False
        asks = self._asks.setdefault(session, {}) if record is not None else None
        exchange = Exchange(send, request_id=number, capabilities=capabilities, record=record, asks=asks)
        exchange.expect_progress(meta.get("progressToken"))
        # Without a header, the oldest version that had none; what counts is that it is not a modern one.
        context = DirectContext(
            CALL, params, version or HANDSHAKE_PROTOCOL_VERSIONS[0], exchange, number, meta or None
        )
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- the caller is a coroutine
        # Clients of the older protocol cancel by a notification; a lost connection means nothing.
        hangs_up = version in MODERN_PROTOCOL_VERSIONS
        if record is not None:
            self._running[session, number] = (task, exchange)
        end_watch = self._watch.begin(exchange, task, receive if hangs_up else None)
        try:
            await self._answer(context, exchange)
        finally:
            end_watch()
            self._running.pop((session, number), None)
            if asks is not None and not asks:
                self._asks.pop(session, None)
        return True

    def _modern(
        self, headers: Mapping[bytes, bytes], params: dict[str, Any], meta: dict[str, Any], version: str
    ) -> ClientCapabilities | None:
        """Return what the client declares, if body and headers say the same; `None` leaves it to the SDK."""
        name = params["name"]
        if (
            headers.get(b"mcp-method") != b"tools/call"
            or meta.get(_VERSION) != version
            or headers.get(b"mcp-name", b"").decode("latin-1") != name
            or not name.isascii()
            or self._view.mirrors_arguments(name)
            or not isinstance(meta.get(_INFO, {}), dict)
        ):
            return None
        declared = meta.get(_CAPABILITIES)
        if not declared:
            return _NO_CAPABILITIES if declared == {} else None
        try:
            return ClientCapabilities.model_validate(declared)
        except ValidationError:
            return None

    def _record(self, session: str) -> Client | None:
        """Return the connection of the older protocol that a request belongs to."""
        record = self._view.sessions.get(session) if session else None
        if record is None or record.principal != principal():
            return None
        now = time.monotonic()
        if now - record.used > SDK_SECONDS:
            record.used = now
            return None
        return record

    async def _answer(self, context: DirectContext, exchange: Exchange) -> None:
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        try:
            result = await self._view.handle_directly(context)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not exchange.is_dropped or task is None:
                raise
            task.uncancel()
            if not is_modern:
                await exchange.end()
        except Exception as exc:  # noqa: BLE001 -- mapped as the SDK does
            error = exc.error if isinstance(exc, MCPError) else modern_error_data(exc)
            status = ERROR_CODE_HTTP_STATUS.get(error.code, 200) if is_modern else 200
            await exchange.finish({"error": error.model_dump(exclude_none=True)}, status)
        else:
            await exchange.finish(
                {"result": shaped(CALL, context.protocol_version, result, self._view.server)}
            )

    # ── What clients of the older protocol say about a call in progress

    async def _reply(self, session: str, body: bytes, send: Send) -> bool:
        """Take the cancellation of a direct call, or the answer to a question of one."""
        asks = self._asks.get(session)
        if not asks and CANCELLED.encode() not in body:
            return False
        message = _parsed(body)
        if message is None:
            return False
        record = self._view.sessions.get(session)
        if record is None or record.principal != principal():
            return False
        if message.get("method") == CANCELLED:
            params: object = message.get("params")
            number = cast("dict[str, Any]", params).get("requestId") if isinstance(params, dict) else None
            running = self._running.get((session, number)) if isinstance(number, int | str) else None
            if running is None:
                return False
            task, exchange = running
            exchange.is_dropped = True
            task.cancel()
        else:
            number = message.get("id")
            waiting = asks.get(number) if asks and isinstance(number, str) else None
            if waiting is None or waiting.done() or "method" in message:
                return False
            error: object = message.get("error")
            if isinstance(error, dict):
                given = cast("dict[str, Any]", error)
                code, said = given.get("code"), str(given.get("message", ""))
                waiting.set_exception(MCPError(code=code if isinstance(code, int) else 0, message=said))
            elif isinstance(message.get("result"), dict):
                waiting.set_result(message["result"])
            else:
                return False
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return True


def _routing(scope: Scope) -> dict[bytes, bytes] | None:
    """Return the headers that decide; `None` if they need the SDK's attention."""
    if scope["method"] != "POST":
        return None
    found: dict[bytes, bytes] = {}
    accepts, is_json = b"", False
    for name, value in scope["headers"]:
        if name in _ROUTING:
            if name in found:
                return None
            found[name] = value
        elif name == b"accept":
            accepts += value
        elif name == b"content-type":
            is_json = value.partition(b";")[0].strip() == b"application/json"
        elif name.startswith(b"mcp-param-"):
            return None
    if not is_json or b"application/json" not in accepts or b"text/event-stream" not in accepts:
        return None
    return found


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        message: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", message) if isinstance(message, dict) else None


def _is_call(params: object) -> bool:
    if not isinstance(params, dict):
        return False
    given = cast("dict[str, Any]", params)
    meta, arguments = given.get("_meta"), given.get("arguments")
    return (
        given.keys() <= _PARAMS
        and isinstance(given.get("name"), str)
        and (arguments is None or isinstance(arguments, dict))
        and (meta is None or isinstance(meta, dict))
        and isinstance(cast("dict[str, Any]", meta or {}).get("progressToken", ""), int | str)
        and isinstance(given.get("inputResponses", {}), dict)
    )


async def _again(taken: Any, receive: Receive) -> MutableMapping[str, Any]:
    message = next(taken, None)
    return await receive() if message is None else message


def _dump(message: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()


def _event(message: Mapping[str, Any]) -> bytes:
    return b"event: message\r\ndata: %b\r\n\r\n" % _dump(message)
