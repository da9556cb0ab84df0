"""Streamable HTTP: the requests of MCP over HTTP, for one view, in both protocol generations.

A modern request is complete in itself: one POST, one answer. An older client has a session, which begins with
its handshake and lives in this process. The response to a request becomes a stream of events only when
something has to be said before the result: progress, a log message, or a question to an older client.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from dragoman.gateway.connection import CANCELLED, INITIALIZE
from dragoman.gateway.outbox import Outbox
from dragoman.gateway.request import Peer, Request
from dragoman.server.protocol.envelope import (
    DEFAULT_VERSION,
    HANDSHAKE_PROTOCOL_VERSIONS,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MODERN_PROTOCOL_VERSIONS,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
    check_notification,
    declared,
    decode,
    encode,
    error_of,
    is_message,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from dragoman.gateway.gateway import Gateway

logger = logging.getLogger("dragoman")

PING_SECONDS = 15.0
"""After how long without a word a response becomes a stream, so that no proxy closes it."""
WATCH_SECONDS = 0.2
"""After how long a request is ended if its client hangs up; shorter ones end by themselves."""
MAX_SESSIONS = 1_000
"""How many sessions of older clients one principal may have; the oldest idle one ends for a new one."""
IDLE_SECONDS = 1_800.0
"""How long a session is kept without a request."""
REQUEST_CANCELLED = -32800
_JSON, _STREAM = "application/json", "text/event-stream"
_HEADERS_OF_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_PING = b": ping\r\n\r\n"
_ONE_MESSAGE = "Body must be a single JSON-RPC request or notification object"

Headers = list[tuple[bytes, bytes]]


class RefusedError(Exception):
    """A request is answered with an HTTP status."""

    def __init__(self, status: int, message: str, *, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.status = status
        self.body = encode({"id": None, "error": {"code": code, "message": message}})


class Reply:
    """The response to one POST: JSON, or a stream of events."""

    def __init__(self, send: Send, number: int | str, *, headers: Headers | None = None) -> None:
        """Answer one request.

        Args:
            send: Takes the response.
            number: The id of the request.
            headers: Added to the response.
        """
        self._send = send
        self._id = number
        self._headers = headers or []
        self._outbox: Outbox | None = None
        self._is_finished = False
        self.is_dropped = False
        """Whether the client has cancelled the request, is gone, or does not read."""
        self.task = cast("asyncio.Task[Any]", asyncio.current_task())

    def put(self, message: Mapping[str, Any]) -> None:
        """Send a message before the result, without waiting for that; after it, nothing is sent."""
        if self._is_finished:
            return
        self._stream().put(event(message), once=is_change(message))

    def ping(self) -> None:
        """Say something that means nothing, so that the connection is not taken for dead."""
        if not self._is_finished:
            self._stream().put(_PING, once=True)

    def cancel(self) -> None:
        """End the request without its result."""
        self.is_dropped = True
        self.task.cancel()

    async def finish(self, outcome: Mapping[str, Any], status: int = 200) -> None:
        """Send the result or the error, and end the response; only the first one counts."""
        if self._is_finished:
            return
        self._is_finished = True
        message = {"id": self._id, **outcome}
        if self._outbox is None:
            await respond(self._send, status, encode(message), self._headers)
            return
        await self._outbox.close()
        await self._send({"type": "http.response.body", "body": event(message), "more_body": False})

    async def close(self) -> None:
        """End what is left of the response after a request that was given up."""
        if self._outbox is not None:
            await self._outbox.close(flush=False)

    def _stream(self) -> Outbox:
        if self._outbox is None:
            self._outbox = Outbox(start_stream(self._send, self._headers), on_stuck=self.cancel)
        return self._outbox


def start_stream(send: Send, headers: Sequence[tuple[bytes, bytes]] = ()) -> Callable[[bytes], Any]:
    """Return a function that writes events; the response begins with the first one."""
    began = False

    async def write(data: bytes) -> None:
        nonlocal began
        if not began:
            began = True
            start = {"type": "http.response.start", "status": 200, "headers": [*_HEADERS_OF_STREAM, *headers]}
            await send(start)
        await send({"type": "http.response.body", "body": data, "more_body": True})

    return write


def event(message: Mapping[str, Any], name: str = "message") -> bytes:
    """Return a message as an event of a stream."""
    return b"event: %b\r\ndata: %b\r\n\r\n" % (name.encode(), encode(message))


def is_change(message: Mapping[str, Any]) -> bool:
    """Return whether a message says that a list has changed: it is said once, until it is sent."""
    return str(message.get("method", "")).endswith("/list_changed")


async def respond(send: Send, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Send a whole response of JSON."""
    about = [(b"content-length", b"%d" % len(body)), *headers]
    if body:
        about.insert(0, (b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": about})
    await send({"type": "http.response.body", "body": body})


class Watch:
    """Looks after requests that take long: whether their client is there, and that the connection stays.

    One timer looks at all requests: two for each would cost more than most requests take.
    """

    def __init__(self) -> None:
        self._replies: dict[Reply, tuple[float, Receive | None]] = {}
        """When each began, and what tells that its client has hung up; the oldest first."""
        self._helpers: dict[Reply, asyncio.Task[None]] = {}
        self._pinged: dict[Reply, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, reply: Reply, receive: Receive | None) -> None:
        """Look after a request; `receive` is `None` if a client that hangs up means nothing."""
        self._replies[reply] = (time.monotonic(), receive)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)

    def cancel_all(self) -> None:
        """End all requests without their results."""
        for reply in list(self._replies):
            reply.cancel()

    def end(self, reply: Reply) -> None:
        """Look after it no longer."""
        self._replies.pop(reply, None)
        self._pinged.pop(reply, None)
        if (helper := self._helpers.pop(reply, None)) is not None:
            helper.cancel()

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for reply, (began, receive) in list(self._replies.items()):
            if now - began < WATCH_SECONDS:
                break
            if receive is not None and reply not in self._helpers:
                self._helpers[reply] = asyncio.create_task(_hang_up(receive, reply))
            if now - self._pinged.get(reply, began) >= PING_SECONDS:
                self._pinged[reply] = now
                reply.ping()
        if self._replies:
            self._timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, self._look)


