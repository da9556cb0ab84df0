"""The SDK's own transports, for servers with `wire = "sdk"` and for systems without our stdio transport."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TextIO, TypeAlias, TypeVar, cast

import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from yarl import URL

from dragoman.errors import AuthRequiredError, ConnectionLostError
from dragoman.model import Http, Sse, Stdio
from dragoman.server.process.environment import (
    StderrTail,
    kill_group,
    whole_environment,
)
from dragoman.server.process.stderr_log import stderr_log
from dragoman.server.protocol.sdk import child_of
from dragoman.server.protocol.wire import PLAIN, no_call_context
from dragoman.server.transports.http_client import (
    BUSY,
    LOGIN,
    MAX_BUSY_SECONDS,
    MAX_CHALLENGES,
    REPEATABLE,
    HttpAnswer,
    HttpRequest,
    application_headers,
    busy_pause,
    check_exposed,
    endpoint,
    is_exposed,
    proxy_for,
    reference,
    same_origin,
    tls_context,
)
from dragoman.server.transports.http_response import MAX_CHALLENGE
from dragoman.tools.definition import fill_in_schemas
from dragoman.trust.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from mcp.shared.message import SessionMessage

    from dragoman.model import Transport
    from dragoman.server.protocol.wire import ConnectAttempt, HttpOptions
    from dragoman.server.transports.http_client import HttpAuth

TransportStreams: TypeAlias = "tuple[Any, Any]"
"""The read and the write stream of a transport of the SDK."""

# ── A stream that can change its items, and reports when its reader is done


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Readable(Protocol[T_co]):
    """The read stream of an SDK transport."""

    async def receive(self) -> T_co:
        """Wait for the next item."""
        ...

    async def aclose(self) -> None:
        """Close it."""
        ...

    async def __anext__(self) -> T_co: ...
    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None: ...


class WatchedStream(Generic[T]):
    """Calls `on_item` with each item, and `ended` when the reader is done: nothing is received after that."""

    def __init__(
        self, inner: Readable[T], *, on_item: Callable[[T], None], ended: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._on_item = on_item
        self._ended = ended

    @property
    def last_context(self) -> object:
        """The context in which the last item was sent; the SDK's reader needs it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> T:
        """Wait for the next item."""
        item = await self._inner.receive()
        self._on_item(item)
        return item

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = await self._inner.__anext__()
        self._on_item(item)
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        self._ended()
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)


# ── The authorizer for the SDK's HTTP transports


logger = logging.getLogger("dragoman")


class SdkLogin(httpx2.Auth):
    """Adds credentials to the requests of the SDK's client, and handles refusals."""

    def __init__(
        self,
        auth: HttpAuth,
        *,
        name: str,
        attempt: ConnectAttempt,
        prepare: Callable[[httpx2.Request], Awaitable[None]],
    ) -> None:
        """Use an authorizer for one connection.

        Args:
            auth: The authorizer.
            name: The server's name, for logs.
            attempt: Shows whether the connection is still being opened.
            prepare: Adds the application's own headers, before ours.
        """
        self._auth = auth
        self._name = name
        self._attempt = attempt
        self._prepare = prepare

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with credentials, and again after a refusal if the authorizer says so."""
        await self._prepare(request)
        unsigned = request.headers.copy()
        is_repeated = False
        for _ in range(MAX_CHALLENGES + 2):
            request.headers = unsigned.copy()
            await self._sign(request)
            response = yield request
            if response.status_code == HTTPStatus.UNAUTHORIZED:
                self._attempt.sent_login = "authorization" in request.headers
                if not (is_repeated or self._attempt.sent_login):
                    # As in `HttpClient.request`: it may be a mistake.
                    is_repeated = True
                    continue
            if response.status_code not in LOGIN or not await self._on_refusal(response, request):
                return

    async def _sign(self, request: httpx2.Request) -> None:
        asked = HttpRequest(request.method, str(request.url), request.headers, b"")
        try:
            request.headers.update(await self._auth.headers(asked))
        except (AuthRequiredError, ConnectionLostError) as exc:
            self._raise_unless_listing(exc)

    async def _on_refusal(self, response: httpx2.Response, request: httpx2.Request) -> bool:
        asked = HttpRequest(request.method, str(request.url), request.headers, b"")
        headers = dict(response.headers)
        refusal = HttpAnswer(response.status_code, headers, b"", asked, self._peer(response, request))
        try:
            return await self._auth.on_challenge(refusal)
        except (AuthRequiredError, ConnectionLostError) as exc:
            self._raise_unless_listing(exc)
            return False

    def _raise_unless_listing(self, error: AuthRequiredError | ConnectionLostError) -> None:
        """Raise an error, except while listing: there the SDK reports the server's refusal itself."""
        if self._attempt.stage != "listing":
            raise error
        logger.warning("%s: %s", self._name, error.message)

    def _peer(self, response: httpx2.Response, request: httpx2.Request) -> str:
        """Return the IP address of the server; empty behind a proxy."""
        proxy, _ = proxy_for(endpoint(str(request.url), self._name), self._name)
        stream = response.extensions.get("network_stream")
        found = stream.get_extra_info("server_addr") if stream is not None and proxy is None else None
        return str(found[0]) if found else ""


