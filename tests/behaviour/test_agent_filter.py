"""The tools of one agent: to it, those that its filter leaves out do not exist."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.test_runnable_tools import tool_named
from tests.waiting import until

from dragoman import AgentEngine, McpManager, ServerSpec, ToolRegistry, tool
from dragoman.agent.offer import ToolLimit
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.events import ToolsChanged
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.agent.messages import Answer

    Make = Callable[..., ServerSpec]

pytestmark = pytest.mark.requirement("kode-registry.filter")


def offered(model: ScriptedProvider, step: int = 0) -> set[str]:
    return {one["function"]["name"] for one in model.requests[step].tools}


def answers(answer: Answer) -> list[str]:
    return [message.text for message in answer.messages if message.role == "tool"]


@pytest.mark.requirement("kode-registry.filter")
async def test_two_agents_with_different_filters_share_one_manager(offering: Make) -> None:
    specs = [offering("fs", tools=["read", "write"]), offering("db", tools=["ask"])]
    calls: list[tuple[str, dict[str, Any]]] = [("mcp_fs_read", {}), ("mcp_fs_write", {}), ("mcp_db_ask", {})]
    one, two = (ScriptedProvider([Say(calls=calls), "Done."]) for _ in range(2))
    with anyio.fail_after(40):
        async with McpManager(specs, cache=False) as mcp:
            await mcp.wait_ready()
            view = mcp.registry.view(allow=["fs:*"], deny=["*write"])
            async with (
                AgentEngine(one, mcp, tools=view) as reader,
                AgentEngine(two, mcp, allow=["db:*", "mcp_fs_write"]) as writer,
            ):
                first, second = await asyncio.gather(reader.run("Go."), writer.run("Go."))
            assert (await mcp.call("mcp_db_ask")).success
    assert offered(one) == {"mcp_fs_read"}
    assert offered(two) == {"mcp_db_ask", "mcp_fs_write"}
    read, write, ask = answers(first)
    assert read == "fs/read {}"
    assert write.startswith("unknown tool `mcp_fs_write` (did you mean `mcp_fs_read`?)")
    assert ask.startswith("unknown tool `mcp_db_ask`")
    read, write, ask = answers(second)
    assert read.startswith("unknown tool `mcp_fs_read`")
    assert (write, ask) == ("fs/write {}", "db/ask {}")


@pytest.mark.requirement("kode-registry.filter")
async def test_view_alone_is_enough_and_its_calls_take_the_managers_road(offering: Make) -> None:
    model = ScriptedProvider([Say(calls=[("fs__read", {}), ("fs__write", {})]), "Done."])
    with anyio.fail_after(40):
        mcp = McpManager([offering("fs", tools=["read", "write"], naming="{server}:{tool}")], cache=False)
        async with AgentEngine(model, mcp.registry.view(deny=["fs:write"])) as agent:
            assert agent.manager is mcp
            answer = await agent.run("Go.")
            assert mcp.metrics()["fs"].tools["fs:read"].calls == 1
        assert mcp.status()["fs"].state == "closed"
    read, write = answers(answer)
    assert read == "fs/read {}"
    assert write.startswith("unknown tool `fs__write`")


async def test_view_of_a_registry_without_a_manager_works_too() -> None:
    registry = ToolRegistry()

    @tool
    def here() -> str:
        return "here"

    @tool
    def there() -> str:
        return "there"

    registry.register_all([here, there])
    model = ScriptedProvider([Say(calls=[("here", {}), ("there", {})]), "Done."])
    with anyio.fail_after(20):
        async with AgentEngine(model, registry.view(allow=["here"])) as agent:
            said = answers(await agent.run("Go."))
    assert said[0] == "here"
    assert said[1].startswith("unknown tool `there`")


@pytest.mark.requirement("kode-registry.filter")
async def test_search_finds_and_calls_only_what_the_filter_leaves(offering: Make) -> None:
    specs = [offering("fs", tools=["read_file", "read_mail", "write_file"])]
    search: Any = [("search_tools", {"query": "read write file mail"})]
    calls: Any = [
        ("call_tool", {"name": f"mcp_fs_{name}_file", "arguments": {}}) for name in ("read", "write")
    ]
    model = ScriptedProvider([Say(calls=search), Say(calls=calls), "Done."])
    with anyio.fail_after(40):
        async with (
            McpManager(specs, cache=False) as mcp,
            AgentEngine(model, mcp, deny=["*write*"], limit=ToolLimit(count=1)) as agent,
        ):
            found, read, written = answers(await agent.run("Go."))
    names = {line.partition(":")[0] for line in found.splitlines() if line.startswith("mcp_")}
    assert names == {"mcp_fs_read_file", "mcp_fs_read_mail"}
    assert read == "fs/read_file {}"
    assert written.startswith("unknown tool `mcp_fs_write_file`")
    assert not any(name.startswith("mcp_") for name in offered(model, 2))


async def test_instructions_and_notices_are_about_the_agents_own_tools() -> None:
    mine = ScriptedServer("mine", tools=[tool_named("a")], instructions="Use mine.")
    other = ScriptedServer("other", tools=[tool_named("b")], instructions="Use the other.")
    model = ScriptedProvider(["One.", "Two."])
    with anyio.fail_after(40):
        async with (
            McpManager([mine.spec(), other.spec()], cache=False) as mcp,
            AgentEngine(model, mcp, allow=["mine:*"], deny=["mine:secret*"]) as agent,
        ):
            await agent.run("Go.")
            events = mcp.events()
            for server, name in ((other, "c"), (mine, "secret_key"), (mine, "d")):
                server.add(tool_named(name))
                await until(events, ToolsChanged)
            await agent.run("Again.")
    system = model.requests[0].messages[0].text
    assert "Use mine." in system
    assert "other" not in system
    said = [message.text for message in model.requests[1].messages if "[notice]" in message.text]
    assert said == ["[notice] the tools of server `mine` have changed (new: mcp_mine_d)"]


async def test_old_keyword_still_names_where_the_tools_come_from() -> None:
    registry = ToolRegistry()
    assert AgentEngine(ScriptedProvider([]), tools=registry).registry is registry
    mcp = McpManager([])
    assert AgentEngine(ScriptedProvider([]), tools=mcp).manager is mcp


async def test_filter_that_cannot_be_meant_is_an_error() -> None:
    mcp, model = McpManager([]), ScriptedProvider([])
    view = mcp.registry.view(allow=["a"])
    with pytest.raises(ValueError, match="a view of the same registry"):
        AgentEngine(model, mcp, tools=ToolRegistry().view())
    with pytest.raises(ValueError, match="a view of the same registry"):
        AgentEngine(model, mcp, tools=mcp)
    with pytest.raises(ValueError, match="give either `tools`, or `allow` and `deny`"):
        AgentEngine(model, mcp, tools=view, allow=["a"])
    McpManager([], registry=mcp.registry)
    with pytest.raises(ValueError, match="belongs to 2 managers"):
        AgentEngine(model, view)


def test_one_rule_needs_no_list() -> None:
    registry = ToolRegistry()
    registry.register(tool_named("ab"))
    assert [one.name for one in registry.view(allow="a*")] == ["ab"]
    assert [one.name for one in registry.view(deny="a*")] == []
