from __future__ import annotations

import pytest

from dragoman.config.documents import env_lines, parse_env


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("A = 1 ", {"A": "1"}),
        ("export A=1", {"A": "1"}),
        ("  A=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=", {"A": ""}),
        ("A=x y # comment", {"A": "x y"}),
        ("A=x#y", {"A": "x#y"}),
        ("A=#y", {"A": "#y"}),
        ("A= # comment", {"A": ""}),
        ('A="x # y" # comment', {"A": "x # y"}),
        ('A="a\\n\\t\\r\\"\\\\\\q"', {"A": 'a\n\t\r"\\q'}),
        ('A="one\ntwo"\nB=3', {"A": "one\ntwo", "B": "3"}),
        ("A='a\\n $B'", {"A": "a\\n $B"}),
        ("A=''", {"A": ""}),
        ("A='x' y", {"A": "'x' y"}),
        ('A="open\nB=2', {"A": '"open', "B": "2"}),
        ("A=a=b", {"A": "a=b"}),
        ("A=${B} $(rm -rf /)", {"A": "${B} $(rm -rf /)"}),
        ("A=1\nA=2", {"A": "2"}),
        ("a.b-c=1", {"a.b-c": "1"}),
        ("# A=1\nnothing\n=x\n9=x\n", {}),
    ],
)
def test_assignments_are_read_and_nothing_is_expanded(text: str, expected: dict[str, str]) -> None:
    assert parse_env(text) == expected


def test_each_variable_has_the_line_of_its_last_assignment() -> None:
    text = '\nA=1\n# B=0\nB="one\ntwo"\r\nexport  C=3\nA=4\n'
    assert env_lines(text) == {"A": 7, "B": 4, "C": 6}


def test_a_long_line_of_blanks_takes_no_time() -> None:
    text = "A=x" + " " * 200_000 + "y"
    assert parse_env(text) == {"A": text[2:]}
