"""The pipeline of one call: resolve, validate, decide, send, render, report. A failed call is a result.

There is no other road to a tool. What goes wrong becomes a `ToolResult` with the typed error in it;
only a cancellation passes through.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import secrets
import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from dragoman.errors import (
    CallTimeoutError,
    ConnectionLostError,
    HttpStatusError,
    InvalidResultError,
    ServerError,
    ToolExecutionError,
    ToolUnavailableError,
)
from dragoman.events import CallFinished, CallStarted
from dragoman.guard import Guard
from dragoman.model import Part, ServerState, ToolResult
from dragoman.observe.failures import FailureLog
from dragoman.observe.metrics import CANCELLED, Metrics
from dragoman.server.pace import Pace
from dragoman.server.wire import Traffic, calling, traffic
from dragoman.tools.mending import MENDED
from dragoman.tools.outcome import LARGE_CHARS, Settling, check, is_large, settle, size_of
from dragoman.tools.registry import run_builtin
from dragoman.tools.validation import Validators
from dragoman.trust.limits import rate_text
from dragoman.trust.policy import copied
from dragoman.trust.redact import mask_arguments

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dragoman.errors import DragomanError, UnknownToolError
    from dragoman.events import Event
    from dragoman.model import ProgressHandler, ServerSpec, ToolDef
    from dragoman.observe.calllog import CallLog
    from dragoman.server.connection import Connection
    from dragoman.server.supervisor import Supervisor
    from dragoman.spill import Spill
    from dragoman.tools.budget import Budget
    from dragoman.tools.content import Answer
    from dragoman.tools.mending import Change
    from dragoman.tools.registry import ToolRegistry

logger = logging.getLogger("dragoman")

SUMMARY_CHARS = 300
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
    is_heard: Callable[[], bool] = lambda: True
    """Whether anybody would hear what is published: else events of calls are not even made."""
    validators: Validators = field(default_factory=Validators)
    mends: bool = False
    """Whether arguments that nearly fit are mended, where a server's spec does not say."""
    budget: Budget | None = None
    """How long the text of a result may be; unlimited unless given."""
    spill: Spill | None = None
    """Where results over the budget are kept, and pieces that are bytes."""
    failures: FailureLog = field(default_factory=FailureLog)
    pace: Pace = field(default_factory=Pace)
    guard: Guard = field(default_factory=Guard)
    """What decides whether a call is made; it allows every call unless given."""
    metrics: Metrics = field(default_factory=Metrics)
    log: CallLog | None = None


def unrecorded(route: Route, registry: ToolRegistry) -> Route:
    """Return a route to other tools by the same rules, whose calls are not counted, written down or told."""
    return replace(route, registry=registry, metrics=Metrics(), log=None, is_heard=lambda: False)


class Caller(Protocol):
    """What calls a tool as `McpManager.call` does."""

    async def __call__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ToolResult:
        """Call it."""
        ...


class _Call:
    """One call under way."""

    __slots__ = (
        "arguments",
        "began",
        "fields",
        "id",
        "mended",
        "name",
        "on_progress",
        "original_name",
        "timeout",
        "traffic",
    )

    def __init__(
        self, name: str, arguments: object, timeout: float | None, on_progress: ProgressHandler | None
    ) -> None:
        self.name = name
        self.arguments = arguments
        self.timeout = timeout
        self.on_progress = on_progress
        self.id = f"{_RUN}-{next(_NUMBERS)}"
        self.began = time.monotonic()
        self.original_name = ""
        """What the server in question calls the tool."""
        self.fields: dict[str, Any] = {}
        """The arguments as they are sent."""
        self.mended: Sequence[Change] = ()
        self.traffic = Traffic()

    def send(self, connection: Connection, left: float) -> Awaitable[Answer]:
        """Send it, with so many seconds left."""
        traffic.set(self.traffic)
        return connection.call_tool(self.original_name, self.fields, left, on_progress=self.on_progress)


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
    if route.is_heard():
        route.publish(CallStarted(server=server, tool=name, call_id=call.id))
    route.metrics.begun(server, name)
    try:
        result = await _answered(route, tool, call)
    except BaseException:
        _note(route, server, call, time.monotonic() - call.began, CANCELLED)
        raise
    finally:
        traffic.set(None)
    if result.exception is not None and result.provenance is not None:
        result = _without_secrets(route, result, result.exception)
    if call.mended:
        result = replace(result, meta={**result.meta, MENDED: [change.as_dict() for change in call.mended]})
    _report(route, server, call, result)
    return result


