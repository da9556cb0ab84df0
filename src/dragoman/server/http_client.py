"""What both HTTP wires stand on: one client per server, its limits, and what its failures are called.

One aiohttp session per server: no shared cookies, no redirect that leaves the server's origin, proxies from
the environment, an own certificate authority or client certificate where configured. It sends what it is
given once, and never again by itself, but for a redirect or a login: both refuse a request before it runs.
"""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import math
import re
from base64 import b64encode
from contextlib import suppress
from contextvars import Context
from http import HTTPStatus
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Self

import aiohttp
from multidict import CIMultiDict

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
from dragoman.server.http_options import HttpAnswer, HttpRequest
from dragoman.server.http_route import (
    check_exposed,
    endpoint,
    headers_for_proxy,
    is_exposed,
    lasting_socket,
    proxy_for,
    reference,
    same_origin,
    tls_context,
)
from dragoman.server.rpc import INVALID_REQUEST
from dragoman.server.wire import caller_headers
from dragoman.trust.addresses import is_loopback
from dragoman.version import VERSION

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Mapping

    from yarl import URL

    from dragoman.errors import DragomanError
    from dragoman.model import HeaderProvider, Http, Sse
    from dragoman.server.http_options import HttpAuth, HttpOptions
    from dragoman.server.trail import Trail

logger = logging.getLogger("dragoman")

CONNECT_SECONDS = 30.0
MAX_REDIRECTS = 5
MAX_CHALLENGES = 3
"""A login, a nonce and more rights may be wanted for one request; whoever logs us in says when to stop."""
IDLE_SECONDS = 0.1
"""From this silence on, connections are looked at before one is used again."""
LARGE_BODY = 512 * 1024

LOGIN = frozenset({401, 403})
NO_VERDICT = LOGIN | {407, 408, 425, 429}
"""Refusals that say nothing about what the server speaks."""

PROBE = "server/discover"
"""The question for a server's era, of which an older one has never heard."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
    {"accept", "content-type", "content-length", "transfer-encoding", "connection", "mcp-session-id"}
    | {"mcp-protocol-version", "last-event-id", "proxy-authorization"}
)
"""Headers that only the wire sets; the last one is never a server's to see."""


