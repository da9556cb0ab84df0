"""LlamaIndex: a `FunctionAgent`."""

from __future__ import annotations

import json
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ImageBlock
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import ToolSelection
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from script import Outcome, Script, Seen

from dragoman.adapters.llama_index import DragomanTools

HOW = {
    "tools of each moment": "`DragomanTools` as `tool_retriever`",
    "structured result": "`ToolOutput.raw_output`",
    "tool error": "`ToolOutput.is_error`",
    "question as interrupt": "an `InputRequiredEvent`",
}
CANNOT: dict[str, str] = {}


class Scripted(FunctionCallingLLM):
    script: Any

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, model_name="scripted")

    def _prepare_chat_with_tools(self, tools: Any, **_: Any) -> Any:
        return {"messages": [], "tools": [one.metadata.to_openai_tool()["function"] for one in tools]}

    async def achat(self, messages: Any, tools: Any = (), **_: Any) -> ChatResponse:
        step = self.script.next({one["name"]: one["description"] for one in tools})
        said = ChatMessage(role="assistant", content="done" if step is None else "")
        return ChatResponse(message=said, additional_kwargs={"step": step})

    def get_tool_calls_from_response(self, response: Any, **_: Any) -> list[ToolSelection]:
        step = response.additional_kwargs["step"]
        return (
            [] if step is None else [ToolSelection(tool_id=step[0], tool_name=step[1], tool_kwargs=step[2])]
        )

    def chat(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    complete = stream_chat = stream_complete = chat

    async def astream_chat(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    acomplete = astream_complete = astream_chat


async def run(mcp: Any, script: Script, **options: Any) -> Outcome:
    agent = FunctionAgent(
        llm=Scripted(script=script), tool_retriever=DragomanTools(mcp, **options), streaming=False
    )
    return await _go(agent, agent.run("go"), [])


async def resume(mcp: Any, script: Script, outcome: Outcome, answers: Any) -> Outcome:
    agent, handler, event = outcome.state
    # As another process would: the context as JSON, a new run.
    written = json.dumps(handler.ctx.to_dict())
    await handler.cancel_run()
    again = agent.run(ctx=Context.from_dict(agent, json.loads(written)))
    # The framework does not write the memory with the context: a program keeps it where it likes.
    await again.ctx.store.set("memory", await handler.ctx.store.get("memory"))
    again.ctx.send_event(HumanResponseEvent(response=answers, question_id=event.question_id))
    return await _go(agent, again, outcome.seen)


async def _go(agent: Any, handler: Any, seen: list[Seen]) -> Outcome:
    try:
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult):
                seen.append(_seen(event.tool_output))
            if isinstance(event, InputRequiredEvent):
                asked = {name: event.get(name) for name in ("questions", "continuation", "server", "tool")}
                return Outcome(seen, question=asked, state=(agent, handler, event))
    except BaseException:
        await handler.cancel_run()
        raise
    return Outcome(seen, final=str(await handler))


def _seen(output: Any) -> Seen:
    return Seen(
        output.content,
        failed=output.is_error,
        images=sum(isinstance(one, ImageBlock) for one in output.blocks),
        structured=output.raw_output,
    )
