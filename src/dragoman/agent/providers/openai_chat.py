"""OpenAI's Chat Completions API, and every server that is compatible with it, each by its `ChatRules`.

The reader accepts what these servers really send: calls without ids, without an index or all with index 0,
complete in one chunk, arguments as objects, `stop` as the finish reason of a turn with calls, chunks without
choices, no usage, reasoning under three names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from dragoman.agent.messages import Answered, CallDelta, Message, TextDelta, ThoughtDelta, Usage
from dragoman.agent.providers.parsing import (
    error_text,
    is_object,
    number_in,
    object_in,
    objects_in,
    read_call,
    sendable,
    sent_arguments,
    sound,
    text_in,
    to_turns,
    written_text,
)
from dragoman.agent.providers.request import EndpointProvider, StreamBrokenError, require_sdk
from dragoman.struct import MutableStruct, Struct, field
from dragoman.tools.export.apis.openai import chat_content
from dragoman.trust.addresses import split_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dragoman.agent.messages import Finish, ModelEvent, ModelRequest, ToolCall
    from dragoman.agent.providers.options import ProviderOptions
    from dragoman.agent.providers.parsing import Ids, Turn
    from dragoman.agent.providers.request import ModelEndpoint

BASE_URL = "https://api.openai.com/v1"
KEY, BASE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
"""The variables of the key and of the address."""
_PATH = "/chat/completions"
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""DeepSeek, vLLM and llama.cpp; Ollama and OpenRouter; older servers."""
_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refused",
    "sensitive": "refused",
    "model_context_window_exceeded": "length",
}


class ChatRules(Struct, kw_only=True):
    """What a server takes; the defaults are for a compatible server that is not known."""

    max_tokens: str = "max_tokens"
    """The name of the limit: the two names exclude each other."""
    later_system: bool = False
    """Whether a system message may follow others; the templates of many local models refuse it."""
    counts_tokens: bool = True
    """Whether `stream_options` is taken, with which the last chunk has the usage."""
    parallel_calls: bool = True
    """Whether a turn may have several calls."""
    chooses_tools: bool = True
    """Whether a model can be made to call a tool, or not to."""
    keeps_thoughts: bool = False
    """Whether the thoughts before a call go back for good, and must; else until the user speaks again."""


OPENAI = ChatRules(max_tokens="max_completion_tokens", later_system=True)
COMPATIBLE = ChatRules()


async def open_model(options: ProviderOptions) -> ChatProvider:
    """Open a model of OpenAI, or of the server at `OPENAI_BASE_URL`."""
    model = options.require_model()
    require_sdk("openai")
    endpoint = await options.endpoint(BASE_URL, variable=KEY, base_variable=BASE)
    thinking = {} if options.think is None else {"reasoning_effort": options.effort()}
    return ChatProvider(model, endpoint=endpoint, extra={**thinking, **options.extra})


class ChatProvider(EndpointProvider):
    """A model of the Chat Completions API."""

    api: Literal["openai"] = "openai"

    def __init__(
        self,
        model: str,
        *,
        endpoint: ModelEndpoint,
        extra: Mapping[str, Any] | None = None,
        rules: ChatRules | None = None,
    ) -> None:
        """Configure the provider; nothing is sent.

        Args:
            model: The model's name in the API.
            endpoint: The endpoint of the API.
            extra: Extra fields for the body of every request.
            rules: What the server takes; by its address unless given.
        """
        super().__init__(model, endpoint=endpoint, extra=extra)
        self._rules = rules or (OPENAI if is_genuine(endpoint.base_url) else COMPATIBLE)

    def _question(self, request: ModelRequest) -> tuple[str, dict[str, Any]]:
        return _PATH, to_body(request, model=self.model, rules=self._rules)

    def _reader(self, ids: Ids) -> ChatReader:
        return ChatReader(model=self.model, ids=ids, provider=self._endpoint.provider)


