"""docs/tutorial.md: a beginner types it from the first line to the last, with the real servers and no network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import ROOT, all_blocks
from tests.docs.running import Reader
from tests.servers.model_api import ModelApi

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs/tutorial.md").read_text("utf-8")
ZONES = {"source_timezone": "Africa/Nairobi", "target_timezone": "Asia/Shanghai"}
MODEL = [
    {"calls": [{"name": "mcp_git_git_log", "arguments": {"repo_path": ".", "max_count": 1}}]},
    {"calls": [{"name": "mcp_time_convert_time", "arguments": {"time": "18:00", **ZONES}}]},
    {"text": "Ann made it. 18:00 in Nairobi is 23:00 in Shanghai."},
]


@pytest.mark.timeout(180)  # a dozen starts of real servers, one after the other
async def test_a_beginner_gets_to_the_end(tmp_path: Path, home: Path) -> None:
    reader = Reader(tmp_path, home)
    async with ModelApi(MODEL) as api:
        reader.environment["OPENAI_BASE_URL"] = api.base_url("openai")
        await asyncio.to_thread(reader.follow, all_blocks(PAGE))
    log, zones = (asked.body["messages"][-1]["content"] for asked in api.requests[1:])
    assert "Ann" in log
    assert "23:00" in zones


def test_the_program_is_as_short_as_the_page_says() -> None:
    (program,) = [block for block in all_blocks(PAGE) if block.file == "agent.py"]
    assert len(program.text.splitlines()) <= 40
