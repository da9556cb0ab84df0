"""The only file that knows the `mcp` release: its transports, its client, its types, its exceptions.

Everything above speaks in our nouns. What the SDK, its HTTP library or the system raises becomes one
of our errors here, once, by type; exception groups are opened here.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio import CancelledError
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dragoman.errors import (
    AuthRequiredError,
    ConnectError,
    ConnectionLostError,
    DragomanError,
    InvalidResultError,
    ProtocolError,
)
from dragoman.model import Http, Sse, Stdio
from dragoman.server.dispatcher import Deadline, WireDispatcher, raw_result
from dragoman.server.dispatcher import deadline as current_deadline
from dragoman.server.process import StderrTail, child_environment, kill_group, removed_variables
from dragoman.server.rpc import PARSE_ERROR
from dragoman.server.stream import WatchedStream
from dragoman.server.transports import exit_reason, open_pipe
from dragoman.tools.content import to_answer
from dragoman.tools.definition import fill_in_schemas
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

    from dragoman.model import ServerSpec, Transport
    from dragoman.server.trail import Trail
    from dragoman.tools.content import Answer

# The SDK reports every junk line with a traceback; without a handler Python prints that to the terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())

_UNUSED: Any = object()
"""Stands where the SDK wants a transport; the one in use is put under it afterwards."""
_HTTP_TIMEOUT = 30.0
_CLIENT_ERROR = 400
_UNAUTHORIZED = 401


@asynccontextmanager
async def open_session(
    spec: ServerSpec,
    transport: Transport,
    *,
    env: Mapping[str, str],
    trail: Trail,
    ended: Callable[[str], None],
    era: Era | None = None,
    changed: Callable[[], None] | None = None,
) -> AsyncGenerator[Session]:
    """Connect, shake hands, and hand out the session. One task enters and leaves.

    Args:
        spec: The server; only its rules are read, not its templates.
        transport: The spec's transport, expanded.
        env: Our environment, for what the spec lets a child inherit.
        trail: Filled in on the way.
        ended: Called, with the reason where one is known, when nothing more can arrive.
        era: What the last connection to this server found, so that it is not asked again.
        changed: Called when the server says that its tools have changed.
    """
    dispatcher = None
    match transport:
        case Stdio() if spec.wire == "dragoman" and sys.platform != "win32":
            dispatcher = WireDispatcher(spec.name)
            wire = _UNUSED
        case Stdio():
            wire = _watched(_stdio(transport, env, trail), lambda: ended(""), trail)
        case Http():
            wire = _watched(_http(transport, trail), lambda: ended(""), trail)
        case Sse():
            wire = _watched(_sse(transport, trail), lambda: ended(""), trail)

    async def on_message(message: object) -> None:
        if changed is not None and isinstance(message, types.ToolListChangedNotification):
            changed()

    known = era if spec.protocol == "auto" else None
    client = Client(
        wire,
        mode=known.mode if known else LATEST_MODERN_VERSION if spec.protocol == "modern" else spec.protocol,
        prior_discover=known.discover if known else None,
        client_info=types.Implementation(name="dragoman", version=VERSION),
        message_handler=on_message,
        cache=None,
    )
    if dispatcher is not None:
        _put_under(client, dispatcher, cast("Stdio", transport), env=env, trail=trail)
        dispatcher.ended.add_done_callback(lambda done: ended(done.result()))
    async with client:
        yield Session(client, dispatcher)


def _put_under(
    client: Client, dispatcher: WireDispatcher, transport: Stdio, *, env: Mapping[str, str], trail: Trail
) -> None:
    """Put our wire under the SDK's client, in place of a transport of its own.

    `_connect` is the one private name of the SDK that is used: it keeps the negotiation of eras, rounds of
    input and mirrored headers. A test fails when it moves.
    """

    async def connect(stack: AsyncExitStack, _mode: object, _raise: object) -> WireDispatcher:
        StdioServerParameters(
            command=transport.command, args=list(transport.args), cwd=transport.cwd
        )  # validates
        wire = open_pipe(
            transport, name=dispatcher.server, env=env, trail=trail, rpc=dispatcher.rpc, on_end=dispatcher.end
        )
        dispatcher.wire = await stack.enter_async_context(wire)
        trail.stage = "handshake"
        return dispatcher

    client._connect = connect  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class Era(NamedTuple):
    """How a server was connected to, so that the next time nothing has to be tried out."""

    mode: str
    """`legacy`, or the modern version that both sides speak."""
    discover: types.DiscoverResult | None = None


class Session:
    """The SDK's client on an open transport; any task may use it."""

    def __init__(self, client: Client, dispatcher: WireDispatcher | None) -> None:
        self._client = client
        self._dispatcher = dispatcher
        self.direct = dispatcher is not None
        """Whether a call may run in its caller's task: true over our own wires."""
        if dispatcher is not None:
            # The session would list again for a tool it does not know, and compile schemas: we check results.
            client.session.validate_tool_result = _accept
        info = client.server_info
        self.protocol_version = client.protocol_version
        self.server_name = info.name if info else None
        self.server_version = info.version if info else None
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.era = Era(client.protocol_version, client.session.discover_result) if modern else Era("legacy")

    @property
    def received(self) -> int:
        """How many messages have come in: a rising number is a server that lives."""
        return self._dispatcher.rpc.received if self._dispatcher is not None else 0

    async def probe(self, seconds: float) -> bool:
        """Ask for a sign of life; an answer that is an error is one too."""
        session = self._client.session
        try:
            async with asyncio.timeout(seconds):
                if self.era.mode == "legacy":
                    await session.send_ping()
                else:
                    await session.send_discover(self.era.mode)
        except MCPError as exc:
            return exc.code not in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT)
        except ValidationError:
            return True
        except (TimeoutError, DragomanError):
            return False
        return True

    async def watch_changes(self, changed: Callable[[], None]) -> None:
        """Listen for changes of the tools, where the server is modern and announces them."""
        capability = self._client.server_capabilities.tools
        if self.era.mode == "legacy" or capability is None or not capability.list_changed:
            return
        pause = 1.0
        while True:
            try:
                async with self._client.listen(tools_list_changed=True) as events:
                    pause = 1.0
                    async for _ in events:
                        changed()
                changed()
            except (MCPError, SubscriptionLost, TimeoutError):
                pause = min(60.0, pause * 2)
            await asyncio.sleep(pause)

    async def list_page(self, cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
        """Return one page of raw tool definitions, and where the next one starts."""
        try:
            page = await self._client.list_tools(cursor=cursor)
        except MCPError as exc:
            if exc.code == types.METHOD_NOT_FOUND:
                return [], None
            raise
        if self._dispatcher is not None:
            return self._dispatcher.listing, page.next_cursor
        tools = [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in page.tools]
        return tools, page.next_cursor

    async def call_tool(
        self, name: str, arguments: dict[str, Any], *, deadline: float | None = None
    ) -> Answer:
        """Call a tool; without a deadline (on the loop's clock) the caller watches the time."""
        if self._dispatcher is None:
            result = await self._client.call_tool(name, arguments)
            return to_answer(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        token = current_deadline.set(None if deadline is None else Deadline(deadline))
        try:
            await self._client.call_tool(name, arguments)
        finally:
            current_deadline.reset(token)
        return to_answer(raw_result.get() or {})


async def _accept(name: str, result: types.CallToolResult) -> None:
    """Leave a result as it is."""


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


def telling(exc: BaseException) -> Exception:
    """Open exception groups and return the first error in them; what must not be caught goes on.

    Raises:
        BaseException: A cancellation without an error beside it, an interrupt or an exit.
    """
    leaves = _leaves(exc)
    for leaf in leaves:
        if not isinstance(leaf, Exception | CancelledError):
            raise leaf
    error = next((leaf for leaf in leaves if isinstance(leaf, Exception)), None)
    if error is None:
        raise leaves[0]
    return error


def _leaves(exc: BaseException) -> list[BaseException]:
    if not isinstance(exc, BaseExceptionGroup):
        return [exc]
    group = cast("BaseExceptionGroup[BaseException]", exc)
    return [leaf for inner in group.exceptions for leaf in _leaves(inner)]


def connect_error(exc: BaseException, spec: ServerSpec, trail: Trail) -> ConnectError:
    """Say why a connection could not be opened."""
    leaf = telling(exc)
    server = spec.name
    if trail.http_status == _UNAUTHORIZED and not isinstance(leaf, TimeoutError):
        msg = f"server `{server}` wants a login (HTTP 401)"
        hint = "give it an `Authorization` header"
        return AuthRequiredError(msg, server=server, stage=trail.stage, hint=hint)
    reason, hint = _reason(leaf, spec, trail)
    msg = f"cannot connect to server `{server}` ({trail.kind}, {trail.stage}): {reason}"
    tail = trail.stderr.text() if trail.stderr else ""
    if tail:
        msg += f"; its last words: {' | '.join(tail.splitlines()[-3:])[-500:]}"
    return ConnectError(
        msg,
        server=server,
        stage=trail.stage,
        # A child that ran out of time was ended by us: the code would be our signal.
        exit_code=None if isinstance(leaf, TimeoutError) else trail.exit_code,
        stderr_tail=tail,
        hint=hint,
    )


def lost_error(
    exc: BaseException | None, spec: ServerSpec, trail: Trail, known: str = ""
) -> ConnectionLostError:
    """Say why a live connection ended."""
    if known:
        reason = known
    elif exc is None:
        reason = "the process ended" if trail.kind == "stdio" else "the server closed it"
        if trail.exit_code is not None:
            reason = exit_reason(trail.exit_code)
    else:
        reason, _ = _reason(telling(exc), spec, trail)
    msg = f"the connection to server `{spec.name}` was lost: {reason}"
    return ConnectionLostError(msg, server=spec.name, may_have_run=True)


def call_error(exc: BaseException, *, server: str, tool: str) -> DragomanError | TimeoutError:
    """Say why a call on a live connection gave no result."""
    leaf = telling(exc)
    match leaf:
        case MCPError() if isinstance(leaf.__cause__, TimeoutError):
            return leaf.__cause__
        case DragomanError():
            return leaf
        case MCPError() if isinstance(leaf.__cause__, DragomanError) and not _is_answer(leaf.__cause__):
            return leaf.__cause__
        case MCPError():
            msg = f"server `{server}` refused `{tool}`: {leaf.message} ({leaf.code})"
            return ProtocolError(msg, rpc_code=leaf.code, data=leaf.data, tool=tool, server=server)
        case ValidationError():
            msg = f"server `{server}` answered `{tool}` with something that is no result: {_fault(leaf)}"
            return ProtocolError(msg, tool=tool, server=server)
        case RuntimeError():
            # The SDK has no type of its own for a result that breaks its output schema.
            msg = f"the result of `{tool}` cannot be used: {leaf}"
            return InvalidResultError(msg, tool=tool, server=server)
        case _:
            msg = f"calling `{tool}` on server `{server}` failed: {type(leaf).__name__}: {leaf}"
            return ProtocolError(msg, tool=tool, server=server)


def _is_answer(error: DragomanError) -> bool:
    return isinstance(error, ProtocolError) and error.rpc_code != PARSE_ERROR


def _reason(leaf: BaseException, spec: ServerSpec, trail: Trail) -> tuple[str, str]:
    """Return what happened and what to do about it; never the expanded command or address."""
    match leaf:
        case TimeoutError():
            return (
                f"no answer within {spec.connect_timeout:g} s",
                "if it is only slow, raise `timeouts.connect`",
            )
        case OSError() if trail.stage == "variables":
            return f"an env file cannot be read: {leaf}", "check `env_file`"
        case OSError() if trail.stage == "spawn":
            command = spec.transport.command if isinstance(spec.transport, Stdio) else ""
            return f"`{command}` cannot be started: {leaf.strerror}", "check the command, PATH and `cwd`"
        case ConnectionLostError() if trail.kind == "stdio" and trail.exit_code is not None:
            return exit_reason(trail.exit_code), "run the command by hand"
        case MCPError() if leaf.code == types.CONNECTION_CLOSED and trail.kind == "stdio":
            ended = "the process ended" if trail.exit_code is None else exit_reason(trail.exit_code)
            return ended, "run the command by hand"
        case ConnectionLostError():
            return leaf.message, ""
        case MCPError() | httpx2.HTTPStatusError() if (trail.http_status or 0) >= _CLIENT_ERROR:
            return f"the server answered HTTP {trail.http_status}", "check the URL and the transport"
        case MCPError():
            return f"the server answered: {leaf.message} ({leaf.code})", ""
        case ValidationError() if trail.stage == "listing":
            reason = f"the listing was rejected as a whole because of one entry: {_fault(leaf)}"
            return reason, "the tool has to be mended in the server"
        case ValidationError():
            return f"the answer is no valid MCP: {_fault(leaf)}", ""
        case httpx2.HTTPError() | httpx2.InvalidURL() | OSError():
            return f"{type(leaf).__name__}: {leaf}", "check the URL and whether the server runs"
        case _:
            return f"{type(leaf).__name__}: {leaf}", ""


def _fault(exc: ValidationError) -> str:
    first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{first['msg']} at `{'.'.join(str(step) for step in first['loc'])}`"
