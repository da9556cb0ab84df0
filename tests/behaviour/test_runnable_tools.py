"""Tools that run: `execute` and `func` of a server's tool, and registries that applications already have."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.waiting import until

from dragoman import (
    CallTimeoutError,
    DragomanError,
    McpManager,
    ServerSpec,
    Settings,
    ToolDef,
    ToolExecutionError,
    ToolFailedError,
    ToolRegistry,
    UnknownToolError,
    tool,
)
from dragoman.agent.engine import AgentEngine
from dragoman.agent.providers import Say, ScriptedProvider
from dragoman.blocking import manager as blocking
from dragoman.events import ToolsChanged
from dragoman.struct import asdict
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., ServerSpec]

pytestmark = pytest.mark.requirement(
    "excel-3.2",
    "excel-4.1",
    "excel-4.3",
    "excel-5.3",
    "excel-5.5",
    "rrclaw-manager.tools",
)


def pages(*names: str) -> ScriptedServer:
    server = ScriptedServer("pages")
    for name in names:
        server.add(tool_named(name))
    return server


def tool_named(name: str, says: str = "") -> ToolDef:
    schema = {"type": "object", "properties": {"self": {"type": "string"}, "timeout": {"type": "integer"}}}

    def run(**given: Any) -> str:
        return f"{name} {given}"

    return ToolDef(name=name, description=says or name, input_schema=schema, func=run)


def func_of(tool: ToolDef) -> Callable[..., Any]:
    assert tool.func is not None
    return tool.func


# `execute` and `func`


@pytest.mark.requirement("excel-3.2", "otter-p0.toolset", "excel-5.3", "excel-5.5")
async def test_tool_of_a_server_runs_by_execute_and_by_its_func(server: Make) -> None:
    with anyio.fail_after(30):
        async with McpManager([server("plain", "plain.py")], cache=False) as mcp:
            await mcp.wait_ready()
            tools = {one.original_name: one for one in mcp.tools()}
            echo, fail = tools["echo"], tools["fail"]
            done = await echo.execute({"text": "a"}, timeout=20)
            assert (done.success, done.text) == (True, "a")
            assert done.provenance is not None
            failed = await fail.execute()
            assert (failed.success, failed.error) == (False, "the disk is full")
            assert echo.func is not None
            assert fail.func is not None
            assert inspect.iscoroutinefunction(echo.func)
            assert await echo.func(text="b") == "b"
            with pytest.raises(ToolFailedError, match="the disk is full"):
                await fail.func()
            refused = await echo.execute({"texd": 1})
            assert "texd" in (refused.error or "")
            counted = mcp.metrics()["plain"].tools["mcp_plain_echo"]
            assert counted.calls == 3


async def test_arguments_of_a_func_may_have_any_name() -> None:
    with anyio.fail_after(30):
        async with McpManager([pages("t").spec()], cache=False) as mcp:
            await mcp.wait_ready()
            (one,) = mcp.tools()
            assert one.func is not None
            given = {"self": "me", "timeout": 3}
            assert await one.func(**given) == f"t {given}"


async def test_execute_has_a_time_limit_of_its_own() -> None:
    server = ScriptedServer("slow")

    @server.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    with anyio.fail_after(30):
        async with McpManager([server.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            (one,) = mcp.tools()
            late = await one.execute(timeout=0.05)
            assert isinstance(late.exception, CallTimeoutError)


async def test_copies_compare_equal_and_say_that_they_have_no_manager() -> None:
    with anyio.fail_after(30):
        async with McpManager([pages("t").spec()], cache=False) as mcp:
            await mcp.wait_ready()
            (one,) = mcp.tools()
            renamed = one.replace(description="mine")
            assert (await renamed.execute()).success
            assert renamed != one
            assert renamed.replace(description=one.description) == one
            assert one.replace(func=None) == one
            for cut in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
                assert cut == one
                with pytest.raises(DragomanError, match="a copy without a manager"):
                    await cut.execute()
                with pytest.raises(DragomanError, match="a copy without a manager"):
                    await func_of(cut)()
            assert asdict(one)["name"] == "mcp_pages_t"
    first, second = (ToolDef(name="a", description="", input_schema={}, func=one) for one in (print, repr))
    assert first != second
    assert first.source == "builtin"


async def test_built_in_tool_and_tool_of_no_manager_say_how_to_call_them() -> None:
    mine = ToolDef(name="mine", description="", input_schema={}, func=lambda: "x")
    with pytest.raises(DragomanError, match=r"`mine` is a built-in tool \(use `await mcp.call"):
        await mine.execute()
    loose = ToolDef(name="loose", description="", input_schema={}, server="s", original_name="loose")
    with pytest.raises(DragomanError, match="no manager offers the tool `loose`"):
        await loose.execute()


@pytest.mark.requirement("legal-discovery.cache")
async def test_tool_of_a_cached_listing_runs_and_starts_its_server(server: Make, tmp_path: Path) -> None:
    spec = server("plain", "plain.py")
    with anyio.fail_after(30):
        async with McpManager([spec], cache=tmp_path) as mcp:
            await mcp.wait_ready()
        async with McpManager([spec.replace(lazy=True)], cache=tmp_path) as lazy:
            echo = lazy.registry.get("mcp_plain_echo")
            assert echo is not None
            assert lazy.status()["plain"].state == "idle"
            assert (await echo.execute({"text": "x"})).text == "x"
        with pytest.raises(DragomanError, match="the manager is closed"):
            await echo.execute({"text": "x"})
        assert echo.func is not None
        with pytest.raises(DragomanError, match="the manager is closed"):
            await echo.func(text="x")


async def test_tool_is_followed_when_its_name_becomes_ambiguous(offering: Make) -> None:
    with anyio.fail_after(30):
        async with McpManager([offering("git_hub", tools=["push"])], cache=False) as mcp:
            await mcp.wait_ready()
            (push,) = mcp.tools()
            await mcp.add(offering("git", tools=["hub_push"]))
            assert push.name not in mcp.registry
            assert (await push.execute()).text == "git_hub/push {}"
            await mcp.remove("git_hub")
            gone = await push.execute()
            assert isinstance(gone.exception, UnknownToolError)
            assert "`git_hub:push`" in str(gone.error)


async def test_tool_whose_name_went_to_another_server_never_runs_that_ones(
    offering: Make, tmp_path: Path
) -> None:
    held = tmp_path / "go"
    specs = [
        offering("git_hub", tools=["push"], wait=str(held)),
        offering("git", tools=["hub_push"]),
    ]
    with anyio.fail_after(30):
        async with McpManager(Settings(servers=specs, collisions="skip"), cache=False) as mcp:
            await mcp.wait_ready(["git"])
            (old,) = mcp.tools()
            held.write_text("")
            await mcp.wait_ready()
            (new,) = mcp.tools()
            assert (old.name, old.server, new.name, new.server) == (new.name, "git", old.name, "git_hub")
            assert isinstance((await old.execute()).exception, UnknownToolError)
            assert (await new.execute()).text == "git_hub/push {}"


# Without `await`


@pytest.mark.requirement("excel-5.3", "excel-5.5")
def test_func_and_execute_of_a_blocking_manager_need_no_await(server: Make) -> None:
    with blocking.McpManager([server("plain", "plain.py")], cache=False) as mcp:
        mcp.wait_ready()
        echo, fail = mcp.registry.get("mcp_plain_echo"), mcp.registry.get("mcp_plain_fail")
        assert echo is not None
        assert fail is not None
        assert echo.func is not None
        assert fail.func is not None
        assert echo.execute({"text": "a"}, timeout=20).text == "a"
        assert echo.func(text="b") == "b"
        assert not inspect.iscoroutinefunction(echo.func)
        with pytest.raises(ToolExecutionError, match="the disk is full"):
            fail.func()
        assert [one.execute({"text": "c"}).text for one in mcp.tools() if one.name == echo.name] == ["c"]
    with pytest.raises(DragomanError, match="the manager is closed"):
        echo.func(text="d")


async def test_blocking_func_works_beside_a_loop_of_the_caller(server: Make) -> None:
    with blocking.McpManager([server("plain", "plain.py")], cache=False) as mcp:
        mcp.wait_ready()
        echo = mcp.registry.resolve("echo")
        assert echo.execute({"text": "a"}).text == "a"


# A registry that the application has already


@dataclass
class HostTool:
    """As ExcelManus has it: a name, a description, a schema, and a function that is required."""

    name: str
    description: str
    input_schema: dict[str, Any]
    func: Callable[..., Any]


@dataclass
class HostRegistry:
    """A registry like that of ExcelManus: `call_tool` is a plain function."""

    tools: dict[str, HostTool] = field(default_factory=dict[str, HostTool])
    told: list[str] = field(default_factory=list[str])

    def register(self, tool: Any) -> None:
        if tool.name in self.tools:
            msg = f"{tool.name} is already registered"
            raise ValueError(msg)
        self.tools[tool.name] = HostTool(tool.name, tool.description, tool.input_schema, tool.func)
        self.told.append(f"+{tool.name}")

    def unregister(self, name: str) -> None:
        del self.tools[name]
        self.told.append(f"-{name}")

    def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        return str(self.tools[name].func(**arguments))


@pytest.mark.requirement("excel-4.1", "excel-4.2", "excel-5.1", "excel-5.3", "excel-5.5")
def test_registry_of_the_application_gets_servers_tools_and_calls_them(server: Make) -> None:
    host = HostRegistry()

    def share(part: float, of: float) -> str:
        return f"{part / of:.0%}"

    host.register(HostTool("share", "Work out a share.", {}, share))
    with blocking.McpManager([server("plain", "plain.py")], registry=host, cache=False) as mcp:
        mcp.wait_ready()
        assert host.call_tool("share", {"part": 1, "of": 2}) == "50%"
        assert host.call_tool("mcp_plain_echo", {"text": "hello"}) == "hello"
        with pytest.raises(ToolExecutionError, match="the disk is full"):
            host.call_tool("mcp_plain_fail", {})
        assert {one.name for one in mcp.tools()} == host.tools.keys() - {"share"}
        exported = {one["function"]["name"] for one in mcp.registry.to_openai_schema()}
        assert exported == host.tools.keys()
        assert mcp.metrics()["plain"].tools["mcp_plain_echo"].calls == 1
    assert host.tools.keys() == {"share"}


@pytest.mark.requirement("excel-4.3")
async def test_name_that_is_taken_in_the_applications_registry_is_skipped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = HostRegistry()
    host.register(HostTool("mcp_pages_a", "Mine.", {}, lambda: "mine"))
    with anyio.fail_after(30):
        async with McpManager([pages("a", "b").spec()], registry=host, cache=False) as mcp:
            await mcp.wait_ready()
            assert host.tools["mcp_pages_a"].func() == "mine"
            assert [one.name for one in mcp.tools()] == ["mcp_pages_b"]
            assert mcp.status()["pages"].tools == 1
            assert (await mcp.call("mcp_pages_a")).text == "mine"
            assert await host.tools["mcp_pages_b"].func() == "b {}"
    assert host.tools.keys() == {"mcp_pages_a"}
    (line,) = [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()]
    assert line == (
        "tool `a` of server `pages` is skipped: the name `mcp_pages_a` is taken by built-in tool `mcp_pages_a`"
    )


class Closed:
    """One that does not list its tools, in the ways that are in use."""

    def __init__(self, *, raises: bool = False) -> None:
        self.kept: dict[str, Any] = {}
        self.raises = raises

    def register(self, tool: Any) -> None:
        if self.raises and tool.name in self.kept:
            msg = f"{tool.name} is already registered"
            raise ValueError(msg)
        self.kept[tool.name] = tool

    def unregister(self, name: str) -> None:
        del self.kept[name]


class ByGet(Closed):
    def get(self, name: str) -> Any:
        return self.kept.get(name)


class ByGetTool(Closed):
    def get_tool(self, name: str) -> Any:
        return self.kept[name]


class ByListing(Closed):
    def get_all_tools(self) -> list[Any]:
        return list(self.kept.values())


@pytest.mark.requirement("excel-4.3")
@pytest.mark.parametrize("make", [ByGet, ByGetTool, ByListing, lambda: ByListing(raises=True)])
async def test_tool_of_the_application_is_never_replaced(
    make: Callable[[], Closed], caplog: pytest.LogCaptureFixture
) -> None:
    host, mine = make(), HostTool("mcp_pages_a", "Mine.", {}, lambda: "mine")
    host.register(mine)
    with anyio.fail_after(30):
        async with McpManager([pages("a", "b").spec()], registry=host, cache=False) as mcp:
            await mcp.wait_ready()
            await mcp.restart("pages")
            await mcp.wait_ready()
            assert host.kept["mcp_pages_a"] is mine
            assert [one.name for one in mcp.tools()] == ["mcp_pages_b"]
    assert host.kept == {"mcp_pages_a": mine}
    assert "tool `a` of server `pages` is skipped" in caplog.text


@pytest.mark.requirement("excel-4.3")
@pytest.mark.parametrize("raises", [True, False])
async def test_a_warning_at_construction_names_a_registry_that_cannot_be_asked_for_a_name(
    *, raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    host, mine = Closed(raises=raises), HostTool("mcp_pages_a", "Mine.", {}, lambda: "mine")
    host.register(mine)
    manager = McpManager([pages("a", "b").spec()], registry=host, cache=False)
    assert "`Closed` cannot be asked whether a name is taken" in caplog.text
    assert "give it `__contains__`, `get` or `get_tool`" in caplog.text
    with anyio.fail_after(30):
        async with manager as mcp:
            await mcp.wait_ready()
            assert (host.kept["mcp_pages_a"] is mine) == raises
            assert "mcp_pages_b" in host.kept


@pytest.mark.requirement("excel-4.2", "excel-3.3")
def test_application_gets_names_and_schemas_that_every_model_api_takes(
    server: Make, caplog: pytest.LogCaptureFixture
) -> None:
    odd = ScriptedServer("my.srv")
    names = ["db.query", "查询", "查案", "x" * 90, "9lives"]
    for name in names:
        odd.add(ToolDef(name=name, description="", input_schema={"type": "object"}, func=lambda n=name: n))
    shapes: dict[str, Any] = {
        "either": {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}]},
        "listed": {"type": "array", "items": {"type": "string"}},
    }
    for name, schema in shapes.items():
        odd.add(ToolDef(name=name, description="", input_schema=schema, func=lambda **given: str(given)))
    host = HostRegistry()
    with blocking.McpManager([odd.spec(naming="{tool}")], registry=host, cache=False) as mcp:
        mcp.wait_ready()
        assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in host.tools)
        assert "db_query" in host.tools
        assert sorted(host.call_tool(name, {}) for name in host.tools if name != "either") == sorted(names)
        # The agent of the application may as well call through the manager.
        assert sorted(mcp.call(name).text for name in host.tools if name != "either") == sorted(names)
        assert host.tools["either"].input_schema["type"] == "object"
        assert "anyOf" not in host.tools["either"].input_schema
        assert host.call_tool("either", {"a": "1"}) == "{'a': '1'}"
    assert host.tools == {}
    assert "tool `listed` of server `my.srv` is skipped" in caplog.text


@pytest.mark.requirement("excel-4.2", "excel-4.4")
async def test_agent_uses_the_applications_own_tools_beside_those_of_servers() -> None:
    host = HostRegistry()
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    host.register(HostTool("double", "Double a number.", schema, lambda number: 2 * number))
    model = ScriptedProvider(
        [
            Say(calls=[("double", {"number": 21}), ("mcp_pages_a", {})]),
            "done",
            Say(calls=[("half", {})]),
            "done",
            "nothing",
        ]
    )
    with anyio.fail_after(30):
        async with AgentEngine(model, McpManager([pages("a").spec()], registry=host, cache=False)) as agent:
            await agent.run("How much?")
            host.register(HostTool("half", "Halve.", {}, lambda: "half"))
            host.unregister("double")
            host.register(HostTool("treble", "Multiply by three.", {}, lambda: "3"))
            await agent.run("And then?")
            assert agent.manager is not None
            registry = agent.manager.registry
            assert registry.get("double") is None
            # One that is there in a new version is offered and run in that version.
            host.unregister("treble")
            host.register(HostTool("treble", "Times three.", {}, lambda: "three"))
            await agent.run("And now?")
            assert str(registry.to_openai_schema()).count("Times three.") == 1
            assert await registry.call("treble") == "three"
    assert all(f"'{name}'" in str(model.requests[0].tools) for name in ("double", "mcp_pages_a"))
    read = [message.text for message in model.requests[-1].messages if message.role == "tool"]
    assert read == ["42", "a {}", "half"]


class HostError(Exception):
    """The `ToolExecutionError` of an application."""


@pytest.mark.requirement("excel-5.5")
async def test_failed_call_raises_the_applications_own_error_if_it_gives_one(server: Make) -> None:
    class Own(HostRegistry):
        tool_error = HostError

    host = Own()
    with blocking.McpManager([server("plain", "plain.py")], registry=host, cache=False) as mcp:
        mcp.wait_ready()
        for _ in range(2):
            with pytest.raises(HostError, match="the disk is full") as caught:
                host.call_tool("mcp_plain_fail", {})
            assert isinstance(caught.value.__cause__, ToolExecutionError)
    with anyio.fail_after(30):
        async with McpManager([server("plain", "plain.py")], registry=host, cache=False) as waiting:
            await waiting.wait_ready()
            with pytest.raises(HostError, match="the disk is full"):
                await host.tools["mcp_plain_fail"].func()
            assert await host.tools["mcp_plain_echo"].func(text="hi") == "hi"


@pytest.mark.requirement("excel-5.3")
async def test_async_manager_says_that_a_plain_registry_gets_coroutines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Awaits(HostRegistry):
        async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:  # type: ignore[override]
            return str(await self.tools[name].func(**arguments))

    for host in (Awaits(), HostRegistry()):
        caplog.clear()
        async with McpManager([pages("a", "b").spec()], registry=host, cache=False) as mcp:
            await mcp.wait_ready()
        told = [one for one in caplog.messages if "is a plain function" in one]
        assert len(told) == (type(host) is HostRegistry)
        assert all("`HostRegistry.call_tool`" in one and "dragoman.blocking" in one for one in told)


class Overwriting(HostRegistry):
    """One that would put a new tool in an old one's place, but can be asked."""

    def register(self, tool: Any) -> None:
        self.tools[tool.name] = tool

    def __contains__(self, name: str) -> bool:
        return name in self.tools


