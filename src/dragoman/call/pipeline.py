"""The pipeline of one call: resolve, validate, permit, send, limit, render, report.

Every tool call takes this path. A failed call is a result: an error becomes a `ToolResult` that holds the
typed exception. Only a cancellation is raised.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, cast

from dragoman.call.context import Call, CallContext, CallMode, Forwarded, ToolCaller
from dragoman.call.outcome import failed, needs_source, result_of_answer, unavailable
from dragoman.call.transforms import as_written, check_current, complete
from dragoman.call.unfinished import finish_later
from dragoman.errors import (
    CallDeniedError,
    CallTimeoutError,
    ConnectionLostError,
    HttpStatusError,
    InvalidResultError,
    ServerError,
    ServerNotReadyError,
    ToolExecutionError,
    ToolUnavailableError,
)
from dragoman.events import CallFinished, CallStarted
from dragoman.languages import fill
from dragoman.model import Part, ServerState, ToolDef, ToolResult
from dragoman.observe.metrics import CANCELLED
from dragoman.server.protocol.context import with_headers
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.outgoing import Outgoing, RoundOptions
from dragoman.server.tasks import task_noter
from dragoman.tools.registry import run_builtin
from dragoman.tools.result.build import (
    check,
    check_meta,
)
from dragoman.tools.result.forwarded import FALLBACK, forwarded_fallback
from dragoman.tools.result.render import ServerAnswer, local_answer
from dragoman.tools.schema.coerce import COERCED
from dragoman.trust.limits import rate_text
from dragoman.trust.masking import mask_arguments
from dragoman.trust.policy import copied
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.errors import DragomanError, UnknownToolError
    from dragoman.model import ProgressHandler, ServerSpec
    from dragoman.server.protocol.outgoing import Unfinished
    from dragoman.server.supervisor import Supervisor
    from dragoman.tools.names import Pair

logger = logging.getLogger("dragoman")


SUMMARY_CHARS = 300
MAX_TRIES = 3
RETRY_PAUSE = 1.0
FORWARDED_WAIT = 5.0
"""How long a forwarded call waits for the next attempt to connect a server that was lost."""
LEAST_PAUSE = 0.02
RETRIED_STATUSES = frozenset({421, 425, 429, 503})
"""HTTP statuses that may change within a second; a retry of any other gets the same answer."""


async def run(
    context: CallContext,
    name: str | Pair,
    arguments: object,
    *,
    timeout: float | None = None,
    on_progress: ProgressHandler | None = None,
    forwarded: Forwarded | None = None,
    meta: Mapping[str, Any] | None = None,
    mode: CallMode | None = None,
) -> ToolResult:
    """Call a tool by its exposed name, an alias of an export, or its server and own name.

    A failure is a result too.
    """
    tool = context.registry.get(name) if isinstance(name, str) else None
    if tool is None:
        tool = context.registry.find(name)
    began = time.monotonic()
    if tool is None and await _first_connection(context, name, timeout):
        tool = context.registry.find(name)
    exposed = context.registry.shown_name(name) if tool is None else tool.name
    call = Call(exposed, arguments, timeout, on_progress, forwarded, meta, mode)
    call.began, call.waited = began, time.monotonic() - began
    server = tool.server if tool else ""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s: calling `%s` with %s", server or "builtin", exposed, summary(arguments))
    if context.has_listeners():
        context.publish(CallStarted(server=server, tool=exposed, call_id=call.id))
    context.metrics.begun(server, exposed)
    try:
        result = await _answered(context, tool, call)
    except BaseException:
        _note(context, server, call, call.seconds, CANCELLED)
        raise
    if result.exception is not None and result.provenance is not None:
        result = _without_secrets(context, result, result.exception)
    if call.changes:
        result = result.replace(meta={**result.meta, COERCED: [change.as_dict() for change in call.changes]})
    _report(context, server, call, result)
    return result


async def _answered(context: CallContext, tool: ToolDef | None, call: Call) -> ToolResult:
    try:
        if tool is None:
            raise context.gate.pin_checker.refusal(call.name) or _unknown(context, call.name)
        if tool.meta and context.audience not in tool.audience:
            raise _not_for(context.audience, tool)
        if call.meta is not None:
            check_meta(call.meta, tool)
        if not context.throttle.has_room():
            await context.throttle.turn()
        fields = await _prepared(context, tool, call, _checked(context, tool, call))
        if tool.source == "builtin":
            return await _run_here(tool, call, fields)
        return await _send(context, tool, call, fields)
    except ToolUnavailableError as exc:
        try:
            return await _call_fallback(context, tool, call, exc) or failed(context, tool, call, exc)
        except InvalidResultError as wrong:
            return failed(context, tool, call, wrong)
    except ToolExecutionError as exc:
        return failed(context, tool, call, exc)


async def _first_connection(context: CallContext, name: str | Pair, timeout: float | None) -> bool:
    """Wait for servers that connect for the first time and that a name belongs to.

    Their tools are not known yet: the name tells, by the prefix of a server or as `server:tool`. A lazy
    server is started.

    Returns:
        Whether there was such a server.
    """
    if context.registry.contenders(name if isinstance(name, str) else name.tool):
        return False
    found = [
        supervisor
        for supervisor in context.supervisors.values()
        if supervisor.may_connect_first and context.names_server(supervisor.spec, name)
    ]
    for supervisor in found:
        supervisor.start()
        seconds = supervisor.spec.call_timeout if timeout is None else timeout
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await supervisor.wait_settled()
    return bool(found)


def _unknown(context: CallContext, name: str) -> UnknownToolError:
    """Return the error for an unknown tool; its hint names a server that is not ready but may have it."""
    error = context.registry.unknown(name)
    if context.registry.contenders(name):
        return error
    for supervisor in context.supervisors.values():
        server = supervisor.spec.name
        if supervisor.state is not ServerState.READY and _plain(server) in _plain(name):
            why = supervisor.error or f"it is {supervisor.doing}"
            if supervisor.is_refused:
                # A model must not see text from a file that the user has not approved, not even a name.
                error.hint = error.hint or "a server of the project is not approved by the user"
                continue
            error.hint = f"server `{server}` is not ready: {why}"
    return error


def _not_for(audience: str, tool: ToolDef) -> CallDeniedError:
    if audience == "model":
        msg = f"`{tool.name}` is for the app of server `{tool.server}` only"
        hint = 'a front end can call it with `audience="app"`, or through `open_app`'
    else:
        msg = f"`{tool.name}` is not for the app of server `{tool.server}`"
        hint = 'the tool does not list "app" in its visibility'
    return CallDeniedError(msg, tool=tool.name, server=tool.server, rule="visibility", hint=hint)


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name).lower()


def make_caller(
    context: CallContext, check: Callable[[], None], *, mode: CallMode | None = None
) -> ToolCaller:
    """Return a function that calls tools in a context.

    Args:
        context: The tools, the servers, and the rules.
        check: Called before each call; raises if no call may be made, such as after the manager has closed.
        mode: How the calls differ from those that wait for their result.
    """

    async def call(
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        check()
        with with_headers(headers) if headers else nullcontext():
            return await run(
                context, name, arguments, timeout=timeout, on_progress=on_progress, meta=meta, mode=mode
            )

    return call


async def _prepared(
    context: CallContext, tool: ToolDef, call: Call, fields: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments to send: changed as the configuration says, and permitted.

    Raises:
        CallDeniedError: The call is not allowed.
        InvalidArgumentsError: They have a name that is only the server's.
        UnknownToolError: The tool was removed or replaced while the user was asked.
    """
    call.shown = None
    if tool.transform is not None:
        call.shown, fields = fields, complete(context, tool, fields)
    if context.ask or context.gate.watches_calls:
        fields = await _permit(context, tool, call, fields)
    return fields


