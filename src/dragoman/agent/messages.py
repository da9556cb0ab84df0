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
    from collections.abc import AsyncGenerator

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
    """By the provider's `api`: what has to be sent back to it as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one answer of a model took, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Those of the input that the API had in its cache."""
    written_tokens: int = 0
    """Those of the input that the API put into its cache, where it says so."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model costs, for a million tokens; in whatever currency the budget is in."""

    # No prices are built in: they change more often than this library, and a wrong one is worse than none.

    input: float
    output: float
    cached: float | None = None
    """Input from the API's cache; as other input unless given."""
    written: float | None = None
    """Input that the API puts into its cache; as other input unless given."""

    def cost(self, usage: Usage) -> float:
        """Return what an answer cost."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.written is None else self.written
        # A local server may report more cached tokens than input; what is left is never below nothing.
        fresh = max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0)
        parts = (
            fresh * self.input,
            usage.cached_tokens * cached,
            usage.written_tokens * written,
            usage.output_tokens * self.output,
        )
        return sum(parts) / 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything a model is given for one answer."""

    messages: Sequence[Message]
    tools: Sequence[JsonObject] = ()
    """In the API's own form, as `ToolRegistry.export(api).tools` has them; sent byte for byte."""
    tool_choice: Literal["auto", "none", "required"] | None = None
    """Whether the model may, may not or must call a tool; the API's default unless given."""
    max_tokens: int | None = None
    temperature: float | None = None
    stop: Sequence[str] = ()
    """Texts at which the answer ends; an API that knows no such thing (Responses) is not given them."""


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


Finish: TypeAlias = Literal["stop", "tool_calls", "length", "refused", "paused", "other"]
"""Why an answer ended; `paused`: the API wants the conversation sent again as it is, to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer is whole; always the last event of a stream that ends well."""

    message: Message
    finish: Finish
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

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Ask once, and give what comes as it comes; the last event is `Answered`.

        Who stops reading early closes the generator (`contextlib.aclosing`), and the connection goes with it.

        Raises:
            ModelError: The API failed, or the stream ended without a finish reason.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
