"""Answer the requests of servers: sampling with the agent's model, elicitation with a person.

Nothing is answered without consent: `approve` decides about each request for the model, `ask` answers
questions, and URLs are never opened here. A capability without a function is not offered to servers.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import math
import time
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from dragoman.agent.messages import Answered, Message, ModelRequest, ToolCall
from dragoman.errors import AgentError, ModelError
from dragoman.model import Handlers, Part, ToolDef, json_object
from dragoman.struct import Struct
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.schema.validate import Validators
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dragoman.agent.messages import Provider
    from dragoman.model import Handler
    from dragoman.tools.export.export import Export

TRUE_WORDS = frozenset({"y", "yes", "true", "1", "on"})
FALSE_WORDS = frozenset({"n", "no", "false", "0", "off"})


class Field(Struct, kw_only=True):
    """One field of a form."""

    name: str
    kind: Literal["text", "integer", "number", "boolean", "choice", "choices"]
    title: str
    description: str = ""
    required: bool = False
    default: Any = None
    choices: Mapping[str, str] | None = None
    """Labels by the value that is sent."""

    def read(self, typed: str) -> Any:
        """Convert typed text into the value that is sent.

        Raises:
            ValueError: The text does not fit; the message says what is expected.
        """
        text = typed.strip()
        match self.kind:
            case "integer":
                return _number(text, int, "a whole number")
            case "number":
                return _number(text, float, "a number")
            case "boolean":
                return _truth(text)
            case "choice":
                return self._chosen(text)
            case "choices":
                return [self._chosen(piece.strip()) for piece in text.split(",") if piece.strip()]
            case "text":
                return typed

    def _chosen(self, text: str) -> str:
        choices = self.choices or {}
        if text in choices:
            return text
        shown = [value for value, label in choices.items() if label.casefold() == text.casefold()]
        if len(shown) == 1:
            return shown[0]
        msg = f"choose one of: {', '.join(choices)}"
        raise ValueError(msg)


class Form(Struct, kw_only=True):
    """A form that a server asks a person to fill in."""

    server: str
    message: str
    fields: tuple[Field, ...]
    schema: Mapping[str, Any]

    def problems(self, values: Mapping[str, Any]) -> list[str]:
        """Return a message for each value that does not fit."""
        return Validators().of(dict(self.schema)).problems(dict(values))

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the fields."""
        return {field.name: field.default for field in self.fields if field.default is not None}


class Visit(Struct, kw_only=True):
    """A URL that a server asks a person to visit; it is not opened without consent."""

    server: str
    message: str
    url: str
    id: str = ""


def question(server: str, params: Mapping[str, Any]) -> Form | Visit:
    """Read the parameters of `elicitation/create`."""
    message = str(params.get("message", ""))
    if params.get("mode") == "url" or ("url" in params and "requestedSchema" not in params):
        return Visit(
            server=server,
            message=message,
            url=str(params.get("url", "")),
            id=str(params.get("elicitationId", "")),
        )
    schema = _mapping(params.get("requestedSchema"))
    required = cast("list[object]", schema.get("required") or [])
    properties = _mapping(schema.get("properties"))
    fields = tuple(_field(name, _mapping(properties[name]), required=name in required) for name in properties)
    return Form(server=server, message=message, fields=fields, schema=schema)


def _field(name: str, schema: Mapping[str, Any], *, required: bool) -> Field:
    kind: Literal["text", "integer", "number", "boolean", "choice", "choices"] = "text"
    choices: dict[str, str] | None = None
    match schema.get("type"):
        case "integer" | "number" | "boolean" as plain:
            kind = plain
        case "array":
            kind, choices = "choices", _choices(_mapping(schema.get("items")))
        case _:
            choices = _choices(schema)
            kind = "choice" if choices else "text"
    return Field(
        name=name,
        kind=kind,
        title=str(schema.get("title") or name),
        description=str(schema.get("description") or ""),
        required=required,
        default=schema.get("default"),
        choices=choices,
    )


