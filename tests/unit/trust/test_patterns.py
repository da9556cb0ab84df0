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
        ("a", {"a": {"p": ["x", {"q": "y"}]}}, ["p", "x", "q", "y"]),
        ("a", {"a": [1, True, None, 1.5]}, [1, True, None, 1.5]),
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
        ("file:/etc/passwd", "/etc/passwd"),
        ("file:////etc/passwd", "/etc/passwd"),
        ("file://localhost/etc/passwd", "/etc/passwd"),
        ("FILE:///%65tc/%2e%2e/etc/passwd", "/etc/passwd"),
        ("file:\\\\localhost\\etc\\passwd", "/etc/passwd"),
        ("file:///C:/x", "C:/x"),
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
        (5, 5, True),
        (5, 5.0, True),
        (1.0, 1, True),
        (1, True, False),
        (True, True, True),
        (True, 1, False),
        ("5", 5.0, True),
        ("5.0", 5, True),
    ],
)
def test_a_value_matches(data: Any, value: object, hit: bool) -> None:
    found = pattern("a", data)
    assert found.matches({"a": value}, permits=True) is hit
    assert found.matches({"a": value}, permits=False) is hit


@pytest.mark.parametrize(
    "value",
    [
        "x" * (MAX_VALUE_CHARS + 1),
        ["y"] * (MAX_VALUES + 1),
        {"deep": None},
        "a" + "\u0301\u0323" * 32_000,
        "\ufdfa" * 50_000,
        "file:" + "%25" * 20_000,
    ],
    ids=["long", "many", "deep", "marks", "growing", "escapes"],
)
def test_what_cannot_be_looked_at_forbids_and_never_permits(value: Any) -> None:
    if value == {"deep": None}:
        for _ in range(100):
            value = [value]
    found = pattern("a", "nothing")
    assert found.matches({"a": value}, permits=False)
    assert not found.matches({"a": value}, permits=True)
    with pytest.raises(UnmatchableError):
        [
            one
            for text in values_at({"a": value}, ("a",))
            for one in [found.patterns[0].matches(text, permits=False)]
        ]


def test_hostile_values_take_linear_time() -> None:
    # A backtracking engine would not come back within the suite's time limit.
    assert not pattern("a", {"regex": "^(a+)+$"}).matches({"a": "a" * 90_000 + "!"}, permits=True)
    assert not pattern("a", "*a" * 400 + "*b").matches({"a": "a" * 90_000}, permits=True)


@pytest.mark.parametrize(
    "value",
    [
        "/etc/passwd",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "file://localhost/etc/passwd",
        "file://LOCALHOST/etc/passwd",
        "file://elsewhere/etc/passwd",
        "File:///etc/passwd",
        " file:///etc/passwd",
        "fi\nle:///etc/passwd",
        "file:///%65tc/passwd",
        "file:///%2565tc/passwd",
        "file:///etc%2Fpasswd",
        "file:///srv/../etc/passwd",
        "file:///srv/%2e%2e/etc/passwd",
        "file:////etc//./passwd",
        "file:\\\\\\etc\\passwd",
        "file:///etc/passwd?x=1",
        "/srv/%2e%2e/etc/passwd",
        "\\etc\\passwd",
        "/etc/passwd\0.txt",
        "/e\0tc/passwd",
        "\uff0fetc\uff0fpasswd",
        "/srv/\u2025/etc/passwd",
        "/e\u200btc/passwd",
        ["/srv/a", "/etc/passwd"],
        {"/etc/passwd": "read"},
        {"srv": {"deeper": [{"/etc/passwd": 1}]}},
        "\x01file:///etc/passwd",
        "file:etc/passwd",
        "file:///srv/.%09./etc/passwd",
        "/srv/.\t./etc/passwd",
        "file:///srv/.\n./etc/passwd",
        "/srv/.\u200b./etc/passwd",
        "/srv/%25252525%32e./etc/passwd",
        "//?//etc/passwd",
        '{"path": "/etc/passwd"}',
        '["/etc/passwd"]',
        '"/etc/passwd"',
    ],
)
def test_a_path_is_forbidden_however_it_is_written_and_never_permitted(value: Any) -> None:
    assert pattern("a", {"path": "/etc/**"}).matches({"a": value}, permits=False)
    assert pattern("*", {"path": "/etc/**"}).matches({"a": value}, permits=False)
    assert not pattern("a", {"path": "/srv/**"}).matches({"a": value}, permits=True)


