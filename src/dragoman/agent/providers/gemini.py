"""Google's Gemini API over HTTP, without Google's SDK, which takes a second to import for one POST.

The parts of an answer stay in `Message.native` and are sent back unchanged: Gemini 3 refuses a call without
the signature of the thoughts before it. Calls of another model get the mark that Google gives for these.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from dragoman.agent.messages import Answered, CallDelta, Message, TextDelta, ThoughtDelta, Usage
from dragoman.agent.providers.http_endpoint import EventsEndpoint
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
from dragoman.agent.providers.request import (
    EndpointProvider,
    ProviderAuthError,
    ProviderError,
    StreamBrokenError,
    is_transient,
    words_of,
)
from dragoman.agent.providers.window import ModelWindow, size_in
from dragoman.tools.export.apis.gemini import MEDIA, gemini_response
from dragoman.tools.result.media import joined, sort_media

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dragoman.agent.messages import Finish, ModelEvent, ModelRequest, ToolCall
    from dragoman.agent.providers.options import ProviderOptions
    from dragoman.agent.providers.parsing import Ids, Turn

API = "gemini"
BASE_URL = "https://generativelanguage.googleapis.com"
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
UNSIGNED = "skip_thought_signature_validator"
"""What Google takes in place of the signature of a call that no Gemini model made."""
BUDGETS = {"low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens of thinking, for models that take no level."""
_THINKING = re.compile(r"(?:models/)?gemini-(?:2\.5|[3-9]|\d\d)")
_WITH_LEVELS = re.compile(r"(?:models/)?gemini-(?:[3-9]|\d\d)")
_DELAY = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
_CHOICES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_FINISHES: dict[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE"),
        "refused",
    ),
}


async def open_model(options: ProviderOptions) -> GeminiProvider:
    """Open a model of Google's Gemini API, or of the server at `GOOGLE_GEMINI_BASE_URL`."""
    model = options.require_model()
    variable = next((name for name in KEYS if options.env.get(name, "").strip()), KEYS[0])
    endpoint = await options.endpoint(
        BASE_URL,
        variable=variable,
        base_variable="GOOGLE_GEMINI_BASE_URL",
        kind=GeminiEndpoint,
        key_header="x-goog-api-key",
        query={"alt": "sse"},
    )
    return GeminiProvider(model, endpoint=endpoint, think=options.think, extra=options.extra)


class GeminiEndpoint(EventsEndpoint):
    """The address of the Gemini API."""

    def pause_in(self, body: object) -> float | None:
        """Return the seconds that a refusal asks to wait: Google says it in the body."""
        details = objects_in(object_in(as_object(body), "error"), "details")
        delays = (_DELAY.fullmatch(text_in(detail, "retryDelay")) for detail in details)
        return next((float(delay[1]) for delay in delays if delay), None)

    def refusal(self, status: int, *, said: str, kind: str, headers: Mapping[str, str]) -> ProviderError:
        """Return the error for a response that is not an answer; a wrong key is a 400 here."""
        if status == 400 and "api key" in said.lower():
            hint = f"check `{self.key_variable}`" if self.key else f"set `{self.key_variable}`"
            msg = f"`{self.provider}` does not accept the key ({status}): {said}"
            return ProviderAuthError(msg, provider=self.provider, status=status, kind=kind, hint=hint)
        return super().refusal(status, said=said, kind=kind, headers=headers)


