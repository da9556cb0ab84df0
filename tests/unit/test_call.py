from __future__ import annotations

import json

import pytest

from dragoman import call
from dragoman.errors import ToolUnavailableError
from dragoman.model import ToolDef
from dragoman.tools.registry import ToolRegistry

pytestmark = pytest.mark.anyio


async def test_tool_whose_server_is_gone_is_unavailable() -> None:
    registry = ToolRegistry()
    registry.register(ToolDef(name="x", description="", input_schema={}, server="gone", original_name="x"))
    route = call.Route(registry=registry, supervisors={}, publish=lambda event: None)
    result = await call.run(route, "x", {})
    assert isinstance(result.exception, ToolUnavailableError)
    assert not result.exception.may_have_run
    assert result.call_id == result.exception.call_id != ""


def test_summary_of_arguments_is_short_and_without_secrets() -> None:
    arguments = {"password": "p1", "deep": {"token": "t1", "n": [1, "x" * 100]}, "odd": object()}
    text = call.summary(arguments)
    assert "p1" not in text
    assert "t1" not in text
    assert len(call.summary(["x" * 50] * 100)) <= call.SUMMARY_CHARS + 1
    assert json.loads(call.summary({"a": 1})) == {"a": 1}
