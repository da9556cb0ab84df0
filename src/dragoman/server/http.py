"""The wire to a server behind a URL: Streamable HTTP, of both eras.

Each message is a POST of its own, so a broken exchange ends the one call that it carried. Up to 2025-11-25 a
session may be kept by an id, the server may speak on a GET stream, and an answer whose stream broke off can
be fetched again; from 2026-07-28 on there is neither, and closing a stream is how a call is given up.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast

import aiohttp
from pydantic_core import to_json

from dragoman.errors import (
    ConnectionLostError,
    HttpStatusError,
    ProtocolError,
    ServerError,
    SessionGoneError,
)
from dragoman.server.event_stream import EventStream
from dragoman.server.http_answer import (
    EVENTS,
    JSON,
    is_type,
    read_body,
    read_events,
    read_refusal,
    rpc_error,
)
from dragoman.server.http_client import LOGIN, NO_VERDICT, PROBE, HttpClient, is_older_server
from dragoman.server.http_options import PLAIN
from dragoman.server.outbox import Outbox
from dragoman.server.wire import on_own_account

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dragoman.errors import DragomanError
    from dragoman.model import Http
    from dragoman.server.http_options import HttpOptions
    from dragoman.server.rpc import RequestId, Rpc
    from dragoman.server.trail import Trail
    from dragoman.server.wire import Envelope, Wire

logger = logging.getLogger("dragoman")

FIRST_MODERN = "2026-07-28"
VERSION_HEADER = "mcp-protocol-version"
SESSION_HEADER = "mcp-session-id"
HANDSHAKE = frozenset({"initialize", PROBE})

INITIALIZED_SECONDS = 5.0
"""How long requests wait for `notifications/initialized` to be taken."""
STREAM_SECONDS = 1.0
"""How long the first requests wait for the GET stream: what the server asks meanwhile would be lost."""
CANCEL_SECONDS = 5.0
"""How long a call that was given up stays open for the server to be told."""
GRACE_SECONDS = 1.0
"""How long other calls have to get their own answer when the session turns out to be gone."""
RETRY_SECONDS = 1.0
RETRY_RANGE = (0.05, 30.0)
MAX_FRUITLESS = 30
MAX_RESUMES = 1000
RESUME_SECONDS = 600.0
STEADY_SECONDS = 10.0
"""A GET stream that stood so long was a good one."""

NO_CONTENT = (202, 204)
PASSING = (408, 425, 429)
NO_SUCH = 501

METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
ABOUT_THE_REQUEST = frozenset({METHOD_NOT_FOUND, -32602, -32002})
"""Errors under HTTP 404 that speak of what was asked for, not of the session."""

_SESSION_ID = re.compile(r"[\x21-\x7e]+")
_POST_HEADERS = {"Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}
_GET_HEADERS = {"Accept": EVENTS, "Cache-Control": "no-store"}


@asynccontextmanager
async def open_http(
    http: Http,
    *,
    name: str,
    trail: Trail,
    rpc: Rpc,
    on_end: Callable[[str], None],
    options: HttpOptions = PLAIN,
) -> AsyncGenerator[Wire]:
    """Speak Streamable HTTP with a server; nothing is sent before the first message.

    Args:
        http: Where it is, expanded.
        name: The server's name, for errors and logs.
        trail: Told the last status and challenge.
        rpc: The conversation.
        on_end: Told once why the wire ended by itself.
        options: The limit of a message, and whom to ask for headers.

    Raises:
        ConnectError: The address or the certificates cannot be used.
    """
    trail.stage = "connect"
    on_own_account()
    client = await HttpClient.connect(http, name=name, trail=trail, options=options)
    wire = StreamableHttp(rpc, client, limit=options.limit, on_end=on_end)
    try:
        yield wire
    finally:
        await wire.close()


class StreamableHttp:
    """One conversation over POSTs, and over the GET stream of the earlier era."""

    def __init__(self, rpc: Rpc, client: HttpClient, *, limit: int, on_end: Callable[[str], None]) -> None:
        self._rpc = rpc
        self._client = client
        self._limit = limit
        self._on_end: Callable[[str], None] | None = on_end
        self._outbox = Outbox(rpc, name=client.name, explain=client.failure)
        self._loop = asyncio.get_running_loop()
        self._session_id: str | None = None
        self._version: str | None = None
        self._gone = ""
        self._streamed = False
        """Whether the server has spoken on a GET stream of this session."""
        self._listener: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> str | None:
        """The session's id, where the server gave one."""
        return self._session_id

    def send(self, message: bytes, envelope: Envelope) -> None:
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
            # The task that sends it may have been started by another caller.
            context = copy_context()
            put = self._outbox.notify if method else self._outbox.answer
            put(lambda: self._loop.create_task(self._tell(message, envelope), context=context))

    def abandon(
        self,
        message: bytes,  # noqa: ARG002 -- as every wire
        envelope: Envelope,
        reason: str,
        *,
        tell: bool = True,
    ) -> bool:
        """Give a request up: close its stream, in the earlier era after telling the server."""
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

        self._outbox.part(tell_and_close())
        return False

    async def close(self) -> None:
        """End the session and everything under way, within bounds."""
        ends_session = self._session_id is not None and not self._gone and not is_modern(self._version)
        try:
            await self._outbox.close(self._delete if ends_session else None)
        finally:
            await self._client.close()

    # One message

    async def _tell(self, message: bytes, envelope: Envelope | None) -> None:
        """Send what has no answer."""
        headers = self._headers(_POST_HEADERS, envelope)
        response = await self._client.open("POST", headers, message)
        try:
            body = await read_refusal(response)
        finally:
            response.release()
        if response.status >= HTTPStatus.BAD_REQUEST:
            self._note_gone(response.status, rpc_error(body), own=False)
            logger.debug("%s: %s", self._client.name, self._client.refusal(response, body, "a message"))

    async def _ask(self, message: bytes, envelope: Envelope, *, modern: bool) -> None:
        """Send a request, and see to it that it has its outcome."""
        method, request_id, _ = envelope
        assert request_id is not None  # noqa: S101 -- `send` has seen it
        response = await self._client.open("POST", self._headers(_POST_HEADERS, envelope), message)
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
                raise self._client.unusable(response, body, f"`{method}`", "what came back is no answer")
            stream = EventStream(self._limit)
            if await read_events(response, stream, self._rpc, request_id) == "answer":
                return
        except (aiohttp.ClientError, OSError):
            if stream is None:
                raise
        finally:
            response.release()
        await self._resume(stream, envelope, resumable=not modern)

    async def _ask_for_era(self, message: bytes, envelope: Envelope, *, modern: bool) -> None:
        """Send the question for the server's era; one that hangs up at it has answered: it is an older one.

        Raises:
            ProtocolError: It hung up.
            Exception: Whatever else happened.
        """
        try:
            await self._ask(message, envelope, modern=modern)
        except (aiohttp.ClientError, OSError, ConnectionLostError) as exc:
            error = self._client.failure(exc, f"`{envelope.method}`")
            if not isinstance(error, ConnectionLostError) or not error.may_have_run:
                raise
            raise ProtocolError(error.message, rpc_code=METHOD_NOT_FOUND, server=self._client.name) from exc

    async def _take_json(self, response: aiohttp.ClientResponse, envelope: Envelope) -> None:
        request_id = cast("RequestId", envelope.request_id)
        body = await read_body(response, self._limit)
        ended = self._rpc.receive(body) if body else None
        if ended == request_id or (ended is not None and str(ended) == str(request_id)):
            return
        error = rpc_error(body)
        if error is not None and error.get("id") is None:
            self._rpc.receive(to_json({**error, "id": request_id}))
            return
        why = "the answer bears another id, or none" if body else "the body is empty"
        self._rpc.fail(request_id, self._client.unusable(response, body, f"`{envelope.method}`", why))

    async def _take_refusal(self, response: aiohttp.ClientResponse, envelope: Envelope) -> None:
        """Make an error status the outcome of a request.

        Raises:
            DragomanError: It is no answer of the server's.
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
            # The session takes it for an older server, and tries the older handshake.
            code = METHOD_NOT_FOUND if status == HTTPStatus.NOT_FOUND else INTERNAL_ERROR
            raise ProtocolError(refusal.message, rpc_code=code, server=self._client.name)
        else:
            raise refusal

    async def _resume(self, stream: EventStream, envelope: Envelope, *, resumable: bool) -> None:
        """Fetch the rest of a stream that broke off before the answer.

        Raises:
            ConnectionLostError: It cannot be had.
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
                # It was not the call that could not be sent: that has gone out, and may have run.
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
        tried = f", and {attempts} attempts to fetch the rest were in vain" if attempts else ""
        msg = (
            f"server `{self._client.name}`: the stream ended before the answer to `{envelope.method}`{tried}"
        )
        raise ConnectionLostError(msg, server=self._client.name, may_have_run=True)

    # The stream of the earlier era

    async def _begin(self, message: bytes, envelope: Envelope) -> None:
        """Tell the server that we are there, then open the stream on which it may speak by itself."""
        try:
            await self._tell(message, envelope)
            opened: asyncio.Future[None] = self._loop.create_future()
            self._listener = self._outbox.start(self._listen(opened))
            await asyncio.wait({opened}, timeout=STREAM_SECONDS)
        finally:
            self._outbox.let_go()

    async def _listen(self, opened: asyncio.Future[None]) -> None:
        """Keep the GET stream open, unless the server has none."""
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
        """Read one GET stream; `refused` is final."""
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
                # A server that never had a stream may say so by 404 as well; requests tell of the session.
                self._note_gone(status, None, own=False)
            passing = status in PASSING or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != NO_SUCH)
            return "nothing" if passing else "refused"
        finally:
            response.release()

    async def _delete(self) -> None:
        """Tell the server that the session is over."""
        response = await self._client.open("DELETE", self._headers({}, None))
        response.release()

    # Inside

    def _headers(self, headers: Mapping[str, str], envelope: Envelope | None) -> dict[str, str]:
        merged = dict(headers)
        if self._session_id is not None:
            merged[SESSION_HEADER] = self._session_id
        if self._version is not None:
            merged[VERSION_HEADER] = self._version
        if envelope is not None and envelope.headers:
            merged.update(envelope.headers)
        return merged

    def _keep_session_id(self, response: aiohttp.ClientResponse) -> None:
        found = response.headers.get(SESSION_HEADER)
        if found and not _SESSION_ID.fullmatch(found):
            msg = f"server `{self._client.name}` gave a session id with characters that no header may have"
            raise ProtocolError(msg, server=self._client.name)
        self._session_id = found or None

    def _note_gone(self, status: int, error: dict[str, Any] | None, *, own: bool) -> bool:
        """Tell whether a refusal means that the session is gone, and see to the wire's end if so."""
        if self._session_id is None:
            return False
        said = cast("dict[str, Any]", error["error"]) if error is not None else {}
        if status == HTTPStatus.NOT_FOUND:
            gone = not (own and said.get("code") in ABOUT_THE_REQUEST)
        else:
            # Servers made after the TypeScript SDK's examples refuse an unknown session in this way.
            gone = (
                status == HTTPStatus.BAD_REQUEST and not own and "session" in str(said.get("message")).lower()
            )
        if gone and not self._gone:
            self._gone = f"the session ended (HTTP {status})"
            self._outbox.start(self._end_soon())
        return gone

    async def _end_soon(self) -> None:
        """End the wire, after the calls under way have had the time to be refused themselves."""
        await self._outbox.settle(GRACE_SECONDS)
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self._gone)

    def _over(self) -> DragomanError:
        if self._gone:
            return SessionGoneError(f"server `{self._client.name}`: {self._gone}", server=self._client.name)
        msg = f"the connection to server `{self._client.name}` is closed"
        return ConnectionLostError(msg, server=self._client.name, may_have_run=False)


def is_modern(version: str | None) -> bool:
    """Tell whether a protocol version has neither sessions nor a handshake; versions are dates."""
    return version is not None and version >= FIRST_MODERN


def _delay(retry_ms: int | None) -> float:
    """Return how long to wait before a stream is opened again: as the server wishes, within reason."""
    least, most = RETRY_RANGE
    return RETRY_SECONDS if retry_ms is None else min(max(retry_ms / 1000, least), most)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
