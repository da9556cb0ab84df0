"""HTTP below the application: head and body in one write, and limits for clients that do not behave."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from tests.unit.gateway.test_app import TOKEN, VERSION, notes, running

from dragoman.gateway import http_protocol
from dragoman.gateway.http_protocol import Connections, JoinedWrites, LimitedProtocol
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.gateway.app import GatewayApp

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Recorder:
    """A transport that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.done


def joined() -> tuple[Any, Recorder]:
    recorder = Recorder()
    transport: Any = recorder
    return JoinedWrites(transport), recorder


async def test_head_and_body_are_one_write() -> None:
    transport, recorder = joined()
    for _ in range(2):
        transport.write(HEAD)
        transport.write(b"body")
    transport.write(b"more")
    await asyncio.sleep(0)
    assert recorder.done == [HEAD + b"body", HEAD + b"body", b"more"]


async def test_a_head_does_not_wait_for_a_body() -> None:
    transport, recorder = joined()
    transport.write(HEAD)
    assert recorder.done == []
    await asyncio.sleep(0)
    assert recorder.done == [HEAD]
    transport.write(b"body")
    assert recorder.done == [HEAD, b"body"]


async def test_a_head_is_written_before_the_end() -> None:
    transport, recorder = joined()
    transport.write(HEAD)
    transport.close()
    assert recorder.done == [HEAD, "closed"]
    assert transport.is_closing()


