"""Endpoints: the HTTP addresses of one gateway, `/mcp` for all servers and `/mcp/SERVER` for one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from dragoman.errors import UnknownServerError
from dragoman.gateway.direct import DirectCalls

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from dragoman.gateway.gateway import Gateway

logger = logging.getLogger("dragoman")


class Endpoint:
    """The SDK's HTTP entry for one view, run by a task of its own."""

    def __init__(self, gateway: Gateway, server: str | None, *, stateless: bool, max_body_bytes: int) -> None:
        self.view = gateway.view(server)
        self._manager = StreamableHTTPSessionManager(
            self.view.server, stateless=stateless, max_request_body_size=max_body_bytes
        )
        self._app = AuthContextMiddleware(self._handle)
        self._direct = DirectCalls(self.view, stateless=stateless, max_body_bytes=max_body_bytes)
        self._ready = asyncio.Event()
        self._leave = asyncio.Event()
        # The SDK's contexts must be left by the task that entered them, and requests come in many.
        self._owner = asyncio.create_task(self._own(), name=f"dragoman gateway {server or 'all'}")

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._ready.wait()
        await self._app(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        again = await self._direct.handle(scope, receive, send)
        if again is not None:
            await self._manager.handle_request(scope, again, send)

    async def close(self) -> None:
        """End all sessions."""
        self._leave.set()
        await asyncio.wait({self._owner})

    async def _own(self) -> None:
        try:
            async with self._manager.run():
                self._ready.set()
                await self._leave.wait()
        except Exception:
            logger.exception("an endpoint of the gateway failed")
        finally:
            self._ready.set()


class Endpoints:
    """All endpoints of one gateway; each is made when it is first used."""

    def __init__(self, gateway: Gateway, *, stateless: bool, max_body_bytes: int) -> None:
        self.gateway = gateway
        self._stateless = stateless
        self._max_body_bytes = max_body_bytes
        self._open: dict[str | None, Endpoint] = {}

    def get(self, server: str | None) -> Endpoint | None:
        """Return the endpoint of a server, or of all; `None` if no server has this name."""
        try:
            view = self.gateway.view(server)
        except UnknownServerError:
            return None
        endpoint = self._open.get(server)
        if endpoint is None or endpoint.view is not view:
            endpoint = self._open[server] = Endpoint(
                self.gateway, server, stateless=self._stateless, max_body_bytes=self._max_body_bytes
            )
        return endpoint

    async def close(self) -> None:
        """End the gateway with all its streams and sessions; its manager goes on."""
        await self.gateway.close()
        for endpoint in list(self._open.values()):
            await endpoint.close()
        self._open.clear()