def is_genuine(base_url: str) -> bool:
    """Return whether an address is OpenAI's own API, not a compatible server."""
    parts = split_url(base_url)
    host = parts.host if parts is not None else ""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def to_body(request: ModelRequest, *, model: str, rules: ChatRules) -> dict[str, Any]:
    """Convert a request into the body for the API."""
    system, turns = to_turns(request.messages)
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    latest = max((at for at, turn in enumerate(turns) if turn.message.role == "user"), default=-1)
    for at, turn in enumerate(turns):
        messages += _messages(turn, model=model, rules=rules, current=at > latest)
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": True}
    if rules.counts_tokens:
        body["stream_options"] = {"include_usage": True}
    if request.tools and (rules.chooses_tools or request.tool_choice != "none"):
        body["tools"] = list(request.tools)
        if request.tool_choice is not None and rules.chooses_tools:
            body["tool_choice"] = request.tool_choice
        if not rules.parallel_calls:
            body["parallel_tool_calls"] = False
    if request.max_tokens is not None:
        body[rules.max_tokens] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def _messages(turn: Turn, *, model: str, rules: ChatRules, current: bool) -> list[dict[str, Any]]:
    message = turn.message
    if message.role == "assistant":
        said = _assistant(message, model=model, rules=rules, current=current)
        return [said, *_results(turn.answers)] if said else []
    if message.role == "system" and rules.later_system:
        return [{"role": "system", "content": sendable(message.text)}]
    return [{"role": "user", "content": _user_content(message)}]


def _user_content(message: Message) -> str | list[dict[str, Any]]:
    text, following = chat_content(sendable(message.text), message.parts)
    if not following:
        return text
    return [*([{"type": "text", "text": text}] if text else []), *following]


def _assistant(message: Message, *, model: str, rules: ChatRules, current: bool) -> dict[str, Any]:
    if not message.text and not message.calls:
        return {}  # Several servers reject an empty message.
    said: dict[str, Any] = {"role": "assistant", "content": sendable(message.text) or None}
    native = object_in(message.native, "openai")
    ours = native.get("model") == model
    extras = object_in(native if ours else {}, "calls")
    if message.calls:
        said["tool_calls"] = [_call(call, object_in(extras, call.id)) for call in message.calls]
        if rules.keeps_thoughts:
            # Also where there were none, and where another model made the call.
            said[_THOUGHTS[0]] = ""
        if ours and (current or rules.keeps_thoughts):
            # Models that reason between calls need their reasoning back until the turn ends; some APIs
            # reject it afterwards.
            said.update({name: native[name] for name in (*_THOUGHTS, "reasoning_details") if name in native})
    return said


