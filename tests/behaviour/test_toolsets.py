"""Toolsets: a named selection of tools, for agents, commands and clients of the gateway."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.conftest import SERVERS
from tests.unit.cli.program import dragoman
from tests.unit.gateway.test_app import TOKEN, client_of, notes, post
from tests.unit.gateway.test_connection import Reader

from dragoman.adapters.bridge import Bridge
from dragoman.agent import AgentEngine, Say, ScriptedProvider
from dragoman.agent.offer import estimate_tokens
from dragoman.errors import ConfigError
from dragoman.gateway.app import asgi_app
from dragoman.gateway.connection import ClientConnection
from dragoman.gateway.gateway import Gateway
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, Settings, Statement, Stdio, ToolDef
from dragoman.testing import ScriptedServer
from dragoman.tools.export.apis import APIS

if TYPE_CHECKING:
    from pathlib import Path

FILE = """
[mcp.servers.notes]
command = "{python}"
args = ["{server}"]

[mcp.toolsets.review]
tools = ["notes:e*", "!notes:explode"]
"""


def settings(*patterns: str, scope: Any = "user", trusts: bool = False, name: str = "review") -> Settings:
    other = ScriptedServer("other")

    @other.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    said = Statement(key="toolsets", source="f", scope=scope, data={name: {"tools": list(patterns)}})
    return Settings(servers=[notes().spec(), other.spec()], toolsets=[said], trusts_project=trusts)


async def test_a_toolset_has_what_its_patterns_say_and_follows_the_registry() -> None:
    async with McpManager(settings("notes:*", "!notes:remove", "other:*")) as mcp:
        await mcp.wait_ready()
        view = mcp.toolset("review")
        assert [tool.name for tool in view] == ["mcp_notes_add", "mcp_other_add"]
        await mcp.remove("other")
        assert [tool.name for tool in view] == ["mcp_notes_add"]


async def test_only_exclusions_mean_all_the_others() -> None:
    async with McpManager(settings("!notes:*")) as mcp:
        await mcp.wait_ready()
        assert [tool.name for tool in mcp.toolset("review")] == ["mcp_other_add"]


async def test_a_misspelt_toolset_is_an_error_with_the_likely_name() -> None:
    async with McpManager(settings("notes:*")) as mcp:
        with pytest.raises(ConfigError, match=r"unknown toolset `reviw`.*did you mean review"):
            mcp.toolset("reviw")


async def test_a_project_cannot_widen_a_toolset_before_it_is_approved() -> None:
    own = settings("notes:add")
    theirs = settings("*", scope="project").toolsets
    both = own.replace(toolsets=[*theirs, *own.toolsets])
    async with McpManager(both) as mcp:
        await mcp.wait_ready()
        assert [tool.name for tool in mcp.toolset("review")] == ["mcp_notes_add"]
    async with McpManager(both.replace(trusts_project=True)) as mcp:
        await mcp.wait_ready()
        assert len(list(mcp.toolset("review"))) == 3
    async with McpManager(own.replace(toolsets=theirs)) as mcp:
        with pytest.raises(ConfigError, match="dragoman trust approve"):
            mcp.toolset("review")


async def test_an_agent_has_the_tools_of_its_toolset_alone() -> None:
    model = ScriptedProvider([Say(calls=[("mcp_notes_remove", {"number": 1})]), "Done."])
    async with (
        McpManager(settings("notes:add")) as mcp,
        AgentEngine(model, mcp, toolset="review") as agent,
    ):
        await agent.run("remove it")
        assert [tool["function"]["name"] for tool in model.requests[0].tools] == ["mcp_notes_add"]
        assert "unknown tool" in agent.messages[-2].text


async def test_clients_of_the_gateway_reach_a_toolset_at_an_address_of_its_own() -> None:
    app = asgi_app(McpManager(settings("notes:add")), token=TOKEN)
    async with client_of(app) as client:
        path = "/toolsets/review/mcp"
        listed = (await post(client, "tools/list", path=path)).json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["mcp_notes_add"]
        given = {"name": "mcp_notes_add", "arguments": {"text": "x"}}
        called = (await post(client, "tools/call", given, path=path)).json()
        assert "added x" in json.dumps(called["result"]["content"])
        for name in ("mcp_notes_remove", "mcp_other_add"):
            refused = (await post(client, "tools/call", {"name": name, "arguments": {}}, path=path)).json()
            assert "Unknown tool" in refused["error"]["message"]
        for method in ("resources/list", "prompts/list"):
            assert "error" in (await post(client, method, path=path)).json()
        assert (await post(client, "tools/list", path="/toolsets/other/mcp")).status_code == 404
        assert len((await post(client, "tools/list")).json()["result"]["tools"]) == 3


def test_the_command_lists_and_exports_a_toolset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(FILE.format(python=sys.executable, server=SERVERS / "all_features.py"))
    listed = dragoman("--config", str(file), "--json", "tools", "--toolset", "review")
    names = [tool["tool"] for tool in json.loads(listed.stdout)["servers"][0]["tools"]]
    assert names == ["echo"]
    exported = dragoman("--config", str(file), "tools", "--toolset", "review", "--format", "openai")
    assert [one["function"]["name"] for one in json.loads(exported.stdout)] == ["mcp_notes_echo"]
    wrong = dragoman("--config", str(file), "tools", "--toolset", "revue")
    assert "unknown toolset" in wrong.stderr


async def test_a_toolset_follows_the_configuration_and_its_clients_are_told() -> None:
    first = settings("notes:add")
    wider = first.replace(toolsets=[first.toolsets[0].replace(data={"review": {"tools": ["notes:*"]}})])
    async with McpManager(first) as mcp, asyncio.timeout(20):
        # The gateway comes when the servers are ready, so that it announces nothing but the reload.
        await mcp.wait_ready()
        async with Gateway(mcp) as gateway:
            view, theirs, others = mcp.toolset("review"), Reader(), Reader()
            connections = [
                ClientConnection(gateway.toolset("review"), theirs.outbox),
                ClientConnection(gateway.view(), others.outbox),
            ]
            for one in connections:
                gateway.announcer.add(one)
            await mcp.reload(wider)
            assert (await theirs.read.get())["method"] == "notifications/tools/list_changed"
            assert [tool.name for tool in view] == ["mcp_notes_add", "mcp_notes_remove"]
            assert view.export("openai") is view.export("openai")
            assert len(view.export("openai").tools) == 2
            await mcp.reload(first.replace(toolsets=[]))
            assert list(view) == []
            assert view.export("openai").tools == []
            assert others.read.empty()
            for one, reader in zip(connections, (theirs, others), strict=True):
                await one.close()
                await reader.outbox.close(flush=False)


async def test_an_adapter_has_the_tools_of_a_toolset_alone() -> None:
    broken = ServerSpec("ledger", Stdio(sys.executable, ["-c", "raise SystemExit('no licence')"]))
    both = settings("notes:*", "!notes:remove")
    async with McpManager(both.replace(servers=[*both.servers, broken])) as mcp:
        await mcp.wait_ready()
        bridge = Bridge(mcp, "openai", toolset="review")
        assert list(bridge.offered()) == ["mcp_notes_add"]
        assert (await bridge.call("mcp_notes_add", {"text": "x"})).success
        assert "unknown tool" in (await bridge.call("mcp_notes_remove", {"number": 1})).text
        with pytest.raises(ValueError, match="give a toolset, or"):
            Bridge(mcp, "openai", toolset="review", deny=["x"])
        with pytest.raises(ConfigError, match="unknown toolset"):
            Bridge(mcp, "openai", toolset="other")


async def test_twelve_tools_of_a_thousand_cost_a_model_what_a_server_of_twelve_costs() -> None:
    def definition(name: str) -> ToolDef:
        fields = {"query": {"type": "string", "description": f"What to look for in {name}."}}
        schema = {"type": "object", "properties": fields, "required": ["query"]}
        return ToolDef(
            name=name, description=f"Search {name}.", input_schema=schema, func=lambda query: query
        )

    names = [f"tool_{number:03}" for number in range(100)]
    servers = [ScriptedServer(f"server{number}", tools=map(definition, names)) for number in range(10)]
    alone = ScriptedServer("server3", tools=map(definition, names[:12]))
    patterns = [f"server3:{name}" for name in names[:12]]
    said = Statement(key="toolsets", source="f", scope="user", data={"some": {"tools": patterns}})
    chosen = Settings(servers=[server.spec() for server in servers], toolsets=[said])
    async with McpManager(chosen) as mcp, McpManager([alone.spec()]) as small:
        await mcp.wait_ready()
        await small.wait_ready()
        assert len(mcp.tools()) == 1_000
        for api in APIS:
            cost = estimate_tokens(mcp.toolset("some").export(api).tools)
            assert 0 < cost <= 1.1 * estimate_tokens(small.registry.export(api).tools), api


@pytest.mark.parametrize(
    "said", ['"x"', "{}", "{ tools = [] }", "{ tools = [1] }", '{ tools = ["a"], x = 1 }']
)
def test_a_toolset_that_cannot_be_read_is_a_problem_with_its_place(tmp_path: Path, said: str) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(f"[mcp.toolsets]\nreview = {said}\n")
    checked = dragoman("--config", str(file), "config", "check")
    assert "toolsets.review" in checked.stdout + checked.stderr
    assert checked.returncode != 0
