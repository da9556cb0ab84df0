"""Anthropic's Messages API.

Thinking blocks, and other blocks that `Message` cannot hold, stay in `Message.native` and are sent back
unchanged: the API rejects a thinking block without its signature, and a turn without its thinking blocks.

Cache breakpoints are set on the system prompt and on the last two user messages, never on the tools: tools
come first in the prompt, so a later breakpoint covers them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.agent.messages import Answered, CallDelta, Message, TextDelta, ThoughtDelta, Usage
from dragoman.agent.providers.parsing import (
    as_object,
    number_in,
    object_in,
    objects_in,
    read_call,
    sendable,
    sound,
    text_in,
    to_turns,
)
from dragoman.agent.providers.request import EndpointProvider, StreamBrokenError, require_sdk
from dragoman.tools.export.apis.anthropic import anthropic_content
from dragoman.trust.addresses import split_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.agent.messages import Finish, ModelEvent, ModelRequest, ToolCall
    from dragoman.agent.providers.options import ProviderOptions
    from dragoman.agent.providers.parsing import Ids, Turn

BASE_URL = "https://api.anthropic.com"
DEFAULT_MAX_TOKENS = 16_384
"""The API requires a limit in every request."""
INLINE_TOOLS = "inline-tools-2026-09-15"
"""The beta that takes definitions of tools inside the conversation."""
_HOST = "api.anthropic.com"
_OLD = re.compile(r"claude-(?:[23]|instant|(?:opus|sonnet)-4-(?:[01]|2025)|haiku-4)")
_PATH = "/v1/messages"
_MARK = {"type": "ephemeral"}
_BEGINS = {"input_json_delta": "tool_use", "thinking_delta": "thinking", "signature_delta": "thinking"}
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
    "pause_turn": "paused",
}


async def open_model(options: ProviderOptions) -> AnthropicProvider:
    """Open a model of Anthropic, or of the server at `ANTHROPIC_BASE_URL`."""
    model = options.require_model()
    require_sdk("anthropic")
    endpoint = await options.endpoint(
        BASE_URL, variable="ANTHROPIC_API_KEY", base_variable="ANTHROPIC_BASE_URL", sdk="anthropic"
    )
    think, thinking = options.think, dict[str, Any]()
    if think is not None:
        thinking["thinking"] = {"type": "adaptive" if think else "disabled"}
    if isinstance(think, str):
        thinking["output_config"] = {"effort": think}
    return AnthropicProvider(model, endpoint=endpoint, extra={**thinking, **options.extra})


class AnthropicProvider(EndpointProvider):
    """A model of the Messages API."""

    api: Literal["anthropic"] = "anthropic"

    @property
    def loads_tools(self) -> Literal["", "definitions", "references"]:
        """Whether the model loads tools that a search found: Anthropic's own, except older models."""
        known = self._endpoint.loads_tools
        if known is None:
            parts = split_url(self._endpoint.base_url)
            known = parts is not None and parts.host == _HOST and not _OLD.match(self.model)
        if not known:
            return ""
        return "definitions" if INLINE_TOOLS in self._endpoint.betas else "references"

    def _question(self, request: ModelRequest) -> tuple[str, dict[str, Any]]:
        return _PATH, to_body(request, model=self.model)

    def _reader(self, ids: Ids) -> AnthropicReader:
        return AnthropicReader(model=self.model, ids=ids)


def to_body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """Convert a request into the body for the API."""
    system, turns = to_turns(request.messages)
    messages = _messages(turns, model=model)
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS,
        "messages": messages,
        "stream": True,
    }
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": _MARK}]
    # The last breakpoint is for the next request. The one before it is where this request finds the cache of
    # the previous one, even if more blocks lie between them than the API looks back.
    users = [message for message in messages if message["role"] == "user"]
    for message in users[-2:]:
        message["content"][-1]["cache_control"] = _MARK
    if request.tools:
        body["tools"] = list(request.tools)
        if request.tool_choice is not None:
            body["tool_choice"] = {"type": _CHOICES[request.tool_choice]}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    return body