async def _hang_up(receive: Receive, reply: Reply) -> None:
    await until_gone(receive)
    reply.cancel()


class Session:
    """A session of an older client."""

    def __init__(self, only: str | None, principal: str) -> None:
        self.peer = Peer(only, principal=principal, put=self._put, key=secrets.token_hex(16))
        self.stream: Outbox | None = None
        """The stream of what belongs to no request, if the client has opened it."""
        self.ended = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Whether the client has nothing open."""
        return not self.peer.running and self.stream is None

    def _put(self, message: Mapping[str, Any]) -> None:
        if self.stream is not None:
            self.stream.put(event(message), once=is_change(message))


class Sessions:
    """All sessions of one gateway, the one that was used last comes last."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._open: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, only: str | None, principal: str) -> Session:
        """Begin a session; one that has been idle for long makes room.

        Raises:
            RefusedError: The principal has too many sessions that are busy.
        """
        self._end_idle()
        own = [one for one in self._open.values() if one.peer.principal == principal]
        if len(own) >= MAX_SESSIONS:
            idle = next((one for one in own if one.is_idle), None)
            if idle is None:
                raise RefusedError(503, "Too many open sessions", code=INTERNAL_ERROR)
            self.end(idle)
        session = Session(only, principal)
        self._open[session.peer.key] = session
        return session

    def get(self, key: str, only: str | None, principal: str) -> Session:
        """Return a session of this client, which is used now.

        Raises:
            RefusedError: There is none, or it is another's.
        """
        session = self._open.pop(key, None)
        if session is None:
            raise RefusedError(404, "Session not found")
        self._open[key] = session
        if session.peer.principal != principal or session.peer.only != only:
            raise RefusedError(404, "Session not found")
        session.peer.used = time.monotonic()
        return session

    def end(self, session: Session) -> None:
        """End a session with its requests and its stream."""
        self._open.pop(session.peer.key, None)
        session.ended.set()
        session.peer.close()
        self._gateway.start_job(self._gateway.announcer.remove(session.peer))

    def close(self) -> None:
        """End all of them."""
        for session in list(self._open.values()):
            self.end(session)

    def _end_idle(self) -> None:
        before = time.monotonic() - IDLE_SECONDS
        for session in list(self._open.values()):
            if session.peer.used > before:
                break
            if session.is_idle:
                self.end(session)


