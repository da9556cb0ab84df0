"""The server asks, the agent answers: sampling through the agent's model, questions through a person.

Nothing is answered without consent: a server's request for the model is shown to `approve` first, its
questions go to `ask`, an address is never opened here. What the application gives no function for is not
offered to servers at all.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import time
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dragoman.agent.forms import Form, Visit, question
from dragoman.agent.messages import Answered, Message, ModelRequest, ToolCall
from dragoman.errors import AgentError, ModelError
from dragoman.model import Handlers, Part, ToolDef
from dragoman.tools.registry import ToolRegistry
from dragoman.trust.sanitize import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from dragoman.agent.messages import Provider
    from dragoman.model import Handler
    from dragoman.tools.formats.export import Export

Approve: TypeAlias = "Callable[[str, Mapping[str, Any]], bool | Awaitable[bool]]"
"""Given a server's name and its request for the model; says whether the model may be asked."""
Ask: TypeAlias = "Callable[[Form | Visit], Any]"
"""Given a question; returns the form's values (`True` for an address, or for a form as it is proposed),
`False` to decline, `None` to cancel; or an awaitable of that."""

_STOPS = {"stop": "endTurn", "tool_calls": "toolUse", "length": "maxTokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingLimits:
    """How much of the model servers may use."""

    max_tokens: int = 4_096
    """Of one answer; a request for more gets this much."""
    per_minute: int = 20
    """Requests, of all servers together."""


def handlers(
    model: Callable[[], Provider],
    *,
    approve: Approve | None = None,
    ask: Ask | None = None,
    roots: Sequence[str] | None = None,
    logging: Handler | None = None,
    limits: SamplingLimits | None = None,
) -> Handlers:
    """Return what a manager answers its servers with, on behalf of an agent.

    Args:
        model: Gives the model when it is needed; an agent opens its own when it starts.
        approve: Asked before a server may use the model.
        ask: Asked what a person answers to a form, or to an address.
        roots: The URIs of the directories that servers may look at.
        logging: Gets the servers' log messages.
        limits: How much of the model servers may use.
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
            msg = f"nobody agreed that server `{server}` may use the model"
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
            msg = f"server `{server}` may not use the model now: {most} requests a minute are the limit"
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
    """Read one message of a sampling request; results of tools are turns of their own here."""
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
            "input": _object(call.arguments),
        }
        for call in said.message.calls
    ]
    return {
        "role": "assistant",
        # A server that gave no tools may only know the form with a single block.
        "content": content if said.message.calls else content[0],
        "model": said.model or "unknown",
        "stopReason": _STOPS.get(said.finish, said.finish),
    }


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
