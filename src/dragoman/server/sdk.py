"""The SDK's client on a wire, and its exceptions as our errors.

What the SDK, its HTTP library or the system raises becomes one of our errors here, once, by type; exception
groups are opened here. Everything above speaks in our nouns.
"""

from __future__ import annotations

import logging
import sys
from asyncio import CancelledError
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from dragoman.errors import (
    AuthRequiredError,
    ConnectError,
    ConnectionLostError,
    DragomanError,
    InvalidResultError,
    ProtocolError,
)
from dragoman.model import Stdio
from dragoman.observe.telemetry import Peer
from dragoman.server.dispatcher import QUESTIONS, WireDispatcher
from dragoman.server.http_options import HttpOptions
from dragoman.server.late import late_import_module
from dragoman.server.rpc import MAX_MESSAGE_BYTES, PARSE_ERROR
from dragoman.server.session import Era, Session
from dragoman.server.transports import exit_reason, open_wire
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AsyncExitStack

    from dragoman.model import HeaderProvider, ServerSpec, Transport
    from dragoman.server.headstart import HeadStart
    from dragoman.server.http_options import HttpAuth
    from dragoman.server.trail import Trail

# The SDK reports every junk line with a traceback; without a handler Python prints that to the terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Leave out what the SDK's session says of every notification that it cannot read: it may be a flood."""
    return not str(record.msg).startswith("Failed to validate notification")


logging.getLogger("client").addFilter(_is_worth_a_line)

_UNUSED: Any = object()
"""Stands where the SDK wants a transport; the one in use is put under it afterwards."""
_CLIENT_ERROR = 400
_UNAUTHORIZED = 401

_CHANGES: dict[type[Any], str] = {
    types.ToolListChangedNotification: "tools",
    types.ResourceListChangedNotification: "resources",
    types.PromptListChangedNotification: "prompts",
}


@asynccontextmanager
async def open_session(
    spec: ServerSpec,
    transport: Transport,
    *,
    env: Mapping[str, str],
    trail: Trail,
    ended: Callable[[str], None],
    era: Era | None = None,
    changed: Callable[[str], None] | None = None,
    answers: Mapping[str, Any] | None = None,
    header_provider: HeaderProvider | None = None,
    auth: HttpAuth | None = None,
    start: HeadStart | None = None,
) -> AsyncGenerator[Session]:
    """Connect, shake hands, and hand out the session. One task enters and leaves.

    Args:
        spec: The server; only its rules are read, not its templates.
        transport: The spec's transport, expanded.
        env: Our environment, for what the spec lets a child inherit.
        trail: Filled in on the way.
        ended: Called, with the reason where one is known, when nothing more can arrive.
        era: What the last connection to this server found, so that it is not asked again.
        changed: Called with `tools`, `resources` or `prompts` when the server says that they have changed,
            and with a URI when that resource has.
        answers: What the SDK's client calls when the server asks something, as `handlers.py` makes it.
        header_provider: Asked for more headers before each HTTP request.
        auth: Logs in over HTTP.
        start: The child, if it was started already.
    """
    ours = spec.wire == "dragoman" and sys.platform != "win32"
    dispatcher = WireDispatcher(spec.name, probe_seconds=spec.connect_timeout / 3) if ours else None
    if dispatcher is not None:
        dispatcher.asks = frozenset(method for name, method in QUESTIONS.items() if name in (answers or {}))
    wire: Any = _UNUSED
    if not ours:
        # Few servers want the SDK's own transports, which bring our HTTP client along.
        wire = (await late_import_module("dragoman.server.sdk_transports")).sdk_transport(
            transport,
            name=spec.name,
            env=env,
            trail=trail,
            ended=lambda: ended(""),
            header_provider=header_provider,
            auth=auth,
        )

    async def on_message(message: object) -> None:
        if changed is None:
            return
        if isinstance(message, types.ResourceUpdatedNotification):
            changed(str(message.params.uri))
        elif (what := _CHANGES.get(type(message))) is not None:
            changed(what)

    known = era if spec.protocol == "auto" else None
    client = Client(
        wire,
        mode=known.mode if known else LATEST_MODERN_VERSION if spec.protocol == "modern" else spec.protocol,
        prior_discover=known.discover if known else None,
        client_info=types.Implementation(name="dragoman", version=VERSION),
        message_handler=on_message,
        cache=None,
        **(answers or {}),
    )
    if dispatcher is not None:
        dispatcher.peer = Peer.of(transport)
        limit = spec.max_message_bytes or MAX_MESSAGE_BYTES
        options = HttpOptions(limit=limit, header_provider=header_provider, auth=auth)
        _put_under(client, dispatcher, transport, env=env, trail=trail, options=options, start=start)
        dispatcher.ended.add_done_callback(lambda done: ended(done.result()))
    async with client:
        if dispatcher is not None:
            session_id: str | None = getattr(dispatcher.wire, "session_id", None)
            version = client.protocol_version
            dispatcher.peer = Peer.of(transport, protocol_version=version, session_id=session_id or "")
        yield Session(client, dispatcher)


