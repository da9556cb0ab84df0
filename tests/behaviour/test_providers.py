"""Models behind their APIs: the real SDKs over real HTTP, against a server that refuses what the APIs refuse."""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.behaviour.models import APIS, ASK, CALLS, GUARD, answer, events, kinds, opened, results
from tests.servers.model_api import ModelApi

from dragoman.agent.messages import Answered, CallDelta, Message, TextDelta, ThoughtDelta
from dragoman.model import Part

PNG = b"\x89PNG\r\n\x1a\n" + b"".join(
    struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\0")),
        (b"IEND", b""),
    )
)


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_text_streams_in_pieces_and_ends_with_the_whole(api: str) -> None:
    async with ModelApi([{"text": "Grüße, world; 你好"}]) as server, opened(api, server) as provider:
        got = await events(provider)
    texts = [event.text for event in got if isinstance(event, TextDelta)]
    last = got[-1]
    assert isinstance(last, Answered)
    assert len(texts) > 1
    assert "".join(texts) == last.message.text == "Grüße, world; 你好"
    assert (last.finish, last.model) == ("stop", "m")
    written = 5 if api == "anthropic" else 0
    usage = last.usage
    assert (usage.input_tokens, usage.output_tokens) == (100 + written, 20)
    assert (usage.cached_tokens, usage.written_tokens) == (60, written)


async def test_missing_usage_counts_as_nothing(api: str) -> None:
    async with ModelApi([{"text": "x", "quirks": ["no usage"]}]) as server, opened(api, server) as provider:
        assert (await answer(provider)).usage.input_tokens == 0


async def test_parallel_calls_come_in_their_order_with_decoded_arguments(api: str) -> None:
    async with ModelApi([{"text": "let me see", "calls": CALLS}]) as server, opened(api, server) as provider:
        got = await events(provider)
    last = got[-1]
    assert isinstance(last, Answered)
    assert kinds(got) == ["TextDelta", "CallDelta", "Answered"]
    assert last.finish == "tool_calls"
    assert [(call.name, call.arguments, call.problem) for call in last.message.calls] == [
        ("add", {"a": 1, "b": "zwei"}, ""),
        ("now", {}, ""),
    ]
    ids = [call.id for call in last.message.calls]
    assert list(dict.fromkeys(event.id for event in got if isinstance(event, CallDelta))) == ids


async def test_results_go_back_in_the_order_of_the_calls_and_in_the_apis_own_form(api: str) -> None:
    async with (
        ModelApi([{"text": "see", "calls": CALLS}, {"text": "ok"}]) as server,
        opened(api, server) as provider,
    ):
        turn = (await answer(provider, ASK)).message
        first, second = results(turn, "3", "noon")
        failed = Message(role="tool", call_id=second.call_id, name="now", text="no clock", is_error=True)
        system = Message(role="system", text="be brief")
        assert (await answer(provider, system, ASK, turn, failed, first)).message.text == "ok"
    body = server.requests[1].body
    one, two = (call.id for call in turn.calls)
    assert server.complaints == []
    if api == "openai":
        assert body["messages"][0] == {"role": "system", "content": "be brief"}
        assert body["messages"][2:] == [
            {
                "role": "assistant",
                "content": "see",
                "tool_calls": [
                    {
                        "id": one,
                        "type": "function",
                        "function": {"name": "add", "arguments": '{"a": 1, "b": "zwei"}'},
                    },
                    {"id": two, "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": one, "content": "3"},
            {"role": "tool", "tool_call_id": two, "content": "Error: no clock"},
        ]
    elif api == "responses":
        assert body["instructions"] == "be brief"
        assert body["store"] is False
        assert [item.get("type", item.get("role")) for item in body["input"]] == [
            *("user", "message", "function_call", "function_call"),
            *("function_call_output", "function_call_output"),
        ]
        assert body["input"][4:] == [
            {"type": "function_call_output", "call_id": one, "output": "3"},
            {"type": "function_call_output", "call_id": two, "output": "Error: no clock"},
        ]
    else:
        mark = {"cache_control": {"type": "ephemeral"}}
        assert body["system"] == [{"type": "text", "text": "be brief", **mark}]
        assert body["messages"][1:] == [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "tool_use", "id": one, "name": "add", "input": {"a": 1, "b": "zwei"}},
                    {"type": "tool_use", "id": two, "name": "now", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": one, "content": "3"},
                    {
                        "type": "tool_result",
                        "tool_use_id": two,
                        "content": "no clock",
                        "is_error": True,
                        **mark,
                    },
                ],
            },
        ]


