"""The interface to the MCP SDK: its session over our wires, and its exceptions as our errors.

The session takes our dispatcher. `seam_fault` opens a session over a wire in memory before the first
connection; if that fails with a release of the SDK, its session runs over a pair of streams (`streams.py`).
We use no private name of the SDK: a test looks for them.

Every exception of the SDK, its HTTP library or the operating system is turned into one of our errors here, by
its type, and exception groups are unwrapped. The modules above use only our own types.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
from asyncio import CancelledError
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
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
from dragoman.observe.telemetry import TracedServer
from dragoman.server.attempt import ConnectionEnd
from dragoman.server.process.environment import sandbox_hint
from dragoman.server.protocol.dispatcher import QUESTIONS, WireDispatcher
from dragoman.server.protocol.extensions import declared_extensions
from dragoman.server.protocol.rpc import PARSE_ERROR, TOO_LARGE
from dragoman.server.protocol.session import CLIENT_INFO, KnownProtocol, Session
from dragoman.server.protocol.streams import session_streams
from dragoman.server.protocol.wire import BUSY_SHARE, MAX_MESSAGE_BYTES, HttpOptions
from dragoman.server.transports.open_transport import open_wire
from dragoman.server.transports.stdio import exit_reason
from dragoman.trust.masking import details
from dragoman.trust.sanitizing import for_log
from dragoman.version import VERSION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from dragoman.model import HeaderProvider, ServerSpec, Transport
    from dragoman.server.attempt import ConnectAttempt
    from dragoman.server.process.spawn import Prespawn
    from dragoman.server.protocol.wire import SendInfo
    from dragoman.server.transports.http_client import HttpAuth

logger = logging.getLogger("dragoman")

# The SDK logs every junk line with a traceback, which Python prints to the terminal if no handler is set.
logging.getLogger("mcp").addHandler(logging.NullHandler())


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Drop the SDK's log line about a notification it cannot parse: a server may send thousands of them."""
    return not str(record.msg).startswith("Failed to validate notification")


logging.getLogger("client").addFilter(_is_worth_a_line)

_CLIENT_ERROR = 400
_UNAUTHORIZED = 401


def _sdk_version() -> str:
    try:
        return version("mcp")
    except PackageNotFoundError:
        return "of an unknown version"


