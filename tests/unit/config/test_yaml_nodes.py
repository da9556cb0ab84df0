from __future__ import annotations

import pytest
import yaml

from dragoman.config import yaml_nodes
from dragoman.config.yaml_nodes import lines, load


def test_data_and_repetitions_come_together() -> None:
    assert load("a: 1\nb:\n  - c: 1\n    c: 2\na: 3") == (
        {"a": 3, "b": [{"c": 2}]},
        {("b", 0, "c"): 4, ("a",): 5},
    )


def test_an_empty_text_has_neither() -> None:
    assert load("# nothing") == (None, {})
    assert lines("") == {}


def test_keys_of_different_kinds_are_different_keys() -> None:
    assert load('2: a\n"2": b')[1] == {}


def test_a_node_with_two_names_is_looked_at_once() -> None:
    assert load("a: &x {b: 1, b: 2}\nc: *x")[1] == {("a", "b"): 1}


@pytest.mark.parametrize(
    "text", ['a: 1\nb: !!int "x"', "a: 1\nb: 2024-99-99", "a: 1\nb: !!timestamp x", "a: 1\nb: !!x y"]
)
def test_a_value_that_cannot_be_built_has_a_place_and_is_not_quoted(text: str) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        load(text)
    assert caught.value.problem_mark is not None
    assert caught.value.problem_mark.line == 1


def test_keys_and_items_have_lines() -> None:
    assert lines("a:\n  - b: 1\n  -\n    - 2") == {
        ("a",): 1,
        ("a", 0): 2,
        ("a", 0, "b"): 2,
        ("a", 1): 4,
        ("a", 1, 0): 4,
    }


def test_deep_keys_have_none() -> None:
    assert max(map(len, lines("{a: " * 10 + "1" + "}" * 10))) == 7


def test_their_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_nodes, "MAX_LINES", 2)
    assert lines("a:\n b:\n  c:\n   d:\n    e: 1") == {("a",): 1, ("a", "b"): 2, ("a", "b", "c"): 3}


def test_lines_are_counted_as_editors_do() -> None:
    assert lines("a: 1 # \u2028\nb: 2\r\nc: 3") == {("a",): 1, ("b",): 2, ("c",): 3}