def is_answer(exc: BaseException) -> bool:
    """Tell whether a failure is what the server answered, and not silence or the end of the connection."""
    if isinstance(exc, MCPError):
        return exc.code not in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT)
    return isinstance(exc, ValidationError)


def is_end(exc: BaseException | None) -> bool:
    """Tell whether a failure may be the end of the connection; a server may use the same code."""
    return isinstance(exc, MCPError) and exc.code == types.CONNECTION_CLOSED


def _put_under(
    client: Client,
    dispatcher: WireDispatcher,
    transport: Transport,
    *,
    env: Mapping[str, str],
    trail: Trail,
    options: HttpOptions,
    start: HeadStart | None,
) -> None:
    """Put our wire under the SDK's client, in place of a transport of its own.

    `_connect` keeps the negotiation of eras, rounds of input and mirrored headers. With `_stamp` in
    `session.py` it is all that is used of the SDK's private names; a test fails when one of them moves.
    """

    async def connect(stack: AsyncExitStack, _mode: object, _raise: object) -> WireDispatcher:
        if isinstance(transport, Stdio):
            # The SDK's own type is the judge of what a command may be.
            StdioServerParameters(command=transport.command, args=list(transport.args), cwd=transport.cwd)
        wire = open_wire(
            transport,
            name=dispatcher.server,
            env=env,
            trail=trail,
            rpc=dispatcher.rpc,
            on_end=dispatcher.end,
            options=options,
            start=start,
        )
        dispatcher.wire = await stack.enter_async_context(wire)
        trail.stage = "handshake"
        return dispatcher

    client._connect = connect  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


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
    for found in (leaf, leaf.__cause__):
        if isinstance(found, AuthRequiredError):
            return found
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
        case DragomanError() | TimeoutError():
            return leaf
        case MCPError(__cause__=ConnectionLostError() as lost):
            # One error ends every call of a connection; each caller gets one of its own.
            return ConnectionLostError(
                lost.message, server=lost.server, may_have_run=lost.may_have_run, hint=lost.hint
            )
        case MCPError(__cause__=ProtocolError(rpc_code=code) as unreadable) if code == PARSE_ERROR:
            msg = f"server `{server}` gave no usable answer to `{tool}`: {unreadable.message}"
            return ProtocolError(msg, rpc_code=code, data=unreadable.data, tool=tool, server=server)
        case MCPError(__cause__=DragomanError() as ours) if not isinstance(ours, ProtocolError):
            return ours
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


def _reason(leaf: BaseException, spec: ServerSpec, trail: Trail) -> tuple[str, str]:
    """Return what happened and what to do about it; never the expanded command or address."""
    match leaf:
        case TimeoutError():
            return (
                f"no answer within {spec.connect_timeout:g} s",
                "if it is only slow, raise `timeouts.connect`",
            )
        case OSError() if trail.stage == "spawn":
            command = spec.transport.command if isinstance(spec.transport, Stdio) else ""
            return f"`{command}` cannot be started: {leaf.strerror}", "check the command, PATH and `cwd`"
        case ConnectionLostError() if trail.kind == "stdio" and trail.exit_code is not None:
            return exit_reason(trail.exit_code), "run the command by hand"
        case MCPError(__cause__=ProtocolError()) if (trail.http_status or 0) < _CLIENT_ERROR:
            # A server's own words, whatever code it gave them.
            return f"the server answered: {leaf.message} ({leaf.code})", ""
        case MCPError() if leaf.code == types.CONNECTION_CLOSED and trail.kind == "stdio":
            ended = "the process ended" if trail.exit_code is None else exit_reason(trail.exit_code)
            return ended, "run the command by hand"
        case DragomanError():
            return leaf.message, leaf.hint
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
