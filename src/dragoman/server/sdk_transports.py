"""The SDK's own transports, for servers with `wire = "sdk"` and for systems without our pipes."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from dragoman.model import Http, Sse, Stdio
from dragoman.server.process import StderrTail, child_environment, kill_group, removed_variables
from dragoman.server.stream import WatchedStream
from dragoman.tools.definition import fill_in_schemas

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    from dragoman.model import Transport
    from dragoman.server.trail import Trail

_HTTP_TIMEOUT = 30.0


def sdk_transport(
    transport: Transport, *, env: Mapping[str, str], trail: Trail, ended: Callable[[], None]
) -> AbstractAsyncContextManager[TransportStreams]:
    """Return the SDK's transport for one of ours, watched for its end."""
    match transport:
        case Stdio():
            wire = _stdio(transport, env, trail)
        case Http():
            wire = _http(transport, trail)
        case Sse():
            wire = _sse(transport, trail)
    return _watched(wire, ended, trail)


@asynccontextmanager
async def _stdio(stdio: Stdio, env: Mapping[str, str], trail: Trail) -> AsyncGenerator[TransportStreams]:
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
    with StderrTail() as stderr:
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
async def _http(http: Http, trail: Trail) -> AsyncGenerator[TransportStreams]:
    async with (
        _http_client(trail, headers=dict(http.headers)) as client,
        streamable_http_client(http.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _sse(sse: Sse, trail: Trail) -> AsyncGenerator[TransportStreams]:
    def client_with(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,  # noqa: ARG001 -- the SDK's factory has it; ours has its own
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return _http_client(trail, headers=headers, auth=auth)

    async with sse_client(sse.url, headers=dict(sse.headers), httpx_client_factory=client_with) as streams:
        yield streams


def _http_client(
    trail: Trail, *, headers: dict[str, str] | None, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    async def note(response: httpx2.Response) -> None:
        trail.http_status = response.status_code
        trail.challenge = response.headers.get("www-authenticate", "")

    return httpx2.AsyncClient(
        headers=headers,
        auth=auth,
        # Reading waits as long as the call's own deadline says; a stream may be silent for hours.
        timeout=httpx2.Timeout(_HTTP_TIMEOUT, read=None),
        event_hooks={"response": [note]},
    )


@asynccontextmanager
async def _watched(
    wire: AbstractAsyncContextManager[TransportStreams], ended: Callable[[], None], trail: Trail
) -> AsyncGenerator[TransportStreams]:
    async with wire as (read, write):
        trail.stage = "handshake"
        yield WatchedStream(read, mend=_mend, ended=ended), write


def _mend(item: SessionMessage | Exception) -> None:
    """Fill in what a listing may lack, before the SDK rejects all of it."""
    if not isinstance(item, Exception) and isinstance(item.message, types.JSONRPCResponse):
        fill_in_schemas(item.message.result)
