"""A model that reads files of an archive, on a server of one's own machine; it notes what it does not see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dragoman.agent import AgentEngine, open_provider
from dragoman.model import ToolDef
from dragoman.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from tests.servers.local_models import LocalModels

    from dragoman.agent import AgentEvent, Provider

SYSTEM = "You are the clerk of the archive. Answer in one sentence."
QUESTION = "Which of the files names the harbour?"
STEPS = 9
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["path"],
}


def registry(tools: int, *, words: int = 400, said: str = "the harbour lies in the fog, ") -> ToolRegistry:
    made = ToolRegistry()

    def add(number: int) -> None:
        def read(path: str, lines: int = 10) -> str:
            return f"{number} {path} {lines} " + said * words

        about = f"Read file number {number} of the archive, with its lines.\n\n" + "More of it. " * 10
        made.register(ToolDef(name=f"read_file_{number}", description=about, input_schema=SCHEMA, func=read))

    for number in range(tools):
        add(number)
    return made


class Clerk:
    """A model that reads some files and answers; it notes what it does not see."""

    def __init__(self, tools: int, *, parallel: int = 1) -> None:
        self.parallel = parallel
        self.wanted = f"read_file_{tools - 1}"
        self.missing: list[str] = []
        self.calls = 0

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(body["messages"], ensure_ascii=False)
        named = [tool["function"]["name"] for tool in body["tools"]]
        self.missing += [one for one in (SYSTEM, QUESTION) if one not in text]
        if not named:
            self.missing.append("tools")
        if self.calls == STEPS:
            return {"text": "The seventh."}
        self.calls += 1
        arguments = {"path": f"f{self.calls}", "lines": self.calls}
        if self.wanted in named:
            return {"calls": [{"name": self.wanted, "arguments": arguments}] * self.parallel}
        if "search_tools" not in named:
            self.missing.append("search_tools")
        if self.calls == 1:
            return {"calls": [{"name": "search_tools", "arguments": {"queries": [self.wanted]}}]}
        if f"{self.wanted}: " not in text:
            self.missing.append("what the search said")
        inner = {"name": self.wanted, "arguments": arguments}
        return {"calls": [{"name": "call_tool", "arguments": inner}] * self.parallel}


async def opened(server: LocalModels, **options: Any) -> Provider:
    kind = {"vllm": "local", "silent": "local"}.get(server.kind, server.kind)
    return await open_provider(f"{kind}:tiny", base_url=server.url, env={}, **options)


async def asked(
    server: LocalModels,
    tools: ToolRegistry,
    *,
    question: str = QUESTION,
    model: Provider | None = None,
    **options: Any,
) -> tuple[str, list[AgentEvent]]:
    events: list[AgentEvent] = []
    provider = model or await opened(server)
    async with AgentEngine(provider, tools, system=SYSTEM, **options) as agent:
        answer = await agent.run(question, on_event=events.append)
    return answer.text, events
