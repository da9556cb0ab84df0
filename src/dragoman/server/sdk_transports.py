"""The SDK's own transports, for servers with `wire = "sdk"` and for systems without our pipes."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from yarl import URL

from dragoman.model import Http, Sse, Stdio
from dragoman.server.auth_sdk import SdkLogin
from dragoman.server.http_answer import MAX_CHALLENGE
from dragoman.server.http_client import application_headers
from dragoman.server.http_route import (
    check_exposed,
    endpoint,
    is_exposed,
    reference,
    same_origin,
    tls_context,
)
from dragoman.server.process import StderrTail, child_environment, kill_group, removed_variables, stderr_log
from dragoman.server.stream import WatchedStream
from dragoman.server.wire import on_own_account
from dragoman.tools.definition import fill_in_schemas
from dragoman.trust.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    from dragoman.model import HeaderProvider, Transport
    from dragoman.server.http_options import HttpAuth
    from dragoman.server.trail import Trail

_HTTP_TIMEOUT = 30.0


def sdk_transport(
    transport: Transport,
    *,
    name: str = "",
    env: Mapping[str, str],
    trail: Trail,
    ended: Callable[[], None],
    header_provider: HeaderProvider | None = None,
    auth: HttpAuth | None = None,
) -> AbstractAsyncContextManager[TransportStreams]:
    """Return the SDK's transport for one of ours, watched for its end.

    Of what our own wires do it lacks: a limit of a message's size, probes of an idle connection, and that an
    HTTP request which fails (a reset, a header that cannot be sent) leaves the others alone: it ends them.

    Args:
        transport: What to reach, expanded.
        name: The server's name, for logs.
        env: Our environment, for what a child may inherit.
        trail: Filled in on the way.
        ended: Called when nothing more can come.
        header_provider: Asked for more headers before each request.
        auth: Asked for what proves who we are.
    """
    match transport:
        case Stdio():
            wire = _stdio(transport, name, env, trail)
        case Http():
            wire = _http(transport, name, trail, header_provider, auth)
        case Sse():
            wire = _sse(transport, name, trail, header_provider, auth)
    return _watched(wire, ended, trail)


@asynccontextmanager
async def _stdio(
    stdio: Stdio, name: str, env: Mapping[str, str], trail: Trail
) -> AsyncGenerator[TransportStreams]:
    trail.stage = "variables"
    given = child_environment(stdio, env)
    trail.stage = "spawn"
    command, args = stdio.command, list(stdio.args)
    removed = [name for name in removed_variables(stdio) if name in DEFAULT_INHERITED_ENV_VARS]
    if removed and sys.platform != "win32":
        # The SDK always adds its safe set, so what the spec takes away from it is unset on the way.
        args = [*(f"-u{name}" for name in removed), command, *args]
        command = "env"
    parameters = StdioServerParameters(
        command=command,
        args=args,
        env=given,
        cwd=stdio.cwd,
        # With `strict` one bad byte makes the SDK deaf for good, while the session looks alive.
        encoding_error_handler="replace",
    )
    with StderrTail(log=stderr_log(stdio, name, given)) as stderr:
        trail.stderr = stderr
        wire = stdio_client(parameters, errlog=cast("TextIO", stderr.sink))
        process: Any = None
        try:
            async with wire as streams:
                stderr.spawned()
                process = _process_of(wire)
                trail.pid = getattr(process, "pid", None)
                yield streams
        finally:
            # The SDK stops the leader; what the leader started and left behind is ours to end.
            if trail.pid is not None:
                kill_group(trail.pid)
            trail.exit_code = getattr(process, "returncode", None)


def _process_of(wire: object) -> object:
    """Find the child in the SDK's transport, which does not show it; `None` if that has changed."""
    frame = getattr(getattr(wire, "gen", None), "ag_frame", None)
    return frame.f_locals.get("process") if frame is not None else None


@asynccontextmanager
async def _http(
    http: Http, name: str, trail: Trail, header_provider: HeaderProvider | None, auth: HttpAuth | None
) -> AsyncGenerator[TransportStreams]:
    client = await _http_client(http, name, trail, header_provider, auth)
    async with client, streamable_http_client(http.url, http_client=client) as streams:
        yield streams


@asynccontextmanager
async def _sse(
    sse: Sse, name: str, trail: Trail, header_provider: HeaderProvider | None, auth: HttpAuth | None
) -> AsyncGenerator[TransportStreams]:
    client = await _http_client(sse, name, trail, header_provider, auth)

    def the_client(**_: object) -> httpx2.AsyncClient:
        return client

    async with sse_client(sse.url, httpx_client_factory=cast("Any", the_client)) as streams:
        yield streams


async def _http_client(
    server: Http | Sse, name: str, trail: Trail, header_provider: HeaderProvider | None, auth: HttpAuth | None
) -> httpx2.AsyncClient:
    async def note(response: httpx2.Response) -> None:
        trail.http_status = response.status_code
        trail.challenge = response.headers.get("www-authenticate", "")[:MAX_CHALLENGE]
        location = response.headers.get("location", "")
        with suppress(ValueError):
            if not location or same_origin(url, reference(URL(str(response.request.url)), location)):
                return
        # The SDK follows an upgrade to https as if it were the same server.
        response.headers.pop("location", None)

    url = endpoint(server.url, name)
    guards = is_exposed(url) and not server.allow_http
    own = {key: value for key, value in server.headers.items() if key.lower() != "proxy-authorization"}
    if guards:
        check_exposed(url, own, name)

    async def add_headers(request: httpx2.Request) -> None:
        request.headers.update(await application_headers(name, header_provider) or {})
        # The proxy's password is the HTTP library's to send, and only to the proxy.
        request.headers.pop("proxy-authorization", None)
        if guards:
            check_exposed(url, request.headers, name)

    tls = None if server.tls is None else await asyncio.to_thread(tls_context, server.tls, name)
    login = None if auth is None else SdkLogin(auth, name=name, trail=trail, prepare=add_headers)
    # What goes to this machine goes to no proxy, which may be another one: a token may go there in the open.
    direct: dict[str, httpx2.AsyncBaseTransport | None] = {}
    if is_loopback(url.raw_host or ""):
        direct = {"all://": None, "http://": None, "https://": None}
    return httpx2.AsyncClient(
        headers=own,
        mounts=direct,
        auth=login,
        verify=True if tls is None else tls,
        # Reading waits as long as the call's own deadline says; a stream may be silent for hours.
        timeout=httpx2.Timeout(_HTTP_TIMEOUT, read=None),
        event_hooks={"request": [add_headers] if login is None else [], "response": [note]},
    )


@asynccontextmanager
async def _watched(
    wire: AbstractAsyncContextManager[TransportStreams], ended: Callable[[], None], trail: Trail
) -> AsyncGenerator[TransportStreams]:
    on_own_account()
    async with wire as (read, write):
        trail.stage = "handshake"
        yield WatchedStream(read, mend=_mend, ended=ended), write


def _mend(item: SessionMessage | Exception) -> None:
    """Fill in what a listing may lack, before the SDK rejects all of it."""
    if not isinstance(item, Exception) and isinstance(item.message, types.JSONRPCResponse):
        fill_in_schemas(item.message.result)
