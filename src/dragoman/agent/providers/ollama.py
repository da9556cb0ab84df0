"""Ollama's own API. Its `/v1` endpoint ignores `num_ctx`, and cuts what does not fit from the front.

The window that is asked for grows with the conversation, in steps, since Ollama loads the model again for
another size.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from dragoman.agent.messages import Answered, CallDelta, Message, TextDelta, ThoughtDelta, Usage
from dragoman.agent.providers.parsing import (
    error_text,
    number_in,
    object_in,
    objects_in,
    read_call,
    sendable,
    sound,
    text_in,
    to_turns,
)
from dragoman.agent.providers.request import (
    EndpointProvider,
    ProviderError,
    StreamBrokenError,
    is_transient,
    words_of,
)
from dragoman.agent.providers.window import ModelWindow, calls_tools, size_in
from dragoman.tools.result.budget import tokens_at_most
from dragoman.tools.result.media import COMMON_IMAGES, MediaLimits, joined, sort_media

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.agent.messages import Finish, ModelEvent, ModelRequest, ToolCall
    from dragoman.agent.providers.http_endpoint import HttpEndpoint
    from dragoman.agent.providers.parsing import Ids, Turn

API = "ollama"
ROOM = 8_192
"""Tokens for the answer, and the step by which the window grows."""
MEDIA = MediaLimits(name="Ollama", images=COMMON_IMAGES, max_image_bytes=20 * 2**20)
_PATH = "/api/chat"
_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length"}


class OllamaProvider(EndpointProvider):
    """A model of an Ollama server."""

    api: Literal["openai"] = "openai"
    """Its tools have the format of OpenAI's."""

    def __init__(
        self,
        model: str,
        *,
        endpoint: HttpEndpoint,
        num_ctx: int | None = None,
        think: bool | str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Configure the provider; nothing is sent.

        Args:
            model: The model's name.
            endpoint: The server.
            num_ctx: The window to load the model with; as much as a request needs unless given.
            think: Whether the model thinks first, or how much: `low`, `medium` or `high`.
            extra: Extra fields for the body of every request.
        """
        super().__init__(model, endpoint=endpoint, extra=extra)
        self._server = endpoint
        self._fixed = num_ctx or size_in(object_in(self._extra, "options"), "num_ctx") or None
        self._think = think
        self._most: int | None = None
        self._now = 0

    async def window(self) -> ModelWindow | None:
        """Return how much the model can read."""
        about = await self._server.ask("/api/show", {"model": self.model})
        sizes = [
            size
            for name in object_in(about, "model_info")
            if name.endswith(".context_length") and (size := size_in(object_in(about, "model_info"), name))
        ]
        tools = calls_tools(about)
        self._most = min(sizes, default=None)
        if self._fixed is not None:
            tokens = min(self._fixed, self._most or self._fixed)
            return ModelWindow(tokens=tokens, source="`num_ctx`", tools=tools)
        if self._most is None:
            return None
        return ModelWindow(tokens=self._most, source="`context_length` of the model", tools=tools)

    def _question(self, request: ModelRequest) -> tuple[str, dict[str, Any]]:
        system, turns = to_turns(request.messages)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        latest = max((at for at, turn in enumerate(turns) if turn.message.role == "user"), default=-1)
        for at, turn in enumerate(turns):
            messages += _messages(turn, model=self.model, current=at > latest)
        body: dict[str, Any] = {"model": self.model, "messages": messages, "stream": True}
        if request.tools and request.tool_choice != "none":
            body["tools"] = list(request.tools)
        if self._think is not None:
            body["think"] = self._think
        wanted = {
            "num_ctx": self._size(messages, body.get("tools", ()), request.max_tokens),
            "num_predict": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop) or None,
        }
        options = {name: value for name, value in wanted.items() if value is not None}
        body["options"] = options | dict(object_in(self._extra, "options"))
        return _PATH, body

    def _size(self, messages: Sequence[Any], tools: Sequence[Any], answer: int | None) -> int:
        """Return the window for a request: what it takes, and room for the answer."""
        if self._fixed is None:
            # Images are counted by the server; their text is not part of the prompt.
            said = [{name: value for name, value in one.items() if name != "images"} for one in messages]
            images = sum(len(one.get("images", ())) for one in messages)
            text = json.dumps([said, tools], ensure_ascii=False, separators=(",", ":"))
            need = tokens_at_most(text) + 1_500 * images + max(ROOM, answer or 0)
            self._now = max(self._now, -(-need // ROOM) * ROOM)
        size = self._fixed or self._now
        return size if self._most is None else min(size, self._most)

    def _reader(self, ids: Ids) -> OllamaReader:
        return OllamaReader(model=self.model, ids=ids)


def _messages(turn: Turn, *, model: str, current: bool) -> list[dict[str, Any]]:
    message = turn.message
    if message.role != "assistant":
        return [{"role": message.role, **_content(sendable(message.text), message)}]
    if not message.text and not message.calls:
        return []
    said: dict[str, Any] = {"role": "assistant", "content": sendable(message.text)}
    if message.calls:
        said["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": _arguments(call)}}
            for call in message.calls
        ]
        native = object_in(message.native, API)
        if current and native.get("model") == model and text_in(native, "thinking"):
            said["thinking"] = native["thinking"]
    answers = [
        {
            "role": "tool",
            "tool_name": answer.name,
            "tool_call_id": answer.call_id,
            **_content(error_text(answer), answer),
        }
        for answer in turn.answers
    ]
    return [said, *answers]


def _arguments(call: ToolCall) -> Any:
    return {} if call.problem or call.arguments is None else call.arguments


def _content(text: str, message: Message) -> dict[str, Any]:
    media, notes = sort_media(text, message.parts, MEDIA)
    images = [one for one in media if one.kind == "image"]
    files = [f"[{one.label}: Ollama takes no files]" for one in media if one.kind != "image"]
    content: dict[str, Any] = {"content": joined(text, [*notes, *files])}
    return content | ({"images": [one.base64 for one in images]} if images else {})


class OllamaReader:
    """Builds an answer from its lines."""

    def __init__(self, *, model: str, ids: Ids) -> None:
        self._asked = model
        self._ids = ids
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        self._done: Mapping[str, Any] = {}

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Process one line."""
        if "error" in event:
            said, kind = words_of(event)
            msg = f"`{API}` failed during its answer: {said or kind or 'no reason given'}"
            raise ProviderError(msg, provider=API, kind=kind, transient=is_transient(None, kind=kind))
        message = object_in(event, "message")
        if thought := text_in(message, "thinking"):
            self._thoughts.append(thought)
            yield ThoughtDelta(text=thought)
        if text := text_in(message, "content"):
            self._text.append(text)
            yield TextDelta(text=text)
        for given in objects_in(message, "tool_calls"):
            function = object_in(given, "function")
            identifier = self._ids.settle(text_in(given, "id"))
            call = read_call(identifier, text_in(function, "name"), function.get("arguments", {}))
            self._calls.append(call)
            yield CallDelta(id=call.id, name=call.name, raw=call.raw)
        if event.get("done") is True:
            self._done = event

    def finish(self) -> Answered:
        """Return the complete answer."""
        if not self._done:
            msg = f"`{API}`: the stream ended without a finish reason"
            raise StreamBrokenError(msg, provider=API)
        finish: Finish = _FINISHES.get(text_in(self._done, "done_reason") or "stop", "other")
        if self._calls and finish == "stop":
            finish = "tool_calls"
        usage = Usage(
            input_tokens=number_in(self._done, "prompt_eval_count"),
            output_tokens=number_in(self._done, "eval_count"),
        )
        model = text_in(self._done, "model") or self._asked
        return Answered(message=self.partial(), finish=finish, usage=usage, model=model)

    def partial(self) -> Message:
        """Return the answer so far."""
        thinking = "".join(self._thoughts)
        native = sound({API: {"thinking": thinking, "model": self._asked}}) if thinking else {}
        return Message(
            role="assistant", text=sendable("".join(self._text)), calls=tuple(self._calls), native=native
        )
