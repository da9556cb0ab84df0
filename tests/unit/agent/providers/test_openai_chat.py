from __future__ import annotations

from typing import Any

import pytest

from dragoman.agent.messages import Answered, Message, ModelRequest, TextDelta, ThoughtDelta, ToolCall
from dragoman.agent.providers.openai_chat import COMPATIBLE, OPENAI, ChatReader, is_genuine, to_body
from dragoman.agent.providers.parsing import Ids

USER = Message(role="user", text="hi")


def read(*choices: dict[str, Any], finish: str = "stop") -> tuple[list[object], Answered]:
    reader = ChatReader(model="m", ids=Ids(()))
    events: list[object] = []
    for choice in choices:
        events += reader.feed({"choices": [choice]})
    events += reader.feed({"choices": [{"delta": {}, "finish_reason": finish}]})
    return events, reader.finish()


def delta(**fields: Any) -> dict[str, Any]:
    return {"index": 0, "delta": fields}


def call(index: int | None = None, id: str = "", name: str = "", arguments: Any = "") -> dict[str, Any]:  # noqa: A002
    piece: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        piece["index"] = index
    if id:
        piece["id"] = id
    if name:
        piece["function"]["name"] = name
    return delta(tool_calls=[piece])


@pytest.mark.parametrize(
    ("url", "genuine"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("https://api.openai.com.evil.example/v1", False),
        ("http://127.0.0.1:11434/v1", False),
    ],
)
def test_the_genuine_api_is_told_by_its_host(url: str, *, genuine: bool) -> None:
    assert is_genuine(url) is genuine


@pytest.mark.parametrize(
    ("genuine", "limit", "role"), [(True, "max_completion_tokens", "system"), (False, "max_tokens", "user")]
)
def test_the_limit_and_later_systems_differ_with_the_server(*, genuine: bool, limit: str, role: str) -> None:
    request = ModelRequest(messages=[USER, Message(role="system", text="news")], max_tokens=5)
    body = to_body(request, model="m", rules=OPENAI if genuine else COMPATIBLE)
    assert body[limit] == 5
    assert body["messages"][1] == {"role": role, "content": "news"}


def test_thoughts_go_back_only_until_the_user_speaks_again() -> None:
    native = {"openai": {"model": "m", "reasoning_content": "hm"}}
    turn = Message(role="assistant", calls=[ToolCall(id="a", name="x")], native=native)
    result = Message(role="tool", call_id="a", text="r")
    during = to_body(ModelRequest(messages=[USER, turn, result]), model="m", rules=COMPATIBLE)
    after = to_body(ModelRequest(messages=[USER, turn, result, USER]), model="m", rules=COMPATIBLE)
    assert during["messages"][1]["reasoning_content"] == "hm"
    assert "reasoning_content" not in after["messages"][1]


@pytest.mark.parametrize(
    "pieces",
    [
        [call(0, "a", "x", '{"k"'), call(1, "b", "y"), call(0, "", "", ": 1}"), call(1, "", "", "{}")],
        [call(0, "a", "x", '{"k"'), call(0, "a", "x", ": 1}"), call(1, "b", "y", "{}")],
        [call(0, "a", "x", '{"k"'), call(0, "", "x", ": 1}"), call(0, "b", "y", "{}")],
        [call(None, "a", "x", '{"k": 1}'), call(None, "b", "y", "{}")],
        [
            call(None, "a", "x"),
            call(None, "", "", '{"k": 1}'),
            call(None, "b", "y"),
            call(None, "", "", "{}"),
        ],
        [call(None, "a", "x", '{"k"'), call(None, "b", "y", "{}"), call(None, "a", "", ": 1}")],
        [call(0, "a", "x", {"k": 1}), call(0, "b", "y", {})],
        [call(0, "a", "x", '{"k": 1}'), call(0, "b", "y", None)],
    ],
)
def test_pieces_of_calls_find_together(pieces: list[dict[str, Any]]) -> None:
    _, last = read(*pieces)
    assert [(call.id, call.name, call.arguments) for call in last.message.calls] == [
        ("a", "x", {"k": 1}),
        ("b", "y", {}),
    ]


@pytest.mark.parametrize("index", [None, 0])
def test_whole_calls_without_ids_of_the_same_tool_are_two(index: int | None) -> None:
    _, last = read(call(index, "", "x", '{"k": 1}'), call(index, "", "x", '{"k": 2}'))
    assert [(call.id, call.arguments) for call in last.message.calls] == [
        ("call_1", {"k": 1}),
        ("call_2", {"k": 2}),
    ]


def test_content_in_pieces_with_thoughts_is_read() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}, 3]}
    events, last = read(delta(content=[thinking, {"type": "text", "text": "yes"}]))
    assert events == [ThoughtDelta(text="hm"), TextDelta(text="yes")]
    assert last.message.text == "yes"


def test_a_thought_under_two_names_is_one() -> None:
    events, _ = read(delta(reasoning="hm", reasoning_content="hm", content="x"))
    assert events == [ThoughtDelta(text="hm"), TextDelta(text="x")]


def test_other_choices_are_left_out() -> None:
    _, last = read(delta(content="mine"), {"index": 1, "delta": {"content": "other"}})
    assert last.message.text == "mine"


@pytest.mark.parametrize(
    ("said", "finish", "expected"),
    [
        (delta(content="x"), "tool_calls", "stop"),
        (delta(content="x"), "insufficient_system_resource", "other"),
        (call(0, "a", "x", "{}"), "length", "length"),
        (call(0, "a", "x", "{}"), "function_call", "tool_calls"),
        (delta(refusal="no"), "stop", "refused"),
    ],
)
def test_the_finish_is_what_really_happened(said: dict[str, Any], finish: str, expected: str) -> None:
    assert read(said, finish=finish)[1].finish == expected


def test_usage_of_deepseek_and_repeated_usage_are_read() -> None:
    reader = ChatReader(model="m", ids=Ids(()))
    for count in (1, 9):
        usage = {"prompt_tokens": 10, "completion_tokens": count, "prompt_cache_hit_tokens": 4}
        list(reader.feed({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}))
    usage = reader.finish().usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (10, 9, 4)


def test_reasoning_details_are_kept_for_the_way_back() -> None:
    detail = {"type": "reasoning.encrypted", "data": "SEAL"}
    _, last = read(delta(reasoning_details=[detail]), call(0, "a", "x", "{}"))
    result = Message(role="tool", call_id="a", text="r")
    body = to_body(ModelRequest(messages=[USER, last.message, result]), model="m", rules=COMPATIBLE)
    assert body["messages"][1]["reasoning_details"] == [detail]


def test_an_answer_that_said_nothing_is_not_sent_back() -> None:
    body = to_body(ModelRequest(messages=[USER, Message(role="assistant"), USER]), model="m", rules=OPENAI)
    assert [message["role"] for message in body["messages"]] == ["user", "user"]
