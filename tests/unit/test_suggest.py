"""Guesses at what was meant: the right ones, and in bounded time however many names there are."""

from __future__ import annotations

import pytest

from dragoman.suggest import suggest

MANY = [
    f"mcp_a_server_with_a_long_name_{number:05}_and_a_tool_{number * 7919 % 10_007:05}"
    for number in range(10_000)
]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("raed_file", ["read_file", "write_file", "list"], ["read_file", "write_file"]),
        ("comand", ["command", "args", "env"], ["command"]),
        ("qs", ["a", "ps"], []),
        ("list", ["install", "tools"], []),
        ("next_meeting", ["convert_time", "get_current_time"], []),
        ("", ["a"], []),
        ("a", [], []),
        ("x" * 500, ["x" * 499, "y" * 500], ["x" * 499]),
    ],
)
def test_the_nearest_names_come_first(name: str, known: list[str], expected: list[str]) -> None:
    assert suggest(name, known) == expected


def test_a_part_of_a_name_suggests_it_if_asked_for() -> None:
    known = ["convert_time", "search_statutes", "search_cases", "research"]
    assert suggest("search", ["search_statutes"]) == []
    assert suggest("Search", known, by_part=True) == ["research", "search_statutes", "search_cases"]
    assert suggest("se", known, by_part=True) == []


def test_a_slip_among_thousands_of_names_is_found() -> None:
    for wanted in MANY[:: len(MANY) // 7]:
        slip = wanted[:6] + wanted[7:]
        assert wanted in suggest(slip, MANY)


def test_no_more_names_are_returned_than_asked_for() -> None:
    assert len(suggest(MANY[5], MANY, count=2)) == 2
    assert suggest("tool", ["tool", "tool", "tools"]) == ["tool", "tools"]
