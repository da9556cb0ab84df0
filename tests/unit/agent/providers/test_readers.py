"""Whatever a server sends, a reader gives events, a whole answer or a `ProviderError`, and what it gives can be sent back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.servers.model_api_rules import check_anthropic, check_chat, check_gemini, check_responses
from tests.servers.model_api_wire import events

from dragoman.agent.messages import Message, ModelRequest
from dragoman.agent.providers import anthropic, gemini, openai_chat, openai_responses
from dragoman.agent.providers.anthropic import AnthropicReader
from dragoman.agent.providers.gemini import GeminiReader
from dragoman.agent.providers.openai_chat import ChatReader
from dragoman.agent.providers.openai_responses import ResponsesReader
from dragoman.agent.providers.parsing import Ids, read_call
from dragoman.agent.providers.request import (
    MOST_CALLS,
    ModelEndpoint,
    ProviderError,
    StreamBrokenError,
    ask,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

READERS: dict[str, Any] = {
    "openai": ChatReader,
    "responses": ResponsesReader,
    "anthropic": AnthropicReader,
    "gemini": GeminiReader,
}
CHECKS: dict[str, Any] = {
    "openai": check_chat,
    "responses": check_responses,
    "anthropic": check_anthropic,
    "gemini": check_gemini,
}
WORDS = (
    "type index id name text delta content message_start content_block_start content_block_delta message_delta usage "
    "tool_use text_delta input_json_delta thinking_delta signature_delta citations_delta partial_json stop_reason "
    "choices tool_calls function arguments finish_reason reasoning_content refusal thinking message output "
    "response.output_item.added response.output_item.done response.completed response.output_text.delta error "
    "response.function_call_arguments.delta response.failed response item output_index call_id function_call status "
    "candidates parts functionCall args thought thoughtSignature finishReason promptFeedback usageMetadata "
    "input_tokens prompt_tokens prompt_tokens_details cached_tokens content_block input stop 0 {} {"
).split()
words = st.sampled_from(WORDS)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | words | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=5),
    max_leaves=10,
)


def body(api: str, *messages: Message, **fields: Any) -> dict[str, Any]:
    request = ModelRequest(messages=messages, **fields)
    match api:
        case "openai":
            return openai_chat.to_body(request, model="m", rules=openai_chat.COMPATIBLE)
        case "responses":
            return openai_responses.to_body(request, model="m")
        case "gemini":
            return gemini.to_body(request, model="m")
        case _:
            return anthropic.to_body(request, model="m")


def reader(api: str) -> Any:
    return READERS[api](model="m", ids=Ids(()))


@pytest.mark.parametrize("api", READERS)
@given(st.lists(st.dictionaries(words, values, max_size=6), max_size=6))
def test_no_event_is_too_strange(api: str, strange: list[dict[str, Any]]) -> None:
    reading = reader(api)
    try:
        for event in strange:
            list(reading.feed(event))
        message = reading.finish().message
    except ProviderError:
        message = reading.partial()
    json.dumps(message.native)
    body(api, Message(role="user", text="x"), message)


@pytest.mark.parametrize("api", READERS)
@given(data=st.data())
def test_a_stream_with_a_strange_event_in_it_is_read_or_refused(api: str, data: st.DataObject) -> None:
    turn = {
        "thought": "hm",
        "text": "some text",
        "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b"}],
    }
    real = [json.loads(event.data) for event in events(api, turn, "m") if event.data != "[DONE]"]
    at = data.draw(st.integers(0, len(real)))
    spoilt = json.loads(json.dumps(real[at])) if at < len(real) else {}
    for key in list(spoilt):
        if data.draw(st.booleans()):
            spoilt[key] = data.draw(values)
    reading = reader(api)
    try:
        for event in [*real[:at], spoilt, *real[at:]]:
            list(reading.feed(event))
        message = reading.finish().message
    except ProviderError:
        message = reading.partial()
    sent = body(api, Message(role="user", text="x"), message, Message(role="user", text="y"))
    json.dumps(sent)


@pytest.mark.parametrize("api", READERS)
@given(
    st.lists(
        st.lists(st.sampled_from(['{"a": 1}', "", "{bad", "[1]"]), max_size=4),
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
def test_any_conversation_of_calls_is_legal(api: str, turns: list[list[str]], random: Any) -> None:
    conversation = [Message(role="user", text="x")]
    for turn in turns:
        calls = [{"name": f"t{at}", "arguments": raw, "id": ""} for at, raw in enumerate(turn)]
        reading = READERS[api](model="m", ids=Ids(conversation))
        for event in events(api, {"text": random.choice(["", "hm"]), "calls": calls}, "m"):
            if event.data != "[DONE]":
                list(reading.feed(json.loads(event.data)))
        message = reading.finish().message
        assert len(message.calls) == len(turn)
        answers = [Message(role="tool", call_id=call.id, name=call.name, text="r") for call in message.calls]
        random.shuffle(answers)
        conversation += [message, *answers[: random.randint(0, len(answers))]]
        conversation += random.choice(
            [[], [Message(role="user", text="more"), Message(role="system", text="news")]]
        )
    assert CHECKS[api](body(api, *conversation)) == ""


DEEP = json.loads("[" * 800 + "]" * 800)
ODD = [float("nan"), float("inf"), 10**4200, "\ud800", [1, "\udfff"], {"\ud800": 2}, DEEP]
PLACES: dict[str, list[Any]] = {
    "openai": [
        lambda odd: {"choices": [{"delta": {"reasoning_details": [{"a": odd}]}, "finish_reason": "stop"}]},
        lambda odd: {
            "choices": [
                {
                    "delta": {
                        "tool_calls": [{"id": odd, "x": odd, "function": {"name": odd, "arguments": odd}}]
                    },
                    "finish_reason": "stop",
                }
            ]
        },
        lambda odd: {
            "usage": {"prompt_tokens": odd, "completion_tokens": odd},
            "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}],
        },
    ],
    "responses": [
        lambda odd: {
            "type": "response.output_item.done",
            "item": {"type": "reasoning", "id": odd, "encrypted_content": odd},
        },
    ],
    "anthropic": [
        lambda odd: {
            "type": "message_start",
            "message": {"usage": {"input_tokens": odd, "output_tokens": odd}},
        },
        lambda odd: {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "redacted_thinking", "data": odd, "citations": odd},
        },
        lambda odd: {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "citations_delta", "citation": odd},
        },
        lambda odd: {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": odd, "name": odd, "input": odd},
        },
    ],
    "gemini": [
        lambda odd: {
            "usageMetadata": {"promptTokenCount": odd},
            "candidates": [
                {
                    "content": {
                        "parts": [
                            {"executableCode": odd, "thoughtSignature": odd},
                            {"functionCall": {"name": odd, "args": odd, "id": odd}},
                        ]
                    },
                    "finishReason": "STOP",
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("odd", ODD, ids=["nan", "infinite", "huge", "half", "list", "key", "deep"])
@pytest.mark.parametrize("api", sorted(PLACES))
def test_what_json_and_utf_8_cannot_say_is_not_kept_to_be_sent_back(api: str, odd: Any) -> None:
    reader = READERS[api](model="m", ids=Ids([]))
    try:
        for place in PLACES[api]:
            list(reader.feed(place(odd)))
        usage = reader.finish().usage
        assert f"{usage.input_tokens / 3:,}".isprintable()
    except ProviderError:
        pass
    message = reader.partial()
    sent = body(api, Message(role="user", text="hi"), message)
    assert json.dumps(sent, allow_nan=False, ensure_ascii=False).encode()


def test_citations_of_a_wrong_type_are_dropped() -> None:
    reader = AnthropicReader(model="m", ids=Ids([]))
    block = {"type": "text", "text": "a", "citations": 5}
    list(reader.feed({"type": "content_block_start", "index": 0, "content_block": block}))
    delta = {"type": "citations_delta", "citation": {"url": "u"}}
    list(reader.feed({"type": "content_block_delta", "index": 0, "delta": delta}))
    assert reader.partial().native["anthropic"]["content"][0]["citations"] == [{"url": "u"}]


def test_deep_arguments_with_escapes_are_a_problem_of_the_call_alone() -> None:
    raw = '{"a":' * 900 + '"\\u0041"' + "}" * 900
    assert read_call("i", "n", raw).problem or read_call("i", "n", raw).arguments is not None
    # A lone half may stand in the text itself.
    assert read_call("i", "n\ud800", '{"a": "\ud800"}').arguments == {"a": "\ufffd"}


class Endless(ModelEndpoint):
    """An API that never ends its answer."""

    def __init__(self, make: Callable[[int], dict[str, Any]]) -> None:
        super().__init__(provider="openai", base_url="http://127.0.0.1:1")
        self.make = make
        self.sent = 0

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any], None]:
        assert path
        assert body == {}
        while True:
            self.sent += 1
            yield {"choices": [{"delta": self.make(self.sent)}]}


@pytest.mark.parametrize(
    "make",
    [
        lambda _: {"content": "x" * 2**20},
        lambda _: {"reasoning": "x" * 2**20},
        lambda _: {"tool_calls": [{"id": "a", "index": 0, "function": {"arguments": "1" * 2**20}}]},
        lambda at: {"tool_calls": [{"id": f"c{at}", "index": at, "function": {"name": "f"}}]},
    ],
    ids=["text", "thoughts", "arguments", "calls"],
)
async def test_an_answer_without_an_end_is_an_error(make: Callable[[int], dict[str, Any]]) -> None:
    endpoint = Endless(make)
    with pytest.raises(StreamBrokenError, match="more than"):
        async for _ in ask(endpoint, "/", body={}, new_reader=lambda: ChatReader(model="m", ids=Ids([]))):
            pass
    assert endpoint.sent <= MOST_CALLS + 1
