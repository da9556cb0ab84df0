"""Measure the agent's loop alone: CPU per step with 100 tools; model and tools answer immediately.

Goal: at most 2 ms per step.
"""

from __future__ import annotations

import asyncio
import time

from dragoman import ToolDef, ToolRegistry
from dragoman.agent.budget import Budget
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import Say, ScriptedProvider

TOOLS = 100
STEPS = 200
ROUNDS = 5
GOAL_MS = 2.0


def main() -> None:
    """Run the loop several times and print the best round."""
    best = min(asyncio.run(_round()) for _ in range(ROUNDS)) * 1000
    verdict = "met" if best <= GOAL_MS else "MISSED"
    print(f"one step of the loop, {TOOLS} tools: {best:.3f} ms CPU  (goal {GOAL_MS}: {verdict})")


async def _round() -> float:
    registry = ToolRegistry()
    registry.register_all(_tool(number) for number in range(TOOLS))
    script = [Say(calls=[("tool_7", {"text": "x"})]) for _ in range(STEPS - 1)]
    model = ScriptedProvider([*script, "done"])
    async with AgentEngine(model, registry, budget=Budget(steps=None)) as agent:
        began = time.process_time()
        answer = await agent.run("go")
        taken = time.process_time() - began
    return taken / answer.steps


def _tool(number: int) -> ToolDef:
    async def answer(text: str) -> str:
        return text

    return ToolDef(
        name=f"tool_{number}",
        description="Give the text back.",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        func=answer,
        source="builtin",
    )