async def _answered(route: Route, tool: ToolDef | None, call: _Call) -> ToolResult:
    try:
        if tool is None:
            raise route.guard.pinboard.refusal(call.name) or _unknown(route, call.name)
        if not route.pace.has_room():
            await route.pace.turn()
        fields = _checked(route, tool, call)
        if route.guard.watches_calls:
            fields = await _permit(route, tool, fields)
        if tool.func is not None:
            return await _run_here(tool, call, fields)
        return await _send(route, tool, call, fields)
    except ToolUnavailableError as exc:
        return await _answered_instead(route, tool, call, exc) or _failed(route, call, exc)
    except ToolExecutionError as exc:
        return _failed(route, call, exc)


def _unknown(route: Route, name: str) -> UnknownToolError:
    """Say that there is no such tool, or that its server, by its name, has not been connected to."""
    error = route.registry.unknown(name)
    if route.registry.contenders(name):
        return error
    for supervisor in route.supervisors.values():
        server = supervisor.spec.name
        if supervisor.state is not ServerState.READY and _plain(server) in _plain(name):
            why = supervisor.error or f"it is {supervisor.state.value}"
            if supervisor.is_refused:
                # A model is told nothing that stands in a file that is not approved.
                error.hint = error.hint or "a server of the project is not approved by the user"
                continue
            error.hint = f"server `{server}` is not ready: {why}"
    return error


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name).lower()


