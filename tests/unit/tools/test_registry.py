from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from dragoman.errors import (
    CallTimeoutError,
    InvalidArgumentsError,
    ToolExecutionError,
    ToolFailedError,
    UnknownToolError,
)
from dragoman.model import ToolDef, ToolResult
from dragoman.tools.registry import ToolRegistry

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "excel-4.1",
        "excel-4.2",
        "excel-4.3",
        "excel-5.1",
        "excel-5.3",
        "excel-5.4",
        "excel-5.5",
        "kode-registry.register",
        "rrclaw-manager.tools",
    ),
]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def builtin(name: str, func: Any) -> ToolDef:
    return ToolDef(name=name, description=f"{name}.", input_schema=SCHEMA, func=func, source="builtin")


def remote_tool(server: str, tool: str, name: str = "") -> ToolDef:
    return ToolDef(
        name=name or f"{server}_{tool}",
        description="",
        input_schema=SCHEMA,
        server=server,
        original_name=tool,
    )


def filled(*tools: ToolDef) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_all(tools)
    return registry


async def test_iteration_and_exports_are_sorted_whatever_the_order() -> None:
    registry = filled(remote_tool("b", "x"), builtin("c", print), remote_tool("a", "x"))
    assert [tool.name for tool in registry] == ["a_x", "b_x", "c"]
    registry.register(builtin("aa", print))
    assert [tool.name for tool in registry] == ["a_x", "aa", "b_x", "c"]
    assert len(registry) == 4


async def test_a_batch_returns_every_tool_that_it_added() -> None:
    registry = filled(builtin("taken", print))
    batch = [remote_tool("a", "x"), builtin("taken", print), remote_tool("a", "y")]
    assert [tool.name for tool in registry.register_all(batch)] == ["a_x", "a_y"]


