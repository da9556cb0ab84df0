"""The HTTP client of both HTTP transports: one for each server, with its limits and its errors.

Each server has its own aiohttp session: no shared cookies, no redirects to another origin, proxies from the
environment, and the configured CA or client certificate. A request is sent once. It is repeated after a
redirect or a login: in both cases the server refused it before it ran. A request that is safe to repeat is
also repeated while the server, or a proxy in front of it, is busy.
"""

from __future__ import annotations

import asyncio
import errno
import io
import logging
import math
import re
import socket
import ssl
from base64 import b64encode
from contextlib import suppress
from contextvars import Context
from http import HTTPStatus
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from dragoman.errors import ConnectError, ConnectionLostError, HttpStatusError, ProtocolError, ServerError
from dragoman.server.protocol.context import caller_headers
from dragoman.server.protocol.rpc import INVALID_REQUEST
from dragoman.server.transports.http_exchange import Exchange, MovedError
from dragoman.server.transports.http_response import (
    challenge,
    content_type,
    detail,
    excerpt,
    network_reason,
    phrase,
    read_refusal,
    retry_after,
)
from dragoman.trust.addresses import is_loopback, split_url
from dragoman.trust.masking import is_sensitive_name, mask_text
from dragoman.trust.redaction import is_secret
from dragoman.version import VERSION
from dragoman.visible import is_visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from dragoman.errors import DragomanError
    from dragoman.model import HeaderProvider, Http, Sse, Tls
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.protocol.wire import HttpOptions
    from dragoman.server.transports.http_exchange import Response


_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_PLAIN_HEADERS = frozenset(
    "accept accept-charset accept-encoding accept-language cache-control connection content-encoding "
    "content-length content-type date dnt host if-none-match last-event-id mcp-method mcp-name "
    "mcp-protocol-version mcp-session-id origin pragma te traceparent tracestate user-agent "
    "x-correlation-id x-request-id".split()
)
"""Headers that hold no credential, unless their value looks like one."""


def endpoint(url: str, name: str) -> URL:
    """Parse a server's address.

    Raises:
        ConnectError: It is not an HTTP address.
    """
    try:
        # A plain address is sent exactly as written; others must be encoded.
        found = URL(url, encoded=url.isascii() and url.isprintable() and " " not in url)
        is_http = found.scheme in ("http", "https") and found.host and found.port is not None
        if is_http and split_url(url) is not None:
            return found.with_fragment(None)
    except ValueError:
        pass
    msg = f"the address of server `{name}` is not an HTTP address"
    raise ConnectError(msg, server=name, stage="connect", hint="use the form https://host/path")


def reference(url: URL, text: str) -> URL:
    """Resolve an address that a server sent, relative to its own.

    Raises:
        ValueError: It is not an address, or has invalid characters.
    """
    if not is_visible(text):
        msg = "the address has invisible characters"
        raise ValueError(msg)
    return url.join(URL(text, encoded=text.isascii() and " " not in text)).with_fragment(None)


def same_origin(url: URL, other: URL) -> bool:
    """Return whether two addresses have the same scheme, host and port."""
    here, there = (url.raw_host or "").lower(), (other.raw_host or "").lower()
    return bool(here) and (url.scheme, here, url.port) == (other.scheme, there, other.port)


def is_exposed(url: URL) -> bool:
    """Return whether others on the network can read requests to an address."""
    return url.scheme != "https" and not is_loopback(url.raw_host or "")


def check_exposed(url: URL, headers: Mapping[str, str], name: str) -> None:
    """Refuse to send a credential over plain http.

    Args:
        url: The address of the request.
        headers: Its headers.
        name: The server's name.

    Raises:
        ConnectError: A header or the address has a credential; the message does not show its value.
    """
    if is_exposed(url) and (found := credential_in(url, headers)):
        msg = f"server `{name}`: {found} is not sent over plain http, where others can read it"
        hint = "use an https address, or set `allow_http = true` in the entry of the server"
        raise ConnectError(msg, server=name, stage="connect", hint=hint)


def credential_in(url: URL, headers: Mapping[str, str]) -> str:
    """Return which part of a request is a credential, without its value; empty if none is."""
    found = next((f"the header `{key}`" for key, value in headers.items() if _is_credential(key, value)), "")
    query = next(
        (key for key, value in url.query.items() if is_sensitive_name(key) or _has_token(value)), None
    )
    if not found and query is not None:
        found = f"`{query}` in the query of the address"
    if not found and (url.user is not None or _has_token(url.path)):
        found = "a credential in the address"
    return found


