"""Streamable HTTP: the requests of MCP over HTTP, in both protocol generations; and the older SSE.

A modern request is complete in itself: one POST, one answer. An older client has a session, which begins with
its handshake and lives in this process. The response to a request becomes a stream of events only when
something has to be said before the result: progress, a log message, or a question to an older client.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import parse_qs

from dragoman.gateway.connection import INITIALIZE, ClientConnection
from dragoman.gateway.outbox import ClientOutbox
from dragoman.gateway.request import ClientRequest
from dragoman.server.protocol.envelope import (
    DEFAULT_VERSION,
    HANDSHAKE_PROTOCOL_VERSIONS,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    MODERN_PROTOCOL_VERSIONS,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
    check_notification,
    decode,
    encode,
    error_of,
    is_message,
    read_modern_request,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from dragoman.gateway.gateway import Gateway
    from dragoman.gateway.view import View

    Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

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


class RefusedError(Exception):
    """A request is answered with an HTTP status."""

    def __init__(self, status: int, message: str, *, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.status = status
        self.body = encode({"id": None, "error": {"code": code, "message": message}})


class GatewayRequest:
    """One HTTP request."""

    __slots__ = ("headers", "method", "path", "principal", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.method: str = scope["method"]
        path, root = scope["path"], scope.get("root_path", "")
        self.path: str = path[len(root) :] if root and path.startswith(root) else path
        """Below the place where the application is mounted."""
        self.headers = read_headers(scope)
        self.principal = ""
        """Who makes it; empty before its token is checked, and where none is needed."""

    @property
    def place(self) -> dict[str, Any]:
        """Where the client is, as attributes of a span."""
        place: dict[str, Any] = {
            "network.transport": "tcp",
            "network.protocol.name": "http",
            "network.protocol.version": self.scope.get("http_version", "1.1"),
        }
        if client := self.scope.get("client"):
            place["client.address"], place["client.port"] = client[0], client[1]
        return place

    async def respond(self, status: int, body: bytes = b"", headers: Headers = ()) -> None:
        """Send a whole response of JSON."""
        about = [(b"content-length", b"%d" % len(body)), *headers]
        if body:
            about.insert(0, (b"content-type", b"application/json"))
        await self.send({"type": "http.response.start", "status": status, "headers": about})
        await self.send({"type": "http.response.body", "body": body})

    async def message(self, limit: int) -> Any:
        """Return the message in the body; `None` if the client hangs up before its end.

        Raises:
            RefusedError: It is too large, not as long as its header says, or not JSON.
        """
        body = await self.body(limit)
        if body is None:
            return None
        try:
            return decode(body)
        except MCPError as exc:
            raise RefusedError(400, exc.message, code=exc.code) from exc

    async def body(self, limit: int) -> bytes | None:
        """Return the body; `None` if the client hangs up before its end.

        Raises:
            RefusedError: It is too large, or not as long as its header says.
        """
        size = self.headers.get("content-length", "")
        if size.isdigit() and int(size) > limit:
            raise RefusedError(413, f"Request body exceeds {limit} bytes")
        parts: list[bytes] = []
        length = 0
        while True:
            received = await self.receive()
            if received["type"] != "http.request":
                return None
            part = received.get("body", b"")
            length += len(part)
            if length > limit:
                raise RefusedError(413, f"Request body exceeds {limit} bytes")
            parts.append(part)
            if not received.get("more_body"):
                break
        if size.isdigit() and int(size) != length:
            # The client has asked for another protocol (`Upgrade`), and the rest is lost with that.
            raise RefusedError(400, f"Bad Request: the body has {length} bytes, not {size}")
        return b"".join(parts)


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request, by their names in lower case; the values of one name are joined.

    A header that decides something is then never the one of two that another reader would not take.
    """
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        # Not every parser of HTTP takes the white space around a value away.
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


