"""Go on with what an earlier call began: a task of a server, or a call that asked a person.

Both may come from another process. The server must be the one that the call began with, by its entry in the
configuration. A continuation must carry our signature, and is used once; whatever is wrong with it, nothing
is sent.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING, Any, cast

from dragoman.call import CallMode, follow_task, run, signature_of
from dragoman.errors import DragomanError, ToolUnavailableError
from dragoman.model import ToolResult
from dragoman.storage.tasks import claim_continuation, release_continuation, signing_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.call import CallContext
    from dragoman.model import Continuation
    from dragoman.server.supervisor import Supervisor
    from dragoman.storage.tasks import TaskRecord

_ACTIONS = ("accept", "decline", "cancel")


async def find_task(context: CallContext, identifier: str) -> tuple[TaskRecord, Supervisor]:
    """Return the record of a task and its server.

    Raises:
        DragomanError: The task is unknown, or its server is not the one that it began with.
    """
    record = await asyncio.to_thread(context.tasks.get, identifier)
    if record is None:
        msg = f"unknown task `{identifier}`"
        raise DragomanError(msg, hint="`dragoman tasks` lists them; finished ones expire")
    return record, _server(context, record.server, record.server_key, f"task `{identifier}`")


async def resume_task(context: CallContext, identifier: str, timeout: float | None) -> ToolResult:
    """Wait for the result of a task."""
    record, supervisor = await find_task(context, identifier)
    return await follow_task(context, record, supervisor, timeout=timeout)


async def resume_call(
    context: CallContext, continuation: Continuation, answers: Mapping[str, Any]
) -> ToolResult:
    """Go on with a call that asked a person; return the open questions if there are any."""
    key = await asyncio.to_thread(signing_key, user=context.user)
    if not hmac.compare_digest(signature_of(continuation, key), continuation.signature):
        msg = f"the continuation of `{continuation.tool}` was changed, or is another user's: nothing was sent"
        raise DragomanError(msg, hint="call the tool again")
    _server(context, continuation.server, continuation.server_key, f"the call of `{continuation.tool}`")
    given = continuation.replace(answers={**continuation.answers, **_checked(context, continuation, answers)})
    if given.open_questions:
        return _asked(given.replace(signature=signature_of(given, key)))
    if not await asyncio.to_thread(claim_continuation, given.id):
        msg = f"the call of `{given.tool}` was continued already: nothing was sent"
        raise DragomanError(msg, hint="call the tool again if it is safe to repeat")
    mode = CallMode(pauses=True, paused=given)
    result = await run(context, given.tool, given.arguments, meta=given.meta, mode=mode)
    error = result.exception
    if isinstance(error, ToolUnavailableError) and not error.may_have_run:
        await asyncio.to_thread(release_continuation, given.id)
    return result


def _asked(continuation: Continuation) -> ToolResult:
    text = f"`{continuation.tool}` has open questions: {', '.join(continuation.open_questions)}"
    return ToolResult(success=False, text=text, error=text, input_required=continuation)


def _server(context: CallContext, name: str, key: str, what: str) -> Supervisor:
    supervisor = context.supervisors.get(name)
    if supervisor is None:
        msg = f"{what} belongs to server `{name}`, which is not configured"
        raise DragomanError(msg)
    if context.server_key(supervisor.spec) != key:
        msg = f"{what} belongs to a server that is not `{name}` as it is configured now: nothing was sent"
        raise DragomanError(msg, hint="its entry was changed since")
    return supervisor


def _checked(context: CallContext, continuation: Continuation, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers if they fit the questions.

    Raises:
        DragomanError: An answer has no question, or does not fit its form.
    """
    problems: list[str] = []
    for key, answer in answers.items():
        if key not in continuation.questions:
            problems.append(f"no question has the key `{key}`")
            continue
        fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        if fields.get("action") not in _ACTIONS:
            problems.append(f"the answer to `{key}` needs an `action`: {', '.join(_ACTIONS)}")
        elif fields["action"] == "accept":
            schema = continuation.questions[key].get("requestedSchema")
            if isinstance(schema, dict):
                content = fields.get("content")
                found = context.validators.of(cast("dict[str, Any]", schema)).problems(content)
                problems += [f"the answer to `{key}`: {problem}" for problem in found]
    if problems:
        msg = (
            f"the answers for `{continuation.tool}` cannot be used (nothing was sent): {'; '.join(problems)}"
        )
        raise DragomanError(msg)
    return dict(answers)
