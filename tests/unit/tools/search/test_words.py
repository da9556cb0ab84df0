from __future__ import annotations

from pathlib import Path

import pytest

import dragoman.tools.search
from dragoman.tools.search import words

FOLDER = Path(dragoman.tools.search.__file__).parent


def lines(name: str) -> list[list[str]]:
    text = (FOLDER / name).read_text("utf-8")
    return [line.split("|") for line in text.splitlines() if line and not line.startswith("#")]


def test_each_line_of_the_list_has_its_columns() -> None:
    assert {len(line) for line in lines("chinese.txt")} == {2}
    assert all(line[0].strip().isascii() for line in lines("chinese.txt"))


def test_each_chinese_word_has_one_meaning_in_the_list() -> None:
    listed = [word.strip() for line in lines("chinese.txt") for word in line[1].split(",")]

    assert sorted(set(listed)) == sorted(listed)


@pytest.mark.parametrize(
    ("text", "english"),
    [("删掉这个文件夹", "delete remove directory folder"), ("报表 2026", "report 2026")],
)
def test_chinese_is_translated_word_by_word(text: str, english: str) -> None:
    assert words.english(text) == english


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("what is 17.5 percent of 2,348", []),
        (
            "Hi. Read the long article, turn it into plain text and keep a copy.",
            ["Hi Read the long article", "turn it into plain text keep a copy"],
        ),
        ("查一下新论文，然后导出参考文献", ["查一下新论文", "导出参考文献"]),
    ],
)
def test_clauses_with_something_to_search_for_are_steps(text: str, steps: list[str]) -> None:
    assert words.steps(text) == steps