class Reply:
    """The response to one POST: JSON, or a stream of events."""

    def __init__(self, http: GatewayRequest, number: int | str, *, headers: Headers = ()) -> None:
        """Answer one request.

        Args:
            http: Takes the response.
            number: The id of the request.
            headers: Added to the response.
        """
        self._http = http
        self._id = number
        self._headers = headers
        self._outbox: ClientOutbox | None = None
        self._is_finished = False
        self.is_dropped = False
        """Whether the client has cancelled the request, is gone, or does not read."""
        self.task = cast("asyncio.Task[Any]", asyncio.current_task())

    def put(self, message: Mapping[str, Any]) -> None:
        """Send a message before the result, without waiting for that; after it, nothing is sent."""
        if self._is_finished:
            return
        self._stream().send(message)

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
            await self._http.respond(status, encode(message), self._headers)
            return
        await self._outbox.close()
        await self._http.send({"type": "http.response.body", "body": event(message), "more_body": False})

    async def close(self) -> None:
        """End what is left of the response after a request that was given up."""
        if self._outbox is not None:
            await self._outbox.close(flush=False)

    def _stream(self) -> ClientOutbox:
        if self._outbox is None:
            write = start_stream(self._http.send, self._headers)
            self._outbox = ClientOutbox(write, frame=event, on_stuck=self.cancel)
        return self._outbox


def start_stream(send: Send, headers: Headers = ()) -> Callable[[bytes], Any]:
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


def event(message: Mapping[str, Any]) -> bytes:
    """Return a message as an event of a stream."""
    return b"event: message\r\ndata: %b\r\n\r\n" % encode(message)


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


