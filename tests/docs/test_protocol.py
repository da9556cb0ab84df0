"""The page on the modern protocol: every call in its blocks exists with these parameters, async and blocking."""

from __future__ import annotations

import ast
import inspect

import pytest
from tests.docs.pages import ROOT, blocks

from dragoman import McpManager
from dragoman.blocking import McpManager as BlockingManager
from dragoman.blocking.facets import Tasks as BlockingTasks
from dragoman.manager.tasks import Tasks

BLOCKS = blocks("python", (ROOT / "docs/protocol.md").read_text("utf-8"))


def calls() -> list[ast.Call]:
    trees = [ast.parse(f"async def page():\n{_indented(block)}") for block in BLOCKS]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in found
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("mcp", "mcp.tasks")
    ]


def _indented(block: str) -> str:
    return "\n".join(f"    {line}" for line in block.splitlines())


@pytest.mark.parametrize(("manager", "tasks"), [(McpManager, Tasks), (BlockingManager, BlockingTasks)])
def test_every_call_of_the_page_is_one_that_a_manager_takes(manager: type, tasks: type) -> None:
    names: set[str] = set()
    for call in calls():
        assert isinstance(call.func, ast.Attribute)
        owner = ast.unparse(call.func.value)
        names.add(f"{owner}.{call.func.attr}")
        signature = inspect.signature(getattr(tasks if owner == "mcp.tasks" else manager, call.func.attr))
        signature.bind(None, *call.args, **{str(word.arg): word.value for word in call.keywords})
    assert names == {"mcp.call", "mcp.tasks.list", "mcp.tasks.resume", "mcp.tasks.cancel"}