def _is_credential(name: str, value: str) -> bool:
    if name.lower() in _PLAIN_HEADERS:
        return _has_token(value)
    return is_sensitive_name(name) or is_secret(value, name) or _has_token(value)


def _has_token(value: str) -> bool:
    return mask_text(value) != value


def proxy_for(url: URL, name: str) -> tuple[URL | None, dict[str, str] | None]:
    """Return the proxy that the environment sets for an address, and its headers; none for this machine.

    The headers are sent with the CONNECT of a tunnel; a request without a tunnel carries them itself (see
    `headers_for_proxy`). The server must never receive them.

    Raises:
        ConnectError: The proxy cannot be used.
    """
    host = url.host or ""
    if is_loopback(host) or proxy_bypass(host) or proxy_bypass(f"{host}:{url.port}"):
        return None, None
    proxies = getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found:
        return None, None
    try:
        proxy = URL(found if "://" in found else f"http://{found}")
        usable = proxy.scheme in ("http", "https") and bool(proxy.host)
    except ValueError:
        usable, proxy = False, URL()
    if not usable:
        msg = f"the proxy that the environment sets for server `{name}` cannot be used"
        hint = "use the form http://host:port; SOCKS is not supported"
        raise ConnectError(msg, server=name, stage="connect", hint=hint)
    if proxy.user is None:
        return proxy, None
    credentials = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return proxy.with_user(None), {"Proxy-Authorization": f"Basic {credentials}"}


