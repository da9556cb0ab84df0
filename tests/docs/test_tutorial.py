"""The tutorial, in both languages: a beginner types every line, with the real servers and no network."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import ROOT, all_blocks
from tests.docs.running import Reader
from tests.servers.model_api import ModelApi

if TYPE_CHECKING:
    from pathlib import Path

ANSWERS = {
    "docs/tutorial.md": "Ann made it. 18:00 in Nairobi is 23:00 in Shanghai.",
    "docs/tutorial.zh-CN.md": "最近一次提交是 Ann 做的。内罗毕的 18:00 是上海的 23:00。",
}
"""What the model says at the end of each page."""
ZONES = {"source_timezone": "Africa/Nairobi", "target_timezone": "Asia/Shanghai"}
CALLS = [
    {"calls": [{"name": "mcp_git_git_log", "arguments": {"repo_path": ".", "max_count": 1}}]},
    {"calls": [{"name": "mcp_time_convert_time", "arguments": {"time": "18:00", **ZONES}}]},
]


@pytest.mark.timeout(180)  # a dozen starts of real servers, one after the other
@pytest.mark.parametrize("page", ANSWERS)
async def test_a_beginner_gets_to_the_end(page: str, tmp_path: Path, home: Path) -> None:
    reader = Reader(tmp_path, home)
    async with ModelApi([*CALLS, {"text": ANSWERS[page]}]) as api:
        reader.environment["OPENAI_BASE_URL"] = api.base_url("openai")
        await asyncio.to_thread(reader.follow, all_blocks((ROOT / page).read_text("utf-8")))
    log, zones = (asked.body["messages"][-1]["content"] for asked in api.requests[1:])
    assert "Ann" in log
    assert "23:00" in zones


@pytest.mark.parametrize("page", ANSWERS)
def test_the_program_is_as_short_as_the_page_says(page: str) -> None:
    blocks = all_blocks((ROOT / page).read_text("utf-8"))
    (program,) = [block for block in blocks if block.file == "agent.py"]
    assert len(program.text.splitlines()) <= 40


def test_both_languages_have_the_same_commands() -> None:
    english, chinese = (
        [block for block in all_blocks((ROOT / page).read_text("utf-8")) if block.language == "console"]
        for page in ANSWERS
    )
    commands = [
        [re.sub(r'".*"', "…", line) for block in one for line in block.text.splitlines() if line[:2] == "$ "]
        for one in (english, chinese)
    ]
    assert commands[0] == commands[1] != []
