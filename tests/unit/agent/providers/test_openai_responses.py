from __future__ import annotations

from typing import Any

import pytest

from dragoman.agent.messages import Message, ModelRequest, ToolCall
from dragoman.agent.providers.openai_responses import ResponsesReader, to_body
from dragoman.agent.providers.parsing import Ids
from dragoman.agent.providers.request import ProviderError, StreamBrokenError

USER = Message(role="user", text="hi")


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("gpt-5", True),
        ("gpt-5.1-codex", True),
        ("o3-mini", True),
        ("openai/gpt-6", True),
        ("gpt-4o", False),
        ("qwen", False),
    ],
)
def test_encrypted_thoughts_are_asked_of_models_that_think(model: str, *, asked: bool) -> None:
    body = to_body(ModelRequest(messages=[USER]), model=model)
    assert (body.get("include") == ["reasoning.encrypted_content"]) is asked


def test_thoughts_that_are_not_encrypted_are_not_sent_back() -> None:
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": []},
    ]
    turn = Message(role="assistant", text="x", native={"responses": {"model": "m", "output": output}})
    body = to_body(ModelRequest(messages=[USER, turn, USER]), model="m")
    assert [item.get("type") for item in body["input"]] == [None, "message", None]


def test_a_turn_whose_calls_were_changed_is_written_anew() -> None:
    output = [{"type": "function_call", "call_id": "a", "name": "x", "arguments": "{}"}]
    turn = Message(
        role="assistant",
        text="hm",
        calls=[ToolCall(id="b", name="y", arguments={"k": 1})],
        native={"responses": {"model": "m", "output": output}},
    )
    body = to_body(ModelRequest(messages=[USER, turn, Message(role="system", text="news")]), model="m")
    assert body["input"][1:3] == [
        {"role": "assistant", "content": "hm"},
        {"type": "function_call", "call_id": "b", "name": "y", "arguments": '{"k": 1}'},
    ]
    assert body["input"][-1] == {"role": "developer", "content": "news"}


@pytest.mark.parametrize(
    ("event", "says", "transient"),
    [
        ({"type": "error", "code": "server_error", "message": "oops"}, "oops", True),
        ({"type": "error"}, "failed during its answer: error", False),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}},
            },
            "slow",
            True,
        ),
        ({"type": "response.failed", "response": {}}, "no reason given", False),
    ],
)
def test_a_failure_told_by_an_event_is_raised(event: dict[str, Any], says: str, *, transient: bool) -> None:
    reader = ResponsesReader(model="m", ids=Ids(()))
    with pytest.raises(ProviderError, match=says) as caught:
        list(reader.feed(event))
    assert caught.value.transient is transient


@pytest.mark.parametrize(
    ("response", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "other"),
        ({"status": "incomplete", "incomplete_details": None}, "other"),
        ({"status": "cancelled"}, "other"),
        ({"id": "r"}, "stop"),
    ],
)
def test_the_finish_of_unusual_ends(response: dict[str, Any], finish: str) -> None:
    reader = ResponsesReader(model="m", ids=Ids(()))
    list(reader.feed({"type": "response.completed", "response": response}))
    assert reader.finish().finish == finish


def test_what_had_come_before_a_break_is_known() -> None:
    reader = ResponsesReader(model="m", ids=Ids(()))
    message = {"type": "message", "role": "assistant", "content": []}
    list(reader.feed({"type": "response.output_item.added", "output_index": 0, "item": message}))
    list(reader.feed({"type": "response.output_text.delta", "output_index": 0, "delta": "half"}))
    function = {"type": "function_call", "name": "x", "arguments": ""}
    list(reader.feed({"type": "response.output_item.added", "output_index": 1, "item": function}))
    list(reader.feed({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a'}))
    with pytest.raises(StreamBrokenError):
        reader.finish()
    partial = reader.partial()
    assert (partial.text, partial.calls[0].raw, partial.calls[0].id) == ("half", '{"a', "call_1")
