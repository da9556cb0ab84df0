"""smolagents: a `ToolCallingAgent` in a thread, as it knows no `await`."""

from __future__ import annotations

import ast
import asyncio
from typing import Any

from script import Outcome, Script, Seen
from smolagents import ChatMessage, MessageRole, Model, ToolCallingAgent
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

from dragoman.adapters.smolagents import DragomanTools

HOW = {
    "tools of each moment": "`DragomanTools` as a step callback",
    "structured result": "the value that the tool returns, if it declares an output schema",
    "image": "a PIL image in the agent's state: the framework passes its name to the model",
    "tool error": "`AgentToolExecutionError`",
}
CANNOT = {
    "question as interrupt": "an agent cannot pause inside a step; set `Handlers(elicitation=…)`",
    "cancel": "`agent.interrupt()` takes effect after the step; the call ends with its own time-out",
}


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def generate(self, messages: Any, tools_to_call_from: Any = None, **_: Any) -> ChatMessage:
        offered = {one.name: one.description for one in tools_to_call_from if one.name != "final_answer"}
        step = self._script.next(offered) or ("end", "final_answer", {"answer": "done"})
        function = ChatMessageToolCallFunction(name=step[1], arguments=step[2])
        call = ChatMessageToolCall(id=step[0], type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    tools = DragomanTools(mcp, **options)
    agent = ToolCallingAgent(
        tools.current(), Scripted(script), step_callbacks=[tools], verbosity_level=-1, max_steps=6
    )
    final = await asyncio.to_thread(agent.run, "go")
    steps = [
        step for step in agent.memory.steps if hasattr(step, "observations") and not step.is_final_answer
    ]
    return Outcome([_seen(step, agent) for step in steps], final=str(final))


async def resume(*_: Any) -> Outcome:
    raise NotImplementedError


def _seen(step: Any, agent: Any) -> Seen:
    if step.error is not None:
        return Seen(str(step.error.message), failed=True)
    text = step.observations or ""
    try:
        structured = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        structured = None
    return Seen(
        text, images=int("Stored 'image.png'" in text and "image.png" in agent.state), structured=structured
    )
