"""Logins over the SDK's own HTTP transports: the same authorizer, put as its HTTP library wants it.

A request gets its token, and a refusal is answered as on our wires. While a connection is being opened a
login that is needed ends that, with the address. On an open connection it costs the one request: an error
raised in there would end all of the others, since the SDK's transports share one group of tasks.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import httpx2

from dragoman.errors import AuthRequiredError, ConnectionLostError
from dragoman.server.http_client import LOGIN, MAX_CHALLENGES, HttpAnswer, HttpRequest
from dragoman.server.http_route import endpoint, proxy_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from dragoman.server.http_client import HttpAuth
    from dragoman.server.trail import Trail

logger = logging.getLogger("dragoman")


class SdkLogin(httpx2.Auth):
    """What the SDK's client asks before each request, and after a refusal."""

    def __init__(
        self,
        auth: HttpAuth,
        *,
        name: str,
        trail: Trail,
        prepare: Callable[[httpx2.Request], Awaitable[None]],
    ) -> None:
        """Log in for one connection.

        Args:
            auth: The authorizer.
            name: The server's name, for logs.
            trail: Says whether the connection is still being opened.
            prepare: Adds the application's own headers, which count before ours.
        """
        self._auth = auth
        self._name = name
        self._trail = trail
        self._prepare = prepare

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with what proves who we are, and again where that makes sense."""
        await self._prepare(request)
        unsigned = request.headers.copy()
        for _ in range(MAX_CHALLENGES + 1):
            request.headers = unsigned.copy()
            await self._sign(request)
            response = yield request
            if response.status_code not in LOGIN or not await self._take_in(response, request):
                return

    async def _sign(self, request: httpx2.Request) -> None:
        asked = HttpRequest(request.method, str(request.url), request.headers, b"")
        try:
            request.headers.update(await self._auth.headers(asked))
        except (AuthRequiredError, ConnectionLostError) as exc:
            self._pass_over(exc)

    async def _take_in(self, response: httpx2.Response, request: httpx2.Request) -> bool:
        asked = HttpRequest(request.method, str(request.url), request.headers, b"")
        headers = dict(response.headers)
        refusal = HttpAnswer(response.status_code, headers, b"", asked, self._peer(response, request))
        try:
            return await self._auth.on_challenge(refusal)
        except (AuthRequiredError, ConnectionLostError) as exc:
            self._pass_over(exc)
            return False

    def _pass_over(self, error: AuthRequiredError | ConnectionLostError) -> None:
        """Let the server's refusal stand for an error, unless the connection is still being opened."""
        if self._trail.stage != "listing":
            raise error
        logger.warning("%s: %s", self._name, error.message)

    def _peer(self, response: httpx2.Response, request: httpx2.Request) -> str:
        """Return the address that answered; nothing where a proxy stands between."""
        proxy, _ = proxy_for(endpoint(str(request.url), self._name), self._name)
        stream = response.extensions.get("network_stream")
        found = stream.get_extra_info("server_addr") if stream is not None and proxy is None else None
        return str(found[0]) if found else ""
