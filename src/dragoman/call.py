"""The pipeline of one call: resolve, validate, permit, send, limit, render, report.

Every tool call takes this path. A failed call is a result: an error becomes a `ToolResult` that holds the
typed exception. Only a cancellation is raised.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import logging
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol, cast

from dragoman.errors import (
    CallDeniedError,
    CallTimeoutError,
    InvalidResultError,
    ServerError,
    ServerNotReadyError,
    ToolExecutionError,
    ToolUnavailableError,
)
from dragoman.events import CallFinished, CallStarted
from dragoman.languages import fill
from dragoman.model import Continuation, Part, ServerState, Task, Texts, ToolDef, ToolResult
from dragoman.observe.failures import FailureLog
from dragoman.observe.metrics import CANCELLED, Metrics
from dragoman.server.protocol.context import with_headers
from dragoman.server.protocol.deadlines import Deadline
from dragoman.server.protocol.outgoing import Outgoing, RoundOptions, Traffic
from dragoman.server.retries import pause_before_retry, pause_of_gateway, unavailable
from dragoman.server.tasks import TaskFollower, new_record, task_noter
from dragoman.server.throttle import CallThrottle
from dragoman.storage.tasks import TaskStore, signing_key
from dragoman.struct import Struct, asdict, field
from dragoman.tools.names import Pair
from dragoman.tools.registry import run_builtin
from dragoman.tools.result.build import (
    LARGE_CHARS,
    ResultContext,
    build_result,
    check,
    check_meta,
    is_large,
    size_of,
)
from dragoman.tools.result.forwarded import FALLBACK, forwarded_fallback, forwarded_result
from dragoman.tools.result.render import ServerAnswer, local_answer, to_answer
from dragoman.tools.schema.coerce import COERCED
from dragoman.tools.schema.validate import Validators
from dragoman.trust.gate import Gate
from dragoman.trust.limits import rate_text
from dragoman.trust.masking import mask_arguments
from dragoman.trust.policy import copied
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from dragoman.errors import DragomanError, UnknownToolError
    from dragoman.events import Event
    from dragoman.model import ApprovalHandler, Audience, ProgressHandler, ServerSpec
    from dragoman.observe.call_log import CallLog
    from dragoman.server.protocol.outgoing import Unfinished
    from dragoman.server.supervisor import Supervisor
    from dragoman.storage.results import ResultStore
    from dragoman.storage.tasks import TaskRecord
    from dragoman.tools.registry import ToolRegistry
    from dragoman.tools.result.budget import TextBudget
    from dragoman.tools.schema.coerce import ArgumentChange
    from dragoman.tools.view import ToolView

logger = logging.getLogger("dragoman")


SUMMARY_CHARS = 300
MAX_TRIES = 3

_RUN = secrets.token_hex(4)
_NUMBERS = itertools.count(1)


class CallContext(Struct, kw_only=True):
    """What a call needs: the tools, the servers, and the rules."""

    registry: ToolRegistry | ToolView
    """The tools that can be called."""
    supervisors: Mapping[str, Supervisor]
    publish: Callable[[Event], None]
    is_heard: Callable[[], bool] = lambda: True
    """Return whether the events have a subscriber; without one, no events of calls are created."""
    validators: Validators = field(default_factory=Validators)
    coerce: bool = False
    """Whether arguments of the wrong type are coerced, for servers whose spec does not say."""
    sources_in_text: bool = False
    """Whether texts end with their sources, for servers whose spec does not say."""
    for_model: bool = False
    """Whether a model reads the results: their texts end with their sources, whatever a spec says."""
    texts: Texts = field(default_factory=Texts)
    """The application's own words."""
    budget: TextBudget | None = None
    """The limit for the text of a result; unlimited by default."""
    spill: ResultStore | None = None
    """Keeps results over the budget, and binary parts."""
    failures: FailureLog = field(default_factory=FailureLog)
    throttle: CallThrottle = field(default_factory=CallThrottle)
    gate: Gate = field(default_factory=Gate)
    """Decides whether a call is made; the default allows every call."""
    metrics: Metrics = field(default_factory=Metrics)
    log: CallLog | None = None
    tasks: TaskStore = field(default_factory=TaskStore)
    server_key: Callable[[ServerSpec], str] = lambda spec: spec.name
    """Returns the fingerprint of a server's entry, without its secrets."""
    user: str = ""
    """Whose calls these are, in a program with many users."""
    audience: Audience = "model"
    """For whom the call is made; a tool may be for a model, for the server's app, or for both."""
    ask: bool | ApprovalHandler = False
    """Whether a call that no rule decides needs a yes, unless the tool is read-only; a function is asked
    instead of `Handlers.approval`."""
    while_asking: Callable[[], AbstractAsyncContextManager[None]] | None = None
    """Entered before a person is asked about a call, and left before the call is sent."""


