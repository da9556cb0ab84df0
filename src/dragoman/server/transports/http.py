"""Streamable HTTP, in all protocol versions.

Each message is its own POST, so a broken connection ends only the call that it carried. Up to 2025-11-25 a
server may keep a session with an id, send messages on a GET stream, and let an interrupted response be
resumed. From 2026-07-28 on there is none of that, and a call is cancelled by closing its stream.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import aiohttp
import anyio
from pydantic_core import to_json

from dragoman.errors import (
    ConnectionLostError,
    HttpStatusError,
    ProtocolError,
    ServerError,
    SessionGoneError,
)
from dragoman.server.attempt import ConnectionEnd
from dragoman.server.protocol.context import no_call_context
from dragoman.server.protocol.wire import PLAIN
from dragoman.server.transports.http_client import (
    LOGIN,
    NO_VERDICT,
    PROBE,
    REPEATABLE,
    HttpClient,
    is_older_server,
)
from dragoman.server.transports.http_response import (
    EVENTS,
    JSON,
    EventStream,
    is_type,
    read_body,
    read_events,
    read_refusal,
    rpc_error,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping

    from dragoman.errors import DragomanError
    from dragoman.model import Http
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.protocol.rpc import RequestId, Rpc
    from dragoman.server.protocol.wire import HttpOptions, SendInfo, Wire
    from dragoman.server.transports.http_exchange import Response

    Work: TypeAlias = Callable[[], Awaitable[None]]


logger = logging.getLogger("dragoman")

NOTICE_SECONDS = 10.0
"""How long sending one notification, or one of our responses, may take."""
MAX_ANSWERING = 20
"""How many responses to the server's requests are sent at once: each takes its own connection."""
MAX_UNSENT_ANSWERS = 1000
"""How many responses may wait to be sent; more are dropped."""
GOODBYE_SECONDS = 2.0
"""How long closing waits for the last messages to the server."""
TEARDOWN_SECONDS = 1.0


