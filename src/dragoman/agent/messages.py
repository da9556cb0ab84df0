"""What an agent, its model and its tools say to each other, in no API's own form.

Frozen, and free of any provider: a provider turns a `ModelRequest` into its API's body, and what comes back
into `ModelEvent`s. What only one API understands (signed thoughts, reasoning items) travels in
`Message.native`, untouched, so that it can be sent back where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 -- users resolve the fields' type hints
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dragoman.model import JsonObject, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model wants made."""

    id: str
    """The API's own, or one that the provider made up where the API gave none."""
    name: str
    """As the model said it: an alias of this API, or anything else that it came up with."""
    arguments: Any = None
    """Decoded; `None` where they could not be read, and `problem` says why."""
    raw: str = ""
    """The arguments as the model wrote them."""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    parts: Sequence[Part] = ()
    """Beside the text: images and other pieces of a tool's result, or of what a person attached."""
    calls: Sequence[ToolCall] = ()
    """What an assistant's turn asks for, in its order."""
    call_id: str = ""
    """Of a tool's turn: which call it answers."""
    name: str = ""
    """Of a tool's turn: the tool, as the model called it."""
    is_error: bool = False
    native: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By the provider's name: what has to be sent back to it as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one answer of a model took, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Those of the input that the API had in its cache."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything a model is given for one answer."""

    messages: Sequence[Message]
    tools: Sequence[JsonObject] = ()
    """In the API's own form, as `ToolRegistry.export(api).tools` has them; sent byte for byte."""
    max_tokens: int | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtDelta:
    """A piece of what the model shows of its thinking."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """The model has begun a tool call, or gone on with its arguments."""

    id: str
    name: str
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """The API refused for now, and is asked again after a pause."""

    reason: str
    pause: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer is whole; always the last event of a stream that ends well."""

    message: Message
    finish: Literal["stop", "tool_calls", "length", "refused", "paused", "other"]
    usage: Usage = Usage()
    model: str = ""
    """What the API says answered."""


ModelEvent: TypeAlias = TextDelta | ThoughtDelta | CallDelta | Retrying | Answered


class Provider(Protocol):
    """A model behind an API."""

    @property
    def api(self) -> Literal["openai", "responses", "anthropic"]:
        """Which form of tools it wants, as `ToolRegistry.export` names it."""
        ...

    @property
    def model(self) -> str:
        """The model's name, as the API knows it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Ask once, and give what comes as it comes; the last event is `Answered`.

        Raises:
            ModelError: The API failed, or the stream ended without a finish reason.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
