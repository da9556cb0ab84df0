from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.model import ToolDef
from dragoman.tools.search import ToolIndex
from dragoman.tools.search.vectors import VectorCache, is_installed

DATA = Path(__file__).parents[3] / "data" / "real-tools.json"
needs_model = pytest.mark.skipif(not is_installed(), reason="needs the extra `search`")


def tool(name: str, description: str = "", *, server: str = "", **properties: dict[str, str]) -> ToolDef:
    return ToolDef(
        name=name,
        description=description,
        server=server,
        input_schema={"type": "object", "properties": properties},
    )


TOOLS = [
    tool("mcp_fs_read_text_file", "Read the whole file as text."),
    tool("mcp_fs_writeFile", "Put text in place.", path={"type": "string"}),
    tool("mcp_law_lookup", "按条号查询法律条文"),
    tool("mcp_time_now", "What time is it?", timezone={"type": "string"}),
    tool("mcp_hub_erase", "Delete a repository."),
]


def words(tools: list[ToolDef]) -> ToolIndex:
    return ToolIndex(tools, semantic=False)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("reading files", "mcp_fs_read_text_file"),
        ("write a file", "mcp_fs_writeFile"),
        ("法律条文", "mcp_law_lookup"),
        ("查询条文", "mcp_law_lookup"),
        ("timezone", "mcp_time_now"),
        ('what "time" (now) OR*', "mcp_time_now"),
        ("删除仓库", "mcp_hub_erase"),
    ],
)
def test_the_best_hit_comes_first(query: str, best: str) -> None:
    index = words(TOOLS)

    assert index.search(query)[0] == best
    index.close()


@pytest.mark.parametrize("query", ["", "   ", "!!!", '"', "NEAR(", "xylophone"])
def test_a_question_without_a_hit_gives_nothing(query: str) -> None:
    index = words(TOOLS)

    assert index.search(query) == []
    index.close()


def test_equal_hits_are_ordered_by_name_whatever_the_order_of_the_tools() -> None:
    twins = [tool(f"t_{letter}", "the same words") for letter in "dbca"]
    forth, back = words(twins), words(twins[::-1])

    assert forth.search("same words") == back.search("same words") == ["t_a", "t_b", "t_c", "t_d"]
    assert forth.search("same words", limit=2) == ["t_a", "t_b"]
    forth.close()
    back.close()


def test_several_requests_in_one_call_take_turns() -> None:
    index = words(TOOLS)

    found = index.find(["what time is it", "delete a repository"], limit=2)

    assert [hit.name for hit in found] == ["mcp_hub_erase", "mcp_time_now"]
    index.close()


def test_the_steps_of_one_long_request_each_find_their_tool() -> None:
    index = words(TOOLS)

    found = index.search("Delete the old repository. Then read the whole text file again.", limit=2)

    assert set(found) == {"mcp_hub_erase", "mcp_fs_read_text_file"}
    index.close()


def test_the_clauses_of_one_sentence_each_find_their_tool() -> None:
    index = words(TOOLS)
    hits = index.search(
        "read the whole text of notes, look up the timezone of Rome and erase that old repository", limit=3
    )

    assert set(hits) == {"mcp_fs_read_text_file", "mcp_time_now", "mcp_hub_erase"}
    index.close()


def test_only_tools_in_view_are_found() -> None:
    index = words(TOOLS)

    found = index.find("write a file", among=lambda name: name != "mcp_fs_writeFile")

    assert "mcp_fs_writeFile" not in [hit.name for hit in found]
    assert found
    index.close()


def test_tools_that_were_used_come_before_equal_ones() -> None:
    twins = [tool(f"t_{letter}", "the same words") for letter in "abc"]
    index = words(twins)

    assert index.find("same words", used={"t_c": 5})[0].name == "t_c"
    index.close()


def test_an_update_changes_only_what_differs() -> None:
    index = words(TOOLS)
    changed = [one for one in TOOLS if one.name != "mcp_time_now"]
    changed[0] = changed[0].replace(description="Paint a picture of a xylophone.")

    index.update(changed)

    assert index.search("xylophone") == ["mcp_fs_read_text_file"]
    assert index.search("timezone") == []
    assert index.search("write a file")[0] == "mcp_fs_writeFile"
    assert len(index) == len(TOOLS) - 1
    index.close()


def test_a_servers_name_and_instructions_count() -> None:
    tools = [tool("a", "Send it.", server="slack"), tool("b", "Send it.", server="other")]
    index = words(tools)
    assert index.search("send with slack")[0] == "a"

    index.update(tools, servers={"other": "Carrier pigeons."})

    assert index.search("send a pigeon")[0] == "b"
    index.close()


def test_a_closed_index_finds_nothing() -> None:
    index = words(TOOLS)
    index.close()

    assert index.search("file") == []


def test_among_real_tools_each_is_found_by_its_own_description() -> None:
    servers = json.loads(DATA.read_text("utf-8"))
    tools = [
        tool(f"{server}__{entry['name']}", entry.get("description") or "")
        for server, entries in servers.items()
        for entry in entries
    ]
    index = words(tools)

    sample = [one for one in tools[::10] if len(one.description) > 20]
    found = sum(one.name in index.search(one.description.splitlines()[0], limit=8) for one in sample)
    index.close()

    assert found / len(sample) > 0.85


@needs_model
def test_meanings_find_a_tool_that_shares_no_word(tmp_path: Path) -> None:
    index = ToolIndex(TOOLS, cache=tmp_path / "vectors.sqlite")
    assert index.wait()

    assert index.search("how late is it in Sydney")[0] == "mcp_time_now"
    assert index.search("悉尼现在几点了")[0] == "mcp_time_now"
    index.close()


@needs_model
def test_tools_that_come_later_are_found_by_meaning_too(tmp_path: Path) -> None:
    index = ToolIndex(TOOLS[:3], cache=tmp_path / "vectors.sqlite")
    index.wait()
    assert index.search("which hour is it") != ["mcp_time_now"]
    index.update(TOOLS)
    index.wait()

    assert index.pending == 0
    assert index.search("which hour is it")[0] == "mcp_time_now"
    index.close()


@needs_model
def test_vectors_are_computed_once_for_each_text(tmp_path: Path) -> None:
    file = tmp_path / "vectors.sqlite"
    first = ToolIndex(TOOLS, cache=file)
    assert first.wait()
    first.close()

    again = ToolIndex(TOOLS, cache=file)

    assert again.pending == 0
    assert file.stat().st_mode & 0o777 == 0o600
    again.close()


@needs_model
def test_while_vectors_are_computed_tools_are_found_by_their_words(tmp_path: Path) -> None:
    some = [*TOOLS, *(tool(f"t{number}", f"Bake cake number {number}.") for number in range(200))]
    index = ToolIndex(some, cache=tmp_path / "vectors.sqlite")

    assert index.search("delete a repository")[0] == "mcp_hub_erase"
    index.close()


def test_a_damaged_cache_is_like_an_empty_one(tmp_path: Path) -> None:
    file = tmp_path / "vectors.sqlite"
    file.write_bytes(b"not a database" * 100)
    cache = VectorCache(file)

    cache.write({b"k": b"v"})

    assert cache.read([b"k"]) == {}


@needs_model
def test_the_runtime_of_the_model_keeps_no_telemetry(tmp_path: Path) -> None:
    code = "from dragoman.tools.search.vectors import encoder; encoder().encode(['x'])"
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    subprocess.run([sys.executable, "-c", code], env=env, check=True)

    assert not [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name]
