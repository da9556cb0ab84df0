"""What every driver shares: the script of a model, and what the model has read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Step: TypeAlias = "tuple[str, dict[str, Any]]"


class Script:
    """A model that calls what it is told to, one tool in each turn, then says `done`.

    A step can be a function: it changes something before the model answers, and returns the call.
    """

    def __init__(self, *steps: Step | Callable[[], Step]) -> None:
        self._steps = steps
        self._turn = 0
        self.offered: list[dict[str, str]] = []
        """For each turn, the tools that the model was offered, each with its description."""

    def next(self, offered: dict[str, str]) -> tuple[str, str, dict[str, Any]] | None:
        """Return the id, the name and the arguments of the next call, or nothing at the end."""
        self.offered.append(offered)
        self._turn += 1
        if self._turn > len(self._steps):
            return None
        step = self._steps[self._turn - 1]
        name, arguments = step() if callable(step) else step
        return f"call_{self._turn}", name, arguments


@dataclass
class Seen:
    """What the model read as the result of one call."""

    text: str
    failed: bool = False
    """Whether the framework's own mark says so."""
    images: int = 0
    structured: Any = None
    """The structured result, where the framework has a place for it."""


def json_in(text: str) -> Any:
    """Return the JSON that a text ends with, if it does."""
    try:
        return json.loads(text[text.index("{") :])
    except ValueError:
        return None


@dataclass
class Outcome:
    """How far a run came."""

    seen: list[Seen]
    final: str = ""
    question: dict[str, Any] | None = None
    """What the run was interrupted for."""
    state: Any = field(default=None, repr=False)
    """What the driver needs to resume the run."""
