"""Reading what an HTTP server sends back: bodies and streams within limits, refusals in words."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast

import aiohttp
from pydantic_core import from_json

from dragoman.errors import ProtocolError
from dragoman.server.rpc import INVALID_REQUEST, SALVAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.server.event_stream import EventStream, StreamEvent
    from dragoman.server.rpc import RequestId, Rpc

JSON = "application/json"
EVENTS = "text/event-stream"
REFUSAL_BYTES = 64 * 1024
"""How much of a refusal is read for what it says."""
REFUSAL_SECONDS = 2.0
SLACK_BYTES = 256 * 1024
"""What may come in beyond the limit before an event that does not end is given up."""
TURN_BYTES = 16 * 1024
"""How much of a stream is taken in before others have their turn: it may be thousands of small events."""
LINGER_SECONDS = 1.0
"""How long a stream may stay open after the answer, for its connection to be used again."""

MAX_CHALLENGE = 4096
"""How much of a challenge is kept for errors."""
DATE_CHARS = 64
"""No date is longer."""

_DAY = 86_400.0


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a body, unpacked, up to a limit; a bomb is not unpacked beyond it.

    Raises:
        ProtocolError: It is larger.
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
        msg = f"the answer has {max(size, announced)} bytes or more, the limit `max_message_bytes` is {limit}"
        raise ProtocolError(msg, rpc_code=INVALID_REQUEST)
    return b"".join(chunks)


async def read_refusal(response: aiohttp.ClientResponse) -> bytes:
    """Read what a refusal says, as far as it comes in time and is not too much."""
    chunks: list[bytes] = []
    size = 0
    with suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with asyncio.timeout(REFUSAL_SECONDS):
            while size < REFUSAL_BYTES and (chunk := await response.content.readany()):
                chunks.append(chunk)
                size += len(chunk)
    return b"".join(chunks)[:REFUSAL_BYTES]


async def read_events(
    response: aiohttp.ClientResponse, stream: EventStream, rpc: Rpc, request_id: RequestId | None
) -> Literal["answer", "something", "nothing"]:
    """Read a stream to its end, or to the answer; returns what came.

    Raises:
        ProtocolError: An event does not end within the limit.
        Exception: The stream broke; aiohttp says how.
    """
    came: Literal["something", "nothing"] = "nothing"
    while chunk := await response.content.readany():
        answered = False
        for piece in pieces(chunk):
            for event in stream.feed(piece):
                if event.data:
                    came = "something"
                    ended = hear(rpc, event, stream.limit)
                    answered = answered or (ended is not None and str(ended) == str(request_id))
            await give_way(piece)
        if answered:
            await _linger(response, stream, rpc)
            return "answer"
        if (size := stream.pending) > stream.limit + SLACK_BYTES:
            msg = f"an event has {size} bytes or more, the limit `max_message_bytes` is {stream.limit}"
            raise ProtocolError(msg, rpc_code=INVALID_REQUEST)
    return came


def pieces(chunk: bytes) -> Iterator[bytes]:
    """Cut what has come of a stream into pieces that are soon taken in; `give_way` after each."""
    return (chunk[start : start + TURN_BYTES] for start in range(0, len(chunk), TURN_BYTES))


async def give_way(piece: bytes) -> None:
    """Let others have their turn if more is there already: of a packed stream, a thousand times as much."""
    if len(piece) == TURN_BYTES:
        await asyncio.sleep(0)


async def _linger(response: aiohttp.ClientResponse, stream: EventStream, rpc: Rpc) -> None:
    """Read what comes after the answer, if the stream ends soon: its connection is used again then."""
    if response.content.at_eof():
        return
    with suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(LINGER_SECONDS):
            while chunk := await response.content.readany():
                for piece in pieces(chunk):
                    for event in stream.feed(piece):
                        hear(rpc, event, stream.limit)
                    await give_way(piece)


def hear(rpc: Rpc, event: StreamEvent, limit: int) -> RequestId | None:
    """Pass an event of a stream on; returns the id of the call that it ended, if it ended one."""
    if event.kind != b"message" or not event.data:
        return None
    if not event.too_long:
        return rpc.receive(event.data)
    rpc.received += 1
    reason = f"the message has {event.too_long} bytes, the limit `max_message_bytes` is {limit}"
    return rpc.salvage(event.data[:SALVAGE_BYTES], event.data[-SALVAGE_BYTES:], reason)


def rpc_error(body: bytes) -> dict[str, Any] | None:
    """Read a body as a JSON-RPC error, if it is one."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    if type(message) is not dict:
        return None
    found = cast("dict[str, Any]", message)
    return found if type(found.get("error")) is dict else None


def is_type(response: aiohttp.ClientResponse, wanted: str) -> bool:
    """Tell whether an answer has a content type."""
    return content_type(response) == wanted


def excerpt(data: bytes, length: int = 120) -> str:
    """Return the beginning of something foreign, as one harmless line."""
    text = data[: 4 * length].decode("utf-8", "replace")
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(clean.replace("`", "'").split())[:length]


def content_type(response: aiohttp.ClientResponse) -> str:
    """Return the content type, bare."""
    return response.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def challenge(response: aiohttp.ClientResponse) -> str:
    """Return what a refusal says about logging in."""
    if response.status < HTTPStatus.BAD_REQUEST:
        return ""
    return ", ".join(response.headers.getall("WWW-Authenticate", ()))[:MAX_CHALLENGE]


def phrase(status: int) -> str:
    """Put a status into words; never the server's own."""
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def retry_after(value: str) -> float | None:
    """Read how many seconds to wait, given as such or as a date."""
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
    """Describe a failure of the network without the address it concerns."""
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