class Endpoint:
    """Streamable HTTP for one view."""

    def __init__(self, gateway: Gateway, server: str | None, *, stateless: bool, max_body_bytes: int) -> None:
        self._gateway = gateway
        self.view = gateway.view(server)
        self._stateless = stateless
        self._max_body_bytes = max_body_bytes
        self._watch = Watch()

    def end(self) -> None:
        """End the requests in progress."""
        self._watch.cancel_all()

    async def handle(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send, *, principal: str
    ) -> None:
        """Answer one HTTP request.

        Args:
            scope: The request.
            headers: Its headers, by their names in lower case; the values of one name are joined.
            receive: Gives its body.
            send: Takes the response.
            principal: Who makes it.
        """
        version = headers.get("mcp-protocol-version")
        is_modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
        try:
            match scope["method"]:
                case "POST":
                    await self._post(headers, receive, send, principal=principal, is_modern=is_modern)
                case "GET" if not is_modern:
                    await self._get(headers, receive, send, principal)
                case "DELETE" if not is_modern and not self._stateless:
                    self._gateway.sessions.end(self._session(headers, principal))
                    await respond(send, 200, b"")
                case _:
                    allowed = "POST" if is_modern or self._stateless else "GET, POST, DELETE"
                    error = encode(
                        {"id": None, "error": {"code": INVALID_REQUEST, "message": "Method Not Allowed"}}
                    )
                    await respond(send, 405, error, [(b"allow", allowed.encode())])
        except RefusedError as exc:
            await respond(send, exc.status, exc.body)

    async def _post(
        self,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
        *,
        principal: str,
        is_modern: bool,
    ) -> None:
        if headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise RefusedError(415, f"Unsupported Media Type: Content-Type must be {_JSON}")
        if not accepts(headers.get("accept", ""), _JSON, _STREAM):
            raise RefusedError(406, f"Not Acceptable: Client must accept both {_JSON} and {_STREAM}")
        body = await read_body(headers, receive, self._max_body_bytes)
        if body is None:
            return  # The client has gone before it had said everything: nothing runs.
        try:
            message = decode(body)
        except MCPError as exc:
            raise RefusedError(400, exc.message, code=exc.code) from exc
        if not is_message(message):
            raise RefusedError(400, _ONE_MESSAGE)
        if is_modern:
            await self._modern(message, headers, receive, send, principal)
        else:
            await self._older(message, headers, send, principal)

    # Modern clients

    async def _modern(
        self,
        message: dict[str, Any],
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
        principal: str,
    ) -> None:
        if "method" not in message:
            raise RefusedError(400, _ONE_MESSAGE)
        if "id" not in message:
            # A modern client cancels by hanging up; whatever else it tells has no request to belong to.
            version = headers["mcp-protocol-version"]
            if version not in MODERN_PROTOCOL_VERSIONS:
                raise RefusedError(400, "Unsupported protocol version", code=UNSUPPORTED_PROTOCOL_VERSION)
            await respond(send, 202, b"")
            return
        reply = Reply(send, message["id"])
        try:
            version, capabilities = declared(message, headers)
            request = Request(
                message, version=version, capabilities=capabilities, put=reply.put, principal=principal
            )
            if request.method == "tools/call":
                self.view.check_mirrored(request, headers)
        except MCPError as exc:
            outcome = {"error": error_of(exc)}
            await reply.finish(outcome, status_of(outcome))
            return
        await self._finish(reply, request, receive)

    async def _finish(self, reply: Reply, request: Request, receive: Receive | None) -> None:
        """Answer a request, also one that is cancelled.

        Args:
            reply: Its response.
            request: The request.
            receive: Tells that the client has hung up; `None` if that means nothing.
        """
        self._watch.begin(reply, receive)
        try:
            try:
                outcome = await self.view.respond(request, client=request.peer)
            finally:
                self._watch.end(reply)
            await reply.finish(outcome, status_of(outcome) if request.is_modern else 200)
        except asyncio.CancelledError:
            if not reply.is_dropped:
                raise
            reply.task.uncancel()
            await reply.finish({"error": {"code": REQUEST_CANCELLED, "message": "Request cancelled"}})
        finally:
            await reply.close()

    # Older clients

    def _session(self, headers: Mapping[str, str], principal: str) -> Session:
        key = headers.get("mcp-session-id")
        if key is None:
            raise RefusedError(400, "Bad Request: Missing session ID")
        return self._gateway.sessions.get(key, self.view.only, principal)

    async def _older(
        self,
        message: dict[str, Any],
        headers: Mapping[str, str],
        send: Send,
        principal: str,
    ) -> None:
        session: Session | None = None
        is_new = message.get("method") == INITIALIZE and "mcp-session-id" not in headers
        if not self._stateless:
            if is_new:
                session = self._gateway.sessions.open(self.view.only, principal)
            else:
                session = self._session(headers, principal)
        peer = session.peer if session is not None else None
        if "method" not in message or "id" not in message:
            self._take(message, peer, headers.get("mcp-protocol-version", DEFAULT_VERSION))
            await respond(send, 202, b"")
            return
        about = [(b"mcp-session-id", peer.key.encode())] if is_new and peer is not None else []
        reply = Reply(send, message["id"], headers=about)
        try:
            request = self._request(message, headers, peer, reply, principal)
        except MCPError as exc:
            if is_new and session is not None:
                self._gateway.sessions.end(session)
            await Reply(send, message["id"]).finish({"error": error_of(exc)})
            return
        if peer is not None:
            peer.running[request.id] = reply
        try:
            # Older clients cancel by a notification: a lost connection means nothing.
            await self._finish(reply, request, None)
        finally:
            if peer is not None:
                peer.running.pop(request.id, None)
                peer.used = time.monotonic()

    def _request(
        self,
        message: dict[str, Any],
        headers: Mapping[str, str],
        peer: Peer | None,
        reply: Reply,
        principal: str,
    ) -> Request:
        """Return the request of an older client.

        Raises:
            MCPError: It is not one.
        """
        if peer is not None:
            if message["method"] == INITIALIZE:
                self.view.greet(peer, message.get("params"))
            peer.admit(message["id"])
        version = peer.version if peer is not None else headers.get("mcp-protocol-version", DEFAULT_VERSION)
        return Request(
            message,
            version=version,
            capabilities=peer.capabilities if peer is not None else {},
            put=reply.put,
            principal=principal,
            peer=peer,
        )

    def _take(self, message: dict[str, Any], peer: Peer | None, version: str) -> None:
        """Take a notification or the answer to a question."""
        method, params = message.get("method"), message.get("params")
        if method is None:
            if peer is not None:
                peer.take_answer(message)
        elif method == CANCELLED:
            if peer is not None:
                peer.cancel(params)
        elif check_notification(method, version, params):
            self.view.take_notification(method, peer)

    async def _get(self, headers: Mapping[str, str], receive: Receive, send: Send, principal: str) -> None:
        """Open the stream of what belongs to no request; a new one takes the place of the one before."""
        if not accepts(headers.get("accept", ""), _STREAM):
            raise RefusedError(406, f"Not Acceptable: Client must accept {_STREAM}")
        if self._stateless:
            raise RefusedError(405, "Method Not Allowed: this gateway keeps no sessions")
        session = self._session(headers, principal)
        await serve_stream(session, receive, send)


