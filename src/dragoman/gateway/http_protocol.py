"""Uvicorn's HTTP protocol, with the head and the body of a response in one write.

Uvicorn writes them one after the other, and each write is a system call, which is a good part of what a small
answer costs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = b"HTTP/1."


class JoinedWrites:
    """A transport that keeps the head of a response until the next write, or one turn of the event loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write data, after the head that is kept."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD):
            self._head = data
            # The body of a stream may be long in coming.
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        """Write all parts."""
        self.write(b"".join(parts))

    def close(self) -> None:
        """Close the connection after what was written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            data, self._head = self._head, b""
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class JoiningProtocol(HttpToolsProtocol):
    """The protocol of one connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Write through `JoinedWrites`."""
        super().connection_made(cast("asyncio.Transport", JoinedWrites(transport)))
