"""The pipeline of one call: resolve, validate, send, render, report. A failed call is a result.

There is no other road to a tool. What goes wrong becomes a `ToolResult` with the typed error in it;
only a cancellation passes through.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import (
    CallTimeoutError,
    ConnectionLostError,
    HttpStatusError,
    InvalidArgumentsError,
    InvalidResultError,
    ServerError,
    ToolExecutionError,
    ToolFailedError,
    ToolUnavailableError,
)
from dragoman.events import CallFinished, CallStarted
from dragoman.model import Part, Provenance, ToolResult
from dragoman.tools.provenance import find_sources
from dragoman.tools.rendering import describe, render
from dragoman.tools.validation import Validators
from dragoman.trust.redact import mask_arguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.events import Event
    from dragoman.model import ProgressHandler, ServerSpec, ToolDef
    from dragoman.server.connection import Connection
    from dragoman.server.supervisor import Supervisor
    from dragoman.tools.content import Answer
    from dragoman.tools.registry import ToolRegistry

logger = logging.getLogger("dragoman")

SUMMARY_CHARS = 300
UNSTRUCTURED = "dragoman/unstructured"
"""The key in a result's `meta` that says why its output schema was not checked."""
FALLBACK = "dragoman/fallback"
"""The key in a result's `meta` that names who answered instead."""
MAX_TRIES = 3
RETRY_PAUSE = 1.0
RETRIED_STATUSES = frozenset({421, 425, 429, 503})
"""Refusals that may be over a moment later; the others would be the same again."""

