"""Calls that do not end with their answer: a person is asked first, or the server goes on with a task."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from typing import TYPE_CHECKING, Any, cast

from dragoman.call.context import Call, CallContext
from dragoman.call.outcome import failed, result_of_answer, unavailable
from dragoman.errors import (
    CallTimeoutError,
    ServerError,
    ToolExecutionError,
)
from dragoman.model import Continuation, Task, ToolDef, ToolResult
from dragoman.server.tasks import TaskFollower, new_record
from dragoman.storage.tasks import signing_key
from dragoman.struct import asdict
from dragoman.tools.names import Pair
from dragoman.tools.result.render import to_answer
from dragoman.trust.sanitizing import for_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.server.protocol.outgoing import Unfinished
    from dragoman.server.supervisor import Supervisor
    from dragoman.storage.tasks import TaskRecord

logger = logging.getLogger("dragoman")

QUESTION_CHARS = 300


async def finish_later(
    context: CallContext, tool: ToolDef, call: Call, supervisor: Supervisor, answer: Unfinished
) -> ToolResult:
    """Return the questions of a call, its task, or the result of its task."""
    if answer.kind == "task" and call.passes_tasks_on:
        return ToolResult(
            success=True,
            text="",
            raw=dict(answer.data),
            call_id=call.id,
            duration=call.seconds,
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
            duration=call.seconds,
        )
    record = new_record(answer.data, tool, key)
    try:
        await asyncio.to_thread(context.tasks.save, record)
    except OSError as exc:
        logger.warning("%s: task %s cannot be resumed: it was not stored: %s", tool.server, record.id, exc)
    if call.mode is not None and call.mode.detach:
        task = as_task(record)
        text = f"`{tool.name}` goes on as task `{task.id}` of server `{tool.server}`"
        return ToolResult(success=True, text=text, task=task, call_id=call.id, duration=call.seconds)
    return await follow_task(context, record, supervisor, call=call, wait_first=True)


async def follow_task(
    context: CallContext,
    record: TaskRecord,
    supervisor: Supervisor,
    *,
    call: Call | None = None,
    timeout: float | None = None,
    wait_first: bool = False,
) -> ToolResult:
    """Wait for the end of a task, and return the result of its call; a failure is a result too."""
    call = call or Call(record.tool, {}, timeout, None, None, None, None)
    tool = _tool_of(context, record)
    follower = TaskFollower(record, supervisor, context.tasks)
    # Without a limit of the caller's own, a task is followed to its end, however long it takes.
    until = None if call.timeout is None else asyncio.get_running_loop().time() + call.timeout - call.seconds
    try:
        raw = await follower.result(until=until, wait_first=wait_first)
        return await result_of_answer(
            context, tool, call, supervisor, await asyncio.to_thread(to_answer, raw)
        )
    except TimeoutError as exc:
        msg = f"the task of `{tool.name}` did not end within {call.timeout:g} s, and was cancelled"
        error = CallTimeoutError(msg, seconds=call.timeout or 0.0, tool=tool.name, server=tool.server)
        error.__cause__ = exc
        return failed(context, tool, call, error)
    except ServerError as exc:
        return failed(context, tool, call, unavailable(tool, exc))
    except ToolExecutionError as exc:
        return failed(context, tool, call, exc)


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
    answer: Unfinished, *, tool: ToolDef, server_key: str, call: Call, user: str = ""
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
    return f'"{for_log(str(params.get("message", "a question")), QUESTION_CHARS)}"'
