"""An agent of OpenAI's SDK, its model scripted, its tools dragoman's: run by tests/prove/test_adapters.py."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from dragoman import McpManager, ServerSpec, Stdio, ToolRegistry, tool
from dragoman.adapters.openai_agents import agents_tools

SPEC = ServerSpec("plain", Stdio(sys.executable, [sys.argv[1]]))
STEPS = [
    ("mcp_plain_echo", '{"text": "hello"}'),
    ("mcp_plain_echo", '{"text": 3}'),
    ("mcp_plain_fail", "{}"),
    ("mcp_plain_image", ""),
    ("double", '{"number": 21}'),
    ("double", "not json"),
]


class Scripted(Model):
    """Calls what it is told to, then says that it is done."""

    def __init__(self) -> None:
        self.step = 0

    async def get_response(self, *_: Any, tools: Any, **__: Any) -> Any:
        if self.step == 0:
            print("offered", *sorted(one.name for one in tools))
        output: Any
        if self.step == len(STEPS):
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="m", role="assistant", status="completed", type="message", content=[text]
            )
        else:
            name, arguments = STEPS[self.step]
            call_id = f"call-{self.step}"
            output = ResponseFunctionToolCall(
                name=name, arguments=arguments, call_id=call_id, type="function_call"
            )
        self.step += 1
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def main() -> None:
    set_tracing_disabled(True)
    registry = ToolRegistry()
    registry.register(double)
    async with McpManager([SPEC], registry=registry, cache=False) as mcp:
        await mcp.wait_ready()
        tools = agents_tools(mcp, deny=["plain:exit"])
        run = await Runner.run(Agent(name="a", tools=tools, model=Scripted()), "go")
        for item in run.new_items:
            if item.type == "tool_call_output_item":
                output = item.raw_item["output"]
                print(output if isinstance(output, str) else [piece["type"] for piece in output])
        print(run.final_output)


asyncio.run(main())
