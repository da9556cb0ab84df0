"""PydanticAI: `Agent` with a `FunctionModel`."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, BinaryContent, DeferredToolRequests
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from script import Outcome, Script, Seen

from dragoman.adapters.pydantic_ai import DragomanToolset

HOW = {
    "structured result": "`ToolReturnPart.metadata.structured`",
    "tool error": "`ToolFailed`; `ModelRetry` for invalid arguments",
    "question as interrupt": "a deferred tool call; `DragomanToolset.answer`",
}
CANNOT: dict[str, str] = {}


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    def model(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = script.next({one.name: one.description or "" for one in info.function_tools})
        if step is None:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(step[1], step[2], tool_call_id=step[0])])

    toolset = DragomanToolset(mcp, **options)
    agent = Agent(FunctionModel(model), toolsets=[toolset], output_type=[str, DeferredToolRequests])
    return _outcome(agent, toolset, await agent.run("go"))


async def resume(mcp: Any, script: Script, outcome: Outcome, answers: Any) -> Outcome:
    agent, toolset, ended = outcome.state
    [call] = ended.output.calls
    results = await toolset.answer(ended.output, {call.tool_call_id: answers})
    again = await agent.run(message_history=ended.all_messages(), deferred_tool_results=results)
    return _outcome(agent, toolset, again)


def _outcome(agent: Any, toolset: Any, ended: Any) -> Outcome:
    parts = [part for message in ended.all_messages() for part in message.parts]
    waits = isinstance(ended.output, DeferredToolRequests)
    return Outcome(
        [_seen(part) for part in parts if isinstance(part, (ToolReturnPart, RetryPromptPart))],
        final="" if waits else ended.output,
        question=next(iter(ended.output.metadata.values())) if waits else None,
        state=(agent, toolset, ended),
    )


def _seen(part: Any) -> Seen:
    if isinstance(part, RetryPromptPart):
        return Seen(str(part.content), failed=True)
    content = part.content if isinstance(part.content, list) else [part.content]
    return Seen(
        "".join(one for one in content if isinstance(one, str)),
        failed=part.outcome == "failed",
        images=sum(isinstance(one, BinaryContent) for one in content),
        structured=getattr(part.metadata, "structured", None),
    )
