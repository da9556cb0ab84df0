from __future__ import annotations

import json
from pathlib import Path

import pytest

from dragoman.agent.offer import ToolIndex
from dragoman.model import ToolDef

DATA = Path(__file__).parents[2] / "data" / "real-tools.json"


def tool(name: str, description: str = "", **properties: dict[str, str]) -> ToolDef:
    return ToolDef(
        name=name, description=description, input_schema={"type": "object", "properties": properties}
    )


TOOLS = [
    tool("mcp_fs_read_text_file", "Read the whole file as text."),
    tool("mcp_fs_writeFile", "Put text in place.", path={"type": "string"}),
    tool("mcp_law_lookup", "按条号查询法律条文"),
    tool("mcp_time_now", "What time is it?", timezone={"type": "string"}),
]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("reading files", "mcp_fs_read_text_file"),
        ("write a file", "mcp_fs_writeFile"),
        ("法律条文", "mcp_law_lookup"),
        ("查询", "mcp_law_lookup"),
        ("timezone", "mcp_time_now"),
        ('what "time" (now) OR*', "mcp_time_now"),
    ],
)
def test_the_best_hit_comes_first(query: str, best: str) -> None:
    index = ToolIndex(TOOLS)

    assert index.search(query)[0] == best
    index.close()


@pytest.mark.parametrize("query", ["", "   ", "!!!", '"', "NEAR(", "xylophone"])
def test_a_question_without_a_hit_gives_nothing(query: str) -> None:
    index = ToolIndex(TOOLS)

    assert index.search(query) == []
    index.close()


def test_equal_hits_are_ordered_by_name_whatever_the_order_of_the_tools() -> None:
    twins = [tool(f"t_{letter}", "the same words") for letter in "dbca"]
    forth, back = ToolIndex(twins), ToolIndex(twins[::-1])

    assert forth.search("same words") == back.search("same words") == ["t_a", "t_b", "t_c", "t_d"]
    assert forth.search("same words", limit=2) == ["t_a", "t_b"]
    forth.close()
    back.close()


def test_among_real_tools_each_is_found_by_its_own_description() -> None:
    servers = json.loads(DATA.read_text("utf-8"))
    tools = [
        tool(f"{server}__{entry['name']}", entry.get("description") or "")
        for server, entries in servers.items()
        for entry in entries
    ]
    index = ToolIndex(tools)

    sample = [one for one in tools[::10] if len(one.description) > 20]
    found = sum(one.name in index.search(one.description.splitlines()[0], limit=8) for one in sample)
    index.close()

    assert found / len(sample) > 0.85