@pytest.mark.requirement("excel-4.3")
async def test_registry_that_overwrites_is_asked_first(caplog: pytest.LogCaptureFixture) -> None:
    host = Overwriting()
    mine = HostTool("mcp_pages_a", "Mine.", {}, lambda: "mine")
    host.register(mine)
    with anyio.fail_after(30):
        async with McpManager([pages("a", "b").spec()], registry=host, cache=False) as mcp:
            await mcp.wait_ready()
            assert host.tools["mcp_pages_a"] is mine
            assert "mcp_pages_b" in host.tools
    assert host.tools == {"mcp_pages_a": mine}
    assert "the name `mcp_pages_a` is taken by built-in tool `mcp_pages_a`" in caplog.text


async def test_registry_of_the_application_follows_a_changed_listing() -> None:
    host, server = HostRegistry(), pages("a", "b")
    with anyio.fail_after(30):
        async with McpManager([server.spec()], registry=host, cache=False) as mcp:
            await mcp.wait_ready()
            host.told.clear()
            events = mcp.events()
            server.add(tool_named("b", "other"))
            await until(events, ToolsChanged)
            assert host.told == ["-mcp_pages_b", "+mcp_pages_b"]
            assert host.tools["mcp_pages_b"].description == "other"
            server.remove("a")
            await until(events, ToolsChanged)
            assert host.told[2:] == ["-mcp_pages_a"]
            await mcp.disable("pages")
            assert host.tools == {}
            await mcp.enable("pages")
            assert await host.tools["mcp_pages_b"].func() == "b {}"


