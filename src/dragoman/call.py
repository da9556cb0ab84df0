"""The pipeline of one call: resolve, send, render, report. A failed call is a result.

There is no other road to a tool. What goes wrong becomes a `ToolResult` with the typed error in it;
only a cancellation passes through.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import (
    CallTimeoutError,
    ConnectionLostError,
    InvalidArgumentsError,
    ServerError,
    ToolExecutionError,
    ToolFailedError,
    ToolUnavailableError,
)
from dragoman.events import CallFinished, CallStarted
from dragoman.model import Part, Provenance, ToolResult
from dragoman.tools.provenance import find_sources
from dragoman.tools.rendering import describe, render
from dragoman.trust.redact import mask_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.events import Event
    from dragoman.model import ToolDef
    from dragoman.server.connection import Connection
    from dragoman.server.supervisor import Supervisor
    from dragoman.tools.content import Answer
    from dragoman.tools.registry import ToolRegistry

logger = logging.getLogger("dragoman")

SUMMARY_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a call finds its way by."""

    registry: ToolRegistry
    supervisors: Mapping[str, Supervisor]
    publish: Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call under way."""

    name: str
    arguments: object
    timeout: float | None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)


async def run(route: Route, name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
    """Call a tool by its exposed name, and return a result whatever happens to the call."""
    call = _Call(name=name, arguments=arguments, timeout=timeout)
    tool = route.registry.get(name)
    server = tool.server if tool else ""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s: calling `%s` with %s", server or "builtin", name, summary(arguments))
    route.publish(CallStarted(server=server, tool=name, call_id=call.id))
    try:
        if tool is None:
            raise route.registry.unknown(name)
        result = await _send(route, tool, call)
    except ToolExecutionError as exc:
        result = _failed(call, exc)
    result = replace(result, call_id=call.id, duration=time.monotonic() - call.began)
    _report(route, server, call, result)
    return result


async def _send(route: Route, tool: ToolDef, call: _Call) -> ToolResult:
    arguments = _checked(tool, call.arguments)
    if tool.func is not None:
        text = await route.registry.call(tool.name, arguments, timeout=call.timeout)
        return ToolResult(success=True, text=text, parts=[Part(kind="text", text=text)])
    supervisor = route.supervisors.get(tool.server)
    if supervisor is None:
        msg = f"`{tool.name}` belongs to server `{tool.server}`, which is gone"
        raise ToolUnavailableError(msg, tool=tool.name, server=tool.server)
    seconds = supervisor.spec.call_timeout if call.timeout is None else call.timeout

    async def send(connection: Connection, left: float) -> Answer:
        return await connection.call_tool(tool.original_name, arguments, left)

    try:
        answer = await supervisor.request(send, seconds=seconds)
    except TimeoutError as exc:
        msg = f"`{tool.name}` did not answer within {seconds:g} s"
        raise CallTimeoutError(
            msg, seconds=seconds, tool=tool.name, server=tool.server, hint="try again, or another way"
        ) from exc
    except ServerError as exc:
        ran = isinstance(exc, ConnectionLostError) and exc.may_have_run
        msg = f"`{tool.name}` is not available: {exc}"
        hint = "it may have run: check before you repeat it" if ran else ""
        raise ToolUnavailableError(
            msg, tool=tool.name, server=tool.server, may_have_run=ran, hint=hint
        ) from exc
    return _rendered(tool, answer, supervisor.server_version)


def _checked(tool: ToolDef, arguments: object) -> dict[str, Any]:
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        problem = f"the arguments have to be an object, not {type(arguments).__name__}"
        msg = f"`{tool.name}` was not called: {problem}"
        raise InvalidArgumentsError(msg, tool=tool.name, server=tool.server, problems=[problem])
    return dict(cast("Mapping[str, Any]", arguments))


def _rendered(tool: ToolDef, answer: Answer, server_version: str) -> ToolResult:
    sources = find_sources(answer.structured, answer.meta)
    text = render(answer.parts, sources)
    failure: ToolFailedError | None = None
    if answer.is_error:
        text = text or "the tool failed and did not say why"
        failure = ToolFailedError(text, tool=tool.name, server=tool.server)
    return ToolResult(
        success=failure is None,
        text=text,
        error=None if failure is None else text,
        exception=failure,
        structured=answer.structured,
        parts=[part if part.kind == "text" else _described(part) for part in answer.parts],
        meta=answer.meta,
        provenance=Provenance(
            server=tool.server,
            tool=tool.original_name,
            server_version=server_version,
            at=time.time(),
            sources=sources,
        ),
    )


def _described(part: Part) -> Part:
    return part if part.text or part.kind == "structured" else replace(part, text=describe(part))


def _failed(call: _Call, exc: ToolExecutionError) -> ToolResult:
    exc.call_id = exc.call_id or call.id
    return ToolResult(success=False, text=str(exc), error=str(exc), exception=exc)


def _report(route: Route, server: str, call: _Call, result: ToolResult) -> None:
    exc = result.exception
    if isinstance(exc, ToolExecutionError):
        exc.call_id = call.id
    if exc is not None:
        logger.error("%s: call %s of `%s` failed: %s", server or "builtin", call.id, call.name, result.error)
    route.publish(
        CallFinished(
            server=server,
            tool=call.name,
            call_id=call.id,
            success=result.success,
            duration=result.duration,
            error_code=exc.code if exc else "",
        )
    )


def summary(arguments: object) -> str:
    """Return a call's arguments for a log: short, and without secrets."""
    text = json.dumps(mask_arguments(arguments), ensure_ascii=False, default=repr)
    return text if len(text) <= SUMMARY_CHARS else f"{text[:SUMMARY_CHARS]}…"
