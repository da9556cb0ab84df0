"""Reads HTTP responses within limits: bodies, event streams, refusals."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import aiohttp
from pydantic_core import from_json

from dragoman.errors import ProtocolError
from dragoman.server.protocol.rpc import INVALID_REQUEST, SALVAGE_BYTES, TOO_LARGE, Bounded
from dragoman.server.protocol.wire import MAX_MESSAGE_BYTES
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.server.protocol.rpc import RequestId, Rpc
    from dragoman.server.transports.http_exchange import Response

JSON = "application/json"
EVENTS = "text/event-stream"
REFUSAL_BYTES = 64 * 1024
"""How much of a refusal's body is read, for the error message."""
REFUSAL_SECONDS = 2.0
SLACK_BYTES = 256 * 1024
"""How far an unfinished event may exceed the limit before the stream is closed."""
PIECE_BYTES = 16 * 1024
"""How much of a stream is parsed before yielding to the event loop: it may be thousands of small events."""
LINGER_SECONDS = 1.0
"""How long to wait for the end of a stream after the response, so that its connection can be reused."""

MAX_CHALLENGE = 4096
"""How much of a challenge is kept, for errors."""
DATE_CHARS = 64
"""The longest date that is parsed."""

_DAY = 86_400.0


async def read_body(response: Response, limit: int) -> bytes:
    """Read a body up to a limit; a compressed one is not decompressed beyond it.

    Raises:
        ProtocolError: The body is larger.
    """
    content = response.content
    chunk = await content.readany()
    if len(chunk) <= limit and content.at_eof():
        return chunk
    size = len(chunk)
    chunks = [chunk]
    announced = response.content_length or 0
    while size <= limit and announced <= limit and (chunk := await content.readany()):
        chunks.append(chunk)
        size += len(chunk)
    if size > limit or announced > limit:
        msg = f"the response has {max(size, announced)} bytes or more, {TOO_LARGE} {limit}"
        raise ProtocolError(msg, rpc_code=INVALID_REQUEST)
    return b"".join(chunks)


async def read_refusal(response: Response) -> bytes:
    """Read the body of a refusal, within limits of size and time."""
    chunks: list[bytes] = []
    size = 0
    with suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with asyncio.timeout(REFUSAL_SECONDS):
            while size < REFUSAL_BYTES and (chunk := await response.content.readany()):
                chunks.append(chunk)
                size += len(chunk)
    return b"".join(chunks)[:REFUSAL_BYTES]


async def read_events(
    response: Response, stream: EventStream, rpc: Rpc, request_id: RequestId | None
) -> Literal["answer", "something", "nothing"]:
    """Read a stream until its end or until the response; return what it contained.

    Raises:
        ProtocolError: An event does not end within the limit.
        Exception: The stream was interrupted (an error of aiohttp).
    """
    came: Literal["something", "nothing"] = "nothing"
    while chunk := await response.content.readany():
        answered = False
        for piece in pieces(chunk):
            for event in stream.feed(piece):
                if event.data:
                    came = "something"
                    ended = receive_event(rpc, event, stream.limit)
                    answered = answered or (ended is not None and str(ended) == str(request_id))
            await give_way(piece)
        if answered:
            await _linger(response, stream, rpc)
            return "answer"
        if (size := stream.pending) > stream.limit + SLACK_BYTES:
            msg = f"an event has {size} bytes or more, {TOO_LARGE} {stream.limit}"
            raise ProtocolError(msg, rpc_code=INVALID_REQUEST)
    return came


def pieces(chunk: bytes) -> Iterator[bytes]:
    """Split a chunk into pieces; call `give_way` after parsing each."""
    return (chunk[start : start + PIECE_BYTES] for start in range(0, len(chunk), PIECE_BYTES))


async def give_way(piece: bytes) -> None:
    """Yield to the event loop after a full piece; compressed streams can expand 1000×."""
    if len(piece) == PIECE_BYTES:
        await asyncio.sleep(0)


async def _linger(response: Response, stream: EventStream, rpc: Rpc) -> None:
    """Read the rest after the response, if the stream ends soon, so that its connection can be reused."""
    if response.content.at_eof():
        return
    with suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(LINGER_SECONDS):
            while chunk := await response.content.readany():
                for piece in pieces(chunk):
                    for event in stream.feed(piece):
                        receive_event(rpc, event, stream.limit)
                    await give_way(piece)


def receive_event(rpc: Rpc, event: StreamEvent, limit: int) -> RequestId | None:
    """Pass an event to the JSON-RPC layer; return the id of the call that it completed, if any."""
    if event.kind != b"message" or not event.data:
        return None
    if not event.too_long:
        return rpc.receive(event.data)
    rpc.received += 1
    reason = f"the message has {event.too_long} bytes, {TOO_LARGE} {limit}"
    return rpc.salvage(event.data[:SALVAGE_BYTES], event.data[-SALVAGE_BYTES:], reason)


