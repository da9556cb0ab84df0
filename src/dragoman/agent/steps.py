"""What happens while an agent works, as frozen data: the only thing that faces draw from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dragoman.agent.messages import CallDelta, Retrying, TextDelta, ThoughtDelta, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.agent.messages import Message, ToolCall
    from dragoman.model import ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """The model is asked."""

    step: int
    tools: int
    """How many it is offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """The model has answered, and its calls, if any, have their results."""

    step: int
    usage: Usage
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A call of the model is on its way."""

    call: ToolCall
    tool: str
    """The exposed name, or what the model said where there is no such tool."""
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgressed:
    """A tool says how far it is."""

    call: ToolCall
    progress: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A call of the model has its result."""

    call: ToolCall
    tool: str
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """Something changed that the model is told in one line."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a question."""

    text: str
    finish: str
    """`stop`, or why the model ended otherwise: `length`, `refused`, `other`."""
    messages: Sequence[Message] = ()
    """All that was said since the question, the question included."""
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    money: float | None = None


AgentEvent: TypeAlias = (
    StepStarted
    | TextDelta
    | ThoughtDelta
    | CallDelta
    | Retrying
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | StepFinished
    | Noticed
    | Answer
)