class Sessions:
    """The clients of one gateway that stay between requests; the one that was used last comes last."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._open: dict[str, ClientConnection] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, view: View, principal: str, place: Mapping[str, Any] | None = None) -> ClientConnection:
        """Begin a session; one that has been idle for long makes room.

        Raises:
            RefusedError: The principal has too many sessions that are busy.
        """
        before = time.monotonic() - IDLE_SECONDS
        for session in list(self._open.values()):
            if session.used > before:
                break
            if _is_idle(session):
                self.end(session)
        own = [one for one in self._open.values() if one.principal == principal]
        if len(own) >= MAX_SESSIONS:
            idle = next(filter(_is_idle, own), None)
            if idle is None:
                raise RefusedError(503, "Too many open sessions", code=INTERNAL_ERROR)
            self.end(idle)
        session = ClientConnection(view, principal=principal, key=secrets.token_hex(16), place=place)
        self._open[session.key] = session
        return session

    def get(self, key: str, principal: str) -> ClientConnection:
        """Return a session of this principal, which is used now.

        Raises:
            RefusedError: There is none, or it is another's.
        """
        session = self._open.get(key)
        if session is None or session.principal != principal:
            raise RefusedError(404, "Session not found")
        self._open[key] = self._open.pop(key)
        session.used = time.monotonic()
        return session

    def end(self, session: ClientConnection) -> None:
        """End a session with its requests and its stream."""
        if self._open.pop(session.key, None) is not None:
            session.end()
            self._gateway.start_job(session.close())

    def close(self) -> None:
        """End all of them."""
        for session in list(self._open.values()):
            self.end(session)


def _is_idle(session: ClientConnection) -> bool:
    """Return whether a client has nothing open."""
    return not session.is_busy and session.outbox is None


class Endpoint:
    """MCP over HTTP for the clients of one gateway: Streamable HTTP, and the older SSE."""

    def __init__(self, gateway: Gateway, *, stateless: bool, max_body_bytes: int) -> None:
        self.gateway = gateway
        self._stateless = stateless
        self._max_body_bytes = max_body_bytes
        self._watch = Watch()

    def of(self, gateway: Gateway) -> Endpoint:
        """Return an endpoint of the same kind for another gateway."""
        return Endpoint(gateway, stateless=self._stateless, max_body_bytes=self._max_body_bytes)

    def end(self) -> None:
        """End all requests, sessions and streams."""
        self.gateway.announcer.close()
        self.gateway.sessions.close()
        self._watch.cancel_all()

    async def handle(self, http: GatewayRequest, view: View) -> None:
        """Answer one request of Streamable HTTP."""
        version = http.headers.get("mcp-protocol-version")
        is_modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
        try:
            match http.method:
                case "POST":
                    await self._post(http, view, is_modern=is_modern)
                case "GET" if not is_modern:
                    await self._get(http, view)
                case "DELETE" if not is_modern and not self._stateless:
                    self.gateway.sessions.end(self._session(http, view))
                    await http.respond(200)
                case _:
                    allowed = "POST" if is_modern or self._stateless else "GET, POST, DELETE"
                    refused = RefusedError(405, "Method Not Allowed")
                    await http.respond(405, refused.body, [(b"allow", allowed.encode())])
        except RefusedError as exc:
            await http.respond(exc.status, exc.body)

    async def _post(self, http: GatewayRequest, view: View, *, is_modern: bool) -> None:
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise RefusedError(415, f"Unsupported Media Type: Content-Type must be {_JSON}")
        if not accepts(http.headers.get("accept", ""), _JSON, _STREAM):
            raise RefusedError(406, f"Not Acceptable: Client must accept both {_JSON} and {_STREAM}")
        message = await http.message(self._max_body_bytes)
        if message is None:
            return  # The client has gone before it had said everything: nothing runs.
        if not is_message(message):
            raise RefusedError(400, _ONE_MESSAGE)
        if is_modern:
            await self._modern(message, http, view)
        else:
            await self._older(message, http, view)

    async def _modern(self, message: dict[str, Any], http: GatewayRequest, view: View) -> None:
        if "method" not in message:
            raise RefusedError(400, _ONE_MESSAGE)
        if "id" not in message:
            # A modern client cancels by hanging up; whatever else it tells has no request to belong to.
            if http.headers["mcp-protocol-version"] not in MODERN_PROTOCOL_VERSIONS:
                raise RefusedError(400, "Unsupported protocol version", code=UNSUPPORTED_PROTOCOL_VERSION)
            await http.respond(202)
            return
        reply = Reply(http, message["id"])
        try:
            version, capabilities = read_modern_request(message, http.headers)
            request = ClientRequest(
                message,
                version=version,
                capabilities=capabilities,
                put=reply.put,
                principal=http.principal,
                place=http.place,
            )
            if request.method == "tools/call":
                view.check_mirrored(request, http.headers)
        except MCPError as exc:
            outcome = {"error": error_of(exc)}
            await reply.finish(outcome, status_of(outcome))
            return
        await self._finish(reply, request, view, http.receive)

    async def _older(self, message: dict[str, Any], http: GatewayRequest, view: View) -> None:
        sessions, session = self.gateway.sessions, None
        is_new = message.get("method") == INITIALIZE and "mcp-session-id" not in http.headers
        if not self._stateless:
            session = sessions.open(view, http.principal, http.place) if is_new else self._session(http, view)
        version = http.headers.get("mcp-protocol-version", DEFAULT_VERSION)
        if "method" not in message or "id" not in message:
            if session is not None:
                session.take(message)
            elif "method" in message and check_notification(
                message["method"], version, message.get("params")
            ):
                view.take_notification(message["method"], None)
            await http.respond(202)
            return
        about = [(b"mcp-session-id", session.key.encode())] if is_new and session is not None else []
        reply = Reply(http, message["id"], headers=about)
        if session is None:
            request = ClientRequest(
                message,
                version=version,
                capabilities={},
                put=reply.put,
                principal=http.principal,
                place=http.place,
            )
            await self._finish(reply, request, view, None)
            return
        try:
            request = session.request(message, reply.put)
        except MCPError as exc:
            if is_new:
                sessions.end(session)
            await Reply(http, message["id"]).finish({"error": error_of(exc)})
            return
        session.running[request.id] = reply
        try:
            # Older clients cancel by a notification: a lost connection means nothing.
            await self._finish(reply, request, view, None)
        finally:
            session.running.pop(request.id, None)
            session.used = time.monotonic()

    async def _finish(
        self, reply: Reply, request: ClientRequest, view: View, receive: Receive | None
    ) -> None:
        """Answer a request, also one that is cancelled.

        Args:
            reply: Its response.
            request: The request.
            view: What its client is shown.
            receive: Tells that the client has hung up; `None` if that means nothing.
        """
        self._watch.begin(reply, receive)
        try:
            try:
                outcome = await view.respond(request)
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

    def _session(self, http: GatewayRequest, view: View) -> ClientConnection:
        key = http.headers.get("mcp-session-id")
        if key is None:
            raise RefusedError(400, "Bad Request: Missing session ID")
        session = self.gateway.sessions.get(key, http.principal)
        if session.only != view.only:
            raise RefusedError(404, "Session not found")
        return session

    async def _get(self, http: GatewayRequest, view: View) -> None:
        """Open the stream of what belongs to no request; a new one takes the place of the one before."""
        if not accepts(http.headers.get("accept", ""), _STREAM):
            raise RefusedError(406, f"Not Acceptable: Client must accept {_STREAM}")
        if self._stateless:
            raise RefusedError(405, "Method Not Allowed: this gateway keeps no sessions")
        await serve_stream(self._session(http, view), http, _PING)

    async def handle_sse(self, http: GatewayRequest, view: View | None) -> None:
        """Answer one request of the older SSE: a stream to the client, and a POST for each of its messages.

        The first event of the stream names the address for the messages. Some hosts know no other transport.

        Args:
            http: The request.
            view: What the stream shows; a message goes to the session that its address names.
        """
        sessions = self.gateway.sessions
        try:
            if http.method == "GET" and view is not None:
                session = sessions.open(view, http.principal, http.place)
                place = f"{http.scope.get('root_path', '')}{http.path.rstrip('/')}/messages"
                first = f"event: endpoint\r\ndata: {place}?session={session.key}\r\n\r\n"
                try:
                    await serve_stream(session, http, first.encode())
                finally:
                    sessions.end(session)
            elif http.method == "POST":
                key = parse_qs(http.scope.get("query_string", b"").decode("latin-1")).get("session", [""])[0]
                session = sessions.get(key, http.principal)
                message = await http.message(self._max_body_bytes)
                if message is not None:
                    session.take(message)
                    await http.respond(202)
            else:
                await http.respond(405, headers=[(b"allow", b"GET, POST")])
        except RefusedError as exc:
            await http.respond(exc.status, exc.body)


async def serve_stream(session: ClientConnection, http: GatewayRequest, first: bytes) -> None:
    """Send what a session is told until its client hangs up or does not read, or it ends."""
    outbox = ClientOutbox(start_stream(http.send), frame=event)
    outbox.put(first)
    if session.outbox is not None:
        await session.outbox.close(flush=False)
    session.outbox = outbox
    ends = (until_gone(http.receive), outbox.closed.wait(), session.ended.wait())
    waits = [asyncio.create_task(wait) for wait in ends]
    try:
        while not (await asyncio.wait(waits, timeout=PING_SECONDS, return_when="FIRST_COMPLETED"))[0]:
            outbox.put(_PING, once=True)
    finally:
        for wait in waits:
            wait.cancel()
        if session.outbox is outbox:
            session.outbox = None
            session.used = time.monotonic()
        await outbox.close(flush=False)
    await http.send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Receive) -> None:
    """Wait until a client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass


@lru_cache(maxsize=256)
def accepts(header: str, *kinds: str) -> bool:
    """Return whether a client takes all of these media types; clients send the same header each time."""
    given = {part.partition(";")[0].strip().lower() for part in header.split(",")}
    return all(not given.isdisjoint({kind, f"{kind.partition('/')[0]}/*", "*/*"}) for kind in kinds)