IS_BEFORE_2_2 = _sdk_version().startswith(("2.0.", "2.1."))
"""Whether logins look for an authorization server only after a 401, and follow no redirect."""

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
    attempt: ConnectAttempt,
    on_end: Callable[[ConnectionEnd], None],
    known_protocol: KnownProtocol | None = None,
    changed: Callable[[str], None] | None = None,
    answers: Mapping[str, Any] | None = None,
    header_provider: HeaderProvider | None = None,
    auth: HttpAuth | None = None,
    start: Prespawn | None = None,
) -> AsyncGenerator[Session]:
    """Connect, do the handshake, and yield the session. The same task must enter and leave.

    Args:
        spec: The server; its templates are not read.
        transport: The expanded transport of the spec.
        env: Our environment; the child inherits the variables that the spec allows.
        attempt: Gets the facts as they become known.
        on_end: Called once when the connection has ended.
        known_protocol: The protocol generation of the last connection, to save a request.
        changed: Called with `tools`, `resources` or `prompts` when the server announces a change, and with
            the URI of a resource that has changed.
        answers: The callbacks for requests from the server, made by `sdk_answers`.
        header_provider: Returns more headers before each HTTP request.
        auth: Adds the login to HTTP requests.
        start: The child process, if it was started already.
    """
    is_seam_sound = not await seam_fault()
    callbacks = dict(answers or {})
    on_complete = callbacks.pop("elicitation_complete", None)

    async def on_message(message: object) -> None:
        if isinstance(message, types.ElicitCompleteNotification) and on_complete is not None:
            await on_complete(message.params)
        if changed is None:
            return
        if isinstance(message, types.ResourceUpdatedNotification):
            changed(str(message.params.uri))
        elif (what := _CHANGES.get(type(message))) is not None:
            changed(what)

    def on_task(state: dict[str, Any]) -> None:
        if opened and (watcher := opened[0].task_watchers.get(str(state.get("taskId")))) is not None:
            watcher(state)

    opened: list[Session] = []
    options = HttpOptions(
        limit=spec.max_message_bytes or MAX_MESSAGE_BYTES,
        header_provider=header_provider,
        auth=auth,
        busy_seconds=spec.connect_timeout * BUSY_SHARE,
    )
    declared: dict[str, Any] = {
        "client_info": CLIENT_INFO,
        "message_handler": on_message,
        **declared_extensions(),
        **callbacks,
    }
    async with AsyncExitStack() as stack:
        dispatcher = WireDispatcher(
            spec.name, probe_seconds=spec.connect_timeout / 3, attempt=attempt, on_end=on_end
        )
        dispatcher.asks = frozenset(method for name, method in QUESTIONS.items() if name in callbacks)
        dispatcher.peer = TracedServer.of(transport)
        dispatcher.on_task = on_task
        if isinstance(transport, Stdio):
            # The SDK's own type validates the command.
            StdioServerParameters(command=transport.command, args=list(transport.args), cwd=transport.cwd)
        wire = open_wire(
            transport,
            name=spec.name,
            env=env,
            attempt=attempt,
            rpc=dispatcher.rpc,
            on_end=dispatcher.end,
            options=options,
            start=start,
        )
        dispatcher.wire = await stack.enter_async_context(wire)
        attempt.enter("handshake")
        if is_seam_sound:
            session = ClientSession(dispatcher=dispatcher, **declared)
        else:
            streams = await stack.enter_async_context(session_streams(dispatcher))
            session = ClientSession(*streams, **declared)
        await stack.enter_async_context(session)
        await negotiate(session, spec.protocol, known_protocol)
        session_id: str | None = getattr(dispatcher.wire, "session_id", None)
        spoken = session.protocol_version or ""
        dispatcher.peer = TracedServer.of(transport, protocol_version=spoken, session_id=session_id or "")
        opened.append(Session(session, dispatcher, capabilities=client_capabilities(declared)))
        yield opened[0]