@pytest.mark.parametrize(
    "value",
    ["/srv/a", "file:///srv/a%20b", "file://localhost/srv/a", "/srv/x/../\u00e9", ["/srv/a", "/srv/b"]],
)
def test_a_path_inside_is_permitted_however_it_is_written(value: Any) -> None:
    assert pattern("a", {"path": "/srv/**"}).matches({"a": value}, permits=True)
    assert not pattern("a", {"path": "/etc/**"}).matches({"a": value}, permits=False)


def test_path_of_another_machine_is_not_permitted() -> None:
    assert not pattern("a", {"path": "/srv/**"}).matches({"a": "file://elsewhere/srv/a"}, permits=True)


def test_names_of_arguments_are_looked_at_where_any_is_meant() -> None:
    found = pattern("*", {"path": "/etc/**"})
    assert found.matches({"/etc/passwd": 1}, permits=False)
    allowed = pattern("*", {"path": "/srv/**"})
    assert allowed.matches({"path": "/srv/a"}, permits=True)
    assert not allowed.matches({"/etc/passwd": "/srv/a"}, permits=True)


@pytest.mark.parametrize(
    ("data", "value", "forbids", "permits"),
    [
        (1, 1.0, True, True),
        (1, "1", True, False),
        (1, "1.0", True, False),
        (1, True, False, False),
        (True, "true", True, False),
        (100, 1e2, True, True),
        (1.5, 1.5, True, True),
        ("1", 1.0, True, True),
        ("caf\u00e9", "cafe\u0301", True, True),
        ("cafe\u0301", "caf\u00e9", True, True),
        ("file:///etc/*", "FILE:///%65tc/x", True, False),
        ("file:///srv/*", "file:///srv/../etc/x", True, False),
        ("https://a.example/*", "HTTPS://A.example/x", True, False),
        ("Title*", "Title: one", True, True),
        (1, "+1", True, False),
        (1, "01", True, False),
        (10, "1_0", True, False),
        (0, "-0", True, False),
        (10**30, 1e30, True, True),
        (10**30, "1e30", True, False),
        ("1", "1.0", True, False),
        ("1000", "1e3", True, False),
        (True, "yes", True, False),
        (False, "off", True, False),
        ("100%25252525", "100%25252525", True, True),
        ("one\ntwo", "one\ntwo", True, True),
    ],
)
def test_what_forbids_matches_more_and_what_permits_matches_exactly(
    data: Any, value: Any, forbids: bool, permits: bool
) -> None:
    found = pattern("a", data)
    assert found.matches({"a": value}, permits=False) is forbids
    assert found.matches({"a": value}, permits=True) is permits


@pytest.mark.parametrize(
    "address",
    [
        "https://in.example/a",
        "https://in.example:443/a",
        "https://in.example:0443/a",
        "https://in.example:/a",
        "https://user:word@in.example/a",
        "https://in.example./a",
        "https://in\u3002example/a",
        "https:\\\\in.example\\a",
        "https://in.example\\a",
        "https:in.example/a",
        "https:/in.example/a",
        "https:////in.example/a",
        "\x01https://in.example/a",
        "ht\ntps://in.example/a",
        "h%74tps://in.example/a",
    ],
)
def test_address_is_forbidden_however_a_browser_would_repair_it(address: str) -> None:
    assert pattern("a", "https://in.example/*").matches({"a": address}, permits=False)


@pytest.mark.parametrize(
    "rest",
    [
        "../b",
        "..\\b",
        "%2e%2e/b",
        ".\t./b",
        ".%0a./b",
        ".\u200b./b",
        "..%5cb",
        "..%2fb",
        "%3f/../../b",
        "%3f/%2e%2e/%2e%2e/b",
        "%252e%252e/b",
    ],
)
def test_address_that_leads_out_of_a_folder_is_not_permitted(rest: str) -> None:
    inside = pattern("a", "https://in.example/a/*")
    assert inside.matches({"a": "https://in.example/a/b?c=../d"}, permits=True)
    assert not inside.matches({"a": f"https://in.example/a/{rest}"}, permits=True)


def test_place_inside_a_text_of_json_is_forbidden() -> None:
    found = pattern("/options/mode", "write")
    assert found.matches({"options": '{"mode": "\\u0077rite"}'}, permits=False)
    assert not found.matches({"options": '{"mode": "write"}'}, permits=True)
    assert not found.matches({"options": '{"mode": "read"}'}, permits=False)
    assert found.matches({"options": "[" * 90_000}, permits=False)


def test_number_with_thousands_of_digits_is_not_permitted() -> None:
    assert pattern("a", "nothing").matches({"a": 10**5000}, permits=False)
    assert not pattern("a", "*").matches({"a": 10**5000}, permits=True)
