"""An MCP server over HTTP on bare sockets that misbehaves in one way per path: `/html`, `/gzip-bomb`, …

Everything but `tools/call` (and what a path says otherwise) is answered as it should be, with a session. In a
test it runs in the test's own loop; as a program it prints its address and stops when its input ends.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import struct
import sys
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

SESSION = "session-1"
MODES: dict[str, Callable[[Exchange], Awaitable[bool | None]]] = {}


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body.startswith(b"{") else {}

    @property
    def rpc_method(self) -> str:
        return self.message.get("method", "")


class Exchange:
    """One request, and the ways to answer it."""

    def __init__(
        self,
        server: FaultServer,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server, self.request, self.reader, self.writer = server, request, reader, writer
        self.id = request.message.get("id")
        self.keeps = True

    @property
    def is_call(self) -> bool:
        return self.request.rpc_method == "tools/call"

    def result(self, text: str = "ok", request_id: object = None) -> bytes:
        result = {"content": [{"type": "text", "text": text}]}
        shown = self.id if request_id is None else request_id
        return json.dumps({"jsonrpc": "2.0", "id": shown, "result": result}).encode()

    def error(self, code: int, message: str, request_id: object = None) -> bytes:
        error = {"code": code, "message": message}
        return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()

    async def answer(
        self, status: int = 200, body: bytes = b"", kind: str = "application/json", **headers: str
    ) -> None:
        self.head(status, kind, **{"Content-Length": str(len(body)), **headers})
        await self.write(body)

    def head(self, status: int, kind: str, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Whatever"]
        if kind:
            lines.append(f"Content-Type: {kind}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def events(self, *events: bytes, ends: bool = True) -> None:
        """Send a stream; it ends with the connection unless it is ended as chunks."""
        self.head(200, "text/event-stream", Connection="close")
        for event in events:
            await self.write(event)
        if ends:
            self.keeps = False

    def reset(self) -> None:
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        self.keeps = False

    async def until_closed(self) -> None:
        """Wait until the client hangs up."""
        self.keeps = False
        with suppress(ConnectionError):
            await self.reader.read()
        await self.server.note(closed=self.request)


def event(data: bytes, event_id: str = "", kind: str = "", retry: int | None = None) -> bytes:
    lines = [b"data: " + data]
    if event_id:
        lines.insert(0, f"id: {event_id}".encode())
    if kind:
        lines.insert(0, f"event: {kind}".encode())
    if retry is not None:
        lines.insert(0, f"retry: {retry}".encode())
    return b"\n".join(lines) + b"\n\n"


def note(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


class FaultServer:
    """Listens on a free port of this machine."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[Request] = []
        self.closed: list[Request] = []
        """Requests whose client hung up while they waited."""
        self.connections = 0
        self.release = asyncio.Event()
        """What a slow path waits for."""
        self.elsewhere = ""
        """Where the paths that send clients away send them."""
        self.pieces = b""
        """What the path `given` answers with."""
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.streams: set[asyncio.StreamWriter] = set()
        """Open event streams of the legacy transport."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def url(self, mode: str) -> str:
        assert self._server is not None
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/{mode}"

    def hang_up(self) -> None:
        """Close every connection at once, without turning to the loop."""
        for writer in self._writers:
            writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def sent(self, method: str) -> list[Request]:
        """The requests of an HTTP method, or of a method of the protocol."""
        return [request for request in self.requests if method in (request.method, request.rpc_method)]

    async def until(self, condition: Callable[[], object]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    async def note(self, *, request: Request | None = None, closed: Request | None = None) -> None:
        if request is not None:
            self.requests.append(request)
        if closed is not None:
            self.closed.append(closed)
        async with self._changed:
            self._changed.notify_all()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._serve_one(reader, writer):
                    pass
        except asyncio.CancelledError:
            return
        finally:
            self._tasks.discard(task)
            self.streams.discard(writer)
            self._writers.discard(writer)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        start, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = start.split(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body)
        exchange = Exchange(self, request, reader, writer)
        await self.note(request=request)
        mode = MODES.get(target.strip("/").partition("?")[0])
        if mode is None or await mode(exchange) is False:
            await self.behave(exchange)
        return exchange.keeps

    async def behave(self, exchange: Exchange) -> None:
        """Answer as one should."""
        request = exchange.request
        match request.method, request.rpc_method:
            case "POST", "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "faults", "version": "1"},
                }
                body = json.dumps({"jsonrpc": "2.0", "id": exchange.id, "result": result}).encode()
                await exchange.answer(body=body, Mcp_Session_Id=SESSION)
            case "POST", "tools/list":
                result = {"tools": [{"name": "fault", "inputSchema": {"type": "object"}}]}
                body = json.dumps({"jsonrpc": "2.0", "id": exchange.id, "result": result}).encode()
                await exchange.answer(body=body)
            case "POST", "server/discover":
                await exchange.answer(body=exchange.error(-32601, "no such method", exchange.id))
            case "POST", _ if exchange.id is not None and request.rpc_method:
                await exchange.answer(body=exchange.result())
            case "POST", _:
                await exchange.answer(202, kind="")
            case "DELETE", _:
                await exchange.answer(200, kind="")
            case _:
                await exchange.answer(405, kind="", Allow="POST, DELETE")


def mode(name: str) -> Callable[[Callable[[Exchange], Awaitable[None]]], None]:
    """Name a way to answer `tools/call`; everything else is answered as it should be."""

    def register(answer: Callable[[Exchange], Awaitable[None]]) -> None:
        async def run(exchange: Exchange) -> bool:
            if not exchange.is_call:
                return False
            await answer(exchange)
            return True

        MODES[name] = run

    return register


def whole(name: str) -> Callable[[Callable[[Exchange], Awaitable[bool | None]]], None]:
    """Name a way to answer anything; `False` leaves it to the ordinary way."""

    def register(answer: Callable[[Exchange], Awaitable[bool | None]]) -> None:
        MODES[name] = answer

    return register


def fixed(name: str, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
    """Name a path that answers `tools/call` always in the same way."""

    async def run(exchange: Exchange) -> None:
        await exchange.answer(status, body, kind, **headers)

    mode(name)(run)


HTML = b"<html><title>Welcome</title><p>A page for people, not for programs.</html>"
fixed("html", 200, HTML, "text/html")
fixed("text", 200, b'{"jsonrpc": "2.0"}', "text/plain")
fixed("untyped", 200, b"hello", "")
fixed("accepted", 202, b"", "")
fixed("none", 204, b"", "")
fixed("empty", 200, b"")
fixed("bad-json", 200, b'{"jsonrpc": "2.0", "result": {,}}')
fixed("list", 200, b"[1, 2]")
fixed("401", 401, b"", "", WWW_Authenticate='Bearer resource_metadata="https://auth.example/meta"')
fixed("403", 403, b"not you", "text/plain")
fixed("404", 404, b"nothing here", "text/plain")
fixed("429", 429, b"slow down", "text/plain", Retry_After="7")
fixed("429-date", 429, b"", "", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")
fixed("500", 500, HTML, "text/html")
fixed("503", 503, b"", "", Retry_After="soon")
fixed("302", 302, b"", "", Location="/healthy")
fixed("307", 307, b"", "", Location="/healthy")
fixed("redirect-loop", 307, b"", "", Location="/redirect-loop")
fixed("redirect-nowhere", 307, b"", "", Location="http://[::bad/")
fixed("not-http-url", 308, b"", "", Location="file:///etc/passwd")


@mode("bad-utf8")
async def bad_utf8(exchange: Exchange) -> None:
    await exchange.answer(body=exchange.result("@").replace(b"@", b"\xff\xfe"))


@mode("wrong-id")
async def wrong_id(exchange: Exchange) -> None:
    await exchange.answer(body=exchange.result(request_id=990_000))


@mode("text-id")
async def text_id(exchange: Exchange) -> None:
    await exchange.answer(body=exchange.result(request_id=str(exchange.id)))


@mode("null-error")
async def null_error(exchange: Exchange) -> None:
    await exchange.answer(body=exchange.error(-32603, "it went wrong"))


@mode("400-own")
async def own_error(exchange: Exchange) -> None:
    await exchange.answer(400, exchange.error(-32602, "no such argument", exchange.id))


@mode("400-null")
async def anonymous_error(exchange: Exchange) -> None:
    await exchange.answer(400, exchange.error(-32600, "no such header"))


@mode("404-own")
async def unknown_thing(exchange: Exchange) -> None:
    await exchange.answer(404, exchange.error(-32601, "no such method", exchange.id))


@mode("400-session")
async def unknown_session(exchange: Exchange) -> None:
    await exchange.answer(400, exchange.error(-32000, "Bad Request: No valid session ID provided"))


@mode("429-error")
async def limited(exchange: Exchange) -> None:
    await exchange.answer(429, exchange.error(-32000, "too many"), Retry_After="3")


@mode("reset-head")
async def reset_head(exchange: Exchange) -> None:
    exchange.reset()


@mode("hang-up")
async def hang_up(exchange: Exchange) -> None:
    exchange.keeps = False


@mode("reset-body")
async def reset_body(exchange: Exchange) -> None:
    exchange.head(200, "application/json", Content_Length="1000")
    await exchange.write(exchange.result()[:20])
    await exchange.server.release.wait()
    exchange.reset()


@mode("truncated")
async def truncated(exchange: Exchange) -> None:
    body = exchange.result()
    exchange.head(200, "application/json", Content_Length=str(len(body) + 10))
    await exchange.write(body)
    exchange.keeps = False


@mode("half-json")
async def half_json(exchange: Exchange) -> None:
    await exchange.answer(body=exchange.result()[:40])


@mode("garbage")
async def garbage(exchange: Exchange) -> None:
    await exchange.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    exchange.keeps = False


@mode("mute")
async def mute(exchange: Exchange) -> None:
    await exchange.until_closed()


@mode("slow-head")
async def slow_head(exchange: Exchange) -> None:
    await exchange.server.release.wait()
    await exchange.answer(body=exchange.result("late"))


@mode("hanging-refusal")
async def hanging_refusal(exchange: Exchange) -> None:
    exchange.head(500, "text/plain", Content_Length="100")
    await exchange.until_closed()


@mode("gzip")
async def packed(exchange: Exchange) -> None:
    await exchange.answer(body=gzip.compress(exchange.result("packed")), Content_Encoding="gzip")


@mode("gzip-bomb")
async def bomb(exchange: Exchange) -> None:
    packer = zlib.compressobj(1, wbits=31)
    megabyte = bytes(1 << 20)
    body = b"".join([*(packer.compress(megabyte) for _ in range(128)), packer.flush()])
    await exchange.answer(body=body, Content_Encoding="gzip")


@mode("bad-gzip")
async def bad_gzip(exchange: Exchange) -> None:
    await exchange.answer(body=b"this is not packed at all", Content_Encoding="gzip")


@mode("huge")
async def huge(exchange: Exchange) -> None:
    exchange.head(200, "application/json", Content_Length=str(64 << 20))
    with suppress(ConnectionError):
        for _ in range(64):
            await exchange.write(b"x" * (1 << 20))
    exchange.keeps = False


@mode("huge-chunked")
async def huge_chunked(exchange: Exchange) -> None:
    exchange.head(200, "application/json", Transfer_Encoding="chunked")
    with suppress(ConnectionError):
        for _ in range(64):
            await exchange.write(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
    exchange.keeps = False


@mode("echo")
async def echo(exchange: Exchange) -> None:
    text = exchange.request.message["params"]["arguments"]["text"]
    await exchange.answer(body=exchange.result(text))


@mode("size")
async def size(exchange: Exchange) -> None:
    await exchange.answer(body=exchange.result(str(len(exchange.request.body))))


@mode("off-origin")
async def off_origin(exchange: Exchange) -> None:
    await exchange.answer(307, b"", "", Location=exchange.server.elsewhere)


# Streams as answers


@mode("sse")
async def sse(exchange: Exchange) -> None:
    progress = note("notifications/progress", progressToken=exchange.id, progress=1, total=2)
    await exchange.events(b": hello\n\n", event(progress), event(exchange.result("streamed")))


@mode("sse-open")
async def sse_open(exchange: Exchange) -> None:
    after = note("notifications/message", level="info", data="after the answer")
    await exchange.events(event(exchange.result("streamed")) + event(after), ends=False)
    await exchange.until_closed()


@mode("sse-chunked")
async def sse_chunked(exchange: Exchange) -> None:
    data = event(exchange.result("streamed"))
    exchange.head(200, "text/event-stream; charset=utf-8", Transfer_Encoding="chunked")
    await exchange.write(f"{len(data):x}\r\n".encode() + data + b"\r\n0\r\n\r\n")


@mode("sse-wait")
async def sse_wait(exchange: Exchange) -> None:
    await exchange.events(event(note("notifications/message", level="info", data="working")), ends=False)
    await exchange.until_closed()


@mode("sse-cut")
async def sse_cut(exchange: Exchange) -> None:
    await exchange.events(b'data: {"jsonrpc"')


@mode("sse-reset")
async def sse_reset(exchange: Exchange) -> None:
    await exchange.events(b": hello\n\n", ends=False)
    exchange.reset()


@mode("sse-wrong-id")
async def sse_wrong_id(exchange: Exchange) -> None:
    await exchange.events(event(exchange.result(request_id=990_000)))


@mode("sse-bad-json")
async def sse_bad_json(exchange: Exchange) -> None:
    await exchange.events(event(b'{"id": %d, "result": nope}' % exchange.id))


@mode("sse-too-long")
async def sse_too_long(exchange: Exchange) -> None:
    await exchange.events(event(exchange.result("x" * (2 << 20))), ends=False)
    await exchange.until_closed()


@mode("sse-endless-event")
async def sse_endless_event(exchange: Exchange) -> None:
    exchange.head(200, "text/event-stream", Connection="close")
    exchange.keeps = False
    with suppress(ConnectionError):
        while True:
            await exchange.write(b"data: " + b"x" * 65536 + b"\n")


def resumable(name: str, first: bytes, later: Callable[[Exchange, int], Awaitable[None]]) -> None:
    """Name a path whose calls break off after `first`, and are gone on with at a GET."""

    async def run(exchange: Exchange) -> bool:
        server = exchange.server
        if exchange.is_call:
            await exchange.events(first)
            return True
        if exchange.request.method == "GET" and "last-event-id" in exchange.request.headers:
            await later(
                exchange,
                len([request for request in server.sent("GET") if "last-event-id" in request.headers]),
            )
            return True
        return False

    MODES[name] = run


def last_call(exchange: Exchange) -> Any:
    return exchange.server.sent("tools/call")[-1].message["id"]


async def finish(exchange: Exchange, attempt: int) -> None:
    if attempt == 1:
        await exchange.events(b"id: e2\ndata:\n\n")
    elif attempt == 2:
        exchange.reset()
    else:
        await exchange.events(event(exchange.result("resumed", last_call(exchange)), "e3"))


async def go_on(exchange: Exchange, attempt: int) -> None:
    await exchange.events(f"id: e{attempt}\nretry: 0\ndata:\n\n".encode())


async def refuse(exchange: Exchange, _attempt: int) -> None:
    await exchange.answer(400, b"no replay here", "text/plain")


resumable("resume", b"id: e1\nretry: 0\ndata:\n\n", finish)
resumable("resume-endless", b"id: e0\nretry: 0\ndata:\n\n", go_on)
resumable("resume-day", b"id: e1\nretry: 86400000\ndata:\n\n", finish)
resumable("resume-refused", b"id: e1\nretry: 0\ndata:\n\n", refuse)


# Sessions and the GET stream


@whole("bad-session")
async def bad_session(exchange: Exchange) -> bool:
    if exchange.request.rpc_method != "initialize":
        return False
    await exchange.answer(body=exchange.result(), Mcp_Session_Id="sess\x7f\xe9")
    return True


@whole("session-lost")
async def session_lost(exchange: Exchange) -> bool:
    """Knows its session until `release` is set."""
    request = exchange.request
    if not exchange.server.release.is_set() or request.rpc_method == "initialize":
        return False
    await exchange.answer(404, exchange.error(-32001, "Session not found", "server-error"))
    return True


@whole("session-wait")
async def session_wait(exchange: Exchange) -> bool:
    """Keeps calls until `release` is set, and then knows no session."""
    if not exchange.is_call:
        return False
    await exchange.server.release.wait()
    await exchange.answer(404, b"", "")
    return True


@whole("get")
async def get(exchange: Exchange) -> bool:
    if exchange.request.method != "GET":
        return False
    hello = note("notifications/message", level="info", data="hello")
    await exchange.events(event(hello, "g1"), ends=False)
    await exchange.until_closed()
    return True


@whole("get-slow")
async def get_slow(exchange: Exchange) -> bool:
    """Opens its stream when `release` is set."""
    if exchange.request.method != "GET":
        return False
    await exchange.server.release.wait()
    await exchange.events(b": here\n\n", ends=False)
    await exchange.until_closed()
    return True


@whole("get-drops")
async def get_drops(exchange: Exchange) -> bool:
    """Drops its stream after each message."""
    if exchange.request.method != "GET":
        return False
    number = len(exchange.server.sent("GET"))
    hello = note("notifications/message", level="info", data=f"hello {number}")
    await exchange.events(event(hello, f"g{number}", retry=0))
    return True


@whole("get-gone")
async def get_gone(exchange: Exchange) -> bool:
    """Has a stream once, and then knows no session."""
    if exchange.request.method != "GET":
        return False
    if len(exchange.server.sent("GET")) == 1:
        await exchange.events(event(note("notifications/message", level="info", data="hello"), retry=0))
    else:
        await exchange.answer(404, b"", "")
    return True


@whole("mute-delete")
async def mute_delete(exchange: Exchange) -> bool:
    if exchange.request.method != "DELETE":
        return False
    await exchange.until_closed()
    return True


@whole("slow-initialized")
async def slow_initialized(exchange: Exchange) -> bool:
    if exchange.request.rpc_method != "notifications/initialized":
        return False
    await exchange.server.release.wait()
    await exchange.answer(202, kind="")
    return True


def handshake(name: str, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
    """Name a path that answers everything in the same way."""

    async def run(exchange: Exchange) -> None:
        await exchange.answer(status, body, kind)

    whole(name)(run)


handshake("all-400", 400, b"no")
handshake("all-404", 404, b"no")
handshake("all-401", 401)
handshake("all-500", 500)
handshake("all-html", 200, HTML, "text/html")


@whole("login")
async def login(exchange: Exchange) -> bool:
    """Wants a token."""
    if exchange.request.headers.get("authorization") == "Bearer right":
        return False
    await exchange.answer(401, b"", "", WWW_Authenticate="Bearer")
    return True


@whole("closing")
async def closing(exchange: Exchange) -> bool:
    """Hangs up after each answer without having said so."""
    exchange.keeps = False
    return False


# The legacy transport


def legacy(name: str, endpoint: str | None, *, before: bytes = b"", after: str = "stay") -> None:
    """Name a stream of the legacy transport, and where it sends messages."""

    async def run(exchange: Exchange) -> bool:
        if exchange.request.method != "GET":
            return False
        server = exchange.server
        sent = "" if endpoint is None else endpoint.format(elsewhere=server.elsewhere)
        await exchange.events(
            *([before + event(sent.encode(), kind="endpoint")] if sent else [b": hello\n\n"]), ends=False
        )
        if after == "end":
            exchange.keeps = False
            return True
        server.streams.add(exchange.writer)
        await exchange.until_closed()
        return True

    MODES[name] = run


legacy("legacy", "/legacy-post?sessionId=1")
legacy("deep/legacy", "legacy-post?sessionId=1")
legacy("legacy-greets", "/legacy-post?sessionId=1", before=event(b"/elsewhere", kind="greeting"))
legacy("legacy-absent", None)
legacy("legacy-ends", None, after="end")
legacy("legacy-elsewhere", "{elsewhere}")
legacy("legacy-nonsense", "http://[::bad/")
legacy("legacy-broken", "/legacy-500")
legacy("legacy-refused", "/legacy-410")
legacy("legacy-muted", "/mute-post")
handshake("legacy-500", 500, b"broken")
handshake("legacy-410", 410, b"gone")


@whole("legacy-post")
async def legacy_post(exchange: Exchange) -> bool:
    await exchange.answer(202, b"Accepted", "text/plain")
    arguments = exchange.request.message.get("params", {}).get("arguments", {})
    if exchange.is_call and "cut" in arguments:
        for stream in list(exchange.server.streams):
            stream.transport.abort()
    elif exchange.is_call and "silent" not in arguments:
        text = "x" * arguments["size"] if "size" in arguments else "legacy"
        for stream in exchange.server.streams:
            stream.write(event(exchange.result(text), kind="message"))
            await stream.drain()
    return True


MODES["deep/legacy-post"] = MODES["legacy-post"]

legacy("legacy-whole", "/legacy-whole-post")


@whole("legacy-whole-post")
async def legacy_whole_post(exchange: Exchange) -> bool:
    """Does on the stream what a server should, but leaves calls that ask for `silent` without an answer."""
    await exchange.answer(202, b"Accepted", "text/plain")
    params = exchange.request.message.get("params", {})
    results: dict[str, dict[str, Any]] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "faults", "version": "1"},
        },
        "ping": {},
        "tools/list": {"tools": [{"name": "fault", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "legacy"}]},
    }
    result = results.get(exchange.request.rpc_method)
    silent = exchange.is_call and "silent" in params.get("arguments", {})
    if exchange.id is not None and not silent:
        if result is None:
            body = exchange.error(-32601, "no such method", exchange.id)
        else:
            body = json.dumps({"jsonrpc": "2.0", "id": exchange.id, "result": result}).encode()
        for stream in exchange.server.streams:
            stream.write(event(body, kind="message"))
            await stream.drain()
    return True


@whole("mute-post")
async def mute_post(exchange: Exchange) -> bool:
    if exchange.request.method != "POST":
        return False
    await exchange.until_closed()
    return True


@whole("every-second")
async def every_second(exchange: Exchange) -> bool:
    """A load balancer with two servers, one of which is down; calls and goodbyes always arrive."""
    if exchange.is_call or exchange.request.method == "DELETE" or len(exchange.server.requests) % 2 == 0:
        return False
    await exchange.answer(503, b"no healthy upstream", "text/plain")
    return True


@whole("busy")
async def busy(exchange: Exchange) -> bool:
    """Refuse each message once, with the status in the query, and with a `Retry-After` in it if there is one."""
    status, _, seconds = exchange.request.path.partition("?")[2].partition("-")
    if len(exchange.server.sent(exchange.request.rpc_method)) > 1 or exchange.request.method != "POST":
        return False
    await exchange.answer(int(status), b"busy", "text/plain", **({"Retry_After": seconds} if seconds else {}))
    return True


@whole("legacy-busy")
async def legacy_busy(exchange: Exchange) -> bool | None:
    """Refuse the first stream of the legacy transport."""
    if len(exchange.server.sent("GET")) > 1:
        return await MODES["legacy-whole"](exchange)
    await exchange.answer(503, b"busy", "text/plain")
    return True


@whole("refusing")
async def refusing(exchange: Exchange) -> bool:
    """Refuse everything without a challenge, unless `release` is set."""
    if exchange.server.release.is_set():
        return False
    await exchange.answer(401, b"", "")
    return True


async def main() -> None:
    async with FaultServer() as server:
        print(server.url(""), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
