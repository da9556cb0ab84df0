from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agent.messages import Message, ToolCall
from dragoman.agent.providers.parsing import Ids, is_object, read_arguments, read_call, sent_arguments


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ("", {}),
        ("  \n", {}),
        ("null", {}),
        ("{}", {}),
        (' {"a": [1, {"b": null}]} ', {"a": [1, {"b": None}]}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": "\\u00fc\\ud83d\\ude00"}', {"a": "ü😀"}),
        ('{"a\\ud800": ["\\udc00b", 1]}', {"a\ufffd": ["\ufffdb", 1]}),
    ],
)
def test_arguments_are_read(raw: str, arguments: object) -> None:
    assert read_arguments(raw) == (arguments, "")
    json.dumps(arguments, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ('{"a": 1', "not valid JSON: Expecting ',' delimiter at character 7"),
        ("{a: 1}", "near `{a: 1}`"),
        ("[1]", "not an array"),
        ("3", "not a number"),
        ("true", "not a boolean"),
        ('"hello"', "not a string"),
        ('"[1]"', "not a string"),
        ('{"a": NaN}', "`NaN` is not a JSON value"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[" * 100_000, "nested too deep"),
        ("{" + "x" * 1000, "near `{" + "x" * 40 + "`"),
    ],
)
def test_what_cannot_be_read_is_told_to_the_model(raw: str, problem: str) -> None:
    arguments, told = read_arguments(raw)
    assert arguments is None
    assert problem in told
    assert len(told) < 300


def test_arguments_that_come_decoded_are_taken() -> None:
    call = read_call("c1", "add", {"a": "ü"})
    assert call == ToolCall(id="c1", name="add", arguments={"a": "ü"}, raw='{"a": "ü"}')


@given(st.text())
def test_no_text_raises_and_every_call_can_be_sent_back(raw: str) -> None:
    call = read_call("c1", "add", raw)
    assert (call.arguments is None) == bool(call.problem)
    assert is_object(sent_arguments(call))
    sent_arguments(call).encode()


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.text() | st.none())
)
def test_objects_survive_the_way_there_and_back(value: dict[str, object]) -> None:
    call = read_call("c1", "add", json.dumps(value))
    again, problem = read_arguments(sent_arguments(call))
    assert not problem
    assert again == call.arguments


def test_a_call_is_sent_back_as_the_model_wrote_it() -> None:
    raw = '{"b":1,   "a":2}'
    assert sent_arguments(read_call("c1", "add", raw)) == raw
    assert sent_arguments(ToolCall(id="c1", name="add", arguments={"a": "ü"})) == '{"a": "ü"}'


def test_ids_are_made_where_there_are_none_and_never_twice() -> None:
    before = Message(
        role="assistant", calls=[ToolCall(id="call_3", name="x"), ToolCall(id="given", name="y")]
    )
    ids = Ids([before])
    assert [ids.settle(given) for given in ("", "given", "given", "", "call_5")] == [
        *("call_4", "given", "call_5", "call_6", "call_7"),
    ]
    assert Ids([before]).settle("") == "call_4"