class Post:
    """One request in progress."""

    __slots__ = ("sent", "task")

    def __init__(self) -> None:
        self.sent = False
        """Whether the server may have received any of it."""
        self.task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Cancel the request, which closes its connection."""
        if self.task is not None:
            self.task.cancel()


class Outbox:
    """Everything that one transport is sending."""

    def __init__(self, rpc: Rpc, *, name: str, explain: Callable[[Exception, str], DragomanError]) -> None:
        self.closed = False
        self._rpc = rpc
        self._name = name
        self._explain = explain
        self._loop = asyncio.get_running_loop()
        self._posts: dict[RequestId, Post] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._goodbyes: set[asyncio.Task[None]] = set()
        self._notices: deque[Work] = deque()
        self._noticing = False
        self._answers: deque[Work] = deque()
        self._answering = 0
        self._gate: asyncio.Future[None] | None = None

    def post(self, request_id: RequestId, method: str, exchange: Work) -> None:
        """Start sending a request."""
        previous = self._posts.get(request_id)
        if previous is not None:
            previous.cancel()
        post = self._posts[request_id] = Post()
        post.task = self._loop.create_task(self._carry(request_id, method, post, exchange))

    def notify(self, exchange: Work) -> None:
        """Queue a notification; they are sent in order."""
        self._notices.append(exchange)
        if not self._noticing:
            self._noticing = True
            self.start(self._send_notices())

    def answer(self, exchange: Work) -> None:
        """Queue a response to a request of the server; limits protect connections and memory."""
        if len(self._answers) >= MAX_UNSENT_ANSWERS:
            return
        self._answers.append(exchange)
        if self._answering < MAX_ANSWERING:
            self._answering += 1
            self.start(self._send_answers())

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background until the transport is closed."""
        return self._keep(work, self._tasks)

    def goodbye(self, work: Coroutine[Any, Any, None]) -> None:
        """Send something that `close` still waits for, for a short time."""
        self._keep(work, self._goodbyes)

    def take(self, request_id: RequestId) -> Post | None:
        """Remove a request, so that `close` does not fail it."""
        return self._posts.pop(request_id, None)

    def hold(self, seconds: float) -> None:
        """Hold requests back until `release`, or until the time is over."""
        self.release()
        gate = self._gate = self._loop.create_future()
        timer = self._loop.call_later(seconds, self.release)
        gate.add_done_callback(lambda _: timer.cancel())

    def release(self) -> None:
        """Send the requests that were held back."""
        gate, self._gate = self._gate, None
        if gate is not None and not gate.done():
            gate.set_result(None)

    async def settle(self, seconds: float) -> None:
        """Wait for the requests in progress, for a limited time."""
        tasks = {post.task for post in self._posts.values() if post.task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def close(self, last: Work | None = None) -> None:
        """Fail all requests, send the goodbyes and then `last`, and end all tasks, within time limits."""
        if self.closed:
            return
        self.closed = True
        self.release()
        posts = {request_id: post for request_id, post in self._posts.items() if post.task is not None}
        for request_id, post in posts.items():
            msg = f"the connection to server `{self._name}` was closed"
            error = ConnectionLostError(msg, server=self._name, may_have_run=post.sent)
            self._rpc.fail(request_id, error)
            post.cancel()
        for task in self._tasks:
            task.cancel()
        self._notices.clear()
        self._answers.clear()
        ended = {post.task for post in posts.values() if post.task is not None} | self._tasks
        try:
            # The surrounding scope may be cancelled already; this part is short and must run.
            with anyio.CancelScope(shield=True):
                await self._send_goodbyes(last)
                if ended:
                    await asyncio.wait(ended, timeout=TEARDOWN_SECONDS)
        finally:
            for task in self._goodbyes:
                task.cancel()

    async def _send_goodbyes(self, last: Work | None) -> None:
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                if self._goodbyes:
                    await asyncio.wait(self._goodbyes)
                if last is not None:
                    await last()
        except TimeoutError:
            logger.debug("%s: the last messages were not sent in time", self._name)
        except Exception as exc:  # noqa: BLE001 -- the connection is closing anyway
            logger.debug("%s: %s", self._name, self._explain(exc, "the last message"))
        for task in self._goodbyes:
            task.cancel()

    async def _carry(self, request_id: RequestId, method: str, post: Post, exchange: Work) -> None:
        try:
            if self._gate is not None:
                await asyncio.wait({self._gate})
            post.sent = True
            await exchange()
        except Exception as exc:  # noqa: BLE001 -- every request must end in a result or an error
            self._rpc.fail(request_id, self._explain(exc, f"`{method}`"))
        finally:
            if self._posts.get(request_id) is post:
                del self._posts[request_id]

    async def _send_notices(self) -> None:
        try:
            while self._notices:
                await self._send(self._notices.popleft(), "a notification")
        finally:
            self._noticing = False

    async def _send_answers(self) -> None:
        try:
            while self._answers:
                await self._send(self._answers.popleft(), "a response")
        finally:
            self._answering -= 1

    async def _send(self, exchange: Work, what: str) -> None:
        """Send a message that has no result; if it fails, the next ones are still sent."""
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await exchange()
        except TimeoutError:
            logger.debug("%s: %s was not accepted in time", self._name, what)
        except Exception as exc:  # noqa: BLE001 -- the next messages must still be sent
            logger.debug("%s: %s", self._name, self._explain(exc, what))

    def _keep(self, work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        kept.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._goodbyes.discard(task)
        exc = None if task.cancelled() else task.exception()
        if isinstance(exc, Exception):
            logger.debug("%s: %s", self._name, self._explain(exc, "a message"))


FIRST_MODERN = "2026-07-28"
VERSION_HEADER = "mcp-protocol-version"
SESSION_HEADER = "mcp-session-id"
HANDSHAKE = frozenset({"initialize", PROBE})

INITIALIZED_SECONDS = 5.0
"""How long requests wait until the server has accepted `notifications/initialized`."""
STREAM_SECONDS = 1.0
"""How long the first requests wait for the GET stream: requests of the server before that would be lost."""
CANCEL_SECONDS = 5.0
"""How long a cancelled call stays open while the cancellation is sent."""
GRACE_SECONDS = 1.0
"""How long other calls may still get their own response after the session is found to be gone."""
RETRY_SECONDS = 1.0
RETRY_RANGE = (0.05, 30.0)
MAX_FRUITLESS = 30
MAX_RESUMES = 1000
RESUME_SECONDS = 600.0
STEADY_SECONDS = 10.0
"""A GET stream that lasted this long counts as working."""

NO_CONTENT = (202, 204)
TEMPORARY = (408, 425, 429)
NOT_IMPLEMENTED = 501

METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
ABOUT_THE_REQUEST = frozenset({METHOD_NOT_FOUND, -32602, -32002})
"""Error codes under HTTP 404 that are about the request, not about the session."""

_SESSION_ID = re.compile(r"[\x21-\x7e]+")
_POST_HEADERS = {"Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}
_GET_HEADERS = {"Accept": EVENTS, "Cache-Control": "no-store"}


@asynccontextmanager
async def open_http(
    http: Http,
    *,
    name: str,
    attempt: ConnectAttempt,
    rpc: Rpc,
    on_end: Callable[[ConnectionEnd], None],
    options: HttpOptions = PLAIN,
) -> AsyncGenerator[Wire]:
    """Open Streamable HTTP; nothing is sent before the first message.

    Args:
        http: The server's address and headers, expanded.
        name: The server's name, for errors and logs.
        attempt: Records the last status and challenge.
        rpc: The JSON-RPC layer.
        on_end: Called once if the connection ends by itself.
        options: The size limit of a message, and the sources of headers.

    Raises:
        ConnectError: The address or the certificates cannot be used.
    """
    attempt.enter("connect")
    no_call_context()
    client = await HttpClient.connect(http, name=name, attempt=attempt, options=options)
    wire = StreamableHttp(rpc, client, limit=options.limit, on_end=on_end)
    try:
        yield wire
    finally:
        await wire.close()


class StreamableHttp:
    """One connection: POSTs, and the GET stream of older protocol versions."""

    def __init__(
        self, rpc: Rpc, client: HttpClient, *, limit: int, on_end: Callable[[ConnectionEnd], None]
    ) -> None:
        self._rpc = rpc
        self._client = client
        self._limit = limit
        self._on_end: Callable[[ConnectionEnd], None] | None = on_end
        self._outbox = Outbox(rpc, name=client.name, explain=client.failure)
        self._loop = asyncio.get_running_loop()
        self._session_id: str | None = None
        self._version: str | None = None
        self._gone = ""
        self._streamed = False
        """Whether a GET stream of this session was ever open."""
        self._listener: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> str | None:
        """The session id, if the server gave one."""
        return self._session_id

    def send(self, message: bytes, envelope: SendInfo) -> None:
        """Start the POST of a message."""
        method, request_id, headers = envelope
        if method == "initialize":
            self._session_id = self._version = None
            self._streamed = False
            if self._listener is not None:
                self._listener.cancel()
        elif headers is not None and (version := headers.get(VERSION_HEADER)) is not None:
            self._version = version
        if self._outbox.closed or self._gone:
            if request_id is not None:
                self._rpc.fail(request_id, self._over())
        elif request_id is not None:
            ask = self._ask_for_era if method == PROBE else self._ask
            exchange = partial(ask, message, envelope, modern=is_modern(self._version))
            self._outbox.post(request_id, method, exchange)
        elif method == "notifications/initialized" and not is_modern(self._version):
            self._outbox.hold(INITIALIZED_SECONDS)
            self._outbox.notify(partial(self._begin, message, envelope))
        else:
            # Keep this caller's context: the sending task may belong to another caller.
            context = copy_context()
            put = self._outbox.notify if method else self._outbox.answer
            put(lambda: self._loop.create_task(self._tell(message, envelope), context=context))

    def abandon(
        self,
        message: bytes,  # noqa: ARG002 -- part of the `Wire` protocol
        envelope: SendInfo,
        reason: str,
        *,
        tell: bool = True,
    ) -> bool:
        """Cancel a request by closing its stream; older servers get `notifications/cancelled` first."""
        request_id = envelope.request_id
        post = self._outbox.take(request_id) if request_id is not None else None
        if post is None:
            return False
        version = (envelope.headers or {}).get(VERSION_HEADER) or self._version
        if not post.sent or not tell or is_modern(version) or self._outbox.closed:
            post.cancel()
            return not post.sent

        async def tell_and_close() -> None:
            params = {"requestId": request_id, "reason": reason}
            try:
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._tell(self._rpc.notification("notifications/cancelled", params), None)
            finally:
                post.cancel()

        self._outbox.goodbye(tell_and_close())
        return False

    async def close(self) -> None:
        """End the session and everything in progress, within time limits."""
        ends_session = self._session_id is not None and not self._gone and not is_modern(self._version)
        try:
            await self._outbox.close(self._delete if ends_session else None)
        finally:
            await self._client.close()

    # One message

    async def _tell(self, message: bytes, envelope: SendInfo | None) -> None:
        """Send a message that has no response."""
        headers = self._headers(_POST_HEADERS, envelope)
        safe = envelope is not None and envelope.method in REPEATABLE
        response = await self._client.open("POST", headers, message, safe=safe)
        try:
            body = await read_refusal(response)
        finally:
            response.release()
        if response.status >= HTTPStatus.BAD_REQUEST:
            self._note_gone(response.status, rpc_error(body), own=False)
            logger.debug("%s: %s", self._client.name, self._client.refusal(response, body, "a message"))

    async def _ask(self, message: bytes, envelope: SendInfo, *, modern: bool) -> None:
        """Send a request, and read its response."""
        method, request_id, _ = envelope
        assert request_id is not None  # noqa: S101 -- checked in `send`
        headers = self._headers(_POST_HEADERS, envelope)
        response = await self._client.open("POST", headers, message, safe=method in REPEATABLE)
        stream: EventStream | None = None
        try:
            self._client.note(response)
            if response.status >= HTTPStatus.BAD_REQUEST:
                await self._take_refusal(response, envelope)
                return
            if method == "initialize":
                self._keep_session_id(response)
            if response.status not in NO_CONTENT and is_type(response, JSON):
                await self._take_json(response, envelope)
                return
            if response.status in NO_CONTENT or not is_type(response, EVENTS):
                body = await read_refusal(response)
                raise self._client.unusable(
                    response, body, f"`{method}`", "the response is not a valid MCP message"
                )
            stream = EventStream(self._limit)
            if await read_events(response, stream, self._rpc, request_id) == "answer":
                return
        except (aiohttp.ClientError, OSError):
            if stream is None:
                raise
        finally:
            response.release()
        await self._resume(stream, envelope, resumable=not modern)

    async def _ask_for_era(self, message: bytes, envelope: SendInfo, *, modern: bool) -> None:
        """Send the probe `server/discover`; a server that closes the connection at it is an older one.

        Raises:
            ProtocolError: It closed the connection.
            Exception: Any other failure.
        """
        try:
            await self._ask(message, envelope, modern=modern)
        except (aiohttp.ClientError, OSError, ConnectionLostError) as exc:
            error = self._client.failure(exc, f"`{envelope.method}`")
            if not isinstance(error, ConnectionLostError) or not error.may_have_run:
                raise
            raise ProtocolError(error.message, rpc_code=METHOD_NOT_FOUND, server=self._client.name) from exc

    async def _take_json(self, response: Response, envelope: SendInfo) -> None:
        request_id = cast("RequestId", envelope.request_id)
        body = await read_body(response, self._limit)
        ended = self._rpc.receive(body) if body else None
        if ended == request_id or (ended is not None and str(ended) == str(request_id)):
            return
        error = rpc_error(body)
        if error is not None and error.get("id") is None:
            self._rpc.receive(to_json({**error, "id": request_id}))
            return
        why = "the response has another id, or none" if body else "the body is empty"
        self._rpc.fail(request_id, self._client.unusable(response, body, f"`{envelope.method}`", why))

    async def _take_refusal(self, response: Response, envelope: SendInfo) -> None:
        """Fail a request whose response has an error status.

        Raises:
            DragomanError: The refusal is not a JSON-RPC error of the server.
        """
        method, request_id, _ = envelope
        status = response.status
        body = await read_refusal(response)
        error = rpc_error(body)
        own = error is not None and str(error.get("id")) == str(request_id)
        if self._note_gone(status, error, own=own):
            raise self._over()
        refusal = self._client.refusal(response, body, f"`{method}`")
        wants_login = status == HTTPStatus.UNAUTHORIZED or (status in LOGIN and bool(refusal.challenge))
        speaks_of_request = own or (status not in NO_VERDICT and status < HTTPStatus.INTERNAL_SERVER_ERROR)
        if error is not None and speaks_of_request and not wants_login:
            self._rpc.receive(to_json({**error, "id": request_id}))
        elif (method in HANDSHAKE and speaks_of_request) or is_older_server(method, status):
            # The session then falls back to the handshake of older servers.
            code = METHOD_NOT_FOUND if status == HTTPStatus.NOT_FOUND else INTERNAL_ERROR
            raise ProtocolError(refusal.message, rpc_code=code, server=self._client.name)
        else:
            raise refusal

    async def _resume(self, stream: EventStream, envelope: SendInfo, *, resumable: bool) -> None:
        """Fetch the rest of a stream that was interrupted before the response.

        Raises:
            ConnectionLostError: The rest cannot be fetched.
        """
        request_id = envelope.request_id
        last_id, retry_ms = stream.last_id, stream.retry_ms
        until = self._loop.time() + RESUME_SECONDS
        attempts = fruitless = 0
        while resumable and last_id and fruitless < MAX_FRUITLESS and self._loop.time() < until:
            await asyncio.sleep(_delay(retry_ms))
            attempts += 1
            fruitless += 1
            again = EventStream(self._limit)
            try:
                async with asyncio.timeout_at(until):
                    came = await self._get(again, last_id, request_id)
            except (aiohttp.ClientError, OSError):
                came = "nothing"
            except (ValueError, ServerError) as exc:
                # The call itself was sent and may have run, so this error must not claim otherwise.
                logger.debug("%s: %s", self._client.name, self._client.failure(exc, "the rest"))
                break
            if came == "answer":
                return
            if came == "refused" or attempts >= MAX_RESUMES:
                break
            if came == "something":
                fruitless = 0
            last_id = again.last_id or last_id
            retry_ms = retry_ms if again.retry_ms is None else again.retry_ms
        tried = f", and {attempts} attempts to resume it failed" if attempts else ""
        name = self._client.name
        msg = f"server `{name}`: the stream ended before the response to `{envelope.method}`{tried}"
        raise ConnectionLostError(msg, server=name, may_have_run=True)

    # The GET stream of older protocol versions

    async def _begin(self, message: bytes, envelope: SendInfo) -> None:
        """Send `notifications/initialized`, then open the GET stream for messages that the server starts."""
        try:
            await self._tell(message, envelope)
            opened: asyncio.Future[None] = self._loop.create_future()
            self._listener = self._outbox.start(self._listen(opened))
            await asyncio.wait({opened}, timeout=STREAM_SECONDS)
        finally:
            self._outbox.release()

    async def _listen(self, opened: asyncio.Future[None]) -> None:
        """Keep the GET stream open, unless the server does not offer one."""
        last_id: str | None = None
        failures = 0
        while True:
            stream = EventStream(self._limit)
            since = self._loop.time()
            came = "nothing"
            try:
                came = await self._get(stream, last_id, None, opened)
                if came == "refused":
                    return
            except HttpStatusError as exc:
                logger.debug("%s: %s", self._client.name, exc)
                return
            except (aiohttp.ClientError, OSError, ProtocolError, ServerError) as exc:
                logger.debug("%s: %s", self._client.name, self._client.failure(exc, "the stream"))
            finally:
                _set(opened)
            last_id = stream.last_id or last_id
            good = came == "something" or self._loop.time() - since >= STEADY_SECONDS
            failures = 0 if good else failures + 1
            pause = min(0.5 * 2 ** min(failures, 10), RETRY_RANGE[1]) if failures else 0.0
            await asyncio.sleep(max(_delay(stream.retry_ms), pause))

    async def _get(
        self,
        stream: EventStream,
        last_id: str | None,
        request_id: RequestId | None,
        opened: asyncio.Future[None] | None = None,
    ) -> Literal["answer", "something", "nothing", "refused"]:
        """Read one GET stream; after `refused` it is not opened again."""
        headers = self._headers(_GET_HEADERS, None)
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        response = await self._client.open("GET", headers)
        try:
            status = response.status
            if status < HTTPStatus.MULTIPLE_CHOICES:
                if status in NO_CONTENT or not is_type(response, EVENTS):
                    return "refused"
                self._streamed = True
                if opened is not None:
                    _set(opened)
                return await read_events(response, stream, self._rpc, request_id)
            if self._streamed:
                # Only then: a server without a GET stream may answer 404 too.
                self._note_gone(status, None, own=False)
            temporary = status in TEMPORARY or (
                status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != NOT_IMPLEMENTED
            )
            return "nothing" if temporary else "refused"
        finally:
            response.release()

    async def _delete(self) -> None:
        """End the session on the server."""
        response = await self._client.open("DELETE", self._headers({}, None))
        response.release()

    # Helpers

    def _headers(self, headers: Mapping[str, str], envelope: SendInfo | None) -> dict[str, str]:
        merged = dict(headers)
        if self._session_id is not None:
            merged[SESSION_HEADER] = self._session_id
        if self._version is not None:
            merged[VERSION_HEADER] = self._version
        if envelope is not None and envelope.headers:
            merged.update(envelope.headers)
        return merged

    def _keep_session_id(self, response: Response) -> None:
        found = response.headers.get(SESSION_HEADER)
        if found and not _SESSION_ID.fullmatch(found):
            msg = f"server `{self._client.name}` sent a session id with invalid characters"
            raise ProtocolError(msg, server=self._client.name)
        self._session_id = found or None

    def _note_gone(self, status: int, error: dict[str, Any] | None, *, own: bool) -> bool:
        """Return whether a refusal means that the session is gone; if so, end the connection."""
        if self._session_id is None:
            return False
        said = cast("dict[str, Any]", error["error"]) if error is not None else {}
        if status == HTTPStatus.NOT_FOUND:
            gone = not (own and said.get("code") in ABOUT_THE_REQUEST)
        else:
            # Servers built from the TypeScript SDK's examples refuse an unknown session like this.
            gone = (
                status == HTTPStatus.BAD_REQUEST and not own and "session" in str(said.get("message")).lower()
            )
        if gone and not self._gone:
            self._gone = f"the session ended (HTTP {status})"
            self._outbox.start(self._end_soon())
        return gone

    async def _end_soon(self) -> None:
        """End the connection, after calls in progress had time to get their own response."""
        await self._outbox.settle(GRACE_SECONDS)
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(ConnectionEnd(reason=self._gone))

    def _over(self) -> DragomanError:
        if self._gone:
            return SessionGoneError(f"server `{self._client.name}`: {self._gone}", server=self._client.name)
        msg = f"the connection to server `{self._client.name}` is closed"
        return ConnectionLostError(msg, server=self._client.name, may_have_run=False)


def is_modern(version: str | None) -> bool:
    """Return whether a protocol version works without sessions and handshake; versions are dates."""
    return version is not None and version >= FIRST_MODERN


def _delay(retry_ms: int | None) -> float:
    """Return how long to wait before a stream is opened again: the server's `retry`, within limits."""
    least, most = RETRY_RANGE
    return RETRY_SECONDS if retry_ms is None else min(max(retry_ms / 1000, least), most)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
