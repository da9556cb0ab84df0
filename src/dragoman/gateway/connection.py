"""Connection: one client over a channel that carries messages both ways, such as stdio or a local socket.

The client's first request decides which protocol it speaks: a handshake, or requests that each say it. Each
request runs in a task of its own, so that a slow one holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from dragoman.gateway.request import Peer, Request
from dragoman.server.protocol.envelope import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MODERN_PROTOCOL_VERSIONS,
    UNSUPPORTED_PROTOCOL_VERSION,
    MCPError,
    check_notification,
    declared,
    error_of,
    has_envelope,
    is_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.gateway.view import View

logger = logging.getLogger("dragoman")

END_SECONDS = 5.0
INITIALIZE = "initialize"
CANCELLED = "notifications/cancelled"


class Connection:
    """One client."""

    def __init__(
        self, view: View, put: Callable[[Mapping[str, Any]], None], *, principal: str = "", key: str = ""
    ) -> None:
        """Serve a client.

        Args:
            view: What it is shown.
            put: Sends a message to the client, without waiting.
            principal: Who it is, where that has been checked.
            key: The id of the session, if the transport has sessions.
        """
        self._view = view
        self._put = put
        self.peer = Peer(view.only, principal=principal, put=put, key=key)
        self._is_modern: bool | None = None
        """Which protocol the client speaks; `None` before its first request."""

    @property
    def is_busy(self) -> bool:
        """Whether a request has no answer yet."""
        return bool(self.peer.running)

    def take(self, message: object) -> None:
        """Take a message of the client; an answer goes out by `put`."""
        if not is_message(message):
            number = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
            known = number if type(number) in (int, str) else None
            self._refuse(known, MCPError(code=INVALID_REQUEST, message="not a JSON-RPC message"))
            return
        given = cast("dict[str, Any]", message)
        if "method" not in given:
            self.peer.take_answer(given)
        elif "id" in given:
            try:
                self._begin(given)
            except MCPError as exc:
                self._refuse(given["id"], exc)
        elif given["method"] == CANCELLED:
            self.peer.cancel(given.get("params"))
        elif check_notification(given["method"], self.peer.version, given.get("params")):
            self._view.take_notification(given["method"], self.peer)

    async def finish(self, seconds: float) -> None:
        """Wait until no request is in progress, but not longer than this; streams of announcements end."""
        self._view.announcer.close()
        if tasks := cast("list[asyncio.Task[None]]", list(self.peer.running.values())):
            await asyncio.wait(tasks, timeout=seconds)

    async def close(self) -> None:
        """End the connection; requests in progress are cancelled."""
        self.peer.close()
        await self.finish(END_SECONDS)
        await self._view.announcer.remove(self.peer)

    def _begin(self, message: dict[str, Any]) -> None:
        number = message["id"]
        self.peer.admit(number)
        request = self._checked(message)
        task = asyncio.create_task(self._answer(request), name=f"dragoman {request.method}")
        self.peer.running[number] = task

    def _checked(self, message: dict[str, Any]) -> Request:
        """Return a request by the rules of the protocol that the client speaks.

        Raises:
            MCPError: It breaks them.
        """
        method, params = message["method"], message.get("params")
        if self._is_modern is None:
            self._is_modern = method != INITIALIZE and has_envelope(params)
        peer = self.peer
        if self._is_modern:
            if method == INITIALIZE:
                msg = "this connection speaks the 2026-07-28 protocol, which has no handshake"
                data = {"supported": list(MODERN_PROTOCOL_VERSIONS)}
                raise MCPError(code=UNSUPPORTED_PROTOCOL_VERSION, message=msg, data=data)
            version, capabilities = declared(message, None)
            return Request(
                message, version=version, capabilities=capabilities, put=self._put, principal=peer.principal
            )
        if method == INITIALIZE:
            self._view.greet(peer, params)
        elif has_envelope(params):
            msg = "this connection began with a handshake: requests of the 2026-07-28 protocol are refused"
            raise MCPError(code=INVALID_REQUEST, message=msg)
        elif not peer.version and method != "ping" and self._view.knows(method):
            raise MCPError(code=INVALID_PARAMS, message="Invalid request parameters", data="initialize first")
        return Request(
            message,
            version=peer.version or "2025-11-25",
            capabilities=peer.capabilities,
            put=self._put,
            principal=peer.principal,
            peer=peer,
        )

    async def _answer(self, request: Request) -> None:
        try:
            outcome = await self._view.respond(request, client=self.peer)
        finally:
            self.peer.running.pop(request.id, None)
        self._put({"id": request.id, **outcome})

    def _refuse(self, number: int | str | None, exc: MCPError) -> None:
        self._put({"id": number, "error": error_of(exc)})