def rpc_error(body: bytes) -> dict[str, Any] | None:
    """Parse a body as a JSON-RPC error; return `None` if it is anything else."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    if type(message) is not dict:
        return None
    found = cast("dict[str, Any]", message)
    return found if type(found.get("error")) is dict else None


def is_type(response: Response, wanted: str) -> bool:
    """Return whether a response has this content type."""
    return content_type(response) == wanted


def excerpt(data: bytes, length: int = 120) -> str:
    """Return the beginning of untrusted data as one printable line."""
    text = data[: 4 * length].decode("utf-8", "replace")
    return " ".join(for_model(text).replace("`", "'").split())[:length]


def content_type(response: Response) -> str:
    """Return the content type without parameters."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def challenge(response: Response) -> str:
    """Return the `WWW-Authenticate` headers of a refusal."""
    if response.status < HTTPStatus.BAD_REQUEST:
        return ""
    return ", ".join(response.headers.getall("WWW-Authenticate", ()))[:MAX_CHALLENGE]


def phrase(status: int) -> str:
    """Return a status with its standard phrase, never with the server's."""
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def retry_after(value: str) -> float | None:
    """Parse `Retry-After`, which is a number of seconds or a date; return seconds."""
    value = value[:DATE_CHARS].strip()
    if value.isascii() and value.isdecimal():
        return min(float(value[:12]), _DAY)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return min(max((moment - datetime.now(UTC)).total_seconds(), 0.0), _DAY)


def detail(exc: Exception) -> str:
    """Describe a network error without the address."""
    inner = getattr(exc, "os_error", None) or getattr(exc, "certificate_error", None) or exc
    match inner:
        case TimeoutError():
            return "no connection in time"
        case ssl.SSLCertVerificationError():
            reason = inner.verify_message
        case ssl.SSLError():
            reason = inner.reason or "TLS failed"
        case socket.gaierror():
            reason = inner.strerror
        case OSError() if inner.errno:
            reason = os.strerror(inner.errno)
        case _:
            reason = type(inner).__name__
    return excerpt(str(reason).encode())


def network_reason(exc: Exception, address: str) -> tuple[str, str]:
    """Return `reason` and `subject` of a `ConnectError` for a network error.

    Args:
        exc: The error of aiohttp.
        address: Host and port of the server.
    """
    inner = getattr(exc, "os_error", None) or getattr(exc, "certificate_error", None) or exc
    match inner:
        case socket.gaierror():
            return "dns", address.rpartition(":")[0]
        case _ if isinstance(exc, aiohttp.ClientHttpProxyError | aiohttp.ClientProxyConnectionError):
            return "proxy", ""
        case ssl.SSLCertVerificationError():
            return "tls", inner.verify_message
        case ssl.SSLError():
            return "plain", address
        case ConnectionRefusedError():
            return "refused", address
        case TimeoutError() | OSError():
            return "unreachable", address
        case _:
            return "", ""


_BOM = b"\xef\xbb\xbf"
_MAX_ID = 4096
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class StreamEvent(NamedTuple):
    """One event of a stream."""

    kind: bytes
    data: bytes
    id: str | None
    """The event's own id, if it has one."""
    too_long: int = 0
    """Its size if it exceeds the limit; then `data` has only both ends."""


class EventStream:
    """Splits a stream of bytes into events; keeps the last `retry` and `id` for reconnecting."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self.limit = limit
        self.retry_ms: int | None = None
        self.last_id: str | None = None
        # A line has a field name besides a value of full size.
        self._line = Bounded(limit + SALVAGE_BYTES, ends=SALVAGE_BYTES)
        self._data = Bounded(limit + 1, ends=SALVAGE_BYTES)
        self._lost = 0
        """How many bytes of the event's data were dropped from lines that were too long."""
        self._kind = b""
        self._id: str | None = None
        self._first: bytes | None = b""
        """The first bytes, until it is clear whether they are a byte-order mark; then `None`."""
        self._after_cr = False

    @property
    def pending(self) -> int:
        """How many bytes the unfinished event has so far, without finished comments."""
        return self._line.size + self._data.size + self._lost

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """Yield the events that a chunk completes."""
        if self._first is not None:
            chunk = self._first + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._first = chunk
                return
            self._first = None
            chunk = chunk.removeprefix(_BOM)
        if not chunk:
            return
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
        self._after_cr = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            if not line.endswith((b"\n", b"\r")):
                self._line.add(line)
                continue
            whole = self._whole(line.rstrip(b"\r\n"))
            if whole:
                self._field(whole)
            elif (event := self._dispatch()) is not None:
                yield event

    def _whole(self, end: bytes) -> bytes:
        line = self._line
        if not line.size:
            return end
        line.add(end)
        if line.is_whole:
            return line.take()
        head, tail = line.ends
        if head.startswith(b"data"):
            self._lost += line.size - len(head) - len(tail)
        line.take()
        return head + tail

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            # Lines of data are joined by line feeds; the last one is removed again.
            self._data.add(value + b"\n")
        elif name == b"event":
            self._kind = value
        elif name == b"id" and len(value) <= _MAX_ID and not _CONTROL.search(value):
            # It is sent back in the header `Last-Event-ID`, so it must be valid there.
            self._id = self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_ms = int(value[:12])

    def _dispatch(self) -> StreamEvent | None:
        data, kind, event_id, lost = self._data, self._kind, self._id, self._lost
        self._kind, self._id, self._lost = b"", None, 0
        if not data.size and event_id is None:
            return None
        size, ends = max(0, data.size - 1) + lost, data.ends
        is_whole = data.is_whole and not lost
        whole = data.take()[:-1]
        if is_whole:
            return StreamEvent(kind or b"message", whole, event_id)
        return StreamEvent(kind or b"message", ends[0] + ends[1][:-1], event_id, size)
