from __future__ import annotations

import pytest

from dragoman.config.documents import DEPTH, json_lines, json_repeats, toml_lines


def test_keys_and_items_of_json_have_their_lines() -> None:
    text = """{
  "a": {"b": 1,
        "c": [1,
              "x, {",
              {"d": null}, [true,
              false]]},
  "e\\"f": [], "g": {}
}"""
    assert json_lines(text) == {
        ("a",): 2,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 3,
        ("a", "c", 1): 4,
        ("a", "c", 2): 5,
        ("a", "c", 2, "d"): 5,
        ("a", "c", 3): 5,
        ("a", "c", 3, 0): 5,
        ("a", "c", 3, 1): 6,
        ('e"f',): 7,
        ("g",): 7,
    }


def test_a_list_at_the_top_has_lines_too() -> None:
    assert json_lines('[\n{"name": "a"},\n{"name": "b"}]') == {
        (0,): 2,
        (0, "name"): 2,
        (1,): 3,
        (1, "name"): 3,
    }


@pytest.mark.parametrize("text", ["1", '"x"', "null", ""])
def test_a_single_value_has_no_keys(text: str) -> None:
    assert json_lines(text) == {}


def test_deep_keys_of_json_are_left_out() -> None:
    keys = '{"k": ' * (DEPTH + 2) + "[1]" + "}" * (DEPTH + 2)
    assert max(len(pointer) for pointer in json_lines(keys)) == DEPTH


def test_a_repeated_key_has_the_line_of_the_last_one() -> None:
    text = '{"a": {"x": 1},\n "b": 1,\n "a": {"x": 2,\n "x": 3}}'
    assert json_lines(text)["a",] == 3
    assert json_repeats(text) == {("a",): 3, ("a", "x"): 4}


def test_the_same_key_in_two_objects_is_no_repetition() -> None:
    assert json_repeats('[{"a": 1}, {"a": 1}]') == {}


def test_tables_and_keys_of_toml_have_their_lines() -> None:
    text = '''# comment = 1
top = [ 1, # ] [
  2,
]

[a.b]
c.d = """
x = 1
[not.a.table]
"""
"quo ted" = 'lit = 1'
e = { f = 1, g = [
  1] }

[[s]]
n = 1
[s.env]
X = 1

  [[ s ]]
n = 2
[[s.t]]
u = """""" # nothing
v = \'\'\'
w = 1\'\'\'
'''
    assert toml_lines(text) == {
        ("top",): 2,
        ("a",): 6,
        ("a", "b"): 6,
        ("a", "b", "c"): 7,
        ("a", "b", "c", "d"): 7,
        ("a", "b", "quo ted"): 11,
        ("a", "b", "e"): 12,
        ("s",): 15,
        ("s", 0): 15,
        ("s", 0, "n"): 16,
        ("s", 0, "env"): 17,
        ("s", 0, "env", "X"): 18,
        ("s", 1): 20,
        ("s", 1, "n"): 21,
        ("s", 1, "t"): 22,
        ("s", 1, "t", 0): 22,
        ("s", 1, "t", 0, "u"): 23,
        ("s", 1, "t", 0, "v"): 24,
    }


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ('"a.b"', "a.b"),
        ("'a\"b'", 'a"b'),
        ('"tab\tinside"', "tab\tinside"),
        ('"\\U0001F600"', "\U0001f600"),
        ('"\\u00e9"', "é"),
        ('""', ""),
        ("''", ""),
        ("a-b_1", "a-b_1"),
    ],
)
def test_a_key_of_toml_may_be_quoted(key: str, name: str) -> None:
    assert toml_lines(f"\n{key} = 1") == {(name,): 2}


def test_deep_keys_of_toml_are_left_out() -> None:
    lines = toml_lines(".".join("abcdefghi") + " = 1")
    assert max(len(pointer) for pointer in lines) == DEPTH