def _messages(turns: list[Turn], *, model: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []

    def add(role: str, blocks: list[dict[str, Any]]) -> None:
        if not blocks:
            return  # The API rejects empty messages.
        if messages and messages[-1]["role"] == role:
            # Tool results and the next user text form one message, the results first.
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})

    for turn in turns:
        message = turn.message
        if message.role != "assistant":
            add("user", _blocks(message))
            continue
        native = _native(message, model=model)
        add("assistant", _assistant(message) if native is None else native)
        add("user", [_result(answer) for answer in turn.answers])
        if added := [tool for answer in turn.answers for tool in _loaded(answer, "tools")]:
            definitions = [{"type": "tool_definition", "definition": tool} for tool in added]
            add("system", [{"type": "tool_addition", "tool": tool} for tool in definitions])
    return messages


def _loaded(answer: Message, key: str) -> list[Any]:
    loaded = object_in(answer.native, "anthropic").get(key)
    return list(cast("list[Any]", loaded)) if isinstance(loaded, list) else []


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = anthropic_content(sendable(message.text), message.parts)
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [block for block in content if block.get("type") != "text" or str(block.get("text", "")).strip()]


def _assistant(message: Message) -> list[dict[str, Any]]:
    text = sendable(message.text).rstrip()  # The API rejects trailing white space in the last message.
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    return [*blocks, *(_use(call) for call in message.calls)]


