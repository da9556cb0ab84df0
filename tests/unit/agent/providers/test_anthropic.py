from __future__ import annotations

from typing import Any

import pytest

from dragoman.agent.messages import CallDelta, Message, ModelRequest, TextDelta, ThoughtDelta, ToolCall
from dragoman.agent.providers.anthropic import AnthropicReader, to_body
from dragoman.agent.providers.parsing import Ids

USER = Message(role="user", text="hi")


def body(*messages: Message) -> dict[str, Any]:
    return to_body(ModelRequest(messages=messages), model="m")


def marked(body: dict[str, Any]) -> list[tuple[int, int]]:
    return [
        (at, number)
        for at, message in enumerate(body["messages"])
        for number, block in enumerate(message["content"])
        if "cache_control" in block
    ]


def read(*events: dict[str, Any]) -> tuple[list[object], Message]:
    reader = AnthropicReader(model="m", ids=Ids(()))
    seen = [piece for event in events for piece in reader.feed(event)]
    return seen, reader.partial()


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def test_the_cache_is_marked_at_the_system_and_the_last_two_of_the_user() -> None:
    said = Message(role="assistant", text="a")
    sent = body(
        Message(role="system", text="s"), USER, said, USER, said, USER, Message(role="user", text="and")
    )
    assert marked(sent) == [(2, 0), (4, 1)]
    assert "cache_control" in sent["system"][0]


def test_empty_messages_are_left_out_and_neighbours_joined() -> None:
    sent = body(
        USER,
        Message(role="assistant", text=" \n"),
        Message(role="user", text="  "),
        Message(role="system", text="news"),
    )
    texts = [block["text"] for block in sent["messages"][0]["content"]]
    assert (len(sent["messages"]), texts) == (1, ["hi", "news"])


def test_an_error_without_words_gets_some() -> None:
    turn = Message(role="assistant", calls=[ToolCall(id="a", name="x", arguments={})])
    failed = Message(role="tool", call_id="a", is_error=True)
    result = body(USER, turn, failed)["messages"][2]["content"][0]
    assert (result["content"], result["is_error"]) == ("Error", True)
    silent = body(USER, turn, Message(role="tool", call_id="a"))["messages"][2]["content"][0]
    assert "content" not in silent


def test_white_space_at_the_end_of_an_answer_is_taken_off() -> None:
    assert body(USER, Message(role="assistant", text="a \n"))["messages"][1]["content"][0]["text"] == "a"


def test_the_default_limit_is_sent() -> None:
    assert body(USER)["max_tokens"] >= 8192


def test_a_block_that_begins_with_content_is_shown() -> None:
    seen, message = read(
        start(0, type="thinking", thinking="h", signature="s"),
        delta(0, "thinking_delta", thinking="m"),
        start(1, type="text", text="a"),
        delta(1, "text_delta", text="b"),
    )
    assert seen == [ThoughtDelta(text="h"), ThoughtDelta(text="m"), TextDelta(text="a"), TextDelta(text="b")]
    assert message.text == "ab"
    assert message.native["anthropic"]["content"][0] == {
        "type": "thinking",
        "thinking": "hm",
        "signature": "s",
    }


def test_deltas_without_a_beginning_are_read() -> None:
    seen, message = read(
        delta(0, "text_delta", text="a"), delta(1, "input_json_delta", partial_json='{"k": 1}')
    )
    assert seen == [TextDelta(text="a"), CallDelta(id="call_1", name="", raw='{"k": 1}')]
    assert (message.text, message.calls[0].arguments) == ("a", {"k": 1})


def test_citations_and_the_input_of_the_apis_own_tools_are_kept() -> None:
    seen, message = read(
        start(0, type="server_tool_use", id="srv", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query": "x"}'),
        start(1, type="text", text="a", citations=None),
        delta(1, "citations_delta", citation={"url": "u"}),
        delta(1, "delta_of_the_future", more=1),
    )
    assert message.calls == ()
    assert not any(isinstance(event, CallDelta) for event in seen)
    first, second = message.native["anthropic"]["content"]
    assert first["input"] == {"query": "x"}
    assert second["citations"] == [{"url": "u"}]


@pytest.mark.parametrize(
    ("reason", "calls", "finish"),
    [
        ("end_turn", False, "stop"),
        ("end_turn", True, "tool_calls"),
        ("stop_sequence", False, "stop"),
        ("model_context_window_exceeded", False, "length"),
        ("pause_turn", False, "paused"),
        ("of_the_future", False, "other"),
    ],
)
def test_stop_reasons(reason: str, *, calls: bool, finish: str) -> None:
    reader = AnthropicReader(model="m", ids=Ids(()))
    if calls:
        list(reader.feed(start(0, type="tool_use", id="a", name="x", input={})))
    list(
        reader.feed(
            {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": None}}
        )
    )
    assert reader.finish().finish == finish
