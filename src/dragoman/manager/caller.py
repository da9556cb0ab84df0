"""Callers: functions like `McpManager.call` with other rules, for the agent and the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.manager.manager import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from dragoman.call import ToolCaller
    from dragoman.manager.manager import McpManager
    from dragoman.model import ApprovalHandler
    from dragoman.storage.results import ResultStore
    from dragoman.tools.registry import ToolRegistry
    from dragoman.tools.result.budget import TextBudget
    from dragoman.tools.view import ToolView


def caller_of(
    mcp: McpManager,
    *,
    coerce: bool = False,
    budget: TextBudget | None = None,
    spill: ResultStore | None = None,
    registry: ToolRegistry | None = None,
    tools: ToolView | None = None,
    for_model: bool = False,
    ask: bool | ApprovalHandler = False,
    while_asking: Callable[[], AbstractAsyncContextManager[None]] | None = None,
    returns_questions: bool = False,
) -> ToolCaller:
    """Return a function that calls the tools of a manager.

    Args:
        mcp: The manager.
        coerce: Whether to coerce arguments that nearly match the schema, if the spec does not say.
        budget: The maximum length of a result's text; unlimited by default.
        spill: Where to keep results over the budget, and binary content.
        registry: Extra built-in tools that are not in the manager's registry. The policy covers them; metrics
            and the call log do not.
        tools: A view of the manager's registry; only these tools can be called.
        for_model: Whether a model reads the results: their texts end with their sources then.
        ask: Whether a call that no rule decides needs a yes of `Handlers.approval`, unless the tool is
            read-only; or a function that is asked instead.
        while_asking: Entered before a person is asked about a call, and left before the call is sent.
        returns_questions: Whether calls end with the questions of a server, as with `on_input="return"`, if
            the application has `Handlers(durable_questions=True)` and no `elicitation`.
    """
    from dragoman.call import CallMode, make_caller, unrecorded

    parts = parts_of(mcp)
    context = parts.call_context.replace(
        coerce=coerce,
        budget=budget,
        spill=spill,
        for_model=for_model,
        ask=ask,
        while_asking=while_asking,
    )
    if registry is not None:
        context = unrecorded(context, registry)
    elif tools is not None:
        context = context.replace(registry=tools)
    mode = CallMode(pauses=True) if returns_questions and parts.keeps_questions else None
    return make_caller(context, parts.check_open, mode=mode)