@pytest.mark.requirement("excel-5.1", "excel-5.2")
async def test_the_alias_of_an_export_leads_to_its_tool_and_an_ambiguous_one_to_none() -> None:
    called: list[str] = []

    async def remote(name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
        called.append(name)
        return ToolResult(success=True, text=name)

    registry = ToolRegistry()
    registry.register(remote_tool("a.b", "x", "a.b:x"), remote=remote)
    (alias,) = registry.export("openai").names
    assert alias != "a.b:x"
    assert await registry.call(alias) == "a.b:x"
    registry.unregister_server("a.b")
    registry.forget("a.b")
    registry.register(remote_tool("a_b", "x", "a_b:x"), remote=remote)
    assert list(registry.export("openai").names) == [alias]
    with pytest.raises(UnknownToolError, match="ambiguous"):
        await registry.call(alias)
    assert called == ["a.b:x"]


async def test_openai_form() -> None:
    assert filled(builtin("add", print)).to_openai_schema() == [
        {"type": "function", "function": {"name": "add", "description": "add.", "parameters": SCHEMA}}
    ]


async def test_name_that_two_servers_want_leads_to_neither_and_the_error_names_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def remote(name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
        return ToolResult(success=True, text=name)

    registry = ToolRegistry()
    registry.register(remote_tool("a", "b_c", "x"), remote=remote)
    assert registry.register(remote_tool("a_b", "c", "x"), remote=remote)
    one, other = registry.exposed_name("a", "b_c"), registry.exposed_name("a_b", "c")
    assert one is not None
    assert other is not None
    assert registry.get("x") is None
    assert "x" not in registry
    for name in ("x", "X"):
        with pytest.raises(UnknownToolError) as caught:
            await registry.call(name)
        assert f"`{one}` (server `a`) or `{other}` (server `a_b`)" in str(caught.value)
        assert caught.value.suggestions == (one, other)
    assert [await registry.call(name) for name in (one, other)] == [one, other]
    assert "the name `x` is ambiguous, so no tool gets it" in caplog.text
    seen = registry.view(allow=["a:*"])
    with pytest.raises(UnknownToolError) as caught:
        await seen.call("x")
    assert caught.value.suggestions == (one,)


async def test_names_are_told_once_and_again_when_they_change() -> None:
    registry = ToolRegistry()
    first = registry.replace_server("a", [remote_tool("a", "t", "x")])
    assert not first.contested
    late = registry.replace_server("b", [remote_tool("b", "t", "x")])
    (event,) = late.contested
    assert (event.name, event.servers, len(set(event.offered))) == ("x", ("a", "b"), 2)
    assert [tool.name for tool in late.before["a"]] == ["x"]
    assert {tool.name for tool in (*late.after["a"], *late.after["b"])} == set(event.offered)
    assert not registry.replace_server("b", [remote_tool("b", "t", "x")]).contested
    gone = registry.replace_server("b", [])
    assert [tool.name for tool in gone.after["a"]] == ["x"]


async def test_withheld_tool_holds_its_name_without_being_offered() -> None:
    registry = ToolRegistry()
    registry.replace_server("a", [], withheld=[remote_tool("a", "t", "x")])
    registry.replace_server("b", [remote_tool("b", "t", "x")])
    assert registry.get("x") is None
    assert [tool.server for tool in registry] == ["b"]


async def test_built_in_tool_takes_its_name_back_from_a_server(caplog: pytest.LogCaptureFixture) -> None:
    registry = filled(remote_tool("a", "t", "x"))
    assert registry.register(builtin("x", lambda: "mine"))
    assert await registry.call("x") == "mine"
    assert [tool.name for tool in registry] == ["x"]
    assert "tool `t` of server `a` is skipped: the name `x` is taken by built-in tool `x`" in caplog.text
    assert not registry.register(builtin("x", lambda: "other"))


async def test_order_of_the_configuration_decides_and_the_name_moves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = ToolRegistry()
    registry.arrange(["a", "b"])
    registry.register(remote_tool("b", "t", "x"))
    assert registry.exposed_name("b", "t") == "x"
    registry.register(remote_tool("a", "t", "x"))
    assert (registry.exposed_name("a", "t"), registry.exposed_name("b", "t")) == ("x", None)
    assert "tool `t` of server `b` is skipped: the name `x` is taken by tool `t` of server `a`" in caplog.text
    registry.arrange(["b", "a"])
    assert (registry.exposed_name("a", "t"), registry.exposed_name("b", "t")) == (None, "x")


async def test_alias_of_one_server_is_never_anothers_tool() -> None:
    registry = filled(remote_tool("fs", "read.file", "mcp_fs_read.file"))
    alias = registry.export("openai").aliases["mcp_fs_read.file"]
    registry.register(remote_tool("fs_read", "file", "mcp_fs_read_file"))
    export = registry.export("openai")
    assert alias not in export.names
    name, _ = export.restore(alias)
    with pytest.raises(UnknownToolError, match="server `fs`"):
        await registry.call(name)
    long = "mcp_fs_" + "a" * 80
    registry.register(remote_tool("fs", "a" * 80, long))
    hashed = registry.export("openai").aliases[long]
    registry.register(remote_tool("evil", hashed, hashed))
    assert registry.resolve("openai", hashed) == long
    assert registry.get(hashed) is None


async def test_built_in_tool_is_judged_and_gets_what_was_judged() -> None:
    async def permit(tool: ToolDef, arguments: Any) -> Any:
        assert tool.name == "double"
        return {"n": arguments["n"] + 1}

    registry = filled(builtin("double", lambda n: 2 * n))
    registry.watch(permit)
    assert await registry.call("double", {"n": 1}) == "4"
    assert await registry.view().call("double", {"n": 2}) == "6"


async def test_one_tool_of_a_server_has_one_name() -> None:
    registry = filled(remote_tool("a", "t", "first"))
    assert not registry.register(remote_tool("a", "t", "second"))
    assert registry.exposed_name("a", "t") == "first"


async def test_servers_tools_go_together_and_leave_the_others() -> None:
    registry = filled(remote_tool("a", "x"), remote_tool("b", "x"), builtin("x", print))
    assert [tool.name for tool in registry.unregister_server("a")] == ["a_x"]
    assert [tool.name for tool in registry] == ["b_x", "x"]
    assert registry.exposed_name("a", "x") is None
    assert "a_x" not in registry
    assert registry.register(remote_tool("a", "x"))


async def test_functions_run_whether_synchronous_or_not() -> None:
    async def double(n: int) -> int:
        return 2 * n

    registry = filled(
        builtin("double", double), builtin("half", lambda n: {"half": n / 2}), builtin("say", lambda: "hi")
    )
    assert await registry.call("double", {"n": 2}) == "4"
    assert await registry.call("half", {"n": 3}) == '{"half": 1.5}'
    assert await registry.call("say") == "hi"


async def test_synchronous_function_runs_outside_the_loops_thread() -> None:
    registry = filled(builtin("where", lambda: threading.current_thread() is threading.main_thread()))
    assert await registry.call("where") == "false"


async def test_whatever_goes_wrong_is_a_tool_execution_error() -> None:
    def broken() -> None:
        raise KeyError("k")

    def polite() -> None:
        raise ToolExecutionError("not today")

    registry = filled(builtin("broken", broken), builtin("polite", polite), remote_tool("a", "lonely"))
    with pytest.raises(ToolFailedError, match="`broken` failed: KeyError"):
        await registry.call("broken")
    with pytest.raises(ToolExecutionError, match="not today"):
        await registry.call("polite")
    with pytest.raises(InvalidArgumentsError, match="unexpected keyword argument 'n'"):
        await registry.call("broken", {"n": 1})
    with pytest.raises(UnknownToolError) as caught:
        await registry.call("brokn")
    assert caught.value.suggestions == ("broken",)
    with pytest.raises(ToolExecutionError, match="neither a function nor a server"):
        await registry.call("a_lonely")


async def test_function_past_its_deadline_is_a_time_out() -> None:
    with pytest.raises(CallTimeoutError) as caught:
        await filled(builtin("sleep", anyio.sleep_forever)).call("sleep", timeout=0.01)
    assert caught.value.seconds == 0.01


async def test_time_out_inside_a_function_is_the_functions_own_failure() -> None:
    async def gives_up() -> None:
        raise TimeoutError("of my own")

    with pytest.raises(ToolFailedError, match="of my own"):
        await filled(builtin("gives_up", gives_up)).call("gives_up", timeout=5)


async def test_remote_tool_runs_by_what_was_registered_with_it() -> None:
    seen: list[object] = []

    async def remote(name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
        seen.append((name, arguments, timeout))
        if arguments:
            return ToolResult(success=True, text="done")
        return ToolResult(success=False, error="no", exception=ToolFailedError("no"))

    registry = ToolRegistry()
    assert registry.register(remote_tool("a", "t"), remote=remote)
    assert await registry.call("a_t", {"n": 1}, timeout=3) == "done"
    with pytest.raises(ToolFailedError, match="no"):
        await registry.call("a_t")
    assert seen == [("a_t", {"n": 1}, 3), ("a_t", None, None)]


async def test_export_is_the_same_until_a_tool_comes_or_goes() -> None:
    registry = filled(builtin("b", print))
    first = registry.export("openai")
    assert registry.export("openai") is first
    registry.unregister("not there")
    registry.register(builtin("b", print))
    assert registry.export("openai") is first
    registry.register(builtin("a", print))
    second = registry.export("openai")
    assert [tool["function"]["name"] for tool in second.tools] == ["a", "b"]
    assert second.tools[1] == first.tools[0]
    registry.unregister("a")
    assert registry.export("openai").tools == first.tools


async def test_short_forms_are_lists_of_their_own() -> None:
    registry = filled(builtin("a", print))
    registry.to_openai_schema().clear()
    assert len(registry.to_openai_schema(strict=True)) == len(registry.to_openai_schema()) == 1
    assert registry.to_responses() == registry.export("responses").tools
    assert registry.to_anthropic() == registry.export("anthropic").tools
    assert registry.to_gemini() == registry.export("gemini").tools
    assert registry.to_gemini(openapi=True) == registry.export("gemini-openapi").tools
    assert registry.to_ai_sdk() == registry.export("ai-sdk").tools


async def test_tool_that_an_api_cannot_express_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    bad = ToolDef(name="bad", description="", input_schema={"type": "array"}, server="s", original_name="b")
    registry = filled(bad, builtin("good", print))
    assert registry.export("openai").left_out == {"bad": "its arguments are not an object but `array`"}
    registry.register(builtin("more", print))
    assert [tool["function"]["name"] for tool in registry.to_openai_schema()] == ["good", "more"]
    line = "tool `b` of server `s` is left out of the export for openai: its arguments are not an object but"
    assert caplog.text.count(line) == 1
    registry.export("anthropic")
    assert "is left out of the export for anthropic" in caplog.text


async def test_alias_leads_to_the_exposed_name() -> None:
    registry = filled(remote_tool("fs", "read", "fs:read"))
    assert registry.resolve("openai", "fs__read") == "fs:read"
    assert registry.resolve("gemini", "fs:read") == "fs:read"
    assert registry.resolve("openai", "fs:read") is None
    assert registry.get("fs:read") is not None


async def test_view_shows_exports_and_calls_what_its_rules_allow_and_nothing_else() -> None:
    async def remote(name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
        return ToolResult(success=True, text=f"{name} ran")

    registry = ToolRegistry()
    registry.register_all(
        [remote_tool("fs", "read", "fs:read"), remote_tool("fs", "rm", "fs:rm")], remote=remote
    )
    registry.register(builtin("now", lambda: "noon"))
    view = registry.view(allow=["fs:*", "now"], deny=["*rm"])
    assert [tool.name for tool in view] == ["fs:read", "now"]
    assert (len(view), "fs:rm" in view, "now" in view, view.get("fs:rm")) == (2, False, True, None)
    assert await view.call("now") == "noon"
    assert await view.call("fs:read") == "fs:read ran"
    with pytest.raises(UnknownToolError) as caught:
        await view.call("fs:rm")
    assert caught.value.suggestions == ("fs:read",)
    assert [tool["function"]["name"] for tool in view.to_openai_schema()] == ["fs__read", "now"]
    assert (view.resolve("openai", "fs__read"), view.resolve("openai", "fs__rm")) == ("fs:read", None)


async def test_view_lives_with_the_registry_and_its_export_stays_the_same_till_then() -> None:
    registry = filled(builtin("a", print), builtin("b", print))
    view = registry.view(deny=["b"])
    first = view.export("openai")
    assert view.export("openai") is first
    registry.register(builtin("c", print))
    assert [tool.name for tool in view] == ["a", "c"]
    assert view.export("openai").names == {"a": "a", "c": "c"}


async def test_alias_is_the_same_in_every_view() -> None:
    registry = filled(remote_tool("s", "x", "a.b"), remote_tool("s", "y", "a/b"))
    whole, part = registry.export("openai"), registry.view(allow=["a.b"]).export("openai")
    assert part.aliases == {"a.b": whole.aliases["a.b"]}
    assert part.tools == [whole.tools[0]]


def test_names_that_cannot_be_written_are_escaped_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    registry = ToolRegistry()
    for server in ("a", "a_b"):
        tool = ToolDef(
            name="mcp_a_b_\ud800",
            description="",
            input_schema={},
            server=server,
            original_name="b_\ud800" if server == "a" else "\ud800",
        )
        registry.register_all([tool])
    assert "\\ud800" in caplog.text
    assert caplog.text.encode()


async def test_name_with_several_readings_as_server_and_tool_is_not_guessed() -> None:
    registry = filled(
        remote_tool("a", "b.c", "one"), remote_tool("a.b", "c", "two"), remote_tool("a.b", "d", "three")
    )
    with pytest.raises(UnknownToolError, match="ambiguous"):
        registry.resolve("a.b.c")
    assert registry.resolve("a.b.d").original_name == "d"


async def test_result_of_a_function_is_text_or_json_as_a_person_would_write_it() -> None:
    given: list[Any] = ["plain", {"城市": ["北京", None, True]}, 5, None]
    registry = filled(*(builtin(f"f{at}", lambda value=value: value) for at, value in enumerate(given)))
    said = [await registry.call(f"f{at}") for at in range(len(given))]
    assert said == ["plain", '{"城市": ["北京", null, true]}', "5", "null"]


async def test_error_that_a_function_raises_itself_is_the_one_that_the_caller_gets() -> None:
    mine = ToolFailedError("the sheet is locked", tool="f")

    def fail() -> str:
        raise mine

    with pytest.raises(ToolFailedError) as caught:
        await filled(builtin("f", fail)).call("f")
    assert caught.value is mine


async def test_time_limit_of_the_caller_goes_on_to_the_server() -> None:
    limits: list[float | None] = []

    async def remote(name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
        limits.append(timeout)
        return ToolResult(success=True, text=name)

    registry = ToolRegistry()
    registry.register(remote_tool("a", "x"), remote=remote)
    await registry.call("a_x", timeout=0.5)
    await registry.view(allow=["a_x"]).call("a_x", timeout=1.5)
    await registry.call("a_x")
    assert limits == [0.5, 1.5, None]


@pytest.mark.requirement("kode-registry.filter")
async def test_alias_of_a_tool_that_is_not_in_view_leads_nowhere() -> None:
    async def remote(name: str, arguments: object, *, timeout: float | None = None) -> ToolResult:
        return ToolResult(success=True, text=name)

    registry = ToolRegistry()
    for name in ("find", "write"):
        registry.register(remote_tool("law", name, f"law:{name}"), remote=remote)
    assert set(registry.export("openai").names) == {"law__find", "law__write"}
    view = registry.view(deny=["law:write"])
    assert await view.call("law__find") == "law:find"
    for name in ("law__write", "law:write"):
        with pytest.raises(UnknownToolError):
            await view.call(name)