class GeminiProvider(EndpointProvider):
    """A model of the Gemini API."""

    api: Literal["gemini"] = "gemini"

    def __init__(
        self,
        model: str,
        *,
        endpoint: EventsEndpoint,
        think: bool | str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Configure the provider; nothing is sent.

        Args:
            model: The model's name.
            endpoint: The endpoint of the API.
            think: Whether the model thinks first, or how much: `low`, `medium` or `high`.
            extra: Extra fields for the body of every request.
        """
        super().__init__(model, endpoint=endpoint, extra=extra)
        self._server = endpoint
        self._thinking = _thinking(model, think)
        self._path = f"/v1beta/models/{quote(model.removeprefix('models/'), safe='')}"

    async def window(self) -> ModelWindow | None:
        """Return how much the model can read."""
        tokens = size_in(await self._server.ask(self._path), "inputTokenLimit")
        if not tokens:
            return None
        return ModelWindow(tokens=tokens, source="`inputTokenLimit` of the model", cuts=False)

    def _question(self, request: ModelRequest) -> tuple[str, dict[str, Any]]:
        body = to_body(request, model=self.model)
        if self._thinking:
            body.setdefault("generationConfig", {})["thinkingConfig"] = self._thinking
        return f"{self._path}:streamGenerateContent", body

    def _reader(self, ids: Ids) -> GeminiReader:
        return GeminiReader(model=self.model, ids=ids)


def _thinking(model: str, think: bool | str | None) -> dict[str, Any]:  # noqa: FBT001 -- one value of three kinds
    if not _THINKING.match(model):
        return {}
    config: dict[str, Any] = {"includeThoughts": think is not False}
    if _WITH_LEVELS.match(model):
        level = "minimal" if think is False else think if isinstance(think, str) else None
        return config | ({"thinkingLevel": level} if level else {})
    budget = 0 if think is False else -1 if think is True else BUDGETS.get(str(think))
    return config if budget is None else {**config, "thinkingBudget": budget}


def to_body(request: ModelRequest, *, model: str) -> dict[str, Any]:
    """Convert a request into the body for the API."""
    system, turns = to_turns(request.messages)
    contents: list[dict[str, Any]] = []
    for turn in turns:
        for role, parts in _contents(turn, model=model):
            if contents and contents[-1]["role"] == role == "user" and not _answers(contents[-1]):
                contents[-1]["parts"] += parts
            elif parts:
                contents.append({"role": role, "parts": parts})
    body: dict[str, Any] = {"contents": contents}
    if system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": list(request.tools)}]
        if request.tool_choice is not None:
            body["toolConfig"] = {"functionCallingConfig": {"mode": _CHOICES[request.tool_choice]}}
    wanted = {
        "maxOutputTokens": request.max_tokens,
        "temperature": request.temperature,
        "stopSequences": list(request.stop) or None,
    }
    if settings := {name: value for name, value in wanted.items() if value is not None}:
        body["generationConfig"] = settings
    return body


def _answers(content: Mapping[str, Any]) -> bool:
    """Return whether a content has results, which nothing else may stand beside."""
    return any("functionResponse" in part for part in content["parts"])


def _contents(turn: Turn, *, model: str) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    message = turn.message
    if message.role != "assistant":
        yield "user", _parts(message)
        return
    native = _native(message, model=model)
    yield "model", _said(message, model=model) if native is None else native
    given = {text_in(object_in(part, "functionCall"), "id") for part in native or ()}
    if turn.answers:
        yield "user", [_result(answer, names_call=answer.call_id in given) for answer in turn.answers]


def _parts(message: Message) -> list[dict[str, Any]]:
    media, notes = sort_media(sendable(message.text), message.parts, MEDIA)
    text = joined(sendable(message.text), notes)
    shown = [{"inlineData": {"mimeType": one.mime_type, "data": one.base64}} for one in media]
    return [*([{"text": text}] if text.strip() else []), *shown]


def _said(message: Message, *, model: str) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": sendable(message.text)}] if message.text.strip() else []
    calls: list[dict[str, Any]] = [
        {"functionCall": {"name": call.name, "args": dict(as_object(call.arguments))}}
        for call in message.calls
    ]
    if calls and _WITH_LEVELS.match(model):
        calls[0]["thoughtSignature"] = UNSIGNED
    return [*parts, *calls]


def _result(answer: Message, *, names_call: bool) -> dict[str, Any]:
    response = gemini_response(sendable(answer.text), answer.parts, is_error=answer.is_error)
    return {
        "functionResponse": {
            **({"id": answer.call_id} if names_call else {}),
            "name": answer.name,
            **response,
        }
    }


def _native(message: Message, *, model: str) -> list[dict[str, Any]] | None:
    """Return the original parts, if they are from this model and match the message."""
    native = object_in(message.native, API)
    if native.get("model") != model:
        return None
    parts = [dict(part) for part in objects_in(native, "parts")]
    called = [text_in(object_in(part, "functionCall"), "name") for part in parts if "functionCall" in part]
    return parts if called == [call.name for call in message.calls] else None


class GeminiReader:
    """Builds an answer from its events."""

    def __init__(self, *, model: str, ids: Ids) -> None:
        self._asked = model
        self._ids = ids
        self._parts: list[dict[str, Any]] = []
        """What goes back: without summaries of thoughts, pieces of text joined."""
        self._pieces: list[str] = []
        """Of the text that is the last part; joined once, since repeated concatenation is quadratic."""
        self._text: list[str] = []
        self._calls: list[ToolCall] = []
        self._finish = ""
        self._blocked = ""
        self._usage: Mapping[str, Any] = {}
        self._model = ""

    def feed(self, event: Mapping[str, Any]) -> Iterable[ModelEvent]:
        """Process one event."""
        if "error" in event:
            said, kind = words_of(event)
            msg = f"`{API}` failed during its answer: {said or kind or 'no reason given'}"
            raise ProviderError(msg, provider=API, kind=kind, transient=is_transient(None, kind=kind))
        self._model = text_in(event, "modelVersion") or self._model
        self._usage = object_in(event, "usageMetadata") or self._usage
        self._blocked = text_in(object_in(event, "promptFeedback"), "blockReason") or self._blocked
        for candidate in objects_in(event, "candidates")[:1]:
            for part in objects_in(object_in(candidate, "content"), "parts"):
                yield from self._take(part)
            self._finish = text_in(candidate, "finishReason") or self._finish

    def _take(self, part: Mapping[str, Any]) -> Iterable[ModelEvent]:
        text = text_in(part, "text")
        if "functionCall" in part:
            given = object_in(part, "functionCall")
            own = text_in(given, "id")
            call = read_call(self._ids.settle(own), text_in(given, "name"), given.get("args") or {})
            self._calls.append(call)
            # The API takes only an object; the tool result tells the model about its mistake.
            kept = {**given, "args": dict(as_object(call.arguments)), **({"id": call.id} if own else {})}
            self._keep({**part, "functionCall": kept})
            yield CallDelta(id=call.id, name=call.name, raw=call.raw)
        elif part.get("thought") is True:
            if text:
                yield ThoughtDelta(text=text)
        elif text and set(part) == {"text"}:
            self._text.append(text)
            self._pieces.append(text)
            yield TextDelta(text=text)
        else:
            self._keep(part)
            if text:
                self._text.append(text)
                yield TextDelta(text=text)

    def _keep(self, part: Mapping[str, Any]) -> None:
        if self._pieces:
            self._parts.append({"text": sendable("".join(self._pieces))})
            self._pieces = []
        self._parts.append(dict(part))

    def finish(self) -> Answered:
        """Return the complete answer."""
        if not self._finish and not self._blocked:
            msg = f"`{API}`: the stream ended without a finish reason"
            raise StreamBrokenError(msg, provider=API)
        message = self.partial()
        finish: Finish = "refused" if not self._finish else _FINISHES.get(self._finish, "other")
        if message.calls and finish == "stop":
            finish = "tool_calls"
        usage = Usage(
            input_tokens=number_in(self._usage, "promptTokenCount")
            + number_in(self._usage, "toolUsePromptTokenCount"),
            output_tokens=number_in(self._usage, "candidatesTokenCount")
            + number_in(self._usage, "thoughtsTokenCount"),
            cached_tokens=number_in(self._usage, "cachedContentTokenCount"),
        )
        return Answered(message=message, finish=finish, usage=usage, model=self._model or self._asked)

    def partial(self) -> Message:
        """Return the answer so far."""
        parts = [*self._parts, *([{"text": sendable("".join(self._pieces))}] if self._pieces else [])]
        return Message(
            role="assistant",
            text=sendable("".join(self._text)),
            calls=tuple(self._calls),
            native=sound({API: {"model": self._asked, "parts": parts}}) if parts else {},
        )
