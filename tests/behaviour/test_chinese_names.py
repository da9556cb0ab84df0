"""Names of Chinese servers and tools: readable in ASCII, and the same for good."""

from __future__ import annotations

import json
import re
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from dragoman import McpManager, ToolDef, ToolRegistry
from dragoman.storage import spellings
from dragoman.storage.files import data_folder
from dragoman.storage.spellings import spell
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from pathlib import Path

QUERY, SAME = "查询", "查寻"
"""Two words of one spelling."""


def law() -> ScriptedServer:
    server = ScriptedServer("法律")
    for name in (QUERY, SAME, "get_案例"):
        schema = {"type": "object"}
        server.add(ToolDef(name=name, description="", input_schema=schema, func=lambda name=name: name))
    return server


async def aliases() -> dict[str, str]:
    """Return what each tool answers, by the name that a model knows it by."""
    async with McpManager([law().spec()], cache=False) as mcp:
        assert await mcp.wait_ready()
        shown = [one["function"]["name"] for one in mcp.registry.to_openai_schema()]
        return {name: (await mcp.call(name)).text for name in shown}


@pytest.mark.requirement("excel-3.3")
async def test_chinese_names_are_spelled_out_and_lead_to_their_tools() -> None:
    names = await aliases()
    assert sorted(names.values()) == sorted((QUERY, SAME, "get_案例"))
    assert sorted(re.sub(r"_[0-9a-f]{16}$", "", name) for name in names) == [
        "mcp_falv_chaxun",
        "mcp_falv_chaxun",
        "mcp_falv_get_anli",
    ]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)


@pytest.mark.requirement("excel-3.3")
async def test_names_do_not_change_when_the_extra_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pypinyin", None)
        before = await aliases()
    assert all("chaxun" not in name for name in before)
    assert before.keys() == (await aliases()).keys()


@pytest.mark.requirement("excel-3.3")
async def test_names_do_not_change_when_the_extra_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = await aliases()
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    assert before.keys() == (await aliases()).keys()
    assert json.loads((data_folder() / "spellings.json").read_text("utf-8")) == {
        "法律": "falv",
        QUERY: "chaxun",
        SAME: "chaxun",
        "案例": "anli",
    }


async def test_unusable_file_of_spellings_costs_no_tool(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = data_folder() / "spellings.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"法律": "../x", "查询": 5', "utf-8")
    assert str(file).startswith(str(home))
    assert len(await aliases()) == 3
    assert "spellings.json" in caplog.text


async def test_names_of_two_servers_that_collide_are_spelled_out() -> None:
    registry = ToolRegistry()
    servers = [ScriptedServer("甲"), ScriptedServer("乙")]
    for one in servers:
        schema = {"type": "object"}
        one.add(ToolDef(name="推送", description="", input_schema=schema, func=lambda: "ok"))
    specs = [one.spec(naming="{tool}") for one in servers]
    async with McpManager(specs, registry=registry, cache=False) as mcp:
        assert await mcp.wait_ready()
        stems = sorted(one.name.rpartition("_")[0] for one in mcp.tools())
    assert stems == ["jia_tuisong", "yi_tuisong"]


async def test_spelling_does_not_hold_up_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[threading.Thread] = set()

    def noticed(text: str) -> str:
        threads.add(threading.current_thread())
        return spell(text)

    monkeypatch.setattr(spellings, "spell", noticed)
    assert len(await aliases()) == 3
    assert threads
    assert threading.current_thread() not in threads
