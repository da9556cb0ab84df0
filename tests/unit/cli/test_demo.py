"""The demo speaks the language of its reader."""

from __future__ import annotations

import pytest
from tests.unit.cli.program import dragoman

from dragoman.cli.commands.demo import CALLS, CHINESE

TITLES = [title for title, _, _ in CALLS]


@pytest.mark.parametrize(
    ("arguments", "language", "is_chinese"),
    [((), "zh_CN.UTF-8", True), (("--profile", "rrclaw"), "en_US.UTF-8", True), ((), "en_US.UTF-8", False)],
)
def test_the_locale_or_the_profile_chooses_the_words(
    arguments: tuple[str, ...], language: str, is_chinese: bool
) -> None:
    done = dragoman(*arguments, "demo", "--no-session", LC_ALL=language)
    assert done.returncode == 0, done.stderr
    expected = [CHINESE[title] for title in TITLES] if is_chinese else TITLES
    assert [line for line in expected if line not in done.stdout] == []
    assert ("11 个工具" in done.stdout) is is_chinese
    assert ("11 tools" in done.stdout) is not is_chinese
    assert ("Hello, 旅行者!" in done.stdout) is is_chinese
