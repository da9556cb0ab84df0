"""The tutorial: a beginner types every line, with the real servers and no network.

The lines are typed once, in Chinese, whose wide characters are what a terminal may get wrong. The English page is
the same but for its texts.
"""

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

ENGLISH, CHINESE = "docs/tutorial.md", "docs/tutorial.zh-CN.md"
ANSWERS = {
    ENGLISH: "Ann made it. 18:00 in Nairobi is 23:00 in Shanghai.",
    CHINESE: "最近一次提交是 Ann 做的。内罗毕的 18:00 是上海的 23:00。",
}
"""What the model says at the end of each page."""
TEXT = re.compile(r'"([^"\n]*?)(?:\\n)?"')
"""A text in a command, a program or a file."""
ZONES = {"source_timezone": "Africa/Nairobi", "target_timezone": "Asia/Shanghai"}
CALLS = [
    {"calls": [{"name": "mcp_git_git_log", "arguments": {"repo_path": ".", "max_count": 1}}]},
    {"calls": [{"name": "mcp_time_convert_time", "arguments": {"time": "18:00", **ZONES}}]},
]


@pytest.mark.usefixtures("warm_python")
@pytest.mark.timeout(180)  # a dozen starts of real servers, one after the other
async def test_a_beginner_gets_to_the_end(tmp_path: Path, home: Path) -> None:
    reader = Reader(tmp_path, home)
    async with ModelApi([*CALLS, {"text": ANSWERS[CHINESE]}]) as api:
        reader.environment["OPENAI_BASE_URL"] = api.base_url("openai")
        await asyncio.to_thread(reader.follow, all_blocks((ROOT / CHINESE).read_text("utf-8")))
    log, zones = (asked.body["messages"][-1]["content"] for asked in api.requests[1:])
    assert "Ann" in log
    assert "23:00" in zones


def test_the_pages_differ_only_in_their_texts() -> None:
    english, chinese = (all_blocks((ROOT / page).read_text("utf-8")) for page in ANSWERS)
    texts = {ANSWERS[ENGLISH]: ANSWERS[CHINESE]}
    for ours, theirs in zip(english, chinese, strict=True):
        texts |= zip(TEXT.findall(ours.text), TEXT.findall(theirs.text), strict=True)
    texts = {ours: theirs for ours, theirs in texts.items() if ours != theirs}
    # Nothing in them is special in a shell, in Python or in TOML, nor wider than one column.
    assert [text for text in texts if not re.fullmatch(r"[\w ,.?:]+", text, re.ASCII)] == []

    def translated(text: str) -> str:
        for ours in sorted(texts, key=len, reverse=True):
            text = text.replace(ours, texts[ours])
        return text

    assert [(block.language, block.file, translated(block.text)) for block in english] == [
        (block.language, block.file, block.text) for block in chinese
    ]


@pytest.mark.parametrize("page", ANSWERS)
def test_the_program_is_as_short_as_the_page_says(page: str) -> None:
    blocks = all_blocks((ROOT / page).read_text("utf-8"))
    (program,) = [block for block in blocks if block.file == "agent.py"]
    assert len(program.text.splitlines()) <= 40
