from __future__ import annotations

import pytest

from dragoman.agent.providers.parsing import as_object, number_in, object_in, objects_in, sendable, text_in


@pytest.mark.parametrize("value", [None, 1, "x", [], True])
def test_a_field_of_another_kind_counts_as_missing(value: object) -> None:
    fields = {"k": value}
    assert as_object(value) == {}
    assert object_in(fields, "k") == {}
    assert objects_in(fields, "k") == []
    assert text_in(fields, "k") == ("x" if value == "x" else "")
    assert number_in(fields, "k") == (1 if value == 1 and value is not True else 0)


def test_what_is_there_is_read() -> None:
    assert object_in({"k": {"a": 1}}, "k") == {"a": 1}
    assert objects_in({"k": [{"a": 1}, 2, None]}, "k") == [{"a": 1}]
    assert number_in({"k": -4}, "k") == 0


def test_halves_of_pairs_are_replaced_and_pairs_joined() -> None:
    assert sendable("ü😀") == "ü😀"
    assert sendable("a\ud83d\ude00b\udc00") == "a😀b\ufffd"
