"""Differences: short, harmless, and at the place where the change is."""

from __future__ import annotations

import pytest

from dragoman.trust.pins import MAX_LINE_CHARS, MAX_LINES, difference


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("one", "two", ["- one", "+ two"]),
        ("a\nb\nc", "a\nB\nc", ["- b", "+ B"]),
        ("a\n-- x", "a\n-- y", ["- -- x", "+ -- y"]),
        (None, "new", ["+ new"]),
        ("old", None, ["- old"]),
        ({"a": 1}, {"a": 2}, ["- /a: 1", "+ /a: 2"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["- /a/b/1: 2", "+ /a/b/1: 3"]),
        ({"a": [1]}, {"a": [1, 2]}, ["- /a: [1]", "+ /a: [1, 2]"]),
        ({"a": 1}, {"b": 1}, ["- /a: 1", "+ /b: 1"]),
        ({"a": 1}, {"a": True}, ["- /a: 1", "+ /a: true"]),
        ({"a": "x y"}, {"a": "x z"}, ["- /a: x y", "+ /a: x z"]),
        ({"a": 1}, [1], ['- /: {"a": 1}', "+ /: [1]"]),
        ("same", "same\u200b", ["- same", "+ same\\u200b"]),
    ],
)
def test_difference(before: object, after: object, lines: list[str]) -> None:
    assert difference(before, after) == lines


def test_a_change_in_a_long_line_shows_its_surroundings() -> None:
    before = "x" * 1000 + " the old words " + "y" * 1000
    old, new = difference(before, before.replace("old", "new"))
    assert old == "- …" + "x" * 25 + " the old words " + "y" * 23 + "…"
    assert "the new words" in new


def test_a_difference_is_never_long() -> None:
    found = difference({str(number): 1 for number in range(500)}, {str(number): 2 for number in range(500)})
    assert len(found) == MAX_LINES + 1
    assert found[-1] == "… and 980 more lines"
    assert max(map(len, difference("a" * 100_000, "b" * 100_000))) <= MAX_LINE_CHARS + 10


def test_many_lines_are_not_matched_one_by_one() -> None:
    lines = [str(number) for number in range(50_000)]
    before, after = "\n".join(lines), "\n".join(reversed(lines))
    assert len(difference(before, after)) == 2


def test_a_value_of_any_depth_is_compared() -> None:
    deep: object = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert difference(deep, {"a": 1})[-1] == "+ /a: 1"