def caller(route: Route, check: Callable[[], None]) -> Caller:
    """Return what calls by a route.

    Args:
        route: The route.
        check: Called before each call; raises where no call may be made at all.
    """

    async def call(
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ToolResult:
        check()
        with calling(headers) if headers else nullcontext():
            return await run(route, name, arguments, timeout=timeout, on_progress=on_progress)

    return call


async def _permit(route: Route, tool: ToolDef, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Let a call pass that is allowed; no deadline runs while a person is asked.

    Returns:
        The arguments that were judged: a copy, so that neither the caller nor a handler can change what is
        sent.

    Raises:
        CallDeniedError: It is not.
        UnknownToolError: The tool went, or became another, while a person was asked.
    """
    supervisor = route.supervisors.get(tool.server)
    trusts = supervisor is not None and supervisor.spec.trust_annotations
    judged = copied(dict(fields))
    asked = await route.guard.permit(tool, judged, trusts_hints=trusts)
    if asked and route.registry.get(tool.name) != tool:
        raise route.guard.pinboard.refusal(tool.name) or route.registry.unknown(tool.name)
    return judged


async def _answered_instead(
    route: Route, tool: ToolDef | None, call: _Call, exc: ToolUnavailableError
) -> ToolResult | None:
    """Get the answer from what stands in for a tool while its server cannot; nothing if nobody can."""
    supervisor = route.supervisors.get(tool.server) if tool is not None else None
    if exc.may_have_run or tool is None or tool.func is not None or supervisor is None:
        return None
    for name in supervisor.spec.fallback:
        if (other := _stand_in(route, tool, name)) is not None:
            result = await _stood_in(route, other, call, _checked(route, tool, call))
            if result is not None:
                note = f"[answered by `{name}`, since `{tool.server}` is not available]"
                meta = {**result.meta, FALLBACK: name}
                return replace(result, text=f"{note}\n{result.text}", meta=meta)
    return None


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
        if route.guard.watches_calls:
            arguments = await _permit(route, other, arguments)
        if other.func is not None:
            return await _run_here(other, call, arguments)
        return await _send(route, other, call, arguments)
    except ToolExecutionError:
        logger.exception("%s: the fallback failed too", other.server or other.name)
        return None


async def _run_here(tool: ToolDef, call: _Call, arguments: dict[str, Any]) -> ToolResult:
    text = await run_builtin(tool, arguments, timeout=call.timeout)
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
    call.original_name, call.fields = tool.original_name, arguments
    holds_back = route.guard.pinboard.holds_back(supervisor.spec)
    send = _as_pinned(route, tool, supervisor, call) if holds_back else call.send
    if supervisor.bucket is not None:
        await _take_turn(supervisor, tool, until)
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
                raise _unavailable(tool, exc) from exc.with_traceback(None)
            await asyncio.sleep(pause)
    limits = supervisor.limits
    by = Settling(
        tool=tool,
        validators=route.validators,
        call_id=call.id,
        server_version=supervisor.server_version,
        at=time.time(),
        duration=time.monotonic() - call.began,
        attribution=supervisor.spec.attribution,
        budget=route.budget,
        keeper=route.spill,
    )
    large = is_large(answer, by)
    if (large or limits.result_bytes < LARGE_CHARS) and (
        wrong := limits.excess("result_bytes", size_of(answer), what=f"the result of `{tool.name}`")
    ):
        raise InvalidResultError(wrong, tool=tool.name, server=tool.server, problems=[wrong])
    # Files are written, and long texts searched, beside the loop, which has other calls to serve.
    return await asyncio.to_thread(settle, answer, by) if large else settle(answer, by)


def _as_pinned(
    route: Route, tool: ToolDef, supervisor: Supervisor, call: _Call
) -> Callable[[Connection, float], Awaitable[Answer]]:
    """Return what sends a call only if its tool is as it was pinned on the connection that it is sent on."""

    def send(connection: Connection, left: float) -> Awaitable[Answer]:
        route.guard.pinboard.check(supervisor.spec, tool)
        return call.send(connection, left)

    return send


async def _take_turn(supervisor: Supervisor, tool: ToolDef, until: float) -> None:
    """Wait until a server that takes so many calls a second has room for one more."""
    while (bucket := supervisor.bucket) is not None and (wait := bucket.take(time.monotonic())) > 0:
        if time.monotonic() + wait >= until:
            msg = rate_text(supervisor.limits, server=tool.server, wait=wait)
            raise ToolUnavailableError(msg, tool=tool.name, server=tool.server, hint="try again later")
        await asyncio.sleep(wait)


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
    # A server that breaks over a request may have done what it was asked for before.
    ran = ran or (isinstance(exc, HttpStatusError) and not exc.refused_unrun)
    msg = f"`{tool.name}` is not available: {exc}"
    hint = "it may have run: check before you repeat it" if ran else ""
    return ToolUnavailableError(msg, tool=tool.name, server=tool.server, may_have_run=ran, hint=hint)


def _checked(route: Route, tool: ToolDef, call: _Call) -> dict[str, Any]:
    supervisor = route.supervisors.get(tool.server)
    wanted = supervisor.spec.mend_arguments if supervisor is not None else None
    mends = route.mends if wanted is None else wanted
    fields, call.mended = check(route.validators.of(tool.input_schema), tool, call.arguments, mends=mends)
    return fields


def _failed(route: Route, call: _Call, exc: ToolExecutionError) -> ToolResult:
    # A result may be kept for long, and frames would keep alive whatever the call was given.
    exc.__traceback__ = None
    route.guard.scrub(exc)
    text = str(exc)
    return ToolResult(
        success=False,
        text=text,
        error=text,
        exception=exc,
        call_id=call.id,
        duration=time.monotonic() - call.began,
    )


def _without_secrets(route: Route, result: ToolResult, exc: DragomanError) -> ToolResult:
    """Take known secrets out of what a tool says about its failure; its pieces stay as they are."""
    told = result.text == result.error
    route.guard.scrub(exc)
    return replace(result, error=str(exc), text=str(exc) if told else result.text)


def _report(route: Route, server: str, call: _Call, result: ToolResult) -> None:
    exc = result.exception
    if exc is not None:
        if isinstance(exc, ToolExecutionError):
            exc.call_id = call.id
        route.failures.note(server, exc.code, f"{call.id} of `{call.name}`", result.error)
    _note(route, server, call, result.duration, exc.code if exc else "", result.text)
    if route.is_heard():
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


def _note(route: Route, server: str, call: _Call, seconds: float, code: str, text: str = "") -> None:
    """Count a call that has ended, and write it down if that is wanted."""
    moved = call.traffic
    route.metrics.ended(server, call.name, seconds, code, sent=moved.sent, received=moved.received)
    if route.log is not None:
        route.log.note(
            server=server,
            tool=call.name,
            call_id=call.id,
            arguments=call.fields or call.arguments,
            duration=seconds,
            text=text,
            code=code,
        )


def summary(arguments: object) -> str:
    """Return a call's arguments for a log: short, and without secrets."""
    text = json.dumps(mask_arguments(arguments), ensure_ascii=False, default=repr)
    return text if len(text) <= SUMMARY_CHARS else f"{text[:SUMMARY_CHARS]}…"
