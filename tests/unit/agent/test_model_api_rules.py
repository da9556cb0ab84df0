"""The scripted model server refuses what the real APIs refuse; else the other tests would prove little."""

from __future__ import annotations

from typing import Any

import pytest
from tests.servers.model_api_rules import check_anthropic, check_chat, check_responses

CALL = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "x"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "a", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "x"}
FUNCTION = {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "x"}


def body(key: str, *items: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "max_tokens": 9, key: list(items), **fields}


@pytest.mark.parametrize("messages", [(USER,), (USER, ASKS, TOOL), (USER, ASKS, TOOL, USER)])
def test_legal_chat(messages: tuple[Any, ...]) -> None:
    assert check_chat(body("messages", *messages)) == ""


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ((), "at least one"),
        ((USER, ASKS), "did not have response"),
        ((USER, ASKS, USER, TOOL), "must be followed by tool messages"),
        ((USER, TOOL), "must be a response to a preceding"),
        ((USER, ASKS, TOOL, TOOL), "must be a response to a preceding"),
        ((USER, ASKS, {**TOOL, "content": [{"type": "image_url"}]}), "text only"),
        ((USER, {"role": "assistant", "content": ""}), "needs content"),
        ((USER, {**ASKS, "tool_calls": [CALL, CALL]}, TOOL, TOOL), "duplicate"),
        (
            (USER, {**ASKS, "tool_calls": [{**CALL, "function": {"name": "a", "arguments": {}}}]}, TOOL),
            "string",
        ),
        (({"role": "wizard", "content": "x"},), "role"),
    ],
)
def test_illegal_chat(messages: tuple[Any, ...], complaint: str) -> None:
    assert complaint in check_chat(body("messages", *messages))


@pytest.mark.parametrize("fields", [{"tools": []}, {"tool_choice": "auto"}, {"stream": False}, {"model": ""}])
def test_illegal_heads(fields: dict[str, Any]) -> None:
    for check, key in ((check_chat, "messages"), (check_responses, "input"), (check_anthropic, "messages")):
        assert check(body(key, USER, **fields))


def test_legal_responses() -> None:
    assert check_responses(body("input", USER, FUNCTION, OUTPUT, USER)) == ""


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ((USER, FUNCTION), "No tool output found"),
        ((USER, OUTPUT), "No tool call found"),
        ((USER, OUTPUT, FUNCTION), "No tool call found"),
        ((USER, {**FUNCTION, "arguments": {}}, OUTPUT), "as a string"),
        ((USER, {**FUNCTION, "arguments": "{bad"}, OUTPUT), "expected an object"),
        ((USER, FUNCTION, {**OUTPUT, "output": [{"type": "text"}]}), "output"),
        ((USER, {"type": "reasoning", "id": "rs_1", "summary": []}), "not found"),
        (({"role": "wizard", "content": "x"},), "role"),
    ],
)
def test_illegal_responses(items: tuple[Any, ...], complaint: str) -> None:
    assert complaint in check_responses(body("input", *items, store=False))


def test_legal_anthropic() -> None:
    after = {"role": "user", "content": [RESULT, {"type": "text", "text": "go on"}]}
    assert check_anthropic(body("messages", USER, USE, after)) == ""


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ((USER, USE), "without `tool_result`"),
        ((USER, USE, USER), "without `tool_result`"),
        (
            (USER, USE, {"role": "user", "content": [{"type": "text", "text": "x"}, RESULT]}),
            "without `tool_result`",
        ),
        ((USER, {"role": "user", "content": [RESULT]}), "unexpected `tool_use_id`"),
        ((USE,), "first message"),
        ((USER, {"role": "assistant", "content": []}), "non-empty"),
        ((USER, {"role": "assistant", "content": " "}), "non-empty"),
        ((USER, {"role": "system", "content": "x"}), "role"),
        ((USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}), "signature"),
        (
            (USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "input": "x"}]}),
            "dictionary",
        ),
        ((USER, USE, {"role": "user", "content": [{**RESULT, "content": "", "is_error": True}]}), "is_error"),
        (
            tuple(
                {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}
                for _ in range(5)
            ),
            "maximum of 4",
        ),
    ],
)
def test_illegal_anthropic(messages: tuple[Any, ...], complaint: str) -> None:
    assert complaint in check_anthropic(body("messages", *messages))


def test_anthropic_wants_a_limit() -> None:
    assert "max_tokens" in check_anthropic(body("messages", USER, max_tokens=None))
