"""The OpenAI Agents SDK: `Runner.run` with a `DragomanAgent`."""

from __future__ import annotations

import json
from typing import Any

from agents import Model, ModelResponse, Runner, RunState, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from script import Outcome, Script, Seen, json_in

from dragoman.adapters.openai_agents import DragomanAgent, DragomanTools

set_tracing_disabled(True)

HOW = {
    "tools of each moment": "`DragomanAgent`; `agents_tools` is a snapshot",
    "structured result": "as JSON text: the SDK has no field for it",
    "tool error": "the text: the SDK has no mark for it",
    "question as interrupt": "an interruption; `DragomanTools.answer`",
}
CANNOT: dict[str, str] = {}


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        self._script = script

    async def get_response(self, *_: Any, tools: Any, **__: Any) -> Any:
        step = self._script.next({one.name: one.description for one in tools})
        output: Any
        if step is None:
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="m", role="assistant", status="completed", type="message", content=[text]
            )
        else:
            output = ResponseFunctionToolCall(
                call_id=step[0], name=step[1], arguments=json.dumps(step[2]), type="function_call"
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    tools = DragomanTools(mcp, **options)
    agent = DragomanAgent(name="a", model=Scripted(script), dragoman=tools)
    return _outcome(agent, tools, await Runner.run(agent, "go"))


async def resume(mcp: Any, script: Script, outcome: Outcome, answers: Any) -> Outcome:
    agent, _, ended = outcome.state
    # As another process would: the state and the question as JSON, new tools.
    asked, written = json.loads(json.dumps(outcome.question)), ended.to_state().to_string()
    agent.dragoman = tools = DragomanTools(mcp)
    state = await RunState.from_string(agent, written)
    [interruption] = state.get_interruptions()
    await tools.answer(state, interruption, answers, asked=asked)
    return _outcome(agent, tools, await Runner.run(agent, state))


def _outcome(agent: Any, tools: DragomanTools, ended: Any) -> Outcome:
    seen = [
        _seen(item.raw_item["output"]) for item in ended.new_items if item.type == "tool_call_output_item"
    ]
    waiting = ended.interruptions
    question = tools.question(waiting[0]) if waiting else None
    return Outcome(seen, final=ended.final_output or "", question=question, state=(agent, tools, ended))


def _seen(output: Any) -> Seen:
    if isinstance(output, str):
        return Seen(output, failed="the disk is full" in output, structured=json_in(output))
    text = "".join(piece.get("text", "") for piece in output)
    return Seen(
        text, images=sum(piece["type"] == "input_image" for piece in output), structured=json_in(text)
    )
