"""The result of a call: of an answer, or of a failure."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from dragoman.errors import (
    ConnectionLostError,
    HttpStatusError,
    InvalidResultError,
    ServerError,
    ToolExecutionError,
    ToolFailedError,
    ToolUnavailableError,
)
from dragoman.languages import fill
from dragoman.model import ToolDef, ToolResult
from dragoman.server.process.environment import sandbox_hint
from dragoman.tools.result.build import (
    LARGE_CHARS,
    ResultContext,
    build_result,
    is_large,
    size_of,
)
from dragoman.tools.result.forwarded import forwarded_result

if TYPE_CHECKING:
    from dragoman.call.context import Call, CallContext
    from dragoman.model import ServerSpec
    from dragoman.server.supervisor import Supervisor
    from dragoman.tools.result.render import ServerAnswer


async def result_of_answer(
    context: CallContext, tool: ToolDef, call: Call, supervisor: Supervisor, answer: ServerAnswer
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
        duration=call.seconds,
        # What is configured for a server says nothing about the local function that answers for it.
        attribution=spec.attribution if tool.server else None,
        needs_source=needs_source(context, spec),
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
    result = await asyncio.to_thread(build_result, answer, by) if large else build_result(answer, by)
    if isinstance(result.exception, ToolFailedError) and (hint := sandbox_hint(spec, result.text)):
        # Only for people: a model is not told how to open its tools' sandbox.
        result.exception.hint = hint
        return result.replace(error=str(result.exception))
    return result


def needs_source(context: CallContext, spec: ServerSpec) -> bool:
    """Return whether every answer of a server has a source: the configuration wants them in its texts."""
    if spec.sources_in_text is not None:
        return spec.sources_in_text
    return context.sources_in_text or bool(spec.attribution)


def failed(context: CallContext, tool: ToolDef | None, call: Call, exc: ToolExecutionError) -> ToolResult:
    """Return the result of a call that failed."""
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
        duration=call.seconds,
    )


def unavailable(tool: ToolDef, exc: ServerError) -> ToolUnavailableError:
    """Return the error of a call whose server cannot be used; it says whether the tool may have run."""
    ran = isinstance(exc, ConnectionLostError) and exc.may_have_run
    # A server that fails with an HTTP 5xx may have run the tool before it failed.
    ran = ran or (isinstance(exc, HttpStatusError) and not exc.refused_unrun)
    msg = f"`{tool.name}` is not available: {exc}"
    hint = "it may have run: check before you repeat it" if ran else ""
    return ToolUnavailableError(msg, tool=tool.name, server=tool.server, may_have_run=ran, hint=hint)
