"""A real forward proxy on a free port of this machine: tunnels (CONNECT) and requests in absolute form.

Names lead where the test says, so that no name has to be resolved. As real proxies do, it keeps for itself what is
meant for it (`Proxy-…`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


class Passed(NamedTuple):
    """A request as the proxy got it."""

    method: str
    target: str
    headers: dict[str, str]


class ForwardProxy:
    """`async with ForwardProxy({"law.example:443": port}) as proxy` runs it."""

    def __init__(self, ports: Mapping[str, int], *, password: str = "") -> None:
        self._ports = ports
        self._wanted = password
        """What `Proxy-Authorization` has to be."""
        self.passed: list[Passed] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, user: str = "") -> str:
        return f"http://{f'{user}@' if user else ''}127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve_one(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, headers = await _head(reader)
        method, target, _ = first.split(" ")
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.passed.append(Passed(method, target, headers))
        if headers.get("proxy-authorization", "") != self._wanted:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return True
        parts = urlsplit(target)
        place = target if method == "CONNECT" else f"{parts.hostname}:{parts.port or 80}"
        if place not in self._ports:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return True
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._ports[place])
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
                return False
            kept = {name: value for name, value in headers.items() if not name.startswith("proxy-")}
            far_writer.write(_written(f"{method} {parts.path or '/'} HTTP/1.1", kept) + body)
            first, headers = await _head(far_reader)
            writer.write(_written(first, headers))
            if "content-length" not in headers:
                await _pump(far_reader, writer)
                return False
            writer.write(await far_reader.readexactly(int(headers["content-length"])))
            return True
        finally:
            far_writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, {name.lower(): value.strip() for name, _, value in pairs}


def _written(first: str, headers: Mapping[str, str]) -> bytes:
    return "\r\n".join([first, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
