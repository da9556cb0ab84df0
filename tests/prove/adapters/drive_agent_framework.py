"""Microsoft's Agent Framework: `Agent.run`."""

from __future__ import annotations

import json
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from script import Outcome, Script, Seen

from dragoman.adapters.agent_framework import DragomanTools

HOW = {
    "tools of each moment": "`DragomanTools` as middleware",
    "structured result": "`additional_properties` of the result's text",
    "tool error": "the text, marked `is_error`; the framework hides exceptions from models",
    "question as interrupt": "a user input request; `DragomanTools.answer`",
}
CANNOT: dict[str, str] = {}


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        step = self._script.next({one.name: one.description for one in options.get("tools") or []})
        if step is None:
            content: Any = "done"
        else:
            content = Content.from_function_call(step[0], step[1], arguments=json.dumps(step[2]))
        return ChatResponse(messages=[Message("assistant", [content])])


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    tools = DragomanTools(mcp, **options)
    agent = Agent(client=Scripted(script), middleware=[tools])
    return await _go(agent, tools, agent.create_session(), "go")


async def resume(mcp: Any, script: Script, outcome: Outcome, answers: Any) -> Outcome:
    agent, tools, session, request = outcome.state
    return await _go(agent, tools, session, await tools.answer(request, answers))


async def _go(agent: Any, tools: Any, session: Any, message: Any) -> Outcome:
    response = await agent.run(message, session=session)
    given = [message, *response.messages] if isinstance(message, Message) else response.messages
    results = [one for each in given for one in each.contents if one.type == "function_result"]
    request = next(iter(response.user_input_requests), None)
    return Outcome(
        [_seen(one) for one in results],
        final=response.text,
        question=request.additional_properties["dragoman"] if request else None,
        state=(agent, tools, session, request),
    )


def _seen(result: Any) -> Seen:
    marks = result.items[0].additional_properties
    return Seen(
        result.result,
        failed=marks.get("is_error", False),
        images=sum(one.type == "data" for one in result.items),
        structured=marks.get("structured_content"),
    )