class PatientClient(httpx2.AsyncClient):
    """The SDK's HTTP client, which repeats messages that are safe to repeat while the server is busy."""

    def __init__(self, *, busy_seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._busy_seconds = busy_seconds

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, and again after a pause if that is safe and the server is busy."""
        until, pauses = time.monotonic() + self._busy_seconds, 0
        while True:
            response = await super().send(request, **options)
            if response.status_code not in BUSY or not _is_repeatable(request):
                return response
            pause = busy_pause(response.headers, pauses)
            if time.monotonic() + pause >= until:
                return response
            pauses += 1
            await response.aclose()
            await asyncio.sleep(pause)


def _is_repeatable(request: httpx2.Request) -> bool:
    if request.method != "POST":
        return request.method == "GET"
    try:
        message: Any = json.loads(request.content)
        return message.get("method") in REPEATABLE
    except (ValueError, AttributeError, httpx2.StreamError):
        return False


# ── The transports


_HTTP_TIMEOUT = 30.0


def sdk_transport(
    transport: Transport,
    *,
    name: str = "",
    env: Mapping[str, str],
    attempt: ConnectAttempt,
    ended: Callable[[], None],
    options: HttpOptions = PLAIN,
) -> AbstractAsyncContextManager[TransportStreams]:
    """Return the SDK's transport for one of ours.

    Unlike our own transports it has no size limit of messages, no probes of idle connections, and reads NaN
    and infinities as null. One failed HTTP request (a reset, an invalid header) ends all the others.

    Args:
        transport: The transport, expanded.
        name: The server's name, for logs.
        env: Our environment, from which a child may inherit.
        attempt: Records the progress of the attempt.
        ended: Called when the connection has ended.
        options: The sources of headers; the size limit is not kept.
    """
    match transport:
        case Stdio():
            wire = _stdio(transport, name, env, attempt)
        case Http():
            wire = _http(transport, name, attempt, options)
        case Sse():
            wire = _sse(transport, name, attempt, options)
    return _watched(wire, ended, attempt)


@asynccontextmanager
async def _stdio(
    stdio: Stdio, name: str, env: Mapping[str, str], attempt: ConnectAttempt
) -> AsyncGenerator[TransportStreams]:
    attempt.enter("variables")
    given = whole_environment(stdio, env)
    attempt.enter("spawn")
    command, args = stdio.command, list(stdio.args)
    removed = [name for name in DEFAULT_INHERITED_ENV_VARS if name not in given and name in os.environ]
    if removed and sys.platform != "win32":
        # The SDK always adds its default variables from our own environment, so `env -u` removes the others.
        args = [*(f"-u{name}" for name in removed), command, *args]
        command = "env"
    parameters = StdioServerParameters(
        command=command,
        args=args,
        env=given,
        cwd=stdio.cwd,
        # With `strict`, one invalid byte stops the SDK's reader, while the session looks alive.
        encoding_error_handler="replace",
    )
    log = stderr_log(stdio, name, given)
    try:
        with StderrTail(log=log) as stderr:
            attempt.stderr = stderr
            wire = stdio_client(parameters, errlog=cast("TextIO", stderr.sink))
            process: Any = None
            try:
                async with wire as streams:
                    stderr.spawned()
                    process = child_of(wire)
                    attempt.pid = getattr(process, "pid", None)
                    yield streams
            finally:
                # The SDK stops only the child itself; stop the processes that it has started.
                if attempt.pid is not None:
                    kill_group(attempt.pid)
                attempt.exit_code = getattr(process, "returncode", None)
    finally:
        if log is not None:
            await log.finish()


@asynccontextmanager
async def _http(
    http: Http,
    name: str,
    attempt: ConnectAttempt,
    options: HttpOptions,
) -> AsyncGenerator[TransportStreams]:
    client = await _http_client(http, name, attempt, options)
    async with client, streamable_http_client(http.url, http_client=client) as streams:
        yield streams


@asynccontextmanager
async def _sse(
    sse: Sse,
    name: str,
    attempt: ConnectAttempt,
    options: HttpOptions,
) -> AsyncGenerator[TransportStreams]:
    client = await _http_client(sse, name, attempt, options)

    def the_client(**_: object) -> httpx2.AsyncClient:
        return client

    async with sse_client(sse.url, httpx_client_factory=cast("Any", the_client)) as streams:
        yield streams


async def _http_client(
    server: Http | Sse,
    name: str,
    attempt: ConnectAttempt,
    options: HttpOptions,
) -> httpx2.AsyncClient:
    async def note(response: httpx2.Response) -> None:
        attempt.http_status = response.status_code
        attempt.challenge = response.headers.get("www-authenticate", "")[:MAX_CHALLENGE]
        location = response.headers.get("location", "")
        with suppress(ValueError):
            if not location or same_origin(url, reference(URL(str(response.request.url)), location)):
                return
        # Remove the location: the SDK would follow an upgrade to https, which is another origin.
        response.headers.pop("location", None)

    url = endpoint(server.url, name)
    guards = is_exposed(url) and not server.allow_http
    own = {key: value for key, value in server.headers.items() if key.lower() != "proxy-authorization"}
    if guards:
        check_exposed(url, own, name)

    async def add_headers(request: httpx2.Request) -> None:
        request.headers.update(await application_headers(name, options.header_provider) or {})
        # Only the HTTP library sends the proxy's password, and only to the proxy.
        request.headers.pop("proxy-authorization", None)
        if guards:
            check_exposed(url, request.headers, name)

    tls = None if server.tls is None else await asyncio.to_thread(tls_context, server.tls, name)
    auth = options.auth
    login = None if auth is None else SdkLogin(auth, name=name, attempt=attempt, prepare=add_headers)
    # No proxy for this machine: plain http with a token would leave it.
    direct: dict[str, httpx2.AsyncBaseTransport | None] = {}
    if is_loopback(url.raw_host or ""):
        direct = {"all://": None, "http://": None, "https://": None}
    return PatientClient(
        busy_seconds=min(MAX_BUSY_SECONDS, options.busy_seconds),
        headers=own,
        mounts=direct,
        auth=login,
        verify=True if tls is None else tls,
        # No read timeout: each call has its own deadline, and a stream may be silent for hours.
        timeout=httpx2.Timeout(_HTTP_TIMEOUT, read=None),
        event_hooks={"request": [add_headers] if login is None else [], "response": [note]},
    )


@asynccontextmanager
async def _watched(
    wire: AbstractAsyncContextManager[TransportStreams], ended: Callable[[], None], attempt: ConnectAttempt
) -> AsyncGenerator[TransportStreams]:
    no_call_context()
    async with wire as (read, write):
        attempt.enter("handshake")
        yield WatchedStream(read, on_item=_fill_in, ended=ended), write


def _fill_in(item: SessionMessage | Exception) -> None:
    """Fill in missing schemas of a tool listing, before the SDK rejects all of it."""
    if not isinstance(item, Exception) and isinstance(item.message, types.JSONRPCResponse):
        fill_in_schemas(item.message.result)
