"""A LangChain agent, its model scripted, its tools dragoman's: run by tests/prove/test_adapters.py."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

from dragoman import McpManager, ServerSpec, Stdio, ToolRegistry, tool
from dragoman.adapters.langchain import langchain_tools
from dragoman.blocking.manager import McpManager as BlockingManager

OFFERED: set[str] = set()
SPEC = ServerSpec("plain", Stdio(sys.executable, [sys.argv[1]]))


@tool
def configure(config: str, run_manager: int, self_: str = "me") -> str:
    """Take parameters that LangChain has uses of its own for."""
    return f"{config} {run_manager} {self_}"


def registry() -> ToolRegistry:
    made = ToolRegistry()
    made.register(configure)
    return made


def asks(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{name}"}])


class Scripted(GenericFakeChatModel):
    """Says what it is told to."""

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        OFFERED.update(one.name for one in tools)
        return self


async def with_await() -> None:
    async with McpManager([SPEC], registry=registry(), cache=False) as mcp:
        await mcp.wait_ready()
        tools = {
            one.name: one for one in langchain_tools(mcp, allow=["plain:*", "configure"], deny=["*_exit"])
        }
        assert tools["mcp_plain_echo"].args_schema["required"] == ["text"]
        assert "mcp_plain_exit" not in tools

        said = [
            asks("mcp_plain_echo", text="hello"),
            asks("mcp_plain_echo", text=3),
            asks("mcp_plain_fail"),
            asks("configure", config="a", run_manager=2),
            AIMessage("done"),
        ]
        agent = create_agent(Scripted(messages=iter(said)), list(tools.values()))
        ended = await agent.ainvoke({"messages": [("user", "go")]})
        print("offered", *sorted(OFFERED))
        answers = [message for message in ended["messages"] if isinstance(message, ToolMessage)]
        for message in answers:
            print(message.name, message.status, message.content)
        assert answers[0].artifact.provenance.server == "plain"

        image = await tools["mcp_plain_image"].ainvoke(
            {**asks("mcp_plain_image").tool_calls[0], "type": "tool_call"}
        )
        print("image", [block["type"] for block in image.content], image.content[1]["mime_type"])

        # Without await: from another thread, and refused where it would wait for itself.
        print("thread", await asyncio.to_thread(tools["mcp_plain_echo"].invoke, {"text": "from a thread"}))
        try:
            tools["mcp_plain_echo"].invoke({"text": "from the loop"})
        except Exception as exc:  # noqa: BLE001 -- its kind is what is printed
            print("loop", type(exc).__name__)


def without_await() -> None:
    with BlockingManager([SPEC], registry=registry(), cache=False) as mcp:
        mcp.wait_ready()
        tools = {one.name: one for one in langchain_tools(mcp)}
        print("blocking", tools["mcp_plain_echo"].invoke({"text": "no loop at all"}))
        print("blocking", asyncio.run(tools["mcp_plain_echo"].ainvoke({"text": "a loop beside"})))


asyncio.run(with_await())
without_await()
