"""The older HTTP transport, SSE: one stream to the client, and a POST for each of its messages.

`GET /sse` opens the stream, whose first event names the address for the messages; `GET /sse/SERVER` shows one
server. Some hosts know no other transport. A connection is used only by the principal who opened it.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from dragoman.gateway.http import (
    RefusedError,
    event,
    is_change,
    keep_stream,
    read_body,
    respond,
    start_stream,
)
from dragoman.gateway.outbox import Outbox
from dragoman.server.protocol.envelope import MCPError, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope, Send

    from dragoman.gateway.connection import Connection
    from dragoman.gateway.gateway import Gateway

MAX_OPEN = 1_000
"""How many connections one principal may have."""


class SseEndpoint:
    """The connections of one gateway."""

    def __init__(self, gateway: Gateway, *, max_body_bytes: int) -> None:
        self._gateway = gateway
        self._max_body_bytes = max_body_bytes
        self._open: dict[str, Connection] = {}
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End all connections."""
        self._ended.set()

    async def handle(
        self,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
        *,
        principal: str,
        path: str,
        server: str | None,
    ) -> None:
        """Answer one HTTP request.

        Args:
            scope: The request.
            headers: Its headers, by their names in lower case.
            receive: Gives its body.
            send: Takes the response.
            principal: Who makes it.
            path: The address of the endpoint, for the first event.
            server: The only server to show; a message goes to the connection that its address names.
        """
        try:
            if scope["method"] == "GET":
                await self._stream(receive, send, principal=principal, path=path, server=server)
            elif scope["method"] == "POST":
                await self._take(scope, headers, receive, send, principal)
            else:
                await respond(send, 405, b"", [(b"allow", b"GET, POST")])
        except RefusedError as exc:
            await respond(send, exc.status, exc.body)

    async def _stream(
        self, receive: Receive, send: Send, *, principal: str, path: str, server: str | None
    ) -> None:
        if sum(one.peer.principal == principal for one in self._open.values()) >= MAX_OPEN:
            raise RefusedError(503, "Too many open connections")
        outbox = Outbox(start_stream(send))

        def put(message: Mapping[str, Any]) -> None:
            outbox.put(event(message), once=is_change(message))

        connection = self._gateway.connect(put, server=server, principal=principal)
        key = secrets.token_urlsafe(24)
        self._open[key] = connection
        outbox.put(b"event: endpoint\r\ndata: %b/messages?session=%b\r\n\r\n" % (path.encode(), key.encode()))
        try:
            await keep_stream(outbox, receive, self._ended)
        finally:
            self._open.pop(key, None)
            await connection.close()
            await outbox.close(flush=False)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _take(
        self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send, principal: str
    ) -> None:
        key = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("session", [""])[0]
        connection = self._open.get(key)
        if connection is None or connection.peer.principal != principal:
            raise RefusedError(404, "Session not found")
        body = await read_body(headers, receive, self._max_body_bytes)
        if body is None:
            return
        try:
            message = decode(body)
        except MCPError as exc:
            raise RefusedError(400, exc.message, code=exc.code) from exc
        connection.take(message)
        await respond(send, 202, b"")
