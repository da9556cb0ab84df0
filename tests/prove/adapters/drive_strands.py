"""Strands: `Agent.invoke_async`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from script import Outcome, Script, Seen
from strands import Agent
from strands.models import Model

from dragoman.adapters.strands import DragomanTools

if TYPE_CHECKING:
    import asyncio

HOW = {
    "tools of each moment": "`DragomanTools` as a hook; `strands_tools` is a snapshot",
    "structured result": "`toolResult.structuredContent`",
    "tool error": "`toolResult.status`",
    "question as interrupt": "an interrupt, kept in the agent's state",
    "cancel": "`agent.cancel()`, and the cancellation of the task",
}
CANNOT: dict[str, str] = {}
AGENTS: list[Agent] = []


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        self._script = script

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> Any:
        step = self._script.next({one["name"]: one["description"] for one in tool_specs or []})
        yield {"messageStart": {"role": "assistant"}}
        if step is None:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
        else:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": step[0], "name": step[1]}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(step[2])}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if step is None else "tool_use"}}


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    agent = Agent(model=Scripted(script), hooks=[DragomanTools(mcp, **options)], callback_handler=None)
    AGENTS.append(agent)
    return _outcome(agent, await agent.invoke_async("go"))


async def resume(mcp: Any, script: Script, outcome: Outcome, answers: Any) -> Outcome:
    agent, interrupt = outcome.state
    response = {"interruptResponse": {"interruptId": interrupt.id, "response": answers}}
    return _outcome(agent, await agent.invoke_async([response]))


async def cancel(run: asyncio.Task[Any]) -> None:
    AGENTS[-1].cancel()
    await run


def _outcome(agent: Agent, result: Any) -> Outcome:
    blocks = [block for message in agent.messages for block in message["content"]]
    interrupt = result.interrupts[0] if result.stop_reason == "interrupt" else None
    return Outcome(
        [_seen(block["toolResult"]) for block in blocks if "toolResult" in block],
        final=str(result).strip(),
        question=interrupt.reason if interrupt else None,
        state=(agent, interrupt),
    )


def _seen(result: Any) -> Seen:
    return Seen(
        "".join(piece.get("text", "") for piece in result["content"]),
        failed=result["status"] == "error",
        images=sum("image" in piece for piece in result["content"]),
        structured=result.get("structuredContent"),
    )
