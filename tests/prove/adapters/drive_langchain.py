"""LangChain: `create_agent`, with the tools of each moment from the middleware."""

from __future__ import annotations

import json
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from script import Outcome, Script, Seen

from dragoman.adapters.langchain_middleware import DragomanMiddleware

HOW = {
    "tools of each moment": "`DragomanMiddleware`; `langchain_tools` is a snapshot",
    "structured result": "`ToolMessage.artifact.structured`",
    "tool error": "`ToolMessage.status`",
    "question as interrupt": "`interrupt()`, with a checkpointer",
}
CANNOT: dict[str, str] = {}


class Model(BaseChatModel):
    script: Any
    tools: Any = None

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return Model(script=self.script, tools={one.name: one.description for one in tools})

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        step = self.script.next(self.tools or {})
        if step is None:
            message = AIMessage("done")
        else:
            message = AIMessage("", tool_calls=[{"id": step[0], "name": step[1], "args": step[2]}])
        return ChatResult(generations=[ChatGeneration(message=message)])


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    agent = create_agent(
        Model(script=script), middleware=[DragomanMiddleware(mcp, **options)], checkpointer=InMemorySaver()
    )
    return await _go(agent, {"messages": [("user", "go")]})


async def resume(mcp: Any, script: Script, outcome: Outcome, answers: Any) -> Outcome:
    return await _go(outcome.state, Command(resume=answers))


async def _go(agent: Any, given: Any) -> Outcome:
    ended = await agent.ainvoke(given, {"configurable": {"thread_id": "1"}})
    asked = ended.get("__interrupt__")
    return Outcome(
        [_seen(one) for one in ended["messages"] if isinstance(one, ToolMessage)],
        final=ended["messages"][-1].text,
        question=asked[0].value if asked else None,
        state=agent,
    )


def _seen(message: ToolMessage) -> Seen:
    blocks = message.content if isinstance(message.content, list) else []
    # A checkpoint gives the artifact back as a dict.
    artifact = message.artifact if isinstance(message.artifact, dict) else {"structured": None}
    structured = getattr(message.artifact, "structured", artifact["structured"])
    json.dumps(message.content)
    return Seen(
        message.text,
        failed=message.status == "error",
        images=sum(block["type"] == "image" for block in blocks),
        structured=structured,
    )
