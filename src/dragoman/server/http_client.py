"""What both HTTP wires stand on: one client per server, its limits, and what its failures are called.

One aiohttp session per server: no shared cookies, no redirect that leaves the server's origin, proxies from
the environment, an own certificate authority or client certificate where configured. It sends what it is
given once, and never again by itself, but for a redirect or a login: both refuse a request before it runs.
"""

from __future__ import annotations

import asyncio
import io
import logging
import math
from base64 import b64encode
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from dragoman.errors import ConnectionLostError, HttpStatusError, ProtocolError, ServerError
from dragoman.server.http_answer import (
    challenge,
    content_type,
    detail,
    excerpt,
    phrase,
    read_refusal,
    retry_after,
)
from dragoman.server.http_route import endpoint, lasting_socket, proxy_for, tls_context, within_origin
from dragoman.server.rpc import INVALID_REQUEST
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dragoman.errors import DragomanError
    from dragoman.server.trail import Trail

    HeaderProvider: TypeAlias = Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]

logger = logging.getLogger("dragoman")

CONNECT_SECONDS = 30.0
MAX_REDIRECTS = 5
IDLE_SECONDS = 0.1
"""From this silence on, connections are looked at before one is used again."""
LARGE_BODY = 512 * 1024

LOGIN = frozenset({401, 403})
NO_VERDICT = LOGIN | {407, 408, 425, 429}
"""Refusals that say nothing about what the server speaks."""

_OURS = frozenset(
    {"accept", "content-type", "content-length", "transfer-encoding", "connection", "mcp-session-id"}
    | {"mcp-protocol-version", "last-event-id"}
)


class HttpRequest(NamedTuple):
    """A request as `HttpAuth` sees it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class HttpAnswer(NamedTuple):
    """A refusal as `HttpAuth` sees it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    request: HttpRequest


class HttpAuth(Protocol):
    """Whoever logs us in."""

    async def headers(self, request: HttpRequest) -> Mapping[str, str]:
        """Return what proves who we are."""
        ...

    async def on_challenge(self, answer: HttpAnswer) -> bool:
        """Take a refusal (401 or 403) in; returns whether trying once more makes sense."""
        ...