def unrecorded(context: CallContext, registry: ToolRegistry) -> CallContext:
    """Return a context for other tools by the same rules; its calls are not counted, logged or published."""
    return context.replace(registry=registry, metrics=Metrics(), log=None, is_heard=lambda: False)


class Forwarded(Struct, kw_only=True):
    """What another client sent with a call that is forwarded for it; the result has the raw answer."""

    inputs: Mapping[str, Any] | None = None
    """Its `inputResponses` and `requestState`, empty in the first round; `None` if our handlers are asked."""
    meta: Mapping[str, Any] | None = None
    """The `_meta` of its request that goes on to the server."""
    takes_tasks: bool = False
    """Whether it follows tasks itself: then the raw answer may be one."""
    renders: bool = False
    """Whether sources and notes are added as blocks of their own, where the library adds them to the text."""


class Caller(Protocol):
    """A function that calls a tool like `McpManager.call`."""

    async def __call__(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call the tool."""
        ...


class CallMode(Struct, kw_only=True):
    """How a call differs from one that waits for its result."""

    detach: bool = False
    """Whether a call that becomes a task ends with that task."""
    pauses: bool = False
    """Whether a call that asks a person ends with the questions."""
    paused: Continuation | None = None
    """The call that goes on, with all answers."""


class _Call:
    """One call in progress."""

    __slots__ = (
        "arguments",
        "began",
        "changes",
        "fields",
        "forwarded",
        "id",
        "meta",
        "mode",
        "name",
        "on_progress",
        "timeout",
        "traffic",
    )

    def __init__(
        self,
        name: str,
        arguments: object,
        timeout: float | None,
        on_progress: ProgressHandler | None,
        forwarded: Forwarded | None,
        meta: Mapping[str, Any] | None,
        mode: CallMode | None,
    ) -> None:
        self.name = name
        self.forwarded = forwarded
        self.meta = meta
        self.mode = mode
        self.arguments = arguments
        self.timeout = timeout
        self.on_progress = on_progress
        self.id = f"{_RUN}-{next(_NUMBERS)}"
        self.began = time.monotonic()
        self.fields: dict[str, Any] = {}
        """The arguments that are sent: validated, and coerced if need be."""
        self.changes: Sequence[ArgumentChange] = ()
        self.traffic = Traffic()


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
    exposed = context.registry.shown_name(name) if tool is None else tool.name
    call = _Call(exposed, arguments, timeout, on_progress, forwarded, meta, mode)
    server = tool.server if tool else ""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s: calling `%s` with %s", server or "builtin", exposed, summary(arguments))
    if context.is_heard():
        context.publish(CallStarted(server=server, tool=exposed, call_id=call.id))
    context.metrics.begun(server, exposed)
    try:
        result = await _answered(context, tool, call)
    except BaseException:
        _note(context, server, call, time.monotonic() - call.began, CANCELLED)
        raise
    if result.exception is not None and result.provenance is not None:
        result = _without_secrets(context, result, result.exception)
    if call.changes:
        result = result.replace(meta={**result.meta, COERCED: [change.as_dict() for change in call.changes]})
    _report(context, server, call, result)
    return result


async def _answered(context: CallContext, tool: ToolDef | None, call: _Call) -> ToolResult:
    try:
        if tool is None:
            raise context.gate.pin_checker.refusal(call.name) or _unknown(context, call.name)
        if tool.meta and context.audience not in tool.audience:
            raise _not_for(context.audience, tool)
        if call.meta is not None:
            check_meta(call.meta, tool)
        if not context.throttle.has_room():
            await context.throttle.turn()
        fields = _checked(context, tool, call)
        if context.ask or context.gate.watches_calls:
            fields = await _permit(context, tool, fields)
        if tool.source == "builtin":
            return await _run_here(tool, call, fields)
        return await _send(context, tool, call, fields)
    except ToolUnavailableError as exc:
        try:
            return await _answered_instead(context, tool, call, exc) or _failed(context, tool, call, exc)
        except InvalidResultError as wrong:
            return _failed(context, tool, call, wrong)
    except ToolExecutionError as exc:
        return _failed(context, tool, call, exc)


def _unknown(context: CallContext, name: str) -> UnknownToolError:
    """Return the error for an unknown tool; its hint names a server that is not ready but may have it."""
    error = context.registry.unknown(name)
    if context.registry.contenders(name):
        return error
    for supervisor in context.supervisors.values():
        server = supervisor.spec.name
        if supervisor.state is not ServerState.READY and _plain(server) in _plain(name):
            why = supervisor.error or f"it is {supervisor.state.value}"
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


def make_caller(context: CallContext, check: Callable[[], None], *, mode: CallMode | None = None) -> Caller:
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


async def _permit(context: CallContext, tool: ToolDef, fields: Mapping[str, Any]) -> dict[str, Any]:
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
    how: dict[str, Any] = {"trusts_hints": trusts, "ask": context.ask}
    asks = context.while_asking is not None and context.gate.asks(tool, judged, **how)
    async with context.while_asking() if asks and context.while_asking is not None else nullcontext():
        asked = await context.gate.permit(tool, judged, **how)
    if asked and context.registry.get(tool.name) != tool:
        raise context.gate.pin_checker.refusal(tool.name) or context.registry.unknown(tool.name)
    return judged


async def _answered_instead(
    context: CallContext, tool: ToolDef | None, call: _Call, exc: ToolUnavailableError
) -> ToolResult | None:
    """Return the result of the first fallback that answers, or `None`.

    A call that may have run is not sent to a fallback: it could run twice.
    """
    supervisor = context.supervisors.get(tool.server) if tool is not None else None
    if exc.may_have_run or tool is None or tool.source == "builtin" or supervisor is None:
        return None
    arguments = _checked(context, tool, call)
    for name in supervisor.spec.fallbacks_of(tool.original_name):
        other = _stand_in(context, supervisor.spec, tool, name, warns=True)
        if other is None:
            continue
        try:
            result = await _stood_in(context, other, call, arguments, instead_of=supervisor)
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


def _stand_in(
    context: CallContext, spec: ServerSpec, tool: ToolDef, name: str, *, warns: bool = False
) -> ToolDef | None:
    """Return the tool that a fallback names for this tool.

    A server stands for its tool of the same name. A tool that is named for this tool is taken as it is. In a
    list for all tools it serves only the tool of its own name: any other could give a wrong answer that looks
    right.
    """
    named = context.registry.get(name)
    if named is not None:
        own_name = named.original_name or named.name
        given = isinstance(spec.fallback, Mapping) and tool.original_name in spec.fallback
        if given or own_name == tool.original_name:
            return named
        theirs = (one.original_name for one in context.registry if one.server == tool.server)
        if warns and name not in context.supervisors and own_name not in theirs:
            hint = f'write fallback = {{{tool.original_name} = "{name}"}} if it answers for this tool'
            logger.warning(
                "%s: the fallback `%s` is not used for `%s`: the names differ (%s)",
                *(spec.name, name, tool.original_name, hint),
            )
    elif warns and name not in context.supervisors:
        line = "%s: the fallback `%s` is neither a server nor a tool here; check `fallback` of this server"
        logger.warning(line, spec.name, name)
    same = (one for one in context.registry if one.server == name and one.original_name == tool.original_name)
    return next(same, None)


async def _stood_in(
    context: CallContext, other: ToolDef, call: _Call, arguments: dict[str, Any], *, instead_of: Supervisor
) -> ToolResult:
    fields, _ = check(context.validators.of(other.input_schema), other, arguments)
    if context.ask or context.gate.watches_calls:
        fields = await _permit(context, other, fields)
    if other.server:
        return await _send(context, other, call, fields)
    result = await _run_here(other, call, fields)
    if not _needs_source(context, instead_of.spec):
        return result
    return await _built(context, other, call, instead_of, local_answer(result.text))


def _needs_source(context: CallContext, spec: ServerSpec) -> bool:
    """Return whether every answer of a server has a source: the configuration wants them in its texts."""
    if spec.sources_in_text is not None:
        return spec.sources_in_text
    return context.sources_in_text or bool(spec.attribution)


async def _run_here(tool: ToolDef, call: _Call, arguments: dict[str, Any]) -> ToolResult:
    text = await run_builtin(tool, arguments, timeout=call.timeout)
    return ToolResult(
        success=True,
        text=text,
        parts=[Part(kind="text", text=text)],
        call_id=call.id,
        duration=time.monotonic() - call.began,
    )


async def _send(context: CallContext, tool: ToolDef, call: _Call, arguments: dict[str, Any]) -> ToolResult:
    supervisor = context.supervisors.get(tool.server)
    if supervisor is None:
        msg = f"`{tool.name}` belongs to server `{tool.server}`, which was removed"
        raise ToolUnavailableError(msg, tool=tool.name, server=tool.server)
    others = supervisor.spec.fallbacks_of(tool.original_name)
    if (
        others
        and (silent := await supervisor.why_switch()) is not None
        and any(_stand_in(context, supervisor.spec, tool, name) for name in others)
    ):
        raise unavailable(tool, silent)
    seconds = supervisor.spec.call_timeout if call.timeout is None else call.timeout
    call.fields = arguments
    out = Outgoing(
        tool=tool.original_name,
        arguments=arguments,
        # One deadline covers everything: waiting for a turn, connecting, and every retry.
        deadline=Deadline.after(seconds),
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
                if is_pinned:
                    # Acquiring may have opened a new connection, and its listing may define another tool.
                    pins.check(supervisor.spec, tool)
                session = connection.session
                if session is not None and session.has_tasks and not _passes_tasks_on(call):
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
            pause = pause_before_retry(exc, tool, supervisor.spec)
            if pause is None and isinstance(exc, ServerNotReadyError) and call.forwarded is not None:
                # An agent is better told at once; the client of a gateway does not see that a server is gone.
                pause = pause_of_gateway(exc, tool, supervisor.spec)
                tries -= pause is not None
            if tries >= MAX_TRIES or pause is None or pause >= out.deadline.left():
                raise unavailable(tool, exc) from exc.with_traceback(None)
            await asyncio.sleep(pause)
    if type(answer) is not ServerAnswer:
        return await _unfinished(context, tool, call, supervisor, cast("Unfinished", answer))
    return await _built(context, tool, call, supervisor, answer)


def _passes_tasks_on(call: _Call) -> bool:
    return call.forwarded is not None and call.forwarded.takes_tasks


def _rounds(mode: CallMode) -> RoundOptions:
    if (paused := mode.paused) is None:
        return RoundOptions(pauses=mode.pauses)
    return RoundOptions(pauses=mode.pauses, responses=paused.answers, state=paused.state)


async def _unfinished(
    context: CallContext, tool: ToolDef, call: _Call, supervisor: Supervisor, answer: Unfinished
) -> ToolResult:
    """Return the questions of a call, its task, or the result of its task."""
    if answer.kind == "task" and _passes_tasks_on(call):
        return ToolResult(
            success=True,
            text="",
            raw=dict(answer.data),
            call_id=call.id,
            duration=time.monotonic() - call.began,
        )
    key = context.server_key(supervisor.spec)
    if answer.kind == "input_required":
        made = await asyncio.to_thread(
            paused_call, answer, tool=tool, server_key=key, call=call, user=context.user
        )
        asked = "; ".join(_question(one) for one in made.questions.values())
        text = f"server `{tool.server}` asks a person for `{tool.name}`: {asked}"
        return ToolResult(
            success=False,
            text=text,
            error=text,
            input_required=made,
            call_id=call.id,
            duration=time.monotonic() - call.began,
        )
    record = new_record(answer.data, tool, key)
    try:
        await asyncio.to_thread(context.tasks.save, record)
    except OSError as exc:
        logger.warning("%s: task %s cannot be resumed: it was not stored: %s", tool.server, record.id, exc)
    if call.mode is not None and call.mode.detach:
        task = as_task(record)
        text = f"`{tool.name}` goes on as task `{task.id}` of server `{tool.server}`"
        return ToolResult(
            success=True, text=text, task=task, call_id=call.id, duration=time.monotonic() - call.began
        )
    return await follow_task(context, record, supervisor, call=call, wait_first=True)


async def follow_task(
    context: CallContext,
    record: TaskRecord,
    supervisor: Supervisor,
    *,
    call: _Call | None = None,
    timeout: float | None = None,
    wait_first: bool = False,
) -> ToolResult:
    """Wait for the end of a task, and return the result of its call; a failure is a result too."""
    call = call or _Call(record.tool, {}, timeout, None, None, None, None)
    tool = _tool_of(context, record)
    follower = TaskFollower(record, supervisor, context.tasks)
    # Without a limit of the caller's own, a task is followed to its end, however long it takes.
    spent = time.monotonic() - call.began
    until = None if call.timeout is None else asyncio.get_running_loop().time() + call.timeout - spent
    try:
        raw = await follower.result(until=until, wait_first=wait_first)
        return await _built(context, tool, call, supervisor, await asyncio.to_thread(to_answer, raw))
    except TimeoutError as exc:
        msg = f"the task of `{tool.name}` did not end within {call.timeout:g} s, and was cancelled"
        error = CallTimeoutError(msg, seconds=call.timeout or 0.0, tool=tool.name, server=tool.server)
        error.__cause__ = exc
        return _failed(context, tool, call, error)
    except ServerError as exc:
        return _failed(context, tool, call, unavailable(tool, exc))
    except ToolExecutionError as exc:
        return _failed(context, tool, call, exc)


def _tool_of(context: CallContext, record: TaskRecord) -> ToolDef:
    """Return the tool of a task; the server may not list it any more."""
    tool = context.registry.find(Pair(record.server, record.original_name))
    return tool or ToolDef(
        name=record.tool,
        description="",
        input_schema={},
        server=record.server,
        original_name=record.original_name,
    )


def as_task(record: TaskRecord) -> Task:
    """Return what a program may see of a record."""
    return Task(
        id=record.id,
        server=record.server,
        tool=record.tool,
        status=record.status,
        message=record.message,
        created=record.created,
        ttl=record.ttl,
    )


def paused_call(
    answer: Unfinished, *, tool: ToolDef, server_key: str, call: _Call, user: str = ""
) -> Continuation:
    """Return a signed continuation of a call that asks a person; reads the user's key."""
    raw = cast("dict[str, Any]", answer.data.get("inputRequests") or {})
    answered = dict(answer.answered or {})
    made = Continuation(
        id=secrets.token_hex(16),
        server=tool.server,
        server_key=server_key,
        tool=tool.name,
        arguments=call.fields,
        questions={key: one.get("params") or {} for key, one in raw.items() if key not in answered},
        state=answer.data.get("requestState"),
        answers=answered,
        meta=call.meta,
    )
    return made.replace(signature=signature_of(made, signing_key(user=user)))


def signature_of(continuation: Continuation, key: bytes) -> str:
    """Return the signature of a continuation."""
    signed = {**asdict(continuation), "signature": ""}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def _question(params: Mapping[str, Any]) -> str:
    return f'"{for_log(str(params.get("message", "a question")), SUMMARY_CHARS)}"'


async def _built(
    context: CallContext, tool: ToolDef, call: _Call, supervisor: Supervisor, answer: ServerAnswer
) -> ToolResult:
    """Build the result of a call from its answer."""
    limits, spec = supervisor.limits, supervisor.spec
    wanted = spec.sources_in_text
    by = ResultContext(
        tool=tool,
        validators=context.validators,
        call_id=call.id,
        server_version=supervisor.server_version if tool.server else "",
        at=time.time(),
        duration=time.monotonic() - call.began,
        # What is configured for a server says nothing about the local function that answers for it.
        attribution=spec.attribution if tool.server else None,
        needs_source=_needs_source(context, spec),
        sources_in_text=context.for_model or (context.sources_in_text if wanted is None else wanted),
        texts=context.texts,
        budget=context.budget,
        keeper=context.spill,
    )
    large = is_large(answer, by)
    if (large or limits.result_bytes < LARGE_CHARS) and (
        wrong := limits.excess("result_bytes", size_of(answer), what=f"the result of `{tool.name}`")
    ):
        raise InvalidResultError(wrong, tool=tool.name, server=tool.server, problems=[wrong])
    if call.forwarded is not None:
        return forwarded_result(answer, by, renders=call.forwarded.renders)
    # A large result is written to files and searched: in a thread, so that other calls go on.
    return await asyncio.to_thread(build_result, answer, by) if large else build_result(answer, by)


async def _take_turn(supervisor: Supervisor, tool: ToolDef, deadline: Deadline) -> None:
    """Wait until the rate limit of the server allows one more call."""
    while (bucket := supervisor.bucket) is not None and (wait := bucket.take(time.monotonic())) > 0:
        if wait >= deadline.left():
            msg = rate_text(supervisor.limits, server=tool.server, wait=wait)
            raise ToolUnavailableError(msg, tool=tool.name, server=tool.server, hint="try again later")
        await asyncio.sleep(wait)


def _checked(context: CallContext, tool: ToolDef, call: _Call) -> dict[str, Any]:
    supervisor = context.supervisors.get(tool.server)
    wanted = supervisor.spec.coerce_arguments if supervisor is not None else None
    coerce = context.coerce if wanted is None else wanted
    fields, call.changes = check(
        context.validators.of(tool.input_schema), tool, call.arguments, coerces=coerce
    )
    return fields


def _failed(context: CallContext, tool: ToolDef | None, call: _Call, exc: ToolExecutionError) -> ToolResult:
    # Results may be kept for long; the frames of a traceback would keep the arguments of the call alive.
    exc.__traceback__ = None
    context.gate.scrub(exc)
    text = str(exc)
    if context.texts.call_failed and tool is not None and tool.source == "mcp":
        text = fill(context.texts.call_failed, error=text)
    return ToolResult(
        success=False,
        text=text,
        error=text,
        exception=exc,
        call_id=call.id,
        duration=time.monotonic() - call.began,
    )


def _without_secrets(context: CallContext, result: ToolResult, exc: DragomanError) -> ToolResult:
    """Mask known secrets in the error of a tool; the parts of the result stay unchanged."""
    is_text_too = result.text == result.error
    context.gate.scrub(exc)
    return result.replace(error=str(exc), text=str(exc) if is_text_too else result.text)


def _report(context: CallContext, server: str, call: _Call, result: ToolResult) -> None:
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
    if context.is_heard():
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


def _note(context: CallContext, server: str, call: _Call, seconds: float, code: str, text: str = "") -> None:
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