async def _permit(
    context: CallContext, tool: ToolDef, call: Call, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Check that the policy or the user allows a call; no deadline runs while the user is asked.

    Returns:
        A copy of the arguments that were checked, so that neither the caller nor a handler can change them
        before they are sent.

    Raises:
        CallDeniedError: The call is not allowed.
        UnknownToolError: The tool was removed or replaced while the user was asked.
    """
    supervisor = context.supervisors.get(tool.server)
    trusts = supervisor is not None and supervisor.spec.trust_annotations
    judged = copied(dict(fields))
    how: dict[str, Any] = {"trusts_hints": trusts, "ask": context.ask, "shown": call.shown}
    written = as_written(tool, call.shown or {})
    asks = context.while_asking is not None and context.gate.asks(tool, judged, **how)
    async with context.while_asking() if asks and context.while_asking is not None else nullcontext():
        asked = await context.gate.permit(tool, judged, written=written, report=call.on_progress, **how)
    call.approved = asked
    if asked and context.registry.get(tool.name) != tool:
        raise context.gate.pin_checker.refusal(tool.name) or context.registry.unknown(tool.name)
    return judged


async def _call_fallback(
    context: CallContext, tool: ToolDef | None, call: Call, exc: ToolUnavailableError
) -> ToolResult | None:
    """Return the result of the first fallback that answers, or `None`.

    A call that may have run is not sent to a fallback: it could run twice.
    """
    supervisor = context.supervisors.get(tool.server) if tool is not None else None
    if exc.may_have_run or tool is None or tool.source == "builtin" or supervisor is None:
        return None
    arguments = _checked(context, tool, call)
    for name in supervisor.spec.fallbacks_of(tool.original_name):
        other = _fallback_tool(context, supervisor.spec, tool, name, warns=True)
        if other is None:
            continue
        try:
            result = await _answer_by(context, other, call, arguments, instead_of=supervisor)
        except ToolExecutionError as failure:
            context.gate.scrub(failure)
            line = "%s: the fallback `%s` for `%s` did not answer: %s"
            logger.warning(line, tool.server, name, tool.name, for_log(str(failure)))
            if isinstance(failure, CallTimeoutError) or getattr(failure, "may_have_run", False):
                return None
            continue
        note = fill(context.texts.answered_by, name=name, server=tool.server)
        meta = {**result.meta, FALLBACK: name}
        if call.forwarded is not None:
            result = forwarded_fallback(result, tool, context.validators, name=name, note=note)
        return result.replace(text=f"{note}\n{result.text}", meta=meta)
    return None


def _fallback_tool(
    context: CallContext, spec: ServerSpec, tool: ToolDef, name: str, *, warns: bool = False
) -> ToolDef | None:
    """Return the tool that a fallback names for this tool.

    A server stands for its tool of the same name. A tool that is named for this tool is taken as it is. In a
    list for all tools it serves only the tool of its own name: any other could give a wrong answer that looks
    right.
    """
    named = context.registry.get(name)
    if named is not None:
        given = isinstance(spec.fallback, Mapping) and tool.original_name in spec.fallback
        if given or named.own_name == tool.own_name:
            return named
        theirs = (one.own_name for one in context.registry if one.server == tool.server)
        if warns and name not in context.supervisors and named.own_name not in theirs:
            hint = f'write fallback = {{{tool.original_name} = "{name}"}} if it answers for this tool'
            logger.warning(
                "%s: the fallback `%s` is not used for `%s`: the names differ (%s)",
                *(spec.name, name, tool.own_name, hint),
            )
    elif warns and name not in context.supervisors:
        line = "%s: the fallback `%s` is neither a server nor a tool here; check `fallback` of this server"
        logger.warning(line, spec.name, name)
    same = (one for one in context.registry if one.server == name and one.own_name == tool.own_name)
    return next(same, None)


async def _answer_by(
    context: CallContext, other: ToolDef, call: Call, arguments: dict[str, Any], *, instead_of: Supervisor
) -> ToolResult:
    fields, _ = check(context.validators.of(other.input_schema), other, arguments)
    fields = await _prepared(context, other, call, fields)
    if other.server:
        return await _send(context, other, call, fields)
    result = await _run_here(other, call, fields)
    if not needs_source(context, instead_of.spec):
        return result
    return await result_of_answer(context, other, call, instead_of, local_answer(result.text))


async def _run_here(tool: ToolDef, call: Call, arguments: dict[str, Any]) -> ToolResult:
    text = await run_builtin(tool, arguments, timeout=call.timeout)
    return ToolResult(
        success=True,
        text=text,
        parts=[Part(kind="text", text=text)],
        call_id=call.id,
        duration=call.seconds,
    )


async def _send(context: CallContext, tool: ToolDef, call: Call, arguments: dict[str, Any]) -> ToolResult:
    supervisor = context.supervisors.get(tool.server)
    if supervisor is None:
        msg = f"`{tool.name}` belongs to server `{tool.server}`, which was removed"
        raise ToolUnavailableError(msg, tool=tool.name, server=tool.server)
    others = supervisor.spec.fallbacks_of(tool.original_name)
    if (
        others
        and (silent := await supervisor.why_switch()) is not None
        and any(_fallback_tool(context, supervisor.spec, tool, name) for name in others)
    ):
        raise unavailable(tool, silent)
    seconds = supervisor.spec.call_timeout if call.timeout is None else call.timeout
    call.fields = arguments if call.shown is None else call.shown
    out = Outgoing(
        tool=tool.original_name,
        arguments=arguments,
        # One deadline covers everything: waiting for a turn, connecting, and every retry.
        deadline=Deadline.after(max(0.0, seconds - call.waited)),
        meta=call.forwarded.meta if call.forwarded else call.meta,
        on_progress=call.on_progress,
        inputs=call.forwarded.inputs if call.forwarded else None,
        rounds=None if call.mode is None else _rounds(call.mode),
        traffic=call.traffic,
    )
    pins = context.gate.pin_checker
    is_pinned = pins.holds_back(supervisor.spec)
    if supervisor.bucket is not None:
        await _take_turn(supervisor, tool, out.deadline)
    tries = 0
    while True:
        tries += 1
        try:
            async with supervisor.acquire(out.deadline) as connection:
                if supervisor.spec.tools or tool.transform is not None:
                    check_current(supervisor.spec, tool)
                if is_pinned:
                    # Acquiring may have opened a new connection, and its listing may define another tool.
                    pins.check(supervisor.spec, tool)
                session = connection.session
                if session is not None and session.has_tasks and not call.passes_tasks_on:
                    out.on_task = await task_noter(context.tasks, tool, context.server_key(supervisor.spec))
                answer = await connection.call_tool(out)
                if call.forwarded is not None and session is not None:
                    # What the server logged during the call goes to the same client, before the result.
                    await session.wait_delivered()
            break
        except TimeoutError as exc:
            msg = f"`{tool.name}` did not answer within {seconds:g} s"
            raise CallTimeoutError(
                msg, seconds=seconds, tool=tool.name, server=tool.server, hint="try again, or another way"
            ) from exc
        except ServerError as exc:
            pause = pause_before_retry(exc, tool, supervisor.spec, approved=call.approved)
            if pause is None and isinstance(exc, ServerNotReadyError) and call.forwarded is not None:
                # An agent is better told at once; the client of a gateway does not see that a server is gone.
                pause = pause_of_gateway(exc, tool, supervisor.spec)
                tries -= pause is not None
            if tries >= MAX_TRIES or pause is None or pause >= out.deadline.left():
                raise unavailable(tool, exc) from exc.with_traceback(None)
            await asyncio.sleep(pause)
    if type(answer) is not ServerAnswer:
        return await finish_later(context, tool, call, supervisor, cast("Unfinished", answer))
    return await result_of_answer(context, tool, call, supervisor, answer)


def _rounds(mode: CallMode) -> RoundOptions:
    if (paused := mode.paused) is None:
        return RoundOptions(pauses=mode.pauses)
    return RoundOptions(pauses=mode.pauses, responses=paused.answers, state=paused.state)


def pause_before_retry(
    exc: ServerError, tool: ToolDef, spec: ServerSpec, *, approved: bool = False
) -> float | None:
    """Return how long to wait before a retry; `None` if a retry is unsafe or pointless.

    A retry is safe if the call certainly did not run: it was never sent, or the server refused it. A call
    that may have run is repeated only if the tool declares itself read-only or idempotent and the spec trusts
    these annotations. One that a person has approved is repeated by nobody: the yes was for one call.
    """
    if isinstance(exc, HttpStatusError):
        return (exc.retry_after or RETRY_PAUSE) if exc.status in RETRIED_STATUSES else None
    if not isinstance(exc, ConnectionLostError):
        return None
    harmless = tool.annotations.get("readOnlyHint") is True or tool.annotations.get("idempotentHint") is True
    return 0.0 if not exc.may_have_run or (spec.trust_annotations and harmless and not approved) else None


def pause_of_gateway(exc: ServerNotReadyError, tool: ToolDef, spec: ServerSpec) -> float | None:
    """Return how long to wait for a server that is connected again soon; `None` if that takes long."""
    has_other = bool(spec.fallbacks_of(tool.original_name))
    soon = exc.retry_in is not None and exc.retry_in <= FORWARDED_WAIT and not has_other
    return max(exc.retry_in or 0.0, LEAST_PAUSE) if soon else None


async def _take_turn(supervisor: Supervisor, tool: ToolDef, deadline: Deadline) -> None:
    """Wait until the rate limit of the server allows one more call."""
    while (bucket := supervisor.bucket) is not None and (wait := bucket.take(time.monotonic())) > 0:
        if wait >= deadline.left():
            msg = rate_text(supervisor.limits, server=tool.server, wait=wait)
            raise ToolUnavailableError(msg, tool=tool.name, server=tool.server, hint="try again later")
        await asyncio.sleep(wait)


def _checked(context: CallContext, tool: ToolDef, call: Call) -> dict[str, Any]:
    supervisor = context.supervisors.get(tool.server)
    wanted = supervisor.spec.coerce_arguments if supervisor is not None else None
    coerce = context.coerce if wanted is None else wanted
    fields, call.changes = check(
        context.validators.of(tool.input_schema), tool, call.arguments, coerces=coerce
    )
    return fields


def _without_secrets(context: CallContext, result: ToolResult, exc: DragomanError) -> ToolResult:
    """Mask known secrets in the error of a tool; the parts of the result stay unchanged."""
    is_text_too = result.text == result.error
    context.gate.scrub(exc)
    return result.replace(error=str(exc), text=str(exc) if is_text_too else result.text)


def _report(context: CallContext, server: str, call: Call, result: ToolResult) -> None:
    exc = result.exception
    code = exc.code if exc else ""
    if isinstance(exc, CallDeniedError) and exc.pending:
        # The call comes again with the person's answer, and counts then.
        code = CANCELLED
        context.metrics.withdrawn(server, call.name)
    else:
        if exc is not None:
            if isinstance(exc, ToolExecutionError):
                exc.call_id = call.id
            context.failures.note(server, code, f"{call.id} of `{call.name}`", result.error)
        _note(context, server, call, result.duration, code, result.text)
    if context.has_listeners():
        context.publish(
            CallFinished(
                server=server,
                tool=call.name,
                call_id=call.id,
                success=result.success,
                duration=result.duration,
                error_code=code,
            )
        )


def _note(context: CallContext, server: str, call: Call, seconds: float, code: str, text: str = "") -> None:
    """Count a finished call, and write it to the call log if one is configured."""
    moved = call.traffic
    context.metrics.ended(server, call.name, seconds, code, sent=moved.sent, received=moved.received)
    if context.log is not None:
        context.log.note(
            server=server,
            tool=call.name,
            call_id=call.id,
            arguments=call.fields or call.arguments,
            duration=seconds,
            text=text,
            code=code,
            user=context.user,
            # The log masks what the program knows; this user's secrets are known here only.
            mask=context.gate.redactor.mask if context.user else None,
        )


def summary(arguments: object) -> str:
    """Return the arguments of a call for a log line: short, and with secrets masked."""
    text = json.dumps(mask_arguments(arguments), ensure_ascii=False, default=repr)
    return text if len(text) <= SUMMARY_CHARS else f"{text[:SUMMARY_CHARS]}…"