_RUN = secrets.token_hex(4)
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a call finds its way by."""

    registry: ToolRegistry
    supervisors: Mapping[str, Supervisor]
    publish: Callable[[Event], None]
    validators: Validators = field(default_factory=Validators)


class _Call:
    """One call under way."""

    __slots__ = ("arguments", "began", "id", "name", "on_progress", "timeout")

    def __init__(
        self, name: str, arguments: object, timeout: float | None, on_progress: ProgressHandler | None
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.timeout = timeout
        self.on_progress = on_progress
        self.id = f"{_RUN}-{next(_NUMBERS)}"
        self.began = time.monotonic()


async def run(
    route: Route,
    name: str,
    arguments: object,
    *,
    timeout: float | None = None,
    on_progress: ProgressHandler | None = None,
) -> ToolResult:
    """Call a tool by its exposed name, and return a result whatever happens to the call."""
    call = _Call(name, arguments, timeout, on_progress)
    tool = route.registry.get(name)
    server = tool.server if tool else ""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s: calling `%s` with %s", server or "builtin", name, summary(arguments))
    route.publish(CallStarted(server=server, tool=name, call_id=call.id))
    try:
        if tool is None:
            raise route.registry.unknown(name)
        result = await _answered(route, tool, call)
    except ToolExecutionError as exc:
        result = _failed(call, exc)
    _report(route, server, call, result)
    return result


async def _answered(route: Route, tool: ToolDef, call: _Call) -> ToolResult:
    """Get the answer, from the tool itself or, while its server cannot, from what stands in for it."""
    arguments = _checked(route, tool, call.arguments)
    if tool.func is not None:
        return await _run_here(route, tool, call, arguments)
    try:
        return await _send(route, tool, call, arguments)
    except ToolUnavailableError as exc:
        supervisor = route.supervisors.get(tool.server)
        if exc.may_have_run or supervisor is None:
            raise
        for name in supervisor.spec.fallback:
            if (other := _stand_in(route, tool, name)) is not None:
                result = await _stood_in(route, other, call, arguments)
                if result is not None:
                    note = f"[answered by `{name}`, since `{tool.server}` is not available]"
                    meta = {**result.meta, FALLBACK: name}
                    return replace(result, text=f"{note}\n{result.text}", meta=meta)
        raise


def _stand_in(route: Route, tool: ToolDef, name: str) -> ToolDef | None:
    """Find what a fallback means: a built-in tool of that name, or the same tool of another server."""
    found = route.registry.get(name)
    if found is not None and found.func is not None:
        return found
    same = (one for one in route.registry if one.server == name and one.original_name == tool.original_name)
    return next(same, None)


async def _stood_in(
    route: Route, other: ToolDef, call: _Call, arguments: dict[str, Any]
) -> ToolResult | None:
    try:
        if other.func is not None:
            return await _run_here(route, other, call, arguments)
        return await _send(route, other, call, arguments)
    except ToolExecutionError:
        logger.exception("%s: the fallback failed too", other.server or other.name)
        return None


async def _run_here(route: Route, tool: ToolDef, call: _Call, arguments: dict[str, Any]) -> ToolResult:
    text = await route.registry.call(tool.name, arguments, timeout=call.timeout)
    return ToolResult(
        success=True,
        text=text,
        parts=[Part(kind="text", text=text)],
        call_id=call.id,
        duration=time.monotonic() - call.began,
    )


async def _send(route: Route, tool: ToolDef, call: _Call, arguments: dict[str, Any]) -> ToolResult:
    supervisor = route.supervisors.get(tool.server)
    if supervisor is None:
        msg = f"`{tool.name}` belongs to server `{tool.server}`, which is gone"
        raise ToolUnavailableError(msg, tool=tool.name, server=tool.server)
    seconds = supervisor.spec.call_timeout if call.timeout is None else call.timeout
    until = time.monotonic() + seconds

    def send(connection: Connection, left: float) -> Awaitable[Answer]:
        return connection.call_tool(tool.original_name, arguments, left, on_progress=call.on_progress)

    tries = 0
    while True:
        tries += 1
        try:
            answer = await supervisor.request(send, seconds=until - time.monotonic())
            break
        except TimeoutError as exc:
            msg = f"`{tool.name}` did not answer within {seconds:g} s"
            raise CallTimeoutError(
                msg, seconds=seconds, tool=tool.name, server=tool.server, hint="try again, or another way"
            ) from exc
        except ServerError as exc:
            pause = _pause_before_retry(exc, tool, supervisor.spec)
            if tries >= MAX_TRIES or pause is None or time.monotonic() + pause >= until:
                raise _unavailable(tool, exc) from exc
            await asyncio.sleep(pause)
    return _rendered(route, tool, answer, supervisor.server_version, call)


def _pause_before_retry(exc: ServerError, tool: ToolDef, spec: ServerSpec) -> float | None:
    """Return how long to wait before sending again; `None` if that is not safe or of no use.

    Safe is what surely has not run: never written, or refused unrun. What may have run is sent again only if
    the tool calls itself harmless and the spec trusts it in that.
    """
    if isinstance(exc, HttpStatusError):
        return (exc.retry_after or RETRY_PAUSE) if exc.status in RETRIED_STATUSES else None
    if not isinstance(exc, ConnectionLostError):
        return None
    harmless = tool.annotations.get("readOnlyHint") is True or tool.annotations.get("idempotentHint") is True
    return 0.0 if not exc.may_have_run or (spec.trust_annotations and harmless) else None


def _unavailable(tool: ToolDef, exc: ServerError) -> ToolUnavailableError:
    ran = isinstance(exc, ConnectionLostError) and exc.may_have_run
    msg = f"`{tool.name}` is not available: {exc}"
    hint = "it may have run: check before you repeat it" if ran else ""
    return ToolUnavailableError(msg, tool=tool.name, server=tool.server, may_have_run=ran, hint=hint)


def _checked(route: Route, tool: ToolDef, arguments: object) -> dict[str, Any]:
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        problems = [f"the arguments have to be an object, not {type(arguments).__name__}"]
        fields: dict[str, Any] = {}
    else:
        fields = dict(cast("Mapping[str, Any]", arguments))
        validator = route.validators.of(tool.input_schema)
        problems = validator.problems(fields)
        if problems and None in fields.values():
            # Many a caller writes null for what it leaves out; where the schema has no null, that is meant.
            required = cast("list[str]", tool.input_schema.get("required") or [])
            given = {key: value for key, value in fields.items() if value is not None or key in required}
            if not validator.problems(given):
                return given
    if problems:
        msg = f"`{tool.name}` was not called, its arguments do not fit:{_listed(problems)}"
        raise InvalidArgumentsError(msg, tool=tool.name, server=tool.server, problems=problems)
    return fields


def _listed(problems: list[str]) -> str:
    return f" {problems[0]}" if len(problems) == 1 else "".join(f"\n- {problem}" for problem in problems)


def _rendered(route: Route, tool: ToolDef, answer: Answer, server_version: str, call: _Call) -> ToolResult:
    structured, meta = answer.structured, answer.meta
    sources = find_sources(structured, meta) if structured is not None or meta else ()
    text = render(answer.parts, sources)
    failure: ToolExecutionError | None = None
    error = text
    if answer.is_error:
        error = text = text or "the tool failed and did not say why"
        failure = ToolFailedError(text, tool=tool.name, server=tool.server)
    elif tool.output_schema is not None:
        if structured is None:
            meta = {**meta, UNSTRUCTURED: "the tool declares an output schema but gave no structured content"}
        elif problems := route.validators.of(tool.output_schema).problems(structured):
            msg = f"`{tool.name}` ran, but its result breaks its own output schema: {_listed(problems)}"
            failure = InvalidResultError(msg, tool=tool.name, server=tool.server)
            error = str(failure)
    return ToolResult(
        success=failure is None,
        text=text,
        error=None if failure is None else error,
        exception=failure,
        structured=structured,
        parts=[part if part.kind == "text" else _described(part) for part in answer.parts],
        meta=meta,
        provenance=Provenance(
            server=tool.server,
            tool=tool.original_name,
            server_version=server_version,
            at=time.time(),
            sources=sources,
        ),
        call_id=call.id,
        duration=time.monotonic() - call.began,
    )


def _described(part: Part) -> Part:
    return part if part.text or part.kind == "structured" else replace(part, text=describe(part))


def _failed(call: _Call, exc: ToolExecutionError) -> ToolResult:
    return ToolResult(
        success=False,
        text=str(exc),
        error=str(exc),
        exception=exc,
        call_id=call.id,
        duration=time.monotonic() - call.began,
    )


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