async def test_what_the_user_says_after_the_results_follows_them(api: str) -> None:
    async with ModelApi([{"calls": CALLS}, {"text": "ok"}]) as server, opened(api, server) as provider:
        turn = (await answer(provider, ASK)).message
        await answer(provider, ASK, turn, *results(turn, "3", "noon"), Message(role="user", text="hurry"))
    last = server.requests[1].body["messages" if api != "responses" else "input"][-1]
    if api == "anthropic":
        assert [block["type"] for block in last["content"]] == ["tool_result", "tool_result", "text"]
    else:
        assert last == {"role": "user", "content": "hurry"}


async def test_images_of_a_result_reach_the_model(api: str) -> None:
    image = Part(kind="image", data=PNG, mime_type="image/png")
    async with ModelApi([{"calls": CALLS}, {"text": "ok"}]) as server, opened(api, server) as provider:
        turn = (await answer(provider, ASK)).message
        first, second = results(turn, "a picture", "noon")
        shown = Message(role="tool", call_id=first.call_id, name="add", text="a picture", parts=[image])
        asked = Message(role="user", text="and this?", parts=[image])
        await answer(provider, ASK, turn, shown, second, asked)
    sent = json.dumps(server.requests[1].body)
    assert sent.count("iVBORw0KGgo") == 2
    assert server.complaints == []
    if api == "openai":
        roles = [message["role"] for message in server.requests[1].body["messages"]]
        assert roles == ["user", "assistant", "tool", "tool", "user", "user"]


async def test_unreadable_arguments_are_a_problem_of_the_call_and_not_of_the_conversation(api: str) -> None:
    calls = [
        {"name": "add", "arguments": '{"a": 1,'},
        {"name": "add", "arguments": "[1]"},
        {"name": "nothing_like_it"},
    ]
    async with ModelApi([{"calls": calls}, {"text": "sorry"}]) as server, opened(api, server) as provider:
        turn = (await answer(provider)).message
        assert [call.arguments for call in turn.calls] == [None, None, {}]
        assert "not valid JSON" in turn.calls[0].problem
        assert "not an array" in turn.calls[1].problem
        assert turn.calls[0].raw == '{"a": 1,'
        assert (await answer(provider, ASK, turn, *results(turn, "?", "?", "?"))).message.text == "sorry"


async def test_a_call_that_was_never_answered_does_not_spoil_the_conversation(api: str) -> None:
    async with ModelApi([{"calls": CALLS}, {"text": "ok"}]) as server, opened(api, server) as provider:
        turn = (await answer(provider, ASK)).message
        orphan = Message(role="tool", call_id="gone", name="old", text="42")
        await answer(provider, orphan, ASK, turn, results(turn, "3", "noon")[1], ASK)
    sent = json.dumps(server.requests[1].body)
    assert "interrupted" in sent
    assert "result of an earlier call of `old`" in sent


async def test_thoughts_are_shown_and_go_back_as_they_came(api: str) -> None:
    script = [{"thought": "hm, two and two", "sealed": "SEAL", "calls": CALLS[:1]}, {"text": "4"}]
    async with ModelApi(script) as server, opened(api, server) as provider:
        got = await events(provider, ASK)
        last = got[-1]
        assert isinstance(last, Answered)
        # Through JSON, as a transcript keeps it.
        native = json.loads(json.dumps(last.message.native))
        turn = Message(role="assistant", text=last.message.text, calls=last.message.calls, native=native)
        await answer(provider, ASK, turn, *results(turn, "4"))
    assert "".join(event.text for event in got if isinstance(event, ThoughtDelta)) == "hm, two and two"
    body = server.requests[1].body
    match api:
        case "openai":
            assert body["messages"][1]["reasoning_content"] == "hm, two and two"
        case "responses":
            summary = [{"type": "summary_text", "text": "hm, two and two"}]
            assert body["input"][1] == {
                "type": "reasoning",
                "id": "rs_1",
                "summary": summary,
                "encrypted_content": "SEAL",
            }
        case _:
            thought = {"type": "thinking", "thinking": "hm, two and two", "signature": "SEAL"}
            assert body["messages"][1]["content"][0] == thought


