"""Patterns: where values stand, how they are matched, and what cannot be vouched for."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.trust.patterns import (
    MAX_VALUE_CHARS,
    MAX_VALUES,
    ArgumentPattern,
    UnmatchableError,
    plain_path,
    read_patterns,
    read_place,
    values_at,
)


def pattern(place: str, data: Any) -> ArgumentPattern:
    return ArgumentPattern(read_place(place), read_patterns(data))


@pytest.mark.parametrize(
    ("place", "arguments", "found"),
    [
        ("a", {"a": "x"}, ["x"]),
        ("a", {"b": "x"}, []),
        ("a.b", {"a.b": "x"}, ["x"]),
        ("/a/b", {"a": {"b": "x"}}, ["x"]),
        ("/a/1", {"a": ["x", "y"]}, ["y"]),
        ("/a/9", {"a": ["x", "y"]}, []),
        ("/a/x", {"a": ["x", "y"]}, []),
        ("/a/*/b", {"a": [{"b": "x"}, {"c": "z"}, {"b": "y"}]}, ["x", "y"]),
        ("/*", {"a": "x", "b": "y"}, ["x", "y"]),
        ("/a~1b/~0", {"a/b": {"~": "x"}}, ["x"]),
        ("a", {"a": {"p": ["x", {"q": "y"}]}}, ["x", "y"]),
        ("a", {"a": [1, True, None, 1.5]}, ["1", "true", "null", "1.5"]),
        ("/a/b", {"a": "text"}, []),
    ],
)
def test_values_are_found(place: str, arguments: dict[str, Any], found: list[str]) -> None:
    assert list(values_at(arguments, read_place(place))) == found


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/project/../etc/passwd", "/etc/passwd"),
        ("//etc//passwd", "/etc/passwd"),
        ("/project/./a/", "/project/a"),
        ("file:///etc/passwd", "/etc/passwd"),
        ("C:\\work\\..\\x", "C:/x"),
        ("../up", "../up"),
        ("", ""),
    ],
)
def test_a_path_is_made_plain(path: str, plain: str) -> None:
    assert plain_path(path) == plain


@pytest.mark.parametrize(
    ("data", "value", "hit"),
    [
        ("*.txt", "a.txt", True),
        ("*.txt", "a.TXT", False),
        (["x", "y*"], "yes", True),
        ({"glob": "a?c"}, "abc", True),
        ({"regex": "b+"}, "abbbc", True),
        ({"regex": "^b"}, "ab", False),
        ({"path": "/w/*"}, "/w/a/../b", True),
        ({"path": "/w/"}, "/w", True),
        (5, "5", True),
        (True, "true", True),
    ],
)
def test_a_value_matches(data: Any, value: str, hit: bool) -> None:
    found = pattern("a", data)
    assert found.matches({"a": value}, permits=True) is hit
    assert found.matches({"a": value}, permits=False) is hit


@pytest.mark.parametrize(
    "value",
    ["x" * (MAX_VALUE_CHARS + 1), ["y"] * (MAX_VALUES + 1), {"deep": None}],
    ids=["long", "many", "deep"],
)
def test_what_cannot_be_looked_at_forbids_and_never_permits(value: Any) -> None:
    if value == {"deep": None}:
        for _ in range(100):
            value = [value]
    found = pattern("a", "nothing")
    assert found.matches({"a": value}, permits=False)
    assert not found.matches({"a": value}, permits=True)
    with pytest.raises(UnmatchableError):
        [one for text in values_at({"a": value}, ("a",)) for one in [found.patterns[0].matches(text)]]


def test_hostile_values_take_linear_time() -> None:
    # A backtracking engine would not come back within the suite's time limit.
    assert not pattern("a", {"regex": "^(a+)+$"}).matches({"a": "a" * 90_000 + "!"}, permits=True)
    assert not pattern("a", "*a" * 400 + "*b").matches({"a": "a" * 90_000}, permits=True)
