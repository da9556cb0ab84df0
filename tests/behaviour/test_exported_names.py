"""Names that round-trip: whatever an export called a tool, a call by that name reaches it and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.test_runnable_tools import tool_named
from tests.waiting import until

from dragoman import McpManager, Settings, ToolDef, ToolRegistry, UnknownToolError
from dragoman.blocking import manager as blocking
from dragoman.events import CallFinished, ToolsChanged
from dragoman.testing import ScriptedServer
from dragoman.tools.export.apis import APIS
from dragoman.tools.export.apis.openai import NAMES as OPENAI
from dragoman.tools.names import assign

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman import ServerSpec

pytestmark = pytest.mark.requirement("kode-registry.naming", "excel-5.2")

LONG = "list_" + "very_" * 20 + "long"
OFFERS: dict[str, list[str]] = {
    "law": ["list_templates", "read.one", LONG],
    "法律": ["list_templates", "查询"],
    "a/b": ["c d"],
}


def specs(offering: Callable[..., ServerSpec]) -> list[ServerSpec]:
    return [offering(name, tools=tools, naming="{server}:{tool}") for name, tools in OFFERS.items()]


@pytest.mark.requirement("kode-registry.naming", "kode-registry.register")
async def test_every_name_of_every_export_can_be_called(offering: Callable[..., ServerSpec]) -> None:
    with anyio.fail_after(40):
        async with McpManager(specs(offering), cache=False) as mcp:
            await mcp.wait_ready()
            exports = [mcp.registry.export(api) for api in APIS]
            assert "law__list_templates" in exports[0].names
            assert len([name for name in exports[0].names if len(name) == 64]) == 1
            view = mcp.registry.view()
            for export in exports:
                assert len(export.names) == 6
                for alias, name in export.names.items():
                    tool = mcp.registry.get(name)
                    assert tool is not None
                    expected = f"{tool.server}/{tool.original_name} {{}}"
                    assert (await mcp.call(alias)).text == expected
                    assert await mcp.registry.call(alias) == expected
                    assert await view.call(alias) == expected
                    assert mcp.registry.resolve(alias) is tool


@pytest.mark.requirement("kode-registry.naming")
def test_every_name_of_an_export_can_be_called_without_await(offering: Callable[..., ServerSpec]) -> None:
    with blocking.McpManager(specs(offering), cache=False) as mcp:
        mcp.wait_ready()
        for alias, name in mcp.registry.export("openai").names.items():
            assert mcp.call(alias).text == mcp.call(name).text
            assert mcp.registry.call(alias) == mcp.registry.call(name)


async def test_call_by_an_alias_is_reported_under_the_exposed_name(
    offering: Callable[..., ServerSpec],
) -> None:
    with anyio.fail_after(30):
        async with McpManager(specs(offering)[:1], cache=False) as mcp:
            await mcp.wait_ready()
            events = mcp.events()
            # No export was made here: the name is from a conversation that another process began.
            assert (await mcp.call("law__list_templates")).success
            async for event in events:
                if isinstance(event, CallFinished):
                    assert (event.server, event.tool) == ("law", "law:list_templates")
                    break
            assert mcp.metrics()["law"].tools.keys() == {"law:list_templates"}


async def test_policy_judges_the_tool_behind_an_alias(offering: Callable[..., ServerSpec]) -> None:
    rules = [{"action": "deny", "server": "law", "tool": "list_*"}]
    with anyio.fail_after(30):
        async with McpManager(specs(offering)[:1], cache=False, policy=rules) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call("law__list_templates")).exception.code == "tool.denied"  # type: ignore[union-attr]


async def test_alias_that_moved_to_another_tool_calls_neither() -> None:
    server = ScriptedServer("s", tools=[tool_named("a.b")])
    with anyio.fail_after(30):
        async with McpManager([server.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            assert list(mcp.registry.export("openai").names) == ["mcp_s_a_b"]
            assert (await mcp.call("mcp_s_a_b")).text == "a.b {}"
            events = mcp.events()
            server.remove("a.b")
            await until(events, ToolsChanged)
            gone = await mcp.call("mcp_s_a_b")
            assert isinstance(gone.exception, UnknownToolError)
            server.add(tool_named("a/b"))
            await until(events, ToolsChanged)
            # The old conversation means a tool that is gone; the new export would mean another.
            assert isinstance((await mcp.call("mcp_s_a_b")).exception, UnknownToolError)
            assert list(mcp.registry.export("openai").names) == ["mcp_s_a_b"]
            refused = await mcp.call("mcp_s_a_b")
            assert isinstance(refused.exception, UnknownToolError)
            assert "it stood for `a.b` (server `s`) and `a/b` (server `s`) in different" in str(refused.error)
            assert "use `mcp_s_a/b`" in str(refused.error)
            with pytest.raises(UnknownToolError, match="in different exports"):
                mcp.registry.resolve("mcp_s_a_b")
            assert (await mcp.call("mcp_s_a/b")).text == "a/b {}"
            assert [call.tool for call in server.calls] == ["a.b", "a/b"]


async def test_exposed_name_wins_over_an_alias() -> None:
    server = ScriptedServer("s", tools=[tool_named("a.b")])
    with anyio.fail_after(30):
        async with McpManager([server.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            assert (await mcp.call(next(iter(mcp.registry.export("openai").names)))).text == "a.b {}"
            events = mcp.events()
            server.remove("a.b")
            await until(events, ToolsChanged)
            server.add(tool_named("a_b"))
            await until(events, ToolsChanged)
            assert (await mcp.call("mcp_s_a_b")).text == "a_b {}"


# What people type


def remote(server: str, tool: str, name: str = "") -> ToolDef:
    return ToolDef(
        name=name or f"mcp_{server}_{tool}",
        description="",
        input_schema={},
        server=server,
        original_name=tool,
    )


@pytest.fixture
def registry() -> ToolRegistry:
    made = ToolRegistry()
    tools = [remote("fs", "read"), remote("fs", "list"), remote("db", "list"), remote("my.db", "v1.get")]
    made.register_all(tools)
    made.register(ToolDef(name="here", description="", input_schema={}, func=lambda: "x"))
    return made


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mcp_fs_read", "mcp_fs_read"),
        ("fs:read", "mcp_fs_read"),
        ("fs.read", "mcp_fs_read"),
        ("read", "mcp_fs_read"),
        ("db.list", "mcp_db_list"),
        ("my.db.v1.get", "mcp_my.db_v1.get"),
        ("my.db:v1.get", "mcp_my.db_v1.get"),
        ("v1.get", "mcp_my.db_v1.get"),
        ("mcp_my_db_v1_get", "mcp_my.db_v1.get"),
        ("here", "here"),
    ],
)
def test_resolve_takes_what_people_type(registry: ToolRegistry, typed: str, meant: str) -> None:
    assert registry.resolve(typed).name == meant
    assert registry.view().resolve(typed).name == meant
    with pytest.raises(UnknownToolError):
        registry.view(deny=[meant]).resolve(typed)


def test_name_that_several_servers_have_is_an_error_that_lists_them(registry: ToolRegistry) -> None:
    with pytest.raises(UnknownToolError) as caught:
        registry.resolve("list")
    assert "`mcp_db_list` (server `db`) or `mcp_fs_list` (server `fs`)" in str(caught.value)
    assert registry.view(deny=["db:*"]).resolve("list").name == "mcp_fs_list"


@pytest.mark.parametrize("typed", ["reed", "fs:", ":read", ".", "x" * 5_000, "fs:read:more"])
def test_unknown_name_is_an_error(registry: ToolRegistry, typed: str) -> None:
    with pytest.raises(UnknownToolError, match="unknown tool"):
        registry.resolve(typed)


def test_call_takes_a_tool_with_its_server_and_does_not_guess_the_server(registry: ToolRegistry) -> None:
    for name in ("fs:read", "fs.read"):
        found = registry.find(name)
        assert found is not None
        assert found.name == "mcp_fs_read"
        assert registry.view(deny=["fs:*"]).find(name) is None
    assert registry.find("read") is None


async def test_two_readings_of_a_dotted_name_are_never_guessed(
    offering: Callable[..., ServerSpec],
) -> None:
    twins = [offering("a", tools=["b:c"]), offering("a:b", tools=["c"])]
    with anyio.fail_after(30):
        async with McpManager(Settings(servers=twins, naming="{tool}@{server}"), cache=False) as mcp:
            await mcp.wait_ready()
            with pytest.raises(UnknownToolError, match="is ambiguous"):
                mcp.registry.resolve("a:b:c")
            assert mcp.registry.resolve("a.b:c").server == "a"


def test_calls_by_exposed_names_make_no_table_and_others_one_per_change(
    registry: ToolRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def counted(tools: Any, rule: Any) -> dict[str, str]:
        made.append(rule)
        return assign(tools, rule)

    monkeypatch.setattr("dragoman.tools.registry.assign", counted)
    assert registry.find("mcp_fs_read") is not None
    assert made == []
    assert registry.find("mcp_my_db_v1_get") is not None
    for name in ("mcp_my_db_v1_get", "unknown", "mcp_fs_read"):
        registry.find(name)
    assert made == [OPENAI], "Gemini takes all of these names as they are"
    registry.register(remote("new", "tool"))
    assert registry.find("unknown") is None
    assert made == [OPENAI, OPENAI]