async def serve_stream(session: Session, receive: Receive, send: Send) -> None:
    """Send what a session is told until its client hangs up, or it ends."""
    outbox = Outbox(start_stream(send))
    outbox.put(_PING)
    if session.stream is not None:
        await session.stream.close(flush=False)
    session.stream = outbox
    try:
        await keep_stream(outbox, receive, session.ended)
    finally:
        if session.stream is outbox:
            session.stream = None
            session.peer.used = time.monotonic()
        await outbox.close(flush=False)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def keep_stream(outbox: Outbox, receive: Receive, ended: asyncio.Event) -> None:
    """Keep a stream of events open until its client hangs up or does not read, or we end it."""
    waits = [asyncio.create_task(wait) for wait in (until_gone(receive), outbox.closed.wait(), ended.wait())]
    try:
        while not (await asyncio.wait(waits, timeout=PING_SECONDS, return_when="FIRST_COMPLETED"))[0]:
            outbox.put(_PING, once=True)
    finally:
        for wait in waits:
            wait.cancel()


async def until_gone(receive: Receive) -> None:
    """Wait until a client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes | None:
    """Return the body of a request; `None` if the client hangs up before its end.

    Raises:
        RefusedError: It is too large, or not as long as its header says.
    """
    size = headers.get("content-length", "")
    if size.isdigit() and int(size) > limit:
        raise RefusedError(413, f"Request body exceeds {limit} bytes")
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = message.get("body", b"")
        length += len(part)
        if length > limit:
            raise RefusedError(413, f"Request body exceeds {limit} bytes")
        parts.append(part)
        if not message.get("more_body"):
            break
    if size.isdigit() and int(size) != length:
        # The client has asked for another protocol (`Upgrade`), and the rest is lost with that.
        raise RefusedError(400, f"Bad Request: the body has {length} bytes, not {size}")
    return b"".join(parts)


@lru_cache(maxsize=256)
def accepts(header: str, *kinds: str) -> bool:
    """Return whether a client takes all of these media types; clients send the same header each time."""
    given = {part.partition(";")[0].strip().lower() for part in header.split(",")}
    return all(not given.isdisjoint({kind, f"{kind.partition('/')[0]}/*", "*/*"}) for kind in kinds)