def client_capabilities(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a session declares to a modern server about its client.

    Args:
        declared: The arguments of the session.
    """
    form, url = types.FormElicitationCapability(), types.UrlElicitationCapability()
    capabilities = types.ClientCapabilities(
        sampling=declared.get("sampling_capabilities"),
        elicitation=types.ElicitationCapability(form=form, url=url)
        if "elicitation_callback" in declared
        else None,
        roots=types.RootsCapability(list_changed=True) if "list_roots_callback" in declared else None,
        extensions=declared.get("extensions"),
    )
    return capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)


async def negotiate(session: ClientSession, protocol: str, known_protocol: KnownProtocol | None) -> None:
    """Agree on a version of the protocol.

    A modern server is asked for its versions, and an answer that is not one of a modern server leads to the
    older handshake. A failure without an answer, such as a broken connection, says nothing about the version.

    Args:
        session: The open session.
        protocol: `auto`, or the generation that the server's entry demands.
        known_protocol: The generation of the last connection, which need not be asked for again.
    """
    known = known_protocol if protocol == "auto" else None
    if protocol == "legacy" or (known is not None and known.mode == "legacy"):
        await session.initialize()
        return
    if protocol == "modern" or known is not None:
        mode, discovered = known or KnownProtocol(LATEST_MODERN_VERSION)
        session.adopt(discovered or _presumed(mode))
        return
    try:
        await session.discover()
    except (ValidationError, RuntimeError):
        await session.initialize()
    except MCPError as exc:
        supported = _supported_by(exc)
        if supported and not any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported):
            raise
        try:
            await session.initialize()
        except MCPError as refusal:
            # A server that starts slowly may have read the question after we gave up on the answer.
            if not any(version in MODERN_PROTOCOL_VERSIONS for version in _supported_by(refusal)):
                raise
            await session.discover()


def _presumed(version: str) -> types.DiscoverResult:
    """Return the answer to `server/discover` of a server whose version is known, so that it is not asked."""
    return types.DiscoverResult(
        supported_versions=[version],
        capabilities=types.ServerCapabilities(),
        result_type="complete",
        ttl_ms=0,
        cache_scope="public",
    )


def is_answer(exc: BaseException) -> bool:
    """Return whether a failure is an answer of the server, not a timeout or the end of the connection."""
    if isinstance(exc, MCPError):
        return exc.code not in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT)
    return isinstance(exc, ValidationError)


SEAM_SECONDS = 5.0
"""How long the check may take; usually it takes a few milliseconds."""

_fault: str | None = None
"""Why the session does not take our dispatcher; empty if it does, `None` before the check."""


async def seam_fault() -> str:
    """Return why the session of this release of the SDK does not take our dispatcher; empty if it does.

    The first call opens a session over a wire in memory, as a connection does, and logs one warning if that
    does not work.
    """
    global _fault  # noqa: PLW0603 -- the outcome of one check per process
    if _fault is None:
        found = await _try_seam()
        if _fault is None and found:
            logger.warning(
                "the session of mcp %s does not take the dispatcher of dragoman %s (%s): it runs over "
                "streams instead, which costs some time",
                _sdk_version(),
                VERSION,
                found,
            )
        _fault = found
    return _fault


async def _try_seam() -> str:
    """Open a session over a wire in memory; return why that failed."""
    dispatcher = WireDispatcher("self-check", traced=False)
    dispatcher.wire = wire = _Loopback(dispatcher)
    try:
        async with asyncio.timeout(SEAM_SECONDS), ClientSession(dispatcher=dispatcher) as session:
            await negotiate(session, "legacy", None)
            await session.send_ping()
    except Exception as exc:  # noqa: BLE001 -- whatever a release does differently
        leaf = unwrap_group(exc)
        return f"{type(leaf).__name__}: {str(leaf)[:200]}"
    return "" if {"initialize", "ping"} <= wire.seen else "requests take another way"


class _Loopback:
    """A wire that answers `initialize` and `ping` itself."""

    def __init__(self, dispatcher: WireDispatcher) -> None:
        self._dispatcher = dispatcher
        self.seen: set[str] = set()

    def send(self, message: bytes, envelope: SendInfo) -> None:
        del message
        self.seen.add(envelope.method)
        result: dict[str, Any] = {}
        if envelope.method == "initialize":
            info = {"name": "self-check", "version": VERSION}
            result = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "serverInfo": info}
        if envelope.request_id is not None:
            answer = {"jsonrpc": "2.0", "id": envelope.request_id, "result": result}
            loop = asyncio.get_running_loop()
            loop.call_soon(self._dispatcher.rpc.receive, json.dumps(answer).encode())

    def abandon(self, message: bytes, envelope: SendInfo, reason: str, *, tell: bool = True) -> bool:
        del message, envelope, reason, tell
        return False


def unwrap_group(exc: BaseException) -> Exception:
    """Return the first error of an exception group; raise what must not be caught.

    Raises:
        BaseException: An interrupt, an exit, or a cancellation without an error next to it.
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


def connect_error(exc: BaseException, spec: ServerSpec, attempt: ConnectAttempt) -> ConnectError:
    """Return the error for a connection that could not be opened."""
    leaf = unwrap_group(exc)
    server = spec.name
    for found in (leaf, leaf.__cause__):
        if isinstance(found, AuthRequiredError):
            return found
    if attempt.http_status == _UNAUTHORIZED and not isinstance(leaf, TimeoutError):
        if _has_token(spec):
            msg = f"server `{server}` rejected the token in its `Authorization` header (HTTP 401)"
            hint = "the token is wrong or has expired: set a new one"
            return AuthRequiredError(msg, server=server, stage=attempt.stage, reason="token", hint=hint)
        msg = f"server `{server}` requires login (HTTP 401)"
        hint = "set an `Authorization` header"
        return AuthRequiredError(msg, server=server, stage=attempt.stage, hint=hint)
    reason, hint = _reason(leaf, spec, attempt)
    msg = f"cannot connect to server `{server}` ({attempt.kind}, {attempt.stage}): {reason}"
    tail = attempt.stderr.text() if attempt.stderr else ""
    if tail:
        msg += f"; last stderr lines: {' | '.join(tail.splitlines()[-3:])[-500:]}"
        hint = sandbox_hint(spec, tail) or hint
    kind, subject = _kind(leaf, spec, attempt)
    return ConnectError(
        msg,
        server=server,
        stage=attempt.stage,
        reason=kind,
        subject=subject,
        # After a timeout we killed the child: its exit code would be that of our signal.
        exit_code=None if isinstance(leaf, TimeoutError) else attempt.exit_code,
        stderr_tail=tail,
        hint=hint,
    )


def unexplained_end(exc: BaseException | None, spec: ServerSpec, attempt: ConnectAttempt) -> ConnectionEnd:
    """Return how an open connection ended of which no wire has said it.

    Args:
        exc: What ended it, if that is known.
        spec: The server.
        attempt: The facts of the connection.
    """
    if exc is not None:
        return ConnectionEnd(reason=_reason(unwrap_group(exc), spec, attempt)[0])
    reason = "the process ended" if attempt.kind == "stdio" else "the server closed it"
    return attempt.end or ConnectionEnd(reason=reason)


def call_error(exc: BaseException, *, server: str, tool: str) -> DragomanError | TimeoutError:
    """Return the error for a call without a result on an open connection."""
    leaf = unwrap_group(exc)
    match leaf:
        case MCPError() if isinstance(leaf.__cause__, TimeoutError):
            return leaf.__cause__
        case DragomanError() | TimeoutError():
            return leaf
        case MCPError(__cause__=ConnectionLostError() as lost):
            # One error object ends every call of a connection; each caller needs its own, to raise it.
            return ConnectionLostError(
                lost.message, server=lost.server, may_have_run=lost.may_have_run, hint=lost.hint
            )
        case MCPError(__cause__=ProtocolError(rpc_code=code) as unreadable) if code == PARSE_ERROR:
            msg = f"server `{server}` gave no usable answer to `{tool}`: {unreadable.message}"
            return ProtocolError(msg, rpc_code=code, data=unreadable.data, tool=tool, server=server)
        case MCPError(__cause__=DragomanError() as ours) if not isinstance(ours, ProtocolError):
            return ours
        case MCPError():
            msg = f"server `{server}` refused `{tool}`: {leaf.message} ({leaf.code}){details(leaf.data)}"
            return ProtocolError(msg, rpc_code=leaf.code, data=leaf.data, tool=tool, server=server)
        case ValidationError():
            msg = f"server `{server}` answered `{tool}` with an invalid result: {_first_fault(leaf)}"
            return ProtocolError(msg, tool=tool, server=server)
        case RuntimeError():
            # The SDK raises RuntimeError for a result that does not match its output schema.
            msg = f"the result of `{tool}` cannot be used: {leaf}"
            return InvalidResultError(msg, tool=tool, server=server)
        case _:
            msg = f"calling `{tool}` on server `{server}` failed: {type(leaf).__name__}: {leaf}"
            return ProtocolError(msg, tool=tool, server=server)


def check_result(raw: dict[str, Any], *, server: str, tool: str) -> None:
    """Check the result of a call that came by another way than an answer: with the state of a task.

    Raises:
        ProtocolError: It is not a valid result.
    """
    try:
        types.CallToolResult.model_validate(raw)
    except ValidationError as exc:
        raise call_error(exc, server=server, tool=tool) from None


def _has_token(spec: ServerSpec) -> bool:
    """Return whether the entry has an `Authorization` header of its own, which rules out OAuth."""
    transport = spec.transport
    return not isinstance(transport, Stdio) and any(
        name.lower() == "authorization" for name in transport.headers
    )


_VERSION = re.compile(r"Unsupported protocol version from the server: (.{1,40})")
"""The SDK's message; it has no type of its own."""


def _kind(leaf: BaseException, spec: ServerSpec, attempt: ConnectAttempt) -> tuple[str, str]:
    """Return `reason` and `subject` of a `ConnectError`."""
    match leaf:
        case TimeoutError():
            return ("stdout", "") if attempt.junk else ("timeout", f"{spec.connect_timeout:g}")
        case FileNotFoundError() if attempt.stage == "spawn":
            return "program", ""
        case NotADirectoryError() if attempt.stage == "spawn":
            return "folder", ""
        case PermissionError() if attempt.stage == "spawn":
            return "permission", ""
        case RuntimeError() if found := _VERSION.search(str(leaf)):
            return "version", found[1]
        case MCPError() if leaf.code == types.UNSUPPORTED_PROTOCOL_VERSION:
            return "version", _supported(leaf)
        case MCPError() if TOO_LARGE in leaf.message:
            return "size", ""
        case _ if attempt.network[0]:
            return attempt.network
        case _ if attempt.exit_code is not None:
            silent = attempt.stderr is None or not attempt.stderr.text()
            return ("stdout" if attempt.junk and silent else "exit"), str(attempt.exit_code)
        case _ if attempt.http_status is None:
            return "", ""
        case _ if attempt.http_status >= _CLIENT_ERROR:
            return "http", str(attempt.http_status)
        case _:
            return ("page", "") if attempt.is_page else ("", "")


def _reason(leaf: BaseException, spec: ServerSpec, attempt: ConnectAttempt) -> tuple[str, str]:
    """Return the reason and a hint, without the expanded command or URL: they may hold secrets."""
    match leaf:
        case TimeoutError():
            return (
                f"no answer within {spec.connect_timeout:g} s",
                "if it is only slow, raise `timeouts.connect`",
            )
        case OSError() if attempt.stage == "spawn":
            command = spec.transport.command if isinstance(spec.transport, Stdio) else ""
            return f"`{command}` cannot be started: {leaf.strerror}", "check the command, PATH and `cwd`"
        case ConnectionLostError() if attempt.kind == "stdio" and attempt.exit_code is not None:
            return exit_reason(attempt.exit_code), f"run `dragoman doctor {shlex.quote(spec.name)}`"
        case MCPError() if leaf.code == types.UNSUPPORTED_PROTOCOL_VERSION:
            reason = (
                f"the server supports only other versions of the protocol: {_supported(leaf)} ({leaf.code})"
            )
            return reason, "update dragoman, the `mcp` package, or the server"
        case MCPError(__cause__=ProtocolError()) if (attempt.http_status or 0) < _CLIENT_ERROR:
            # The server's own message, whatever its code.
            return f"the server answered: {leaf.message} ({leaf.code})", ""
        case MCPError() if leaf.code == types.CONNECTION_CLOSED and attempt.kind == "stdio":
            ended = "the process ended" if attempt.exit_code is None else exit_reason(attempt.exit_code)
            return ended, f"run `dragoman doctor {shlex.quote(spec.name)}`"
        case DragomanError():
            return leaf.message, leaf.hint
        case _ if (attempt.http_status or 0) >= _CLIENT_ERROR and (
            isinstance(leaf, MCPError) or _is_of_http_library(leaf)
        ):
            return f"the server answered HTTP {attempt.http_status}", "check the URL and the transport"
        case MCPError():
            return f"the server answered: {leaf.message} ({leaf.code})", ""
        case ValidationError() if attempt.stage == "listing":
            reason = f"the listing was rejected as a whole because of one entry: {_first_fault(leaf)}"
            return reason, "the tool must be fixed in the server"
        case ValidationError():
            return f"the answer is not valid MCP: {_first_fault(leaf)}", ""
        case _ if isinstance(leaf, OSError) or _is_of_http_library(leaf):
            return f"{type(leaf).__name__}: {leaf}", "check the URL and whether the server runs"
        case _:
            return f"{type(leaf).__name__}: {leaf}", ""


def _is_of_http_library(leaf: BaseException) -> bool:
    """Return whether the SDK's HTTP library raised an error, without importing it."""
    return type(leaf).__module__.partition(".")[0] == "httpx2"


def _supported(exc: MCPError) -> str:
    """Return the versions that a server says it supports, as text."""
    return ", ".join(for_log(version, 20) for version in _supported_by(exc)[:5]) or "unknown"


def _supported_by(exc: MCPError) -> list[str]:
    """Return the versions that a server names in its refusal of a version; empty for another error."""
    data: object = exc.error.data if exc.code == types.UNSUPPORTED_PROTOCOL_VERSION else None
    named = cast("dict[str, Any]", data).get("supported") if isinstance(data, dict) else None
    versions = cast("list[object]", named) if isinstance(named, list) else []
    return [version for version in versions if isinstance(version, str)]


def _first_fault(exc: ValidationError) -> str:
    first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{first['msg']} at `{'.'.join(str(step) for step in first['loc'])}`"