async def test_thoughts_of_another_model_are_not_sent(api: str) -> None:
    script = [{"thought": "mine", "sealed": "SEAL", "text": "hm", "calls": CALLS[:1]}, {"text": "4"}]
    async with ModelApi(script) as server:
        async with opened(api, server, model="one") as provider:
            turn = (await answer(provider, ASK)).message
        async with opened(api, server, model="two") as provider:
            await answer(provider, ASK, turn, *results(turn, "4"))
    sent = json.dumps(server.requests[1].body)
    assert "mine" not in sent
    assert "SEAL" not in sent
    assert turn.calls[0].id in sent


@pytest.mark.parametrize("api", ["responses", "anthropic"])
async def test_content_of_unknown_kinds_goes_back_as_it_came(api: str) -> None:
    strange = {"type": "crystal_ball_call", "id": "cb_1", "vision": [1, 2]}
    async with (
        ModelApi([{"text": "hm", "unknown": [strange]}, {"text": "ok"}]) as server,
        opened(api, server) as provider,
    ):
        turn = (await answer(provider, ASK)).message
        assert (turn.text, turn.calls) == ("hm", ())
        await answer(provider, ASK, turn, ASK)
    body = server.requests[1].body
    assert strange in (body["input"] if api == "responses" else body["messages"][1]["content"])


async def test_tools_are_sent_byte_for_byte_in_every_request(api: str) -> None:
    schema = {
        "type": "object",
        "properties": {"z": {"type": "integer"}, "a": {"type": "string"}},
        "x-ü": 1.50,
    }
    tool: dict[str, Any] = {"name": "add", "description": "adds"}
    match api:
        case "openai":
            tool = {"type": "function", "function": {**tool, "parameters": schema}}
        case "responses":
            tool = {"type": "function", **tool, "parameters": schema, "strict": False}
        case _:
            tool = {**tool, "input_schema": schema}
    tools = [tool, json.loads(json.dumps(tool).replace('"add"', '"sub"'))]
    async with ModelApi([{"calls": CALLS[:1]}, {"text": "ok"}]) as server, opened(api, server) as provider:
        turn = (await answer(provider, ASK, tools=tools)).message
        await answer(provider, ASK, turn, *results(turn, "4"), tools=tools)
    expected = json.dumps(tools, ensure_ascii=False, separators=(",", ":")).encode()
    assert [expected in request.raw for request in server.requests] == [True, True]


async def test_options_of_a_request_have_each_apis_names(api: str) -> None:
    tool = {"name": "t", "input_schema": {"type": "object"}}
    if api != "anthropic":
        function = {"name": "t", "parameters": {"type": "object"}}
        tool = {"type": "function", **(function if api == "responses" else {"function": function})}
    async with ModelApi([{"text": "x"}]) as server, opened(api, server, extra={"user": "u1"}) as provider:
        await answer(
            provider, tools=[tool], tool_choice="required", max_tokens=77, temperature=0.5, stop=["END"]
        )
    body = server.requests[0].body
    names = {"openai": "max_tokens", "responses": "max_output_tokens", "anthropic": "max_tokens"}
    assert body[names[api]] == 77
    assert (body["temperature"], body["user"]) == (0.5, "u1")
    assert body["tool_choice"] == ({"type": "any"} if api == "anthropic" else "required")
    stops = {"openai": body.get("stop"), "anthropic": body.get("stop_sequences"), "responses": ["END"]}
    assert stops[api] == ["END"]


@pytest.mark.parametrize(
    ("turn", "finish"),
    [
        ({"text": "and then", "finish": "length"}, "length"),
        ({"text": "hm", "finish": "refused"}, "refused"),
        ({"refusal": "I will not"}, "refused"),
        ({"calls": [{"name": "a", "arguments": '{"x": "unfin'}], "finish": "length"}, "length"),
    ],
)
async def test_the_reason_for_the_end_is_told(api: str, turn: dict[str, Any], finish: str) -> None:
    async with ModelApi([turn]) as server, opened(api, server) as provider:
        last = await answer(provider)
    assert last.finish == finish
    assert last.message.text or last.message.calls[0].problem


