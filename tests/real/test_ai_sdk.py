"""Vercel's AI SDK, the real one under Node: it builds tools from our export and runs one of a real server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.real import servers

from dragoman import McpManager, ServerSpec, Stdio, ToolDef, ToolRegistry
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import ScriptedProvider
from dragoman.tools.definition import define

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.anyio

DATA = Path(__file__).parents[1] / "data" / "real-tools.json"
PATIENCE = 50.0
# A line comes for each question: first the tools and what the model is to call, then the answer to each call.
PROGRAM = """
import { createInterface } from "node:readline";
import { dynamicTool, generateText, jsonSchema, stepCountIs } from "ai";
import { MockLanguageModelV4 } from "ai/test";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const heard = async () => JSON.parse((await lines.next()).value);
const say = (message) => process.stdout.write(JSON.stringify(message) + "\\n");

const { tools, calls } = await heard();
const built = {};
for (const { name, inputSchema, outputSchema, ...rest } of tools) {
  built[name] = dynamicTool({
    ...rest,
    inputSchema: jsonSchema(inputSchema),
    ...(outputSchema && { outputSchema: jsonSchema(outputSchema) }),
    execute: async (input) => {
      say({ call: name, input });
      return (await heard()).text;
    },
  });
}
const count = { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined };
const usage = { inputTokens: count, outputTokens: { total: 1, text: 1, reasoning: undefined } };
const model = new MockLanguageModelV4({
  doGenerate: [
    ...calls.map(({ name, input }, index) => ({
      content: [
        { type: "tool-call", toolCallId: `call-${index}`, toolName: name, input: JSON.stringify(input) },
      ],
      finishReason: { unified: "tool-calls", raw: undefined },
      usage,
      warnings: [],
    })),
    {
      content: [{ type: "text", text: "done" }],
      finishReason: { unified: "stop", raw: undefined },
      usage,
      warnings: [],
    },
  ],
});
const { text, steps } = await generateText({
  model, tools: built, prompt: "Go.", stopWhen: stepCountIs(calls.length + 1),
});
const results = steps.flatMap((step) => step.toolResults).map(({ toolName, output }) => [toolName, output]);
say({ text, results, offered: model.doGenerateCalls[0].tools });
"""


class Node:
    """The program under Node, to which lines are said and which answers with lines."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def ask(self, message: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(message).encode() + b"\n")
        await self._child.stdin.drain()
        line = await self._child.stdout.readline()
        assert line, "Node ended without an answer; what it said is on stderr"
        return json.loads(line)


@asynccontextmanager
async def running() -> AsyncGenerator[Node]:
    child = await asyncio.create_subprocess_exec(
        *("node", "--input-type=module", "--eval", PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=servers.NPM,
        limit=2**24,
    )
    try:
        yield Node(child)
    finally:
        assert child.stdin is not None
        child.stdin.close()
        if child.returncode is None:
            child.kill()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]


def listed() -> list[ToolDef]:
    """Return the tools of 41 real servers; nothing runs them here."""
    listing = json.loads(DATA.read_text("utf-8"))
    tools = [
        define(raw, server=server, template="{server}:{tool}")
        for server in listing
        for raw in listing[server]
    ]
    return [tool for tool in tools if isinstance(tool, ToolDef)]


@pytest.mark.requirement("legal-discovery.ai_sdk")
async def test_ai_sdk_builds_every_tool_of_the_export_and_runs_two(tmp_path: Path) -> None:
    (tmp_path / "law.txt").write_text("第一条", "utf-8")
    registry = ToolRegistry()
    registry.register_all(listed())
    registry.register(
        ToolDef(
            name="double",
            description="Doubles.",
            input_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
            func=lambda n: 2 * n,
            source="builtin",
        )
    )
    command, *arguments = servers.command("filesystem", tmp_path)
    spec = ServerSpec(
        "files", Stdio(command, arguments), timeouts={"connect": PATIENCE}, naming="{server}:{tool}"
    )
    async with McpManager([spec], registry=registry) as mcp, running() as node:
        await mcp.wait_ready(timeout=PATIENCE)
        export = mcp.registry.export("ai-sdk")
        calls = [
            {"name": "files__read_text_file", "input": {"path": str(tmp_path / "law.txt")}},
            {"name": "double", "input": {"n": 21}},
        ]
        said = await node.ask({"tools": export.tools, "calls": calls})
        while "call" in said:
            name, given = export.restore(said["call"], said["input"])
            said = await node.ask({"text": await mcp.registry.call(name, given)})
        exported = {export.names[tool["name"]]: tool for tool in export.tools}
        agent = AgentEngine(ScriptedProvider([]), mcp)
        offers = {tool.name: tool for tool in agent.tools if "model" in tool.audience}
        assert exported.keys() == offers.keys()
        assert {tool.name for tool in mcp.registry if "model" in tool.audience} == offers.keys()
        for name, tool in offers.items():
            assert exported[name].get("outputSchema") == tool.output_schema
    assert said["text"] == "done"
    [(first, text), second] = said["results"]
    assert (first, second) == ("files__read_text_file", ["double", "42"])
    assert "第一条" in text
    offered = {tool["name"]: tool for tool in said["offered"]}
    assert offered.keys() == {tool["name"] for tool in export.tools}
    assert len(offered) > 950
    for tool in export.tools:
        assert offered[tool["name"]]["description"] == tool["description"]
        assert offered[tool["name"]]["inputSchema"] == tool["inputSchema"]
