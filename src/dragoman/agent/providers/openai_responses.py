"""OpenAI's Responses API, stateless: nothing is stored there, each request has the whole conversation.

Reasoning comes back as encrypted items, which are sent back unchanged; without them a reasoning model starts
over after each tool call.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from dragoman.agent.messages import Answered, CallDelta, Message, TextDelta, ThoughtDelta, Usage
from dragoman.agent.providers.openai_chat import BASE, BASE_URL, KEY, is_genuine
from dragoman.agent.providers.parsing import (
    error_text,
    number_in,
    object_in,
    objects_in,
    read_call,
    sendable,
    sent_arguments,
    sound,
    text_in,
    to_turns,
)
from dragoman.agent.providers.request import (
    EndpointProvider,
    ProviderError,
    StreamBrokenError,
    is_transient,
    require_sdk,
    words_of,
)
from dragoman.tools.export.apis.responses import responses_output
from dragoman.tools.search.finders import SEARCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.agent.messages import Finish, ModelEvent, ModelRequest, ToolCall
    from dragoman.agent.providers.options import ProviderOptions
    from dragoman.agent.providers.parsing import Ids, Turn

_PATH = "/responses"
_THINKING = re.compile(r"(?:.*/)?(?:o\d|gpt-(?:[5-9]|\d\d)|codex)")
"""Models with encrypted reasoning; the others reject a request for it."""
_LOADING = re.compile(r"gpt-(?:5\.(?:[4-9]|\d\d)|[6-9]|\d\d)")
"""Models that search for tools."""
_SEARCH = "tool_search_call"
_THOUGHTS = {
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
}
_REASONS: dict[str, Finish] = {"max_output_tokens": "length", "content_filter": "refused"}
_ENDS = {"response.completed", "response.incomplete", "response.done"}


async def open_model(options: ProviderOptions) -> ResponsesProvider:
    """Open a model of OpenAI, or of the server at `OPENAI_BASE_URL`."""
    model = options.require_model()
    require_sdk("openai")
    endpoint = await options.endpoint(BASE_URL, variable=KEY, base_variable=BASE)
    thinking = {} if options.think is None else {"reasoning": {"effort": options.effort()}}
    return ResponsesProvider(model, endpoint=endpoint, extra={**thinking, **options.extra})


class ResponsesProvider(EndpointProvider):
    """A model of the Responses API."""

    api: Literal["responses"] = "responses"

    @property
    def loads_tools(self) -> Literal["", "definitions"]:
        """Whether the model searches for tools with `tool_search`: OpenAI's own from gpt-5.4 on."""
        known = self._endpoint.loads_tools
        if known is None:
            known = is_genuine(self._endpoint.base_url) and _LOADING.match(self.model) is not None
        return "definitions" if known else ""

    def _question(self, request: ModelRequest) -> tuple[str, dict[str, Any]]:
        return _PATH, to_body(request, model=self.model)

    def _reader(self, ids: Ids) -> ResponsesReader:
        return ResponsesReader(model=self.model, ids=ids)