async def test_a_paused_turn_of_anthropic_is_sent_again_as_it_is() -> None:
    script = [{"text": "searching", "finish": "paused"}, {"text": "found"}]
    async with ModelApi(script) as server, opened("anthropic", server) as provider:
        paused = await answer(provider)
        assert paused.finish == "paused"
        assert (await answer(provider, ASK, paused.message)).message.text == "found"
    assert server.requests[1].body["messages"][-1]["role"] == "assistant"


# ── servers that only imitate the API


@pytest.mark.parametrize(
    "quirks",
    [
        ["no ids"],
        ["no index"],
        ["no ids", "no index", "whole calls"],
        ["index 0", "whole calls"],
        ["no ids", "index 0", "whole calls"],
        ["objects"],
        ["no ids", "no index", "objects", "stop with calls", "no usage"],
        ["stop with calls"],
        ["empty choices", "no usage"],
        ["whole calls", "empty choices"],
    ],
    ids=" + ".join,
)
async def test_calls_of_imitating_servers_are_understood(quirks: list[str]) -> None:
    calls = [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2}}, {"name": "now"}]
    script = [{"calls": calls, "quirks": quirks}, {"calls": calls, "quirks": quirks}, {"text": "ok"}]
    async with ModelApi(script) as server, opened("openai", server) as provider:
        conversation = [ASK]
        for _ in range(2):
            last = await answer(provider, *conversation)
            assert last.finish == "tool_calls"
            assert [(call.name, call.arguments) for call in last.message.calls] == [
                ("add", {"a": 1}),
                ("add", {"a": 2}),
                ("now", {}),
            ]
            conversation += [last.message, *results(last.message, "1", "2", "3")]
        assert (await answer(provider, *conversation)).message.text == "ok"
    ids = [call.id for message in conversation for call in message.calls]
    assert all(ids)
    assert len(set(ids)) == (6 if "no ids" in quirks else 3)


@pytest.mark.parametrize("name", ["reasoning", "thinking"])
async def test_thoughts_under_other_names_are_shown(name: str) -> None:
    async with (
        ModelApi([{"thought": "hm", "text": "x", "quirks": [name]}]) as server,
        opened("openai", server) as provider,
    ):
        got = await events(provider)
    assert kinds(got) == ["ThoughtDelta", "TextDelta", "Answered"]


async def test_what_a_call_carries_besides_goes_back_with_it() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "SEAL"}}}
    script = [{"calls": [{"name": "add", "extra": extra}]}, {"text": "ok"}]
    async with ModelApi(script) as server, opened("openai", server) as provider:
        turn = (await answer(provider)).message
        await answer(provider, ASK, turn, *results(turn, "1"))
    assert server.requests[1].body["messages"][1]["tool_calls"][0]["extra_content"] == extra["extra_content"]


async def test_responses_without_output_in_the_last_event_are_put_together() -> None:
    script = [{"text": "hm", "calls": CALLS, "quirks": ["empty output"]}]
    async with ModelApi(script) as server, opened("responses", server) as provider:
        last = await answer(provider)
    assert (last.finish, last.message.text, len(last.message.calls)) == ("tool_calls", "hm", 2)


async def test_anthropic_arguments_that_come_whole_are_read() -> None:
    async with (
        ModelApi([{"calls": CALLS, "quirks": ["objects"]}]) as server,
        opened("anthropic", server) as provider,
    ):
        assert (await answer(provider)).message.calls[0].arguments == {"a": 1, "b": "zwei"}


# ── the scripted server itself


async def test_the_scripted_server_runs_as_a_process(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "from afar"}]), "utf-8")
    program = Path(__file__).parents[1] / "servers" / "model_api.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), str(script), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        with anyio.fail_after(GUARD):
            url = (await process.stdout.readline()).decode().strip()
        async with opened("openai", f"{url}/v1") as provider:
            assert (await answer(provider)).message.text == "from afar"
    finally:
        process.terminate()
        await process.communicate()
