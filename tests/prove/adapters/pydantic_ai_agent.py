"""A PydanticAI agent, its model scripted, its tools dragoman's: run by tests/prove/test_adapters.py."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from dragoman import McpManager, ServerSpec, Stdio, ToolRegistry, tool
from dragoman.adapters.pydantic_ai import DragomanToolset

SPEC = ServerSpec("plain", Stdio(sys.executable, [sys.argv[1]]))
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("mcp_plain_echo", {"text": "hello"}),
    ("mcp_plain_echo", {"text": 3}),
    ("mcp_plain_fail", {}),
    ("mcp_plain_image", {}),
    ("late", {"word": "now"}),
]


async def main() -> None:
    registry = ToolRegistry()

    @tool
    def late(word: str) -> str:
        """Come later than the run."""
        return f"late, but {word}"

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        if step == 0:
            print("offered", *sorted(one.name for one in info.function_tools))
        if step == 3:
            registry.register(late)
        if step == len(STEPS):
            return ModelResponse(parts=[TextPart("done")])
        name, arguments = STEPS[step]
        return ModelResponse(parts=[ToolCallPart(name, arguments)])

    async with McpManager([SPEC], registry=registry, cache=False) as mcp:
        await mcp.wait_ready()
        toolset = DragomanToolset(mcp, deny=["plain:exit"])
        agent = Agent(FunctionModel(model), toolsets=[toolset])
        run = await agent.run("go")
        returned = [p for m in run.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
        for part in returned:
            content = part.content
            if isinstance(content, list):
                content = [one.media_type if isinstance(one, BinaryContent) else "text" for one in content]
            print(part.tool_name, part.outcome, content)
        assert returned[0].metadata.provenance.server == "plain"

        # The framework's own test model makes arguments up from the schema, and calls what it is told to.
        played = await Agent(TestModel(call_tools=["mcp_plain_echo"]), toolsets=[toolset]).run("go")
        print("test model", played.output)


asyncio.run(main())
