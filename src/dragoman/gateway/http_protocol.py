"""Uvicorn's HTTP protocol with limits, and with the head and the body of a response in one write.

What a client sends before its token can be checked is bounded: in size, in time and in number. A connection
that is idle, or has not said what it wants, makes room for a new one; a connection with a request in progress
does not. Uvicorn writes head and body one after the other, and each write is a system call, which is a good
part of what a small answer costs.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers; also what comes between parts of a body, such as trailers."""
MAX_HEADERS = 256
HEAD_SECONDS = 15.0
"""How long a client may take to send the head of a request, the first one included."""
BODY_SECONDS = 60.0
"""How long it may take to send the body."""
STALL_SECONDS = 60.0
"""How long a client may read nothing while something waits for it."""
MAX_CONNECTIONS = 4_096
RESERVED_DESCRIPTORS = 64
"""Kept for servers and files when connections are counted against the limit of the process."""
PER_ADDRESS_SHARE = 0.75
"""How much of all connections one address may have."""
SWEEP_SECONDS = 1.0
"""How often connections are looked at."""
_HEAD = b"HTTP/1."
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


def most_connections() -> int:
    """Return how many connections this process can have beside what it needs itself."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(16, min(MAX_CONNECTIONS, soft - RESERVED_DESCRIPTORS - soft // 4))


class Connections:
    """All connections of one listener."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most_connections() if most is None else most
        self._open: dict[LimitedProtocol, str] = {}
        """With the address of each; the one that was idle for longest comes first."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, protocol: LimitedProtocol, address: str) -> bool:
        """Count a connection; return whether there is room, made by ending an idle one if need be."""
        own = [one for one, place in self._open.items() if place == address]
        if len(own) >= max(8, int(self._most * PER_ADDRESS_SHARE)) and not self._end_idle(own):
            return False
        if len(self._open) >= self._most and not self._end_idle(self._open):
            return False
        self._open[protocol] = address
        self._plan()
        return True

    def used(self, protocol: LimitedProtocol) -> None:
        """Note that a connection has just been in use."""
        if (address := self._open.pop(protocol, None)) is not None:
            self._open[protocol] = address

    def remove(self, protocol: LimitedProtocol) -> None:
        """Count a connection no longer."""
        self._open.pop(protocol, None)

    def _plan(self) -> None:
        # One timer for all: two for each request would cost as much as parsing it.
        if self._timer is None and self._open:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for protocol in [one for one in self._open if one.deadline < now]:
            protocol.expire()
        self._plan()

    def _end_idle(self, among: Iterable[LimitedProtocol]) -> bool:
        idle = next((one for one in among if one.is_idle), None)
        if idle is None:
            return False
        self.remove(idle)
        idle.abort()
        return True


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


class LimitedProtocol(HttpToolsProtocol):
    """The protocol of one connection."""

    limits: Connections
    """All connections of the listener; a subclass for each listener sets it."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, and begin to wait for its first request."""
        self._raw = transport
        self._reading = "head"
        """`head`, `body`, or empty between two requests."""
        self._head_bytes = 0
        self._had_body = False
        self._running: Any = None
        """The request in progress; `cycle` is the last one that came, which may wait for its turn."""
        self._send_by = self._read_by = math.inf
        """When the client must have sent or read what is waited for, on the clock of the event loop."""
        self._is_over = False
        super().connection_made(cast("asyncio.Transport", JoinedWrites(transport)))
        if self.limits.add(self, self.client[0] if self.client else ""):
            self._wait(HEAD_SECONDS)
        else:
            self._end(_BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self._is_over = True
        self.limits.remove(self)
        if (running := self._running) is not None and not running.response_complete:
            # Uvicorn tells only the last request that came.
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    @property
    def deadline(self) -> float:
        """When the client has taken too long."""
        return min(self._send_by, self._read_by)

    @property
    def is_idle(self) -> bool:
        """Whether no request of the connection is in progress."""
        cycle = cast("Any", self.cycle)
        return (cycle is None or cycle.response_complete) and not self.pipeline

    def abort(self) -> None:
        """End the connection at once."""
        self._is_over = True
        self._raw.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and count what is not part of a body."""
        for start in range(0, len(data), MAX_HEAD_BYTES):
            if self._is_over:
                return
            part = data[start : start + MAX_HEAD_BYTES]
            self._had_body = False
            super().data_received(part)
            if self._had_body or not self._reading:
                self._head_bytes = 0
            else:
                # Of a head, a trailer or the extension of a chunk: the parser keeps what is not complete.
                self._head_bytes += len(part)
                if self._head_bytes > MAX_HEAD_BYTES:
                    self._end(_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Begin to wait for the head of a request."""
        self._reading, self._head_bytes = "head", 0
        self._wait(HEAD_SECONDS)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; what comes after the head is a trailer, which nothing reads."""
        if self._reading == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to wait for the body."""
        self._reading = "body"
        size = sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._end(_TOO_LARGE)
            return
        self._wait(BODY_SECONDS)
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._had_body = True
        if not self._is_over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing while the request is in progress."""
        self._reading = ""
        self._wait(math.inf)
        if not self._is_over:
            self.limits.used(self)
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note that the connection was in use; uvicorn closes one that stays idle."""
        self.limits.used(self)
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Give a client that does not read some time."""
        super().pause_writing()
        self._read_by = self.loop.time() + STALL_SECONDS

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        super().resume_writing()
        self._read_by = math.inf

    def expire(self) -> None:
        """End the connection: the client has taken too long."""
        self._end(_TIMED_OUT)

    def _wait(self, seconds: float) -> None:
        self._send_by = self.loop.time() + seconds

    def _end(self, answer: bytes) -> None:
        """Answer, if that can still be done, and close the connection."""
        if self._is_over:
            return
        self._is_over = True
        if self.is_idle and not self._raw.get_write_buffer_size():
            self._raw.write(answer)
            self._raw.close()
        else:
            self._raw.abort()
