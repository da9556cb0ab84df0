from __future__ import annotations

import json

import pytest

from dragoman import McpManager, call
from dragoman.call import pipeline
from dragoman.call.outcome import unavailable
from dragoman.errors import HttpStatusError, ToolUnavailableError, UnknownToolError
from dragoman.model import ServerSpec, Stdio, ToolDef
from dragoman.tools.registry import ToolRegistry

pytestmark = pytest.mark.requirement(
    "excel-5.1",
    "excel-5.4",
    "excel-5.5",
    "kode-call.send",
    "kode-call.error",
    "otter-call.failed",
    "legal-call.timeout",
    "rrclaw-result.failure",
)


async def test_tool_whose_server_is_gone_is_unavailable() -> None:
    registry = ToolRegistry()
    registry.register(ToolDef(name="x", description="", input_schema={}, server="gone", original_name="x"))
    context = call.CallContext(registry=registry, supervisors={}, publish=lambda event: None)
    result = await call.run(context, "x", {})
    assert isinstance(result.exception, ToolUnavailableError)
    assert not result.exception.may_have_run
    assert result.call_id == result.exception.call_id != ""


@pytest.mark.parametrize(("status", "ran"), [(500, True), (502, True), (404, False), (503, False)])
def test_server_that_broke_over_a_call_may_have_run_it(status: int, ran: bool) -> None:
    tool = ToolDef(name="x", description="", input_schema={}, server="s", original_name="x")
    error = unavailable(tool, HttpStatusError("it broke", server="s", status=status))
    assert error.may_have_run is ran
    assert ("it may have run" in str(error)) is ran


async def test_unknown_tool_of_a_server_that_is_not_connected_says_why() -> None:
    spec = ServerSpec("my-files", Stdio("no-such-command-anywhere"), reconnect=False)
    async with McpManager([spec]) as mcp:
        early = await mcp.call("mcp_my_files_read", {})
        await mcp.wait_ready()
        result = await mcp.call("mcp_my_files_read", {})
        other = await mcp.call("mcp_law_search", {})
    assert isinstance(result.exception, UnknownToolError)
    assert "server `my-files` is not ready: it is" in early.error
    assert "server `my-files` is not ready: cannot connect" in result.error
    assert "cannot be started" in result.error
    assert "my-files" not in other.error


@pytest.mark.requirement("excel-7.2")
def test_summary_of_arguments_is_short_and_without_secrets() -> None:
    arguments = {"password": "p1", "deep": {"token": "t1", "n": [1, "x" * 100]}, "odd": object()}
    text = call.summary(arguments)
    assert "p1" not in text
    assert "t1" not in text
    assert len(call.summary(["x" * 50] * 100)) <= pipeline.SUMMARY_CHARS + 1
    assert json.loads(call.summary({"a": 1})) == {"a": 1}