class Broken(HostRegistry):
    """One whose methods fail."""

    def register(self, tool: Any) -> Any:
        if tool.name.endswith("_a"):
            raise RuntimeError("out of\nspace")
        if tool.name.endswith("_b"):
            return False
        super().register(tool)
        return None

    def unregister(self, name: str) -> None:
        super().unregister(name)
        raise KeyError(name)


async def test_what_the_applications_registry_raises_is_logged_and_the_server_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Broken()
    with anyio.fail_after(30):
        async with McpManager([pages("a", "b", "c").spec()], registry=host, cache=False) as mcp:
            await mcp.wait_ready()
            assert mcp.status()["pages"].state == "ready"
            assert (await mcp.call("mcp_pages_c")).success
    assert host.tools == {}
    assert "raised RuntimeError: out of\\nspace" in caplog.text
    assert "the application's registry refused it" in caplog.text
    assert "could not remove the tool `mcp_pages_c`" in caplog.text


def test_blocking_func_in_the_managers_own_thread_is_an_error_and_no_deadlock() -> None:
    caught: list[BaseException] = []

    class Eager(HostRegistry):
        def register(self, tool: Any) -> None:
            try:
                tool.func()
            except DragomanError as exc:
                caught.append(exc)

    with blocking.McpManager([pages("a").spec()], registry=Eager(), cache=False) as mcp:
        mcp.wait_ready()
    (error,) = caught
    assert "a blocking call in the manager's own thread would wait for itself" in str(error)
    assert "call it from another thread" in str(error)


def test_object_that_cannot_be_a_registry_is_named() -> None:
    class Waits:
        async def register(self, tool: Any) -> None:
            """Be async."""

        def unregister(self, name: str) -> None:
            """Be there."""

    with pytest.raises(
        TypeError, match="`dict` cannot be used as `registry`: it needs a plain method `register`"
    ):
        McpManager([], registry={})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`Waits` cannot be used"):
        McpManager([], registry=Waits())


async def test_tools_of_one_manager_run_in_the_registry_of_another_application() -> None:
    theirs = ToolRegistry()

    @tool
    def here() -> str:
        return "here"

    theirs.register(here)
    with anyio.fail_after(30):
        async with McpManager([pages("a").spec()], cache=False) as mcp:
            await mcp.wait_ready()
            theirs.register_all(mcp.tools())
            assert await theirs.call("mcp_pages_a") == "a {}"
            assert await theirs.call("here") == "here"