# Limits: a real listener, and clients that do not behave

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "mcp_notes_add",
        "arguments": {"text": "milk"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
BODY = json.dumps(CALL).encode()
HEADERS = (
    b"Host: 127.0.0.1\r\nAuthorization: Bearer %b\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: %b\r\n"
    b"Mcp-Method: tools/call\r\nMcp-Name: mcp_notes_add\r\n" % (TOKEN.encode(), VERSION.encode())
)


@dataclass
class Listener:
    port: int
    server: ScriptedServer
    cut_off: asyncio.Event
    """Set when a connection has ended."""
    app: GatewayApp

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def answer(self, data: bytes, *, end: bool = False) -> bytes:
        """Send something, and return all that comes back until the gateway closes the connection."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if end:
                writer.write_eof()
            return await reader.read()
        except ConnectionError:
            return b"reset"
        finally:
            writer.close()

    async def call(self) -> int:
        """Make a proper call, and return its status."""
        head = b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n"
        answer = await self.answer(head % (HEADERS, len(BODY)) + BODY)
        return int(answer.split()[1])


@asynccontextmanager
async def listening(most: int = 100, **how: Any) -> AsyncGenerator[Listener]:
    scripted = how.pop("server", None) or notes()
    cut_off = asyncio.Event()

    class Protocol(LimitedProtocol):
        limits = Connections(most)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            cut_off.set()

    async with running(scripted, **how) as (app, _):
        config = uvicorn.Config(app, http=Protocol, lifespan="off", log_config=None, ws="none", port=0)
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        try:
            port = server.servers[0].sockets[0].getsockname()[1]
            async with asyncio.timeout(30):
                yield Listener(port, scripted, cut_off, app)
        finally:
            await server.shutdown()


async def test_a_proper_call_is_answered() -> None:
    async with listening() as listener:
        assert await listener.call() == 200
    assert len(listener.server.calls) == 1


@pytest.mark.parametrize(
    "head",
    [
        b"X-Long: " + b"a" * 200_000,
        b"\r\n".join(b"X-%d: %b" % (number, b"a" * 500) for number in range(400)),
        b"a" * 200_000,
    ],
)
async def test_a_head_of_more_than_64_kb_is_refused(head: bytes) -> None:
    async with listening() as listener:
        answer = await listener.answer(b"POST /mcp HTTP/1.1\r\n%b%b\r\n\r\n" % (HEADERS, head))
        assert answer == b"reset" or answer.split()[1] in (b"431", b"400")
        answer = await listener.answer(b"POST /%b HTTP/1.1\r\n" % (b"a" * 200_000))
        assert answer == b"reset" or answer.split()[1] in (b"431", b"400")
        assert await listener.call() == 200
    assert len(listener.server.calls) == 1


async def test_trailers_are_not_kept() -> None:
    async with listening() as listener:
        head = b"POST /mcp HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" % HEADERS
        chunk = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
        trailers = b"".join(b"X-%d: %b\r\n" % (number, b"a" * 100) for number in range(1000))
        answer = await listener.answer(head + chunk + trailers + b"\r\n")
        assert b'"added milk 0"' in answer


@pytest.mark.parametrize("start", [b"0\r\nX", b"1;x=", b"0\r\nX: "])
async def test_what_is_not_part_of_a_body_is_bounded(start: bytes) -> None:
    async with listening() as listener:
        # Without a token: the parser would keep all of it.
        head = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        reader, writer = await listener.connect()
        writer.write(head + start + b"a" * 1_000_000)
        with suppress(ConnectionError):
            while await reader.read(65_536):
                pass
        writer.close()
        assert await listener.call() == 200


async def test_many_headers_are_refused() -> None:
    async with listening() as listener:
        answer = await listener.answer(b"POST /mcp HTTP/1.1\r\n%b%b\r\n" % (HEADERS, b"X:\r\n" * 300))
        assert answer == b"reset" or answer.split()[1] == b"431"


async def test_a_request_to_upgrade_is_refused_without_a_word_of_the_body() -> None:
    async with listening() as listener:
        upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
        head = b"POST /mcp HTTP/1.1\r\n%b%bContent-Length: %d\r\n\r\n" % (HEADERS, upgrade, len(BODY))
        reader, writer = await listener.connect()
        writer.write(head + BODY)
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    assert not listener.server.calls


async def test_a_client_that_hangs_up_is_noticed_behind_a_request_that_waits_for_its_turn() -> None:
    listen = {**CALL, "method": "subscriptions/listen"}
    listen["params"] = {"notifications": {"toolsListChanged": True}, "_meta": CALL["params"]["_meta"]}
    body = json.dumps(listen).encode()
    headers = HEADERS.replace(b"tools/call", b"subscriptions/listen").replace(
        b"Mcp-Name: mcp_notes_add\r\n", b""
    )
    async with listening() as listener:
        reader, writer = await listener.connect()
        writer.write(b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (headers, len(body)) + body)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"acknowledged")
        writer.close()
        while listener.app.gateway.observer.in_progress:  # noqa: ASYNC110 -- the listener has no event for it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTT", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
async def test_a_client_that_does_not_say_what_it_wants_is_not_waited_for(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(http_protocol, "SWEEP_SECONDS", 0.01)
    async with listening() as listener:
        assert (await listener.answer(sent)).split()[1] == b"408"


async def test_a_body_that_does_not_come_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(http_protocol, "SWEEP_SECONDS", 0.01)
    async with listening() as listener:
        head = b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HEADERS, len(BODY) + 10)
        assert await listener.answer(head + BODY) in (b"", b"reset")
        assert await listener.answer(head + BODY, end=True) in (b"", b"reset")
        assert await listener.call() == 200
    assert len(listener.server.calls) == 1


async def test_silent_connections_make_room_for_others() -> None:
    async with listening(most=20) as listener:
        silent = [await listener.connect() for _ in range(60)]
        try:
            assert await listener.call() == 200
        finally:
            for _, writer in silent:
                writer.close()


async def test_a_connection_with_a_request_in_progress_is_not_ended_for_another() -> None:
    go_on, started, server = asyncio.Event(), asyncio.Semaphore(0), ScriptedServer("notes")

    @server.tool
    async def add(text: str) -> str:
        """Add."""
        started.release()
        await go_on.wait()
        return f"added {text} 0"

    async with listening(most=12, server=server) as listener:
        calls = [asyncio.create_task(listener.call()) for _ in range(9)]
        for _ in calls:
            await started.acquire()
        silent = [await listener.connect() for _ in range(30)]
        # One address may not take everything.
        assert await listener.call() == 503
        go_on.set()
        assert await asyncio.gather(*calls) == [200] * 9
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("more", [b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch, more: bytes) -> None:
    monkeypatch.setattr(http_protocol, "STALL_SECONDS", 0.05)
    monkeypatch.setattr(http_protocol, "SWEEP_SECONDS", 0.01)
    server, called = ScriptedServer("notes"), asyncio.Event()

    @server.tool
    async def add(text: str) -> str:
        """Add."""
        called.set()
        return text * 2_000_000

    async with listening(server=server) as listener:
        reader, writer = await listener.connect()
        writer.write(b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HEADERS, len(BODY)) + BODY)
        await called.wait()
        writer.write(more)
        # More than fits into the buffers of the system, and then the end.
        await listener.cut_off.wait()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(8_000_000)
        writer.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Host: [", b"400"),
        (b"Host: 127.0.0.1]:", b"400"),
        (b"Host: a@127.0.0.1", b"400"),
        (b"Host: 127.0.0.1/x", b"400"),
        (b"Host: 127.0.0.1\r\nOrigin: http://[", b"400"),
        (b"Host: 127.0.0.1\r\nHost: evil.example", b"400"),
        (b"Host: evil.example", b"421"),
    ],
)
async def test_an_address_that_is_none_is_refused(headers: bytes, status: bytes) -> None:
    async with listening() as listener:
        answer = await listener.answer(b"GET /healthz HTTP/1.1\r\n%b\r\nConnection: close\r\n\r\n" % headers)
        assert answer.split()[1] == status


async def test_streams_and_requests_that_are_left_end_in_order(caplog: pytest.LogCaptureFixture) -> None:
    server, begun = ScriptedServer("notes"), asyncio.Event()

    @server.tool
    async def add(text: str) -> str:
        """Add."""
        begun.set()
        await asyncio.Event().wait()
        return text

    async with listening(server=server, sse=True) as listener:
        stream = b"GET /sse HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n\r\n" % TOKEN.encode()
        reader, writer = await listener.connect()
        writer.write(stream)
        await reader.readuntil(b"event: endpoint")
        head = b"POST /mcp HTTP/1.1\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n"
        call = asyncio.create_task(listener.answer(head % (HEADERS, len(BODY)) + BODY))
        await begun.wait()
        await listener.app.drain(0)
        assert b"-32800" in await call
        await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
