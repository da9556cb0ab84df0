from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest
from multidict import CIMultiDict
from yarl import URL

from dragoman.server.transports.http_exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


async def request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    size = next(line for line in head.splitlines() if line.lower().startswith("content-length:"))
    return head, await reader.readexactly(int(size.partition(":")[2]))


@asynccontextmanager
async def exchange(answer: Answer) -> AsyncIterator[tuple[Exchange, URL]]:
    """Serve with a function, and give an exchange with that server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp?a=b%20c")
    connector = aiohttp.TCPConnector()
    async with server, aiohttp.ClientSession(connector=connector) as session:
        yield Exchange(session, connector, url), url


def headers(one: Exchange, **more: str) -> CIMultiDict[str]:
    return CIMultiDict({**one.added_headers, **more})


async def test_requests_share_a_connection_and_carry_the_headers_of_aiohttp() -> None:
    heads: list[str] = []
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError):
            while True:
                head, body = await request(reader)
                heads.append(head)
                assert body == b"hello"
                writer.write(OK)

    async with exchange(answer) as (one, url):
        for _ in range(2):
            response = await one.post(url, headers(one, Accept="*/*"), b"hello")
            assert response.status == 200
            assert response.content_length == 2
            assert await response.content.readany() == b"{}"
            response.release()
            assert response.connection is None
        assert connections == 1
        async with aiohttp.ClientSession() as session:
            await session.post(url, data=b"hello", headers={"Accept": "*/*"})
    ours, _, theirs = (sorted(head.lower().split("\r\n")) for head in heads)
    # aiohttp adds the name of its own and a content type; our caller sets both.
    assert [line for line in theirs if not line.startswith(("user-agent:", "content-type:"))] == ours


async def test_interim_response_is_not_the_answer() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK)
        await writer.drain()

    async with exchange(answer) as (one, url):
        response = await one.post(url, headers(one), b"")
        assert response.status == 200
        response.release()


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "a\rb", "a\0b"])
async def test_header_with_a_line_break_is_never_sent(value: str) -> None:
    async def answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        pytest.fail(f"the server got {await reader.read()!r}")

    async with exchange(answer) as (one, url):
        with pytest.raises(ValueError, match="line break"):
            await one.post(url, headers(one, **{"X-Given": value}), b"")


@pytest.mark.parametrize("said", [b"", b"this is not HTTP\r\n\r\n"])
async def test_connection_that_breaks_is_an_error_of_aiohttp_and_is_not_kept(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(said)

    async with exchange(answer) as (one, url):
        wanted = aiohttp.ClientResponseError if said else aiohttp.ServerDisconnectedError
        for _ in range(2):
            with pytest.raises(wanted):
                await one.post(url, headers(one), b"")


async def test_cancelled_request_closes_its_connection() -> None:
    came, closed = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await request(reader)
        came.set()
        assert await reader.read() == b""
        closed.set()

    async with exchange(answer) as (one, url):
        waiting = asyncio.ensure_future(one.post(url, headers(one), b""))
        await came.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await closed.wait()