class HttpClient:
    """One server's HTTP client."""

    def __init__(
        self,
        server: Http | Sse,
        *,
        name: str,
        trail: Trail,
        options: HttpOptions,
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            server: Where it is; its headers go with every request, but what the protocol says itself wins.
            name: The server's name, for errors.
            trail: Told the last status and challenge.
            options: Whom to ask for more headers.
            tls: The certificates; `connect` makes them of the server's settings.

        Raises:
            ConnectError: The address cannot be used.
        """
        self.name = name
        self.trail = trail
        self.url = endpoint(server.url, name)
        self._headers = CIMultiDict({"User-Agent": f"dragoman/{VERSION}"})
        if self.url.user is not None:
            credentials = f"{self.url.user}:{self.url.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(credentials).decode()}"
            self.url = self.url.with_user(None)
        self._headers.update(_allowed(server.headers))
        self._guards = is_exposed(self.url) and not server.allow_http
        """Whether each request is checked for credentials that others could read on the way."""
        if self._guards:
            check_exposed(self.url, self._headers, name)
        self._header_provider = options.header_provider
        self._auth: HttpAuth | None = options.auth
        self._proxy, self._proxy_headers = proxy_for(self.url, name)
        # A name for this machine must not lead to another one, whatever resolves it.
        self._stays_here = self._proxy is None and is_loopback(self.url.raw_host or "")
        self._attempted: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._last_used = self._loop.time()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=self._make_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            raise_for_status=False,
        )

    @classmethod
    async def connect(cls, server: Http | Sse, *, name: str, trail: Trail, options: HttpOptions) -> Self:
        """Prepare a client for a server; nothing is sent yet, but its certificates are read.

        Raises:
            ConnectError: The address or the `tls` settings cannot be used.
        """
        tls = True if server.tls is None else await asyncio.to_thread(tls_context, server.tls, name)
        if server.tls is not None and not server.tls.verify:
            logger.warning("%s: its certificate is not checked (`tls.verify` is off)", name)
        if any(key.lower() == "proxy-authorization" for key in server.headers):
            why = "write the password into the address of the proxy (`http://user:password@host:port`)"
            logger.warning("%s: its header `Proxy-Authorization` is not sent: %s", name, why)
        return cls(server, name=name, trail=trail, options=options, tls=tls)

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
        challenges = redirects = 0
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
                headers=merged
                if self._proxy is None
                else {**merged, **headers_for_proxy(url, self._proxy_headers)},
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
            elif status in LOGIN and self._auth is not None and challenges < MAX_CHALLENGES:
                challenges += 1
                if not await self._auth.on_challenge(await self._answer(method, url, merged, body, response)):
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
        if (given := await application_headers(self.name, self._header_provider)) is not None:
            merged.update(_allowed(given))
        merged.update(headers)
        if self._guards:
            check_exposed(url, merged, self.name)
        if self._auth is not None:
            merged.update(await self._auth.headers(HttpRequest(method, str(url), merged, body or b"")))
        return merged

    async def _answer(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        response: aiohttp.ClientResponse,
    ) -> HttpAnswer:
        """Put a refusal as whoever logs us in wants it."""
        transport = response.connection.transport if response.connection is not None else None
        name = transport.get_extra_info("peername") if transport is not None else None
        # An answer without a body has given its connection back: it is sure only if nobody else was tried.
        attempted = {str(name[0])} if name else self._attempted
        peer = next(iter(attempted)) if len(attempted) == 1 and self._proxy is None else ""
        request = HttpRequest(method, str(url), headers, body or b"")
        return HttpAnswer(response.status, response.headers, await read_refusal(response), request, peer)

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        if self._stays_here and not is_loopback(str(address[4][0])):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the name leads away from this machine")
        self._attempted.add(str(address[4][0]))
        return lasting_socket(address)

    def _next_url(self, response: aiohttp.ClientResponse, url: URL) -> URL:
        status, keeps = response.status, (307, 308)
        found, location = url, response.headers.get("Location", "")
        shown, allowed = "an unusable address", False
        if location:  # nowhere would be here again
            with suppress(ValueError):
                found = reference(url, location)
                shown = f"{found.scheme}://{found.host}:{found.port}"
                allowed = same_origin(url, found) and found.user is None
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


def is_older_server(method: str, status: int) -> bool:
    """Tell whether a status may be how an older server meets the question for its era; some break at it."""
    return method == PROBE and status not in NO_VERDICT and status <= HTTPStatus.NOT_IMPLEMENTED


async def application_headers(name: str, provider: HeaderProvider | None) -> dict[str, str] | None:
    """Return the headers that the application wants with the request that is being made, if there are any.

    Args:
        name: The server's name.
        provider: Asked in the context of whoever calls; what no call is the reason for never sees one.

    Raises:
        ServerError: The provider failed, or a header cannot be sent; its value is not told.
    """
    own = caller_headers()
    if provider is None:
        return _checked(own, name) if own else None
    try:
        given = provider(name) if own is not None else Context().run(provider, name)
        if isawaitable(given):
            waited = _awaited(given)
            given = await (waited if own is not None else asyncio.create_task(waited, context=Context()))
    except Exception as exc:
        # The application's own code: whatever it raises ends this request only.
        msg = f"`header_provider` failed for server `{name}` ({type(exc).__name__})"
        hint = (
            "" if own is not None else "it is asked for handshakes and probes too, where there is no caller"
        )
        raise ServerError(msg, server=name, hint=hint) from exc
    return _checked({**given, **(own or {})}, name)


async def _awaited(given: Awaitable[Mapping[str, str]]) -> Mapping[str, str]:
    return await given


def _checked(headers: Mapping[str, Any], server: str) -> dict[str, str]:
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not isinstance(value, str) or _CONTROL.search(value):
            shown = excerpt(name.encode("utf-8", "replace"))
            msg = f"the header `{shown}` cannot be sent to server `{server}`"
            hint = "names have letters, digits and dashes; values are texts without line breaks"
            raise ServerError(msg, server=server, hint=hint)
    return dict(headers)


def _allowed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OURS}