def _use(call: ToolCall) -> dict[str, Any]:
    # The API accepts only an object; the tool result tells the model about its mistake.
    arguments: dict[str, Any] = dict(as_object(call.arguments))
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _result(answer: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": answer.call_id}
    blocks = _blocks(answer)
    blocks += [{"type": "tool_reference", "tool_name": name} for name in _loaded(answer, "references")]
    if len(blocks) == 1 and blocks[0].get("type") == "text" and not answer.parts:
        result["content"] = blocks[0]["text"]
    elif blocks:
        result["content"] = blocks
    if answer.is_error:
        result["is_error"] = True
        result.setdefault("content", "Error")  # The API rejects an empty error.
    return result


def _native(message: Message, *, model: str) -> list[dict[str, Any]] | None:
    """Return the original blocks, if they are from this model and match the message."""
    native = object_in(message.native, "anthropic")
    if native.get("model") != model:
        return None
    blocks = objects_in(native, "content")
    calls = [text_in(block, "id") for block in blocks if block.get("type") == "tool_use"]
    if calls != [call.id for call in message.calls]:
        return None
    return [dict(block) for block in blocks if block.get("type") != "text" or text_in(block, "text").strip()]


class AnthropicReader:
    """Builds an answer from its events."""

    def __init__(self, *, model: str, ids: Ids) -> None:
        self._asked = model
        self._ids = ids
        self._blocks: dict[int, dict[str, Any]] = {}
        self._grown: dict[int, dict[str, list[str]]] = {}
        """Pieces of text by block and field; joined once, since repeated concatenation is quadratic."""
        self._finish = ""
        self._usage: dict[str, Any] = {}
        self._model = ""

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Process one event."""
        match text_in(event, "type"):
            case "message_start":
                message = object_in(event, "message")
                self._model = text_in(message, "model")
                self._usage.update(object_in(message, "usage"))
            case "content_block_start":
                yield from self._begin(number_in(event, "index"), dict(object_in(event, "content_block")))
            case "content_block_delta":
                yield from self._grow(number_in(event, "index"), object_in(event, "delta"))
            case "message_delta":
                self._finish = text_in(object_in(event, "delta"), "stop_reason") or self._finish
                # These counts are totals; omitted ones keep their value.
                self._usage.update(
                    {key: value for key, value in object_in(event, "usage").items() if value is not None}
                )
            case _:
                pass  # `ping`, and event types that the API may add later.

    def finish(self) -> Answered:
        """Return the complete answer."""
        if not self._finish:
            msg = "`anthropic`: the stream ended without a finish reason"
            raise StreamBrokenError(msg, provider="anthropic")
        message = self.partial()
        finish: Finish = _FINISHES.get(self._finish, "other")
        if message.calls and finish == "stop":
            finish = "tool_calls"
        return Answered(
            message=message, finish=finish, usage=self._counted(), model=self._model or self._asked
        )

    def partial(self) -> Message:
        """Return the answer so far."""
        blocks: list[dict[str, Any]] = []
        calls: list[ToolCall] = []
        for index, block in sorted(self._blocks.items()):
            block = block | {
                name: sendable(text_in(block, name) + "".join(pieces))
                for name, pieces in self._grown.get(index, {}).items()
                if name != "input"
            }
            written = self._written(index)
            if block.get("type") == "tool_use":
                call = read_call(text_in(block, "id"), text_in(block, "name"), written)
                calls.append(call)
                block["input"] = _use(call)["input"]
            elif "input" in block:
                # A tool that the API runs itself: we do not call it, but send its block back.
                block["input"] = read_call("", "", written).arguments or {}
            blocks.append(block)
        text = "".join(text_in(block, "text") for block in blocks if block.get("type") == "text")
        return Message(
            role="assistant",
            text=sendable(text),
            calls=tuple(calls),
            native=sound({"anthropic": {"model": self._asked, "content": blocks}}) if blocks else {},
        )

    def _begin(self, index: int, block: dict[str, Any]) -> Iterable[ModelEvent]:
        self._blocks[index] = block
        if "citations" in block:
            known: object = block["citations"]
            block["citations"] = list(cast("list[Any]", known)) if isinstance(known, list) else []
        match block.get("type"):
            case "tool_use":
                block["id"] = self._ids.settle(text_in(block, "id"))
                yield CallDelta(id=block["id"], name=text_in(block, "name"), raw="")
            case "text" if text_in(block, "text"):
                yield TextDelta(text=text_in(block, "text"))
            case "thinking" if text_in(block, "thinking"):
                yield ThoughtDelta(text=text_in(block, "thinking"))
            case _:
                pass

    def _grow(self, index: int, delta: Mapping[str, Any]) -> Iterable[ModelEvent]:
        kind = text_in(delta, "type")
        # Compatible servers may omit the start of a block.
        block = self._blocks.setdefault(index, {"type": _BEGINS.get(kind, "text")})
        match kind:
            case "text_delta":
                yield TextDelta(text=self._add(index, "text", text_in(delta, "text")))
            case "thinking_delta":
                yield ThoughtDelta(text=self._add(index, "thinking", text_in(delta, "thinking")))
            case "signature_delta":
                self._add(index, "signature", text_in(delta, "signature"))
            case "citations_delta":
                block.setdefault("citations", []).append(delta.get("citation"))
            case "input_json_delta":
                raw = self._add(index, "input", text_in(delta, "partial_json"))
                if block.get("type") == "tool_use":
                    block["id"] = text_in(block, "id") or self._ids.settle("")
                    yield CallDelta(id=text_in(block, "id"), name=text_in(block, "name"), raw=raw)
            case _:
                pass  # Delta types that the API may add later.

    def _add(self, index: int, name: str, piece: str) -> str:
        self._grown.setdefault(index, {}).setdefault(name, []).append(piece)
        return piece

    def _written(self, index: int) -> object:
        """Return a call's arguments as text, or as the object that some servers start the block with."""
        raw = "".join(self._grown.get(index, {}).get("input", ()))
        return raw or self._blocks[index].get("input") or ""

    def _counted(self) -> Usage:
        usage = self._usage
        cached = number_in(usage, "cache_read_input_tokens")
        written = number_in(usage, "cache_creation_input_tokens")
        # The API counts the three kinds separately; `Usage.input_tokens` is the sum.
        return Usage(
            input_tokens=number_in(usage, "input_tokens") + cached + written,
            output_tokens=number_in(usage, "output_tokens"),
            cached_tokens=cached,
            written_tokens=written,
        )
