"""The lines of former sessions: kept for their owner alone, without what looks secret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from dragoman.cli.session.session import MOST, LineHistory, is_worth_keeping

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_come_back_newest_first_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history"
    history = LineHistory(path)
    for line in ("/mcp", "two\nlines", "/call greet name=Ann"):
        history.store_string(line)
    assert list(LineHistory(path).load_history_strings()) == ["/call greet name=Ann", "two\nlines", "/mcp"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "line",
    [
        "/call login password=hunter2hunter2",
        '/call login {"api_key": "abcdefgh12345678"}',
        "use sk-abcdefghijklmnopqrstuvwx please",
        "/call fetch url=https://user:secretpass@example.org/",
        "Authorization: Bearer abcdefghijklmnop",
        " /mcp",
        "",
        "x" * 20_000,
    ],
)
def test_a_line_that_looks_secret_or_is_not_wanted_is_never_written(tmp_path: Path, line: str) -> None:
    history = LineHistory(tmp_path / "history")
    history.store_string(line)
    assert not history.path.exists()
    assert not is_worth_keeping(line)


@pytest.mark.parametrize(
    "line", ["What is a token?", "/call greet name='it", "/mcp login github", "how's this"]
)
def test_ordinary_lines_are_kept(line: str) -> None:
    assert is_worth_keeping(line)


def test_damage_and_growth_are_dealt_with(tmp_path: Path) -> None:
    path = tmp_path / "history"
    lines = [json.dumps(f"line {number}") for number in range(2 * MOST + 5)]
    path.write_text("\n".join(["{torn", "7", *lines]) + "\n", "utf-8")
    found = list(LineHistory(path).load_history_strings())
    assert (len(found), found[0]) == (MOST, f"line {2 * MOST + 4}")
    assert len(path.read_text("utf-8").splitlines()) == MOST


def test_a_folder_that_cannot_be_written_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    history = LineHistory(tmp_path / "file" / "history")
    history.store_string("/mcp")
    assert list(history.load_history_strings()) == []