def headers_for_proxy(url: URL, headers: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the proxy headers of the request itself: only plain http is sent without a tunnel."""
    return headers if headers is not None and url.scheme == "http" else {}


def tls_context(tls: Tls, name: str) -> ssl.SSLContext:
    """Load the certificates of a server's `tls` settings.

    Raises:
        ConnectError: A file cannot be used; the message names it.
    """
    key, path = "ca", tls.ca
    try:
        is_folder = path is not None and Path(path).is_dir()
        context = ssl.create_default_context(
            cafile=None if is_folder else path, capath=path if is_folder else None
        )
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert is not None:
            key, path = ("key", tls.key) if tls.key is not None else ("cert", tls.cert)
            context.load_cert_chain(tls.cert, tls.key, _no_password)
    except (OSError, ValueError) as exc:
        # OpenSSL does not say which file of a pair is wrong, unless it is missing.
        if tls.cert is not None and path is not None and not Path(tls.cert).is_file():
            key, path = "cert", tls.cert
        reason = (
            exc.strerror if isinstance(exc, OSError) and exc.errno else ""
        ) or "it has no certificate, or the key is encrypted"
        if isinstance(exc, ssl.SSLError):
            reason = (exc.reason or "it is not a PEM file").lower().replace("_", " ")
        msg = f"the certificates of server `{name}` cannot be used: `tls.{key}` ({path}): {reason}"
        raise ConnectError(msg, server=name, stage="connect", hint="check the paths in `tls`") from exc
    return context


def _no_password() -> str:
    """Keep OpenSSL from asking for a password at the terminal.

    Raises:
        ValueError: Always.
    """
    msg = "the key is encrypted"
    raise ValueError(msg)


def lasting_socket(address: tuple[Any, ...]) -> socket.socket:
    """Create a socket with TCP keepalive, which notices a vanished peer within minutes."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if (number := getattr(socket, option, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, number, value)
    return made


class HttpRequest(NamedTuple):
    """A request as `HttpAuth` sees it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class HttpAnswer(NamedTuple):
    """A response that refuses a request, as `HttpAuth` sees it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    request: HttpRequest
    peer: str = ""
    """The IP address of the server; empty behind a proxy."""


class HttpAuth(Protocol):
    """Adds credentials to requests, and handles refusals."""

    async def headers(self, request: HttpRequest) -> Mapping[str, str]:
        """Return the headers with the credentials."""
        ...

    async def on_challenge(self, answer: HttpAnswer) -> bool:
        """Handle a 401 or 403, and return whether to send the request again."""
        ...


logger = logging.getLogger("dragoman")

CONNECT_SECONDS = 30.0
MAX_REDIRECTS = 5
MAX_CHALLENGES = 3
"""One request may need a login, a nonce and more scopes; `HttpAuth` decides when to stop before that."""
IDLE_SECONDS = 0.1
"""After this idle time, let the loop notice closed connections before one is reused."""
LARGE_BODY = 512 * 1024
BUSY = frozenset({429, 502, 503, 504})
"""Status codes of a server that may answer a moment later, or of a load balancer in front of several."""
BUSY_PAUSES = (0.1, 0.25, 0.5, 1.0, 2.0)
"""Seconds between repeated requests, without a `Retry-After`; the last one is used again."""
MAX_BUSY_SECONDS = 10.0

LOGIN = frozenset({401, 403})
NO_VERDICT = LOGIN | {407, 408, 425, 429}
"""Status codes that say nothing about the server's protocol version."""

PROBE = "server/discover"
"""The request that asks for the protocol versions; older servers do not know it."""
REPEATABLE = frozenset(
    {PROBE, "initialize", "notifications/initialized", "tools/list", "prompts/list", "resources/list"}
    | {"resources/templates/list"}
)
"""Messages that change nothing on the server: they are sent again while it is busy. Calls never are."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
    {"accept", "content-type", "content-length", "transfer-encoding", "connection", "mcp-session-id"}
    | {"mcp-protocol-version", "last-event-id", "proxy-authorization"}
)
"""Headers that only the transport sets; the server must never get the last one."""


class HttpClient:
    """One server's HTTP client."""

    def __init__(
        self,
        server: Http | Sse,
        *,
        name: str,
        attempt: ConnectAttempt,
        options: HttpOptions,
        tls: ssl.SSLContext | bool = True,
    ) -> None:
        """Create a client; nothing is sent yet.

        Args:
            server: The transport; its headers are sent with every request, after those of the protocol.
            name: The server's name, for errors.
            attempt: Records the last status and challenge.
            options: The sources of more headers.
            tls: The certificates; `connect` loads them from the `tls` settings.

        Raises:
            ConnectError: The address cannot be used.
        """
        self.name = name
        self.attempt = attempt
        self.url = endpoint(server.url, name)
        self._headers = CIMultiDict({"User-Agent": f"dragoman/{VERSION}"})
        if self.url.user is not None:
            credentials = f"{self.url.user}:{self.url.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {b64encode(credentials).decode()}"
            self.url = self.url.with_user(None)
        self._headers.update(_allowed(server.headers))
        self._guards = is_exposed(self.url) and not server.allow_http
        """Whether each request is checked for credentials, because others could read them."""
        if self._guards:
            check_exposed(self.url, self._headers, name)
        self._header_provider = options.header_provider
        self._busy_seconds = min(MAX_BUSY_SECONDS, options.busy_seconds)
        self._auth: HttpAuth | None = options.auth
        self._proxy, self._proxy_headers = proxy_for(self.url, name)
        # A name such as `localhost` must not resolve to another machine.
        self._stays_here = self._proxy is None and is_loopback(self.url.raw_host or "")
        self._attempted: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._last_used = self._loop.time()
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=self._make_socket)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            raise_for_status=False,
        )
        self._exchange: Exchange | None = None
        """Sends small requests; `None` if this release of aiohttp does not allow it."""
        with suppress(MovedError):
            self._exchange = Exchange(self._session, connector, self.url)
            for key, value in self._exchange.added_headers.items():
                self._headers.setdefault(key, value)

    @classmethod
    async def connect(
        cls, server: Http | Sse, *, name: str, attempt: ConnectAttempt, options: HttpOptions
    ) -> Self:
        """Create a client and load its certificates; nothing is sent yet.

        Raises:
            ConnectError: The address or the `tls` settings cannot be used.
        """
        tls = True if server.tls is None else await asyncio.to_thread(tls_context, server.tls, name)
        if server.tls is not None and not server.tls.verify:
            logger.warning("%s: its certificate is not checked (`tls.verify` is off)", name)
        if any(key.lower() == "proxy-authorization" for key in server.headers):
            why = "put the password into the proxy address (`http://user:password@host:port`)"
            logger.warning("%s: its header `Proxy-Authorization` is not sent: %s", name, why)
        return cls(server, name=name, attempt=attempt, options=options, tls=tls)

    async def open(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        url: URL | None = None,
        safe: bool = False,
    ) -> Response:
        """Send a request and return the response when its headers have arrived; the caller releases it.

        Args:
            method: The HTTP method.
            headers: The headers of the protocol.
            body: The body.
            url: The address, if it is not that of the server.
            safe: Whether the request may be carried out twice: then it is repeated while the server is busy.

        Raises:
            ConnectionLostError: It could not be sent at all.
            HttpStatusError: It was redirected to an address that is not allowed.
            Exception: Any error of aiohttp; `failure` translates it.
        """
        url = url or self.url
        challenges = redirects = pauses = 0
        is_repeated = False
        until = self._loop.time() + (self._busy_seconds if safe else 0.0)
        while True:
            merged = await self._merge(method, url, headers, body)
            now = self._loop.time()
            if now - self._last_used > IDLE_SECONDS:
                # The loop may have been busy while the server closed the connection: let it notice now.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            response = await self._send(method, url, merged, body)
            self._last_used = self._loop.time()
            status = response.status
            if status < HTTPStatus.MULTIPLE_CHOICES:
                return response
            lacks_login = status == HTTPStatus.UNAUTHORIZED and not self._note_login(url, merged, headers)
            if status in (301, 302, 303, 307, 308):
                url = self._next_url(response, url)
                redirects += 1
                if redirects > MAX_REDIRECTS:
                    raise self._no_redirect(status, "it redirects too often")
            elif lacks_login and not is_repeated:
                # It may be a mistake of the server, and the request did not run: try once more before a
                # person is asked.
                is_repeated = True
            elif status in LOGIN and self._auth is not None and challenges < MAX_CHALLENGES:
                challenges += 1
                if not await self._auth.on_challenge(await self._answer(method, url, merged, body, response)):
                    return response
            elif (
                status in BUSY and self._loop.time() + (pause := busy_pause(response.headers, pauses)) < until
            ):
                pauses += 1
                logger.debug("%s: HTTP %d; sending the request again in %.2g s", self.name, status, pause)
                response.release()
                await asyncio.sleep(pause)
            else:
                return response
            response.release()

    async def _send(self, method: str, url: URL, headers: CIMultiDict[str], body: bytes | None) -> Response:
        exchange = self._exchange if self._proxy is None and method == "POST" else None
        if exchange is not None and body is not None and len(body) <= LARGE_BODY:
            try:
                return await exchange.post(url, headers, body)
            except MovedError:
                self._exchange = None
        # A server may answer before it has read all of a large body, so aiohttp sends that in a task.
        return await self._session.request(
            method,
            url,
            data=io.BytesIO(body) if body is not None and len(body) > LARGE_BODY else body,
            headers=headers
            if self._proxy is None
            else {**headers, **headers_for_proxy(url, self._proxy_headers)},
            allow_redirects=False,
            proxy=self._proxy,
            proxy_headers=self._proxy_headers,
        )

    async def close(self) -> None:
        """Close every connection, even if the caller is cancelled."""
        closing = asyncio.ensure_future(self._session.close())
        await asyncio.wait({closing})

    def note(self, response: Response) -> None:
        """Record the status of a response on the attempt."""
        attempt = self.attempt
        attempt.http_status = response.status
        attempt.challenge = challenge(response)
        attempt.is_page = content_type(response).endswith("/html")
        attempt.network = ("", "")

    def refusal(self, response: Response, body: bytes, what: str) -> HttpStatusError:
        """Return the error for an error status."""
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

    def unusable(self, response: Response, body: bytes, what: str, why: str) -> ProtocolError:
        """Return the error for a response that is not a valid answer."""
        kind = excerpt(response.headers.get("Content-Type", "").encode()) or "no content type"
        came = f"HTTP {response.status}, {kind}, {len(body)} bytes"
        begin = f", beginning with `{excerpt(body)}`" if body else ""
        msg = f"server `{self.name}` did not answer {what}: {why} ({came}{begin})"
        return ProtocolError(msg, rpc_code=INVALID_REQUEST, server=self.name)

    def failure(self, exc: Exception, what: str) -> DragomanError:
        """Return our error for a failed request; its message shows no address and no header."""
        self._last_used = -math.inf  # other connections may be closed too: check them before the next request
        error: DragomanError
        match exc:
            case ServerError() | ProtocolError():
                return exc
            case aiohttp.ClientSSLError():
                error = self._unsent(f"cannot connect: {detail(exc)}", hint="check the certificates (`tls`)")
            case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
                error = self._unsent(
                    f"cannot connect: {detail(exc)}", hint="check that the server is running"
                )
            case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
                error = self._unsent(f"{what} cannot be sent: the address is not valid")
            case aiohttp.ClientHttpProxyError():
                error = self._unsent(f"the proxy refused the connection (HTTP {exc.status})")
            case aiohttp.ClientPayloadError():
                error = self._lost(f"the response to {what} was cut short")
            case aiohttp.ServerDisconnectedError() | ConnectionError():
                error = self._lost(f"the connection was closed during {what}")
            case aiohttp.ClientResponseError():
                error = self._lost(f"the response to {what} is not HTTP")
            case aiohttp.ClientError() | OSError():
                error = self._lost(f"{what} failed: {detail(exc)}")
            case ValueError():
                error = self._unsent(f"{what} cannot be sent: a header has invalid characters")
            case _:
                logger.error("%s: unexpected error in %s", self.name, what, exc_info=exc)
                error = self._lost(f"{what} failed: {type(exc).__name__}")
        error.__cause__ = exc
        self.attempt.network = network_reason(exc, f"{self.url.host}:{self.url.port}")
        return error

    async def _merge(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> CIMultiDict[str]:
        merged = self._headers.copy()
        if (self._header_provider is not None or caller_headers()) and (
            given := await application_headers(self.name, self._header_provider)
        ):
            merged.update(_allowed(given))
        merged.update(headers)
        if self._guards:
            check_exposed(url, merged, self.name)
        if self._auth is not None:
            merged.update(await self._auth.headers(HttpRequest(method, str(url), merged, body or b"")))
        return merged

    def _note_login(self, url: URL, merged: Mapping[str, str], headers: Mapping[str, str]) -> bool:
        """Note on the attempt whether a refused request had credentials, and return it."""
        ours = {name.lower() for name in headers if name.lower() != "authorization"}
        given = {name: value for name, value in merged.items() if name.lower() not in ours}
        self.attempt.sent_login = bool(credential_in(url, given))
        return self.attempt.sent_login

    async def _answer(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        response: Response,
    ) -> HttpAnswer:
        """Return a refusal for `HttpAuth`."""
        transport = response.connection.transport if response.connection is not None else None
        name = transport.get_extra_info("peername") if transport is not None else None
        # A response without a body has released its connection; then the peer is certain only if it is the
        # only one.
        attempted = {str(name[0])} if name else self._attempted
        peer = next(iter(attempted)) if len(attempted) == 1 and self._proxy is None else ""
        request = HttpRequest(method, str(url), headers, body or b"")
        return HttpAnswer(response.status, response.headers, await read_refusal(response), request, peer)

    def _make_socket(self, address: tuple[Any, ...]) -> socket.socket:
        if self._stays_here and not is_loopback(str(address[4][0])):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the name does not resolve to this machine")
        self._attempted.add(str(address[4][0]))
        return lasting_socket(address)

    def _next_url(self, response: Response, url: URL) -> URL:
        status, keeps = response.status, (307, 308)
        found, location = url, response.headers.get("Location", "")
        shown, allowed = "an invalid address", False
        if location:  # an empty one would resolve to this same address
            with suppress(ValueError):
                found = reference(url, location)
                shown = f"{found.scheme}://{found.host}:{found.port}"
                allowed = same_origin(url, found) and found.user is None
        if allowed and (status in keeps or response.method == "GET"):
            return found
        response.release()
        why = (
            f"it redirects to {excerpt(shown.encode())}" if not allowed else "it redirects to another method"
        )
        raise self._no_redirect(status, why)

    def _no_redirect(self, status: int, why: str) -> HttpStatusError:
        self.attempt.http_status = status
        msg = f"server `{self.name}`: the redirect is not followed: {why} (HTTP {status})"
        hint = "if the new address is right, put it into the configuration"
        return HttpStatusError(msg, server=self.name, status=status, hint=hint)

    def _unsent(self, why: str, hint: str = "") -> ConnectionLostError:
        return ConnectionLostError(
            f"server `{self.name}`: {why}", server=self.name, may_have_run=False, hint=hint
        )

    def _lost(self, why: str) -> ConnectionLostError:
        return ConnectionLostError(f"server `{self.name}`: {why}", server=self.name, may_have_run=True)


def busy_pause(headers: Mapping[str, str], pauses: int) -> float:
    """Return how long to wait before a request is repeated: the server's `Retry-After`, or a growing time.

    Args:
        headers: The headers of the refusal.
        pauses: How often the request was repeated before.
    """
    asked = retry_after(headers.get("Retry-After", ""))
    return BUSY_PAUSES[min(pauses, len(BUSY_PAUSES) - 1)] if asked is None else max(asked, BUSY_PAUSES[0])


def is_older_server(method: str, status: int) -> bool:
    """Return whether an older server may answer the probe with this status; some fail with a 5xx."""
    return method == PROBE and status not in NO_VERDICT and status <= HTTPStatus.NOT_IMPLEMENTED


async def application_headers(name: str, provider: HeaderProvider | None) -> dict[str, str] | None:
    """Return the application's headers for the current request, if there are any.

    Args:
        name: The server's name.
        provider: Called in the context of the caller; without a caller, in an empty context.

    Raises:
        ServerError: The provider failed, or a header is not valid; the message does not show its value.
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
        # The application's own code: its errors end only this request.
        msg = f"`header_provider` failed for server `{name}` ({type(exc).__name__})"
        hint = (
            "" if own is not None else "it is also called for handshakes and probes, where there is no caller"
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
            hint = "names have letters, digits and dashes; values are strings without line breaks"
            raise ServerError(msg, server=server, hint=hint)
    return dict(headers)


def _allowed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OURS}
