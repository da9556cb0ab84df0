"""The legacy HTTP+SSE transport: one event stream from the server, and POSTs to it.

The stream names the address for the POSTs, and carries every response. A POST that fails ends only its call;
the end of the stream ends the connection.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp

from dragoman.errors import ConnectError, ConnectionLostError, ProtocolError
from dragoman.server.attempt import ConnectionEnd
from dragoman.server.protocol.context import no_call_context
from dragoman.server.protocol.wire import PLAIN
from dragoman.server.transports.http import Outbox
from dragoman.server.transports.http_client import (
    REPEATABLE,
    HttpClient,
    is_older_server,
    reference,
    same_origin,
)
from dragoman.server.transports.http_response import (
    EVENTS,
    JSON,
    SLACK_BYTES,
    EventStream,
    excerpt,
    give_way,
    is_type,
    pieces,
    read_refusal,
    receive_event,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from yarl import URL

    from dragoman.model import Sse
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.protocol.rpc import Rpc
    from dragoman.server.protocol.wire import HttpOptions, SendInfo, Wire
    from dragoman.server.transports.http_exchange import Response

INITIALIZED_SECONDS = 5.0
"""How long requests wait until the server has accepted `notifications/initialized`."""
ENDPOINT_BYTES = 8192
METHOD_NOT_FOUND = -32601

_GET_HEADERS = {"Accept": EVENTS, "Cache-Control": "no-store"}
_POST_HEADERS = {"Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}


@asynccontextmanager
async def open_sse(
    sse: Sse,
    *,
    name: str,
    attempt: ConnectAttempt,
    rpc: Rpc,
    on_end: Callable[[ConnectionEnd], None],
    options: HttpOptions = PLAIN,
) -> AsyncGenerator[Wire]:
    """Open the event stream and wait for the address to post to; the caller sets the time limit.

    Args:
        sse: The server's address and headers, expanded.
        name: The server's name, for errors and logs.
        attempt: Records the last status and challenge.
        rpc: The JSON-RPC layer.
        on_end: Called once if the connection ends by itself.
        options: The size limit of a message, and the sources of headers.

    Raises:
        ConnectError: The stream names no address, or one that must not be used.
        HttpStatusError: The server refused the stream.
        ConnectionLostError: The server cannot be reached.
    """
    attempt.enter("connect")
    no_call_context()
    client = await HttpClient.connect(sse, name=name, attempt=attempt, options=options)
    wire = LegacySse(rpc, client, limit=options.limit, on_end=on_end)
    try:
        await wire.open()
        yield wire
    finally:
        await wire.close()


class LegacySse:
    """One connection: an event stream and POSTs."""

    def __init__(
        self, rpc: Rpc, client: HttpClient, *, limit: int, on_end: Callable[[ConnectionEnd], None]
    ) -> None:
        self._rpc = rpc
        self._client = client
        self._limit = limit
        self._on_end: Callable[[ConnectionEnd], None] | None = on_end
        self._outbox = Outbox(rpc, name=client.name, explain=client.failure)
        self._endpoint: asyncio.Future[URL] = asyncio.get_running_loop().create_future()
        self._spoken = asyncio.Event()
        """Set when we send the first message."""

    async def open(self) -> None:
        """Open the stream, and wait for the address to post to."""
        try:
            response = await self._client.open("GET", _GET_HEADERS, safe=True)
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise self._client.failure(exc, "the stream") from exc
        try:
            self._client.note(response)
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise self._client.refusal(response, await read_refusal(response), "the stream")
            if not is_type(response, EVENTS):
                body = await read_refusal(response)
                raise self._client.unusable(response, body, "the stream", "the response is not an SSE stream")
        except BaseException:
            response.release()
            raise
        self._outbox.start(self._read(response))
        await asyncio.wait({self._endpoint})
        self._endpoint.result()

    def send(self, message: bytes, envelope: SendInfo) -> None:
        """Start the POST of a message."""
        method, request_id, _ = envelope
        self._spoken.set()
        if self._outbox.closed or self._on_end is None:
            if request_id is not None:
                msg = f"the connection to server `{self._client.name}` is closed"
                error = ConnectionLostError(msg, server=self._client.name, may_have_run=False)
                self._rpc.fail(request_id, error)
            return
        post = partial(self._post, message, method)
        if request_id is not None:
            self._outbox.post(request_id, method, post)
        elif method == "notifications/initialized":
            self._outbox.hold(INITIALIZED_SECONDS)
            self._outbox.notify(partial(self._begin, message, method))
        else:
            context, loop = copy_context(), asyncio.get_running_loop()
            # Keep this caller's context: the sending task may belong to another caller.
            put = self._outbox.notify if method else self._outbox.answer
            put(lambda: loop.create_task(post(), context=context))

    def abandon(
        self,
        message: bytes,  # noqa: ARG002 -- part of the `Wire` protocol
        envelope: SendInfo,
        reason: str,
        *,
        tell: bool = True,
    ) -> bool:
        """Withdraw a request that was not sent yet, or send the server a cancellation."""
        request_id = envelope.request_id
        post = self._outbox.take(request_id) if request_id is not None else None
        if post is not None:
            post.cancel()
            if not post.sent:
                return True
        if tell and request_id is not None and not self._outbox.closed and self._on_end is not None:
            params = {"requestId": request_id, "reason": reason}
            notice = self._rpc.notification("notifications/cancelled", params)
            self._outbox.goodbye(self._post(notice, "notifications/cancelled"))
        return False

    async def close(self) -> None:
        """End everything in progress, within time limits."""
        try:
            await self._outbox.close()
        finally:
            await self._client.close()
            if not self._endpoint.cancel() and not self._endpoint.cancelled():
                # Reading the exception keeps asyncio from logging it as never retrieved.
                self._endpoint.exception()

    async def _post(self, message: bytes, method: str) -> None:
        url = self._endpoint.result()
        response = await self._client.open("POST", _POST_HEADERS, message, url=url, safe=method in REPEATABLE)
        try:
            self._client.note(response)
            body = await read_refusal(response)
        finally:
            response.release()
        if response.status >= HTTPStatus.BAD_REQUEST:
            refusal = self._client.refusal(response, body, f"`{method}`")
            if is_older_server(method, response.status):
                raise ProtocolError(refusal.message, rpc_code=METHOD_NOT_FOUND, server=self._client.name)
            raise refusal

    async def _begin(self, message: bytes, method: str) -> None:
        try:
            await self._post(message, method)
        finally:
            self._outbox.release()

    async def _read(self, response: Response) -> None:
        stream = EventStream(self._limit)
        reason = "the event stream ended"
        try:
            while chunk := await response.content.readany():
                for piece in pieces(chunk):
                    for event in stream.feed(piece):
                        if self._endpoint.done():
                            receive_event(self._rpc, event, self._limit)
                        elif event.kind == b"endpoint":
                            self._endpoint.set_result(self._address(response.url, event.data))
                            # Requests of the server can be answered only after our first message.
                            await self._spoken.wait()
                    await give_way(piece)
                if stream.pending > self._limit + SLACK_BYTES:
                    reason = f"an event is larger than `max_message_bytes` ({self._limit})"
                    break
        except (aiohttp.ClientError, OSError):
            reason = "the event stream was interrupted"
        except ConnectError as exc:
            self._endpoint.set_exception(exc)
            reason = exc.message
        finally:
            response.release()
            self._end(reason)

    def _address(self, url: URL, data: bytes) -> URL:
        """Return the address to post to.

        Raises:
            ConnectError: It is not an address, or belongs to another server.
        """
        why = f"an address that cannot be used ({excerpt(data)})"
        if len(data) <= ENDPOINT_BYTES:
            with suppress(ValueError):
                found = reference(url, data.decode().strip())
                if same_origin(url, found) and found.user is None:
                    return found
                shown = excerpt(f"{found.scheme}://{found.host}:{found.port}".encode())
                why = f"an address of another server ({shown})"
        msg = f"server `{self._client.name}` wants its messages posted to {why}"
        raise ConnectError(msg, server=self._client.name, stage="connect")

    def _end(self, reason: str) -> None:
        if not self._endpoint.done():
            msg = f"server `{self._client.name}` did not say where to post messages: {reason}"
            hint = "the server may use Streamable HTTP"
            self._endpoint.set_exception(
                ConnectError(msg, server=self._client.name, stage="connect", hint=hint)
            )
        on_end, self._on_end = self._on_end, None
        if on_end is not None and not self._outbox.closed:
            on_end(ConnectionEnd(reason=reason))