def _choices(schema: Mapping[str, Any]) -> dict[str, str] | None:
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        options = [_mapping(option) for option in cast("list[object]", titled)]
        return {
            str(option.get("const")): str(option.get("title") or option.get("const")) for option in options
        }
    listed = schema.get("enum")
    if not isinstance(listed, list):
        return None
    values = [str(value) for value in cast("list[object]", listed)]
    names = schema.get("enumNames")
    shown = [str(name) for name in cast("list[object]", names)] if isinstance(names, list) else []
    labels = shown if len(shown) == len(values) else values
    return dict(zip(values, labels, strict=True))


def _number(text: str, read: type[int | float], what: str) -> int | float:
    try:
        value = read(text)
    except ValueError:
        msg = f"{what} is expected, not `{text}`"
        raise ValueError(msg) from None
    if not math.isfinite(value):
        msg = f"{what} is expected, not `{text}`"
        raise ValueError(msg)
    return value


def _truth(text: str) -> bool:
    word = text.casefold()
    if word in TRUE_WORDS | FALSE_WORDS:
        return word in TRUE_WORDS
    msg = f"yes or no is expected, not `{text}`"
    raise ValueError(msg)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


Approve: TypeAlias = "Callable[[str, Mapping[str, Any]], bool | Awaitable[bool]]"
"""Takes a server's name and its sampling request; returns whether the model may answer it."""
Ask: TypeAlias = "Callable[[Form | Visit], Any]"
"""Takes a question; returns the form's values (`True` to accept a URL, or the defaults of a form), `False` to
decline, `None` to cancel; or an awaitable of one of these."""

_STOPS = {"stop": "endTurn", "tool_calls": "toolUse", "length": "maxTokens"}


class SamplingLimits(Struct, kw_only=True):
    """How much servers may use the model."""

    max_tokens: int = 4_096
    """Of one answer; requests for more get this many."""
    per_minute: int = 20
    """Requests of all servers together."""


def make_handlers(
    model: Callable[[], Provider],
    *,
    approve: Approve | None = None,
    ask: Ask | None = None,
    roots: Sequence[str] | None = None,
    logging: Handler | None = None,
    limits: SamplingLimits | None = None,
) -> Handlers:
    """Return the handlers with which a manager answers its servers.

    Args:
        model: Returns the model when it is needed; an agent opens its own when it starts.
        approve: Decides whether a server may use the model.
        ask: Returns a person's answer to a form or a URL.
        roots: The URIs of the directories that servers may use.
        logging: Gets the servers' log messages.
        limits: How much servers may use the model.
    """
    return Handlers(
        sampling=None if approve is None else _Sampling(model, approve, limits or SamplingLimits()),
        elicitation=None if ask is None else _elicitation(ask),
        roots=roots,
        logging=logging,
    )


def _elicitation(ask: Ask) -> Handler:
    async def answer(server: str, params: dict[str, Any]) -> dict[str, Any]:
        asked = question(server, params)
        given: Any = ask(asked)
        if inspect.isawaitable(given):
            given = await given
        if given is None:
            return {"action": "cancel"}
        if given is False:
            return {"action": "decline"}
        if isinstance(asked, Visit):
            return {"action": "accept"}
        content = asked.defaults() if given is True else dict(cast("Mapping[str, Any]", given))
        if problems := asked.problems(content):
            msg = f"the answer does not fit what server `{server}` asked for: {'; '.join(problems)}"
            raise AgentError(msg)
        return {"action": "accept", "content": content}

    return answer


