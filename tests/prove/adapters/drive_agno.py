"""Agno: `Agent.arun`."""

from __future__ import annotations

import json
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from script import Outcome, Script, Seen, json_in

from dragoman.adapters.agno import DragomanTools

HOW = {
    "structured result": "as JSON text; `metadata` of the `ToolResult` for tool hooks",
    "tool error": "`ToolExecution.tool_call_error`",
}
CANNOT = {
    "tools of each moment": "an agent collects its tools at the start of each run: a run has the tools of that moment",
    "question as interrupt": "a run pauses before a tool is called, by its flags, and never inside; "
    "set `Handlers(elicitation=…)`",
}


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        super().__init__(id="scripted")
        self.script = script

    async def ainvoke(self, *_: Any, tools: Any = None, **__: Any) -> ModelResponse:
        functions = [one["function"] for one in tools or []]
        step = self.script.next({one["name"]: one["description"] for one in functions})
        if step is None:
            return ModelResponse(role="assistant", content="done")
        function = {"name": step[1], "arguments": json.dumps(step[2])}
        return ModelResponse(
            role="assistant", tool_calls=[{"id": step[0], "type": "function", "function": function}]
        )

    def invoke(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    invoke_stream = ainvoke_stream = _parse_provider_response = _parse_provider_response_delta = invoke


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    tools = DragomanTools(mcp, **options)
    agent = Agent(model=Scripted(script), tools=tools, cache_callables=False, telemetry=False)
    ended = await agent.arun("go")
    messages = [one for one in ended.messages or [] if one.role == "tool"]
    return Outcome([_seen(one, ended) for one in messages], final=ended.content or "")


async def resume(*_: Any) -> Outcome:
    raise NotImplementedError


def _seen(message: Any, ended: Any) -> Seen:
    text = message.content if isinstance(message.content, str) else str(message.content)
    return Seen(
        text,
        failed=bool(message.tool_call_error),
        images=len(ended.images or message.images or []),
        structured=json_in(text),
    )