class HttpClient:
    """One server's HTTP client."""

    def __init__(
        self,
        url: str,
        *,
        name: str,
        headers: Mapping[str, str],
        trail: Trail,
        header_provider: HeaderProvider | None = None,
        auth: HttpAuth | None = None,
        tls: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            url: The server's address.
            name: The server's name, for errors.
            headers: What goes with every request; what the protocol says itself wins.
            trail: Told the last status and challenge.
            header_provider: Asked for more headers before each request.
            auth: Asked for what proves who we are.
            tls: `ca`, `cert`, `key` (paths), `password`, `verify`.

        Raises:
            ConnectError: The address or the `tls` settings cannot be used.
        """
        self.name = name
        self.trail = trail
        self.url = endpoint(url, name)
        self._headers = CIMultiDict({"User-Agent": f"dragoman/{VERSION}"})
        if self.url.user is not None:
            credentials = f"{self.url.user}:{self.url.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(credentials).decode()}"
            self.url = self.url.with_user(None)
        self._headers.update(_allowed(headers))
        self._header_provider = header_provider
        self._auth = auth
        self._proxy, self._proxy_headers = proxy_for(self.url, name)
        if self._proxy_headers is not None and self.url.scheme == "http":
            # Without a tunnel the proxy reads what the server is sent.
            self._headers.update(self._proxy_headers)
        self._loop = asyncio.get_running_loop()
        self._last_used = self._loop.time()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=tls_context(tls, name), socket_factory=lasting_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            raise_for_status=False,
        )

    async def open(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None, *, url: URL | None = None
    ) -> aiohttp.ClientResponse:
        """Send a request and return the answer once its head is there; the caller releases it.

        Raises:
            ConnectionLostError: It could not be sent at all.
            HttpStatusError: It was redirected to where it must not go.
            Exception: Whatever aiohttp raises; `failure` translates it.
        """
        url = url or self.url
        asked = False
        redirects = 0
        while True:
            merged = await self._merge(method, url, headers, body)
            now = self._loop.time()
            if now - self._last_used > IDLE_SECONDS:
                # The loop may have been busy while the server hung up: let it notice before we use that line.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            data = io.BytesIO(body) if body is not None and len(body) > LARGE_BODY else body
            response = await self._session.request(
                method,
                url,
                data=data,
                headers=merged,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
            )
            self._last_used = self._loop.time()
            status = response.status
            if status < HTTPStatus.MULTIPLE_CHOICES:
                return response
            if status in (301, 302, 303, 307, 308):
                url = self._next_url(response, url)
                redirects += 1
                if redirects > MAX_REDIRECTS:
                    raise self._no_redirect(status, "it redirects without end")
            elif status in LOGIN and self._auth is not None and not asked:
                asked = True
                request = HttpRequest(method, str(url), merged, body or b"")
                answer = HttpAnswer(status, response.headers, await read_refusal(response), request)
                if not await self._auth.on_challenge(answer):
                    return response
            else:
                return response
            response.release()

    async def close(self) -> None:
        """Close every connection; a cancellation does not stop that half-way."""
        closing = asyncio.ensure_future(self._session.close())
        await asyncio.wait({closing})

    def note(self, response: aiohttp.ClientResponse) -> None:
        """Leave the status of an answer on the trail."""
        self.trail.http_status = response.status
        self.trail.challenge = challenge(response)

    def refusal(self, response: aiohttp.ClientResponse, body: bytes, what: str) -> HttpStatusError:
        """Put an error status into words."""
        status = response.status
        said = excerpt(body) if not content_type(response).endswith("/html") else ""
        msg = f"server `{self.name}` answered {what} with HTTP {phrase(status)}{f': {said}' if said else ''}"
        return HttpStatusError(
            msg,
            server=self.name,
            status=status,
            retry_after=retry_after(response.headers.get("Retry-After", "")),
            challenge=challenge(response),
        )

    def unusable(self, response: aiohttp.ClientResponse, body: bytes, what: str, why: str) -> ProtocolError:
        """Put an answer that is none into words."""
        kind = excerpt(response.headers.get("Content-Type", "").encode()) or "no content type"
        came = f"HTTP {response.status}, {kind}, {len(body)} bytes"
        begin = f", beginning with `{excerpt(body)}`" if body else ""
        msg = f"server `{self.name}` did not answer {what}: {why} ({came}{begin})"
        return ProtocolError(msg, rpc_code=INVALID_REQUEST, server=self.name)

    def failure(self, exc: Exception, what: str) -> DragomanError:
        """Say what happened to an exchange that broke; the message names no address and no header."""
        self._last_used = -math.inf  # other connections may have ended as well: the next request looks first
        error: DragomanError
        match exc:
            case ServerError() | ProtocolError():
                return exc
            case aiohttp.ClientSSLError():
                error = self._unsent(f"cannot connect: {detail(exc)}", hint="check the certificates (`tls`)")
            case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
                error = self._unsent(f"cannot connect: {detail(exc)}", hint="check whether the server runs")
            case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
                error = self._unsent(f"{what} cannot be sent: the address is not usable")
            case aiohttp.ClientHttpProxyError():
                error = self._unsent(f"the proxy refused the connection (HTTP {exc.status})")
            case aiohttp.ClientPayloadError():
                error = self._lost(f"the answer to {what} was cut short")
            case aiohttp.ServerDisconnectedError() | ConnectionError():
                error = self._lost(f"the connection was closed under {what}")
            case aiohttp.ClientResponseError():
                error = self._lost(f"what came back for {what} is no HTTP")
            case aiohttp.ClientError() | OSError():
                error = self._lost(f"{what} failed: {detail(exc)}")
            case ValueError():
                error = self._unsent(f"{what} cannot be sent: a header has characters that none may have")
            case _:
                logger.error("%s: %s failed in an unexpected way", self.name, what, exc_info=exc)
                error = self._lost(f"{what} failed: {type(exc).__name__}")
        error.__cause__ = exc
        return error

    async def _merge(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> CIMultiDict[str]:
        merged = self._headers.copy()
        if self._header_provider is not None:
            try:
                given = self._header_provider()
                merged.update(_allowed(await given if isawaitable(given) else given))
            except Exception as exc:
                # The application's own code: whatever it raises ends this request only.
                msg = f"`header_provider` failed ({type(exc).__name__})"
                raise ConnectionLostError(msg, server=self.name, may_have_run=False) from exc
        merged.update(headers)
        if self._auth is not None:
            merged.update(await self._auth.headers(HttpRequest(method, str(url), merged, body or b"")))
        return merged

    def _next_url(self, response: aiohttp.ClientResponse, url: URL) -> URL:
        status, keeps = response.status, (307, 308)
        found = url
        try:
            found = url.join(URL(response.headers.get("Location", ""), encoded=True)).with_fragment(None)
            shown = f"{found.scheme}://{found.host}:{found.port}"
            allowed = within_origin(url, found) and found.user is None
        except ValueError:
            shown, allowed = "an unusable address", False
        if allowed and (status in keeps or response.method == "GET"):
            return found
        response.release()
        why = (
            f"it redirects to {excerpt(shown.encode())}"
            if not allowed
            else "it redirects to another kind of request"
        )
        raise self._no_redirect(status, why)

    def _no_redirect(self, status: int, why: str) -> HttpStatusError:
        self.trail.http_status = status
        msg = f"server `{self.name}` is not followed: {why} (HTTP {status})"
        hint = "if that is right, write the new address into the configuration"
        return HttpStatusError(msg, server=self.name, status=status, hint=hint)

    def _unsent(self, why: str, hint: str = "") -> ConnectionLostError:
        return ConnectionLostError(
            f"server `{self.name}`: {why}", server=self.name, may_have_run=False, hint=hint
        )

    def _lost(self, why: str) -> ConnectionLostError:
        return ConnectionLostError(f"server `{self.name}`: {why}", server=self.name, may_have_run=True)


def _allowed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OURS}