class _Sampling:
    """Answers `sampling/createMessage` with the agent's model."""

    def __init__(self, model: Callable[[], Provider], approve: Approve, limits: SamplingLimits) -> None:
        self._model = model
        self._approve = approve
        self._limits = limits
        self._asked: deque[float] = deque()

    async def __call__(self, server: str, params: dict[str, Any]) -> dict[str, Any]:
        self._count(time.monotonic(), server)
        agreed = self._approve(server, params)
        if not (await agreed if inspect.isawaitable(agreed) else agreed):
            msg = f"the user did not allow server `{server}` to use the model"
            raise AgentError(msg)
        provider = self._model()
        tools = _tools(params).export(provider.api)
        wanted = params.get("maxTokens")
        most = min(wanted, self._limits.max_tokens) if isinstance(wanted, int) else self._limits.max_tokens
        system = params.get("systemPrompt")
        request = ModelRequest(
            messages=[
                *([Message(role="system", text=for_model(str(system)))] if system else []),
                *(turn for entry in params.get("messages") or () for turn in _turns(entry, tools)),
            ],
            tools=tools.tools,
            max_tokens=most,
            temperature=params.get("temperature"),
        )
        return _sampled(await _answer_of(provider, request), tools)

    def _count(self, now: float, server: str) -> None:
        while self._asked and now - self._asked[0] > 60:
            self._asked.popleft()
        if len(self._asked) >= self._limits.per_minute:
            most = self._limits.per_minute
            msg = f"server `{server}` may not use the model now: the limit is {most} requests a minute"
            raise AgentError(msg)
        self._asked.append(now)


async def _answer_of(provider: Provider, request: ModelRequest) -> Answered:
    stream = provider.stream(request)
    async with aclosing(cast("Any", stream)):
        async for event in stream:
            if isinstance(event, Answered):
                return event
    msg = f"the answer of `{provider.model}` ended without a finish reason"
    raise ModelError(msg)


def _tools(params: Mapping[str, Any]) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_all(
        ToolDef(
            name=str(entry.get("name", "")),
            description=str(entry.get("description") or ""),
            input_schema=entry.get("inputSchema") or {"type": "object"},
        )
        for entry in cast("list[dict[str, Any]]", params.get("tools") or [])
    )
    return registry


def _turns(entry: Mapping[str, Any], tools: Export) -> list[Message]:
    """Convert one message of a sampling request; each tool result becomes a message of its own."""
    content = entry.get("content")
    blocks = cast("list[Mapping[str, Any]]", content if isinstance(content, list) else [content])
    results = [block for block in blocks if block.get("type") == "tool_result"]
    turns = [
        Message(
            role="tool",
            text=_text(cast("list[Mapping[str, Any]]", block.get("content") or [])),
            call_id=str(block.get("toolUseId", "")),
            is_error=block.get("isError") is True,
        )
        for block in results
    ]
    calls = tuple(
        ToolCall(
            id=str(block.get("id", "")),
            name=tools.aliases.get(str(block.get("name", "")), str(block.get("name", ""))),
            arguments=block.get("input") or {},
            raw=json.dumps(block.get("input") or {}, ensure_ascii=False),
        )
        for block in blocks
        if block.get("type") == "tool_use"
    )
    text = _text(blocks)
    parts = tuple(part for block in blocks if (part := _part(block)) is not None)
    if text or parts or calls or not turns:
        role = "assistant" if entry.get("role") == "assistant" else "user"
        turns.append(Message(role=role, text=text, parts=parts, calls=calls))
    return turns


def _text(blocks: Sequence[Mapping[str, Any]]) -> str:
    texts = (str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    return for_model("\n".join(texts))


def _part(block: Mapping[str, Any]) -> Part | None:
    kind = block.get("type")
    if kind not in ("image", "audio"):
        return None
    try:
        data = base64.b64decode(str(block.get("data", "")), validate=True)
    except binascii.Error:
        data = b""
    return Part(kind=kind, data=data, mime_type=str(block.get("mimeType", "")))


def _sampled(said: Answered, tools: Export) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if said.message.text or not said.message.calls:
        content.append({"type": "text", "text": said.message.text})
    content += [
        {
            "type": "tool_use",
            "id": call.id,
            "name": tools.names.get(call.name, call.name),
            "input": json_object(call.arguments),
        }
        for call in said.message.calls
    ]
    return {
        "role": "assistant",
        # Servers that do not use tools may only support a single block.
        "content": content if said.message.calls else content[0],
        "model": said.model or "unknown",
        "stopReason": _STOPS.get(said.finish, said.finish),
    }
