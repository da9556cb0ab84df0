"""Toolsets: a named selection of tools, for agents, commands and clients of the gateway."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.conftest import SERVERS
from tests.unit.cli.program import dragoman
from tests.unit.gateway.test_app import TOKEN, client_of, notes, post

from dragoman.agent import AgentEngine, Say, ScriptedProvider
from dragoman.errors import ConfigError
from dragoman.gateway.app import asgi_app
from dragoman.manager.manager import McpManager
from dragoman.model import Settings, Statement
from dragoman.testing import ScriptedServer

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


@pytest.mark.parametrize(
    "said", ['"x"', "{}", "{ tools = [] }", "{ tools = [1] }", '{ tools = ["a"], x = 1 }']
)
def test_a_toolset_that_cannot_be_read_is_a_problem_with_its_place(tmp_path: Path, said: str) -> None:
    file = tmp_path / "dragoman.toml"
    file.write_text(f"[mcp.toolsets]\nreview = {said}\n")
    checked = dragoman("--config", str(file), "config", "check")
    assert "toolsets.review" in checked.stdout + checked.stderr
    assert checked.returncode != 0
