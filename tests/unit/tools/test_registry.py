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

pytestmark = pytest.mark.anyio

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


async def test_openai_form() -> None:
    assert filled(builtin("add", print)).to_openai_schema() == [
        {"type": "function", "function": {"name": "add", "description": "add.", "parameters": SCHEMA}}
    ]


async def test_later_tool_of_a_taken_name_is_skipped_and_both_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = filled(remote_tool("a", "b_c", "x"))
    assert not registry.register(remote_tool("a_b", "c", "x"))
    assert registry.get("x") == remote_tool("a", "b_c", "x")
    assert (
        "tool `c` of server `a_b` is skipped: the name `x` is taken by tool `b_c` of server `a`"
        in caplog.text
    )


async def test_one_tool_of_a_server_has_one_name() -> None:
    registry = filled(remote_tool("a", "t", "first"))
    assert not registry.register(remote_tool("a", "t", "second"))
    assert registry.exposed_name("a", "t") == "first"


@pytest.mark.requirement("excel-4.1")
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
