"""A LangGraph agent that is interrupted in one process and answered in others, over a file of checkpoints.

Usage: langgraph_interrupt.py agent|node ask|show|answer CHECKPOINTS SERVER LOG. One step of the model calls
three tools: two ask, one does not. `agent` is LangChain's, which runs each call in a node of its own; `node` runs
all calls in one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from dragoman import Handlers, McpManager, ServerSpec, Stdio
from dragoman.adapters.langchain import langchain_tools

KIND, WHAT, CHECKPOINTS, SERVER, LOG = sys.argv[1:6]
CONFIG: Any = {"configurable": {"thread_id": "1"}}
CALLS: list[Any] = [
    {"id": "call-1", "name": "mcp_shop_order", "args": {}},
    {"id": "call-2", "name": "mcp_shop_echo", "args": {"text": "hello"}},
    {"id": "call-3", "name": "mcp_shop_order", "args": {"item": 2}},
]


class Scripted(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        asked = any(isinstance(message, AIMessage) for message in messages)
        said = AIMessage("done") if asked else AIMessage("", tool_calls=CALLS)
        return ChatResult(generations=[ChatGeneration(message=said)])


def one_node(tools: Any, saver: Any) -> Any:
    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [Scripted().invoke(state["messages"])]})
    made.add_node("tools", ToolNode(tools))
    made.add_edge(START, "model")
    made.add_conditional_edges("model", tools_condition)
    made.add_edge("tools", "model")
    return made.compile(checkpointer=saver)


def answer(question: Any) -> Any:
    size = "S" if json.loads(question["continuation"])["arguments"] else "L"
    return {"size": {"action": "accept", "content": {"size": size}}}


async def main() -> None:
    shop = ServerSpec("shop", Stdio(sys.executable, [SERVER, LOG]))
    async with (
        McpManager([shop], handlers=Handlers(durable_questions=True), cache=False) as mcp,
        AsyncSqliteSaver.from_conn_string(CHECKPOINTS) as saver,
    ):
        await mcp.wait_ready()
        tools = langchain_tools(mcp)
        agent = (
            create_agent(Scripted(), tools, checkpointer=saver) if KIND == "agent" else one_node(tools, saver)
        )
        if WHAT == "ask":
            await agent.ainvoke({"messages": [HumanMessage("go")]}, CONFIG)
        if WHAT == "answer":
            asked = (await agent.aget_state(CONFIG)).interrupts
            await agent.ainvoke(Command(resume={one.id: answer(one.value) for one in asked}), CONFIG)
        state = await agent.aget_state(CONFIG)
        for one in state.interrupts:
            print(one.value["questions"]["size"]["message"])
        for message in state.values["messages"]:
            if isinstance(message, ToolMessage):
                print(message.text)
        print(state.values["messages"][-1].text)


asyncio.run(main())