def _call(call: ToolCall, extras: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": call.name, "arguments": sent_arguments(call)}
    return {**extras, "id": call.id, "type": "function", "function": function}


def _results(answers: Sequence[Message]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for answer in answers:
        text, following = chat_content(error_text(answer), answer.parts)
        results.append({"role": "tool", "tool_call_id": answer.call_id, "content": text})
        shown += following or ()
    # A tool message takes text only, and the results of one turn must be consecutive.
    return [*results, {"role": "user", "content": shown}] if shown else results


class _Call(MutableStruct):
    """A call whose pieces are still arriving."""

    id: str
    """From the API, or generated with the first piece; the same for all pieces."""
    given: str = ""
    index: int | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    """Of its arguments; joined once, since repeated concatenation is quadratic."""
    extras: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def raw(self) -> str:
        return "".join(self.pieces)


class ChatReader:
    """Builds an answer from its chunks."""

    def __init__(self, *, model: str, ids: Ids, provider: str = "openai") -> None:
        self._asked = model
        self._ids = ids
        self._provider = provider
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._calls: list[_Call] = []
        self._finish = ""
        self._usage = Usage()
        self._model = ""

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Process one chunk."""
        self._model = text_in(event, "model") or self._model
        usage = object_in(event, "usage")
        if usage:
            self._usage = _usage(usage)
        for choice in objects_in(event, "choices"):
            if number_in(choice, "index"):
                continue  # Only one choice was requested.
            yield from self._delta(object_in(choice, "delta") or object_in(choice, "message"))
            self._finish = text_in(choice, "finish_reason") or self._finish

    def finish(self) -> Answered:
        """Return the complete answer."""
        if not self._finish:
            msg = f"`{self._provider}`: the stream ended without a finish reason"
            raise StreamBrokenError(msg, provider=self._provider)
        message = self.partial()
        finish: Finish = _FINISHES.get(self._finish, "other")
        if message.calls and finish == "stop":
            finish = "tool_calls"
        elif finish == "tool_calls" and not message.calls:
            finish = "stop"
        elif self._refusal and finish == "stop":
            finish = "refused"
        return Answered(message=message, finish=finish, usage=self._usage, model=self._model or self._asked)

    def partial(self) -> Message:
        """Return the answer so far."""
        calls = [read_call(call.id, call.name, call.raw) for call in self._calls]
        native: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._thoughts.items()}
        extras = {call.id: call.extras for call in self._calls if call.extras}
        if self._details:
            native["reasoning_details"] = self._details
        if extras:
            native["calls"] = extras
        if native:
            native["model"] = self._asked
        return Message(
            role="assistant",
            text=sendable("".join(self._text or self._refusal)),
            calls=tuple(calls),
            native=sound({"openai": native}) if native else {},
        )

    def _delta(self, delta: Mapping[str, Any]) -> Iterable[ModelEvent]:
        for name in _THOUGHTS:
            thought = text_in(delta, name)
            if thought:
                self._thoughts.setdefault(name, []).append(thought)
                yield ThoughtDelta(text=thought)
                break  # Some servers send the same reasoning under two names.
        self._details += objects_in(delta, "reasoning_details")
        for kind, text in _pieces(delta):
            if kind == "thought":
                yield ThoughtDelta(text=text)
            else:
                self._text.append(text)
                yield TextDelta(text=text)
        refusal = text_in(delta, "refusal")
        if refusal:
            self._refusal.append(refusal)
            yield TextDelta(text=refusal)
        for piece in objects_in(delta, "tool_calls"):
            yield self._grow(piece)

    def _grow(self, piece: Mapping[str, Any]) -> CallDelta:
        function = object_in(piece, "function")
        name = text_in(function, "name")
        written: object = function.get("arguments")
        raw = "" if written is None else written_text(written)
        call = self._slot(piece, name=name)
        call.name = call.name or name
        call.pieces.append(raw)
        call.extras.update(
            {key: value for key, value in piece.items() if key not in {"id", "index", "type", "function"}}
        )
        return CallDelta(id=call.id, name=call.name, raw=raw)

    def _slot(self, piece: Mapping[str, Any], *, name: str) -> _Call:
        """Return the call that a piece belongs to, or start a new one."""
        given: object = piece.get("index")
        index = given if isinstance(given, int) else None
        id_ = text_in(piece, "id")
        candidates = [
            call
            for call in self._calls
            if (index is None or call.index == index) and (not id_ or call.given in {"", id_})
        ]
        call = candidates[-1] if candidates else None
        # Without an id, a second name starts the next call, unless the first call is incomplete.
        again = call is not None and bool(name and call.name) and not (id_ and call.given == id_)
        if call is None or (again and (index is None or name != call.name or is_object(call.raw))):
            call = _Call(self._ids.settle(id_), given=id_, index=index)
            self._calls.append(call)
        return call


def _pieces(delta: Mapping[str, Any]) -> Iterable[tuple[Literal["text", "thought"], str]]:
    """Read the content; Mistral's reasoning models send it as a list of pieces."""
    content: object = delta.get("content")
    if isinstance(content, str):
        if content:
            yield "text", content
        return
    for piece in objects_in(delta, "content"):
        inner: object = piece.get("thinking")
        if isinstance(inner, list):
            for thought in cast("list[object]", inner):
                text = text_in(cast("dict[str, Any]", thought), "text") if isinstance(thought, dict) else ""
                if text:
                    yield "thought", text
        elif text_in(piece, "text"):
            yield "text", text_in(piece, "text")


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = number_in(object_in(usage, "prompt_tokens_details"), "cached_tokens")
    return Usage(
        input_tokens=number_in(usage, "prompt_tokens"),
        output_tokens=number_in(usage, "completion_tokens"),
        cached_tokens=cached or number_in(usage, "prompt_cache_hit_tokens"),
    )
