from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "dragoman"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROW = re.compile(r"^\| \d+ \| `([\w/]+\.py)` ([^|]+) \|", re.MULTILINE)
NAME = re.compile(r"`([\w.]+)`")
MOST_FILES = {"One call": 11, "One start": 10, "One crash": 9, "One request through the gateway": 8}
"""How many files a reader may have to open."""


def walks() -> dict[str, list[tuple[str, list[str]]]]:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    return {
        section.partition("\n")[0]: [(file, NAME.findall(names)) for file, names in ROW.findall(section)]
        for section in sections
    }


@pytest.mark.parametrize("walk", MOST_FILES)
def test_files_and_names_of_a_walk_exist_and_are_few(walk: str) -> None:
    rows = walks()[walk]
    assert len(rows) >= 5
    assert len({file for file, _ in rows}) <= MOST_FILES[walk]
    for file, names in rows:
        source = (SOURCE / file).read_text("utf-8")
        assert names, f"{file} has no name"
        for part in (part for name in names for part in name.split(".")):
            assert re.search(rf"^\s*(?:async def|def|class) {part}\b", source, re.MULTILINE), (
                f"{part} in {file}"
            )


@pytest.mark.parametrize("page", ["AGENTS.md", "docs/architecture.md"])
def test_files_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", text))
    assert named
    places = (SOURCE, ROOT)
    missing = [name for name in named if not any((place / name).is_file() for place in places)]
    # `draw_api.py` stands for its folder, which the sentence names.
    assert [name for name in missing if not (ROOT / "scripts" / name).is_file()] == []
