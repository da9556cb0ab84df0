"""Words become arguments: typed, nested, repeated, read from files."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.cli.arguments import ArgumentError, missing, parse, parse_object

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "names": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "loose": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "place": {"$ref": "#/$defs/Place"},
        "a.b": {"type": "string"},
        "blob": {"type": "string", "contentEncoding": "base64"},
        "mode": {"enum": [1, 2]},
        "anything": {},
        "data": {"type": "object"},
    },
    "required": ["text", "place"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "number": {"type": "integer"}},
            "description": "Where.",
        }
    },
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["text=12"], {"text": "12"}),
        (["text="], {"text": ""}),
        (["text=a=b"], {"text": "a=b"}),
        (["count=12"], {"count": 12}),
        (["count=-1"], {"count": -1}),
        (["count=many"], {"count": "many"}),
        (["share=0.5"], {"share": 0.5}),
        (["flag=yes"], {"flag": True}),
        (["flag=off"], {"flag": False}),
        (["flag=perhaps"], {"flag": "perhaps"}),
        (["maybe=null"], {"maybe": None}),
        (["maybe=12"], {"maybe": "12"}),
        (["names=a"], {"names": ["a"]}),
        (["names=5"], {"names": ["5"]}),
        (["names=a", "names=b"], {"names": ["a", "b"]}),
        (['names=["a", "b"]', "names=c"], {"names": ["a", "b", "c"]}),
        (["numbers=1", "numbers=2"], {"numbers": [1, 2]}),
        (["numbers=[1, 2]"], {"numbers": [1, 2]}),
        (["loose=a"], {"loose": "a"}),
        (["loose=a", "loose=b"], {"loose": ["a", "b"]}),
        (["place.street=7", "place.number=7"], {"place": {"street": "7", "number": 7}}),
        (['place={"street": "x"}'], {"place": {"street": "x"}}),
        (["a.b=1"], {"a.b": "1"}),
        (["mode=2"], {"mode": 2}),
        (["anything=12"], {"anything": 12}),
        (["anything=x", "anything=y"], {"anything": ["x", "y"]}),
        (["data.deep.er=1"], {"data": {"deep": {"er": 1}}}),
        (["text=@@me"], {"text": "@me"}),
        (["unknown=3"], {"unknown": 3}),
    ],
)
def test_words_are_typed_by_the_schema(words: list[str], expected: dict[str, Any]) -> None:
    assert parse(words, SCHEMA, load=lambda path: b"") == expected


def test_a_file_is_text_json_or_bytes_as_the_schema_wants() -> None:
    files = {"a.txt": "律\n".encode(), "n.json": b"[1, 2]\n", "-": b"stdin", "x.png": b"\x89\xff"}
    words = ["text=@a.txt", "numbers=@n.json", "maybe=@-", "blob=@x.png"]
    assert parse(words, SCHEMA, load=files.__getitem__) == {
        "text": "律\n",
        "numbers": [1, 2],
        "maybe": "stdin",
        "blob": base64.b64encode(b"\x89\xff").decode(),
    }
    with pytest.raises(ArgumentError, match=r"`x\.png` is not a text file"):
        parse(["text=@x.png"], SCHEMA, load=files.__getitem__)


def test_without_a_reader_of_files_an_at_sign_is_a_letter() -> None:
    assert parse(["text=@home"], SCHEMA) == {"text": "@home"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["Ann"], "Expected key=value, not `Ann`. Parameters: text, count"),
        (["=x"], "Expected key=value, not `=x`."),
        (["text=a", "text=b"], "`text` is given twice, but it is not a list."),
        (["place=1", "place.street=x"], "Cannot set `place.street`: `place` already has a value"),
    ],
)
def test_a_word_that_cannot_be_used_is_named(words: list[str], complaint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(words, SCHEMA)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize("text", ["[1]", "3", "{", "[" * 100_000])
def test_the_whole_of_the_arguments_is_a_json_object(text: str) -> None:
    with pytest.raises(ArgumentError, match="The arguments"):
        parse_object(text)
    assert parse_object('{"a": [1]}') == {"a": [1]}


def test_what_is_missing_comes_with_its_schema() -> None:
    assert missing({"text": "x"}, SCHEMA) == {"place": SCHEMA["$defs"]["Place"]}
    assert missing({}, {}) == {}
    assert missing({}, {"required": ["x"]}) == {"x": {}}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.lists(st.text(max_size=12), max_size=4), _json)
def test_no_words_and_no_schema_break_it(words: list[str], schema: Any) -> None:
    for properties in (schema, {"properties": {"a": schema}}, {"properties": schema, "required": schema}):
        try:
            found = parse([*words, "a=1"], properties)
        except ArgumentError:
            continue
        assert isinstance(found, dict)
        missing(found, properties)