def to_body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """Convert a request into the body for the API, which has no `stop`."""
    system, turns = to_turns(request.messages)
    items: list[dict[str, Any]] = []
    for turn in turns:
        items += _items(turn, model=model)
    body: dict[str, Any] = {"model": model, "input": items, "stream": True, "store": False}
    if system:
        body["instructions"] = system
    if _THINKING.match(model):
        body["include"] = ["reasoning.encrypted_content"]
    if request.tools:
        body["tools"] = list(request.tools)
        if request.tool_choice is not None:
            body["tool_choice"] = request.tool_choice
    if request.max_tokens is not None:
        body["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def _items(turn: Turn, *, model: str) -> list[dict[str, Any]]:
    message = turn.message
    if message.role != "assistant":
        role = "developer" if message.role == "system" else "user"
        added = objects_in(object_in(message.native, "responses"), "additional_tools")
        items = [{"type": "additional_tools", "role": "developer", "tools": list(added)}] if added else []
        return [*items, {"role": role, "content": responses_output(sendable(message.text), message.parts)}]
    said = _native(message, model=model)
    if said is None:
        said = [{"role": "assistant", "content": sendable(message.text)}] if message.text else []
        said += [
            {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": sent_arguments(call),
            }
            for call in message.calls
        ]
    searches = {text_in(item, "call_id") for item in said if item.get("type") == _SEARCH}
    results = [_found(answer) if answer.call_id in searches else _output(answer) for answer in turn.answers]
    notes = [_note(answer) for answer in turn.answers if answer.call_id in searches]
    return [*said, *results, *({"role": "developer", "content": note} for note in notes if note)]


def _output(answer: Message) -> dict[str, Any]:
    return {
        "type": "function_call_output",
        "call_id": answer.call_id,
        "output": responses_output(error_text(answer), answer.parts),
    }


def _found(answer: Message) -> dict[str, Any]:
    return {
        "type": "tool_search_output",
        "call_id": answer.call_id,
        "execution": "client",
        "status": "completed",
        "tools": list(objects_in(object_in(answer.native, "responses"), "tools")),
    }


def _note(answer: Message) -> str:
    """Return what the output of a search has no field for."""
    loaded = object_in(answer.native, "responses")
    return sendable(text_in(loaded, "note") if objects_in(loaded, "tools") else error_text(answer))


def _native(message: Message, *, model: str) -> list[dict[str, Any]] | None:
    """Return the original items, if they are from this model and match the message."""
    native = object_in(message.native, "responses")
    if native.get("model") != model:
        return None
    items = objects_in(native, "output")
    calls = [text_in(item, "call_id") for item in items if _is_call(item)]
    if calls != [call.id for call in message.calls]:
        return None
    written = {call.id: sent_arguments(call) for call in message.calls}
    return [
        {**item, "arguments": written[item["call_id"]]} if item.get("type") == "function_call" else dict(item)
        for item in items
        # Unencrypted reasoning would be looked up by id, but nothing is stored at the API.
        if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]


def _is_call(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call" or (
        item.get("type") == _SEARCH and item.get("execution") == "client"
    )


class ResponsesReader:
    """Builds an answer from its events."""

    def __init__(self, *, model: str, ids: Ids) -> None:
        self._asked = model
        self._ids = ids
        self._items: dict[int, Mapping[str, Any]] = {}
        self._text: dict[int, list[str]] = {}
        self._raw: dict[int, list[str]] = {}
        self._settled: dict[int, str] = {}
        self._response: Mapping[str, Any] = {}

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Process one event."""
        kind = text_in(event, "type")
        index = number_in(event, "output_index")
        if kind in {"response.output_text.delta", "response.refusal.delta"}:
            text = text_in(event, "delta")
            self._text.setdefault(index, []).append(text)
            yield TextDelta(text=text)
        elif kind in _THOUGHTS:
            yield ThoughtDelta(text=text_in(event, "delta"))
        elif kind == "response.output_item.added":
            item = object_in(event, "item")
            self._items[index] = item
            if _is_call(item):
                yield CallDelta(id=self._id(index), name=text_in(item, "name") or SEARCH, raw="")
        elif kind == "response.function_call_arguments.delta":
            raw = text_in(event, "delta")
            self._raw.setdefault(index, []).append(raw)
            name = text_in(self._items.get(index, {}), "name")
            yield CallDelta(id=self._id(index), name=name, raw=raw)
        elif kind == "response.output_item.done":
            self._items[index] = object_in(event, "item")
            self._raw.pop(index, None)
            self._text.pop(index, None)
        elif kind in _ENDS:
            self._response = object_in(event, "response")
        elif kind == "response.failed":
            raise _failed(object_in(event, "response"))
        elif kind == "error":
            raise _failed(event)

    def finish(self) -> Answered:
        """Return the complete answer."""
        response = self._response
        if not response:
            msg = "`responses`: the stream ended without a finish reason"
            raise StreamBrokenError(msg, provider="responses")
        message = self.partial()
        return Answered(
            message=message,
            finish=self._finish(message),
            usage=_usage(object_in(response, "usage")),
            model=text_in(response, "model") or self._asked,
        )

    def partial(self) -> Message:
        """Return the answer so far."""
        output = objects_in(self._response, "output")
        # Some compatible servers send an empty output in the last event.
        items = dict(enumerate(output)) if output else dict(sorted(self._items.items()))
        native: list[Mapping[str, Any]] = []
        texts: list[str] = []
        calls: list[ToolCall] = []
        for index, item in items.items():
            if _is_call(item):
                id_ = self._id(index, item)
                written = item.get("arguments") or "".join(self._raw.get(index, ()))
                calls.append(read_call(id_, text_in(item, "name") or SEARCH, written))
                native.append({**item, "call_id": id_})
                continue
            if item.get("type") == "message":
                said = [
                    text_in(piece, "text") or text_in(piece, "refusal")
                    for piece in objects_in(item, "content")
                ]
                texts.append("".join(said) or "".join(self._text.get(index, ())))
            native.append(item)
        return Message(
            role="assistant",
            text=sendable("".join(texts)),
            calls=tuple(calls),
            native=sound({"responses": {"model": self._asked, "output": native}}) if native else {},
        )

    def _finish(self, message: Message) -> Finish:
        response = self._response
        if response.get("status") == "incomplete":
            reason = text_in(object_in(response, "incomplete_details"), "reason")
            return _REASONS.get(reason, "other")
        if message.calls:
            return "tool_calls"
        pieces = [
            piece
            for item in objects_in(object_in(message.native, "responses"), "output")
            for piece in objects_in(item, "content")
        ]
        if any(piece.get("type") == "refusal" for piece in pieces):
            return "refused"
        return "stop" if response.get("status") in {"completed", None} else "other"

    def _id(self, index: int, item: Mapping[str, Any] | None = None) -> str:
        """Return the id of the call at an index; the same for all its events."""
        if index not in self._settled:
            given = text_in(item if item is not None else self._items.get(index, {}), "call_id")
            self._settled[index] = self._ids.settle(given)
        return self._settled[index]


def _failed(fields: Mapping[str, Any]) -> ProviderError:
    said, kind = words_of(fields)
    return ProviderError(
        f"`responses` failed during its answer: {said or kind or 'no reason given'}",
        provider="responses",
        kind=kind,
        transient=is_transient(None, kind=kind),
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=number_in(usage, "input_tokens"),
        output_tokens=number_in(usage, "output_tokens"),
        cached_tokens=number_in(object_in(usage, "input_tokens_details"), "cached_tokens"),
    )
