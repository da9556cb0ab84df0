"""`dragoman help`: commands and topics."""

from __future__ import annotations

import re

import pytest

from dragoman.cli.main import TOPICS, run
from dragoman.config.dialects import HOSTS, SEEDS


def test_the_topics_are_listed_with_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "topics"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TOPICS)
    assert all(line.endswith(".") and len(line) <= 80 for line in lines)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_says_something_that_fits_the_screen(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["help", topic]) == 0
    text = capsys.readouterr().out
    assert len(text) > 100
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["call"], "Usage: dragoman call [OPTIONS] SERVER TOOL"),
        (["config", "show"], "Usage: dragoman config show"),
        ([], "Usage: dragoman [OPTIONS] [COMMAND]"),
    ],
)
def test_help_about_a_command_is_its_own_help(
    words: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["help", *words]) == 0
    assert capsys.readouterr().out.startswith(usage)


def test_an_unknown_word_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "exit-cods"]) == 2
    assert "Did you mean `exit-codes`?" in capsys.readouterr().err
    assert run(["help", "call", "zzz"]) == 2


def test_a_word_that_is_like_nothing_gets_no_wild_guess(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "nope"]) == 2
    assert "Run `dragoman help topics`" in capsys.readouterr().err


def test_what_names_the_hosts_names_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help", "configuration"], ["import", "--help"]):
        assert run(words) == 0
        said = set(re.findall(r"[\w-]+", capsys.readouterr().out))
        assert {*HOSTS, *SEEDS} <= said, words
