"""Keep the requests of an agent within the window of its model, and notice when one was cut anyway.

Sizes are estimated from above; what the API read already is known. Of the window, the definitions of tools
take at most `DEFINITIONS`; above that the model searches for tools.
"""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, cast

from dragoman.agent.providers.window import ModelWindow
from dragoman.errors import ModelError
from dragoman.tools.result.budget import tokens_at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.agent.compaction import SentMessages
    from dragoman.agent.messages import Message, Provider, Usage
    from dragoman.agent.offer import ToolLimit
    from dragoman.model import JsonObject

DEFINITIONS = 0.35
"""The share of the window for the definitions of tools."""
RESULT = 0.25
"""The share for one result."""
ANSWER = 8_192
"""Tokens that are kept free for the answer, and at most a quarter of the window."""
LEAST = 1 / 3
"""An estimate is at most three times the real number."""
SLACK = 0.9
"""A request of which less than this share of the least was read, was cut."""
NO_TOOLS = "this model cannot call tools, so none are offered; choose one that can"
_LIMIT = re.compile(r"context (?:length|size|window)\D{0,40}?(\d{3,})|n_ctx\D{0,9}(\d{3,})", re.IGNORECASE)


async def find_window(provider: Provider, given: int | None = None) -> ModelWindow | None:
    """Return the window of a model: the given one, or what its provider knows."""
    ask = getattr(provider, "window", None)
    found = ask() if callable(ask) else None
    window = cast("ModelWindow | None", await found if inspect.isawaitable(found) else found)
    if given is None:
        return window
    if window is None or not window.cuts:
        return ModelWindow(tokens=given, source="given", cuts=False)
    return window.replace(tokens=min(given, window.tokens))


class RequestWindow:
    """The window of one model, and what is known of the size of its requests."""

    def __init__(self, model: ModelWindow | None, max_tokens: int | None = None) -> None:
        self.model = model
        self._answer = max_tokens
        self._estimate = 0
        """Of the last request."""
        self._more = 0
        """What it was more than the one before it."""
        self._read = 0
        """The tokens that the API read of it; 0 if that is not known, or says nothing of the next request."""
        self._fixed: tuple[object, str, int] | None = None
        self._told = False

    @property
    def takes_tools(self) -> bool:
        """Whether the model can call tools."""
        return self.model is None or self.model.tools

    def limit(self, limit: ToolLimit) -> ToolLimit:
        """Return how many tools the model is offered, if that is not set already."""
        if self.model is None or limit.tokens is not None:
            return limit
        return limit.replace(tokens=int(self.model.tokens * DEFINITIONS))

    def result_tokens(self, wanted: int) -> int:
        """Return how many tokens of one result the model sees."""
        return wanted if self.model is None else min(wanted, int(self.model.tokens * RESULT))

    def fit(self, sent: SentMessages, asked: Message, system: str, tools: Sequence[JsonObject]) -> list[str]:
        """Shorten the conversation if the request is too long; return what to tell the person.

        Raises:
            ModelError: The question and the system prompt do not fit.
        """
        if self.model is None:
            return []
        if self._fixed is None or self._fixed[0] is not tools or self._fixed[1] != system:
            definitions = json.dumps(tools, ensure_ascii=False, separators=(",", ":")) if tools else ""
            self._fixed = (tools, system, tokens_at_most(system) + tokens_at_most(definitions))
        fixed = self._fixed[2]
        window = self.model.tokens
        answer = min(self._answer or ANSWER, window // 4)
        estimate = fixed + sent.tokens
        # What was read once is known; only what is new has to be estimated.
        likely = estimate if not self._read else min(estimate, self._read + estimate - self._estimate)
        notices = [] if self.model.tools or self._told else [NO_TOOLS]
        self._told = True
        if likely > window - answer:
            left_out = sent.fit(asked, window - answer - fixed)
            what = "message was" if left_out == 1 else "messages were"
            notices.append(
                f"{left_out} older {what} shortened or left out: the model reads {window:,} tokens"
            )
            self._read, estimate = 0, fixed + sent.tokens
            if estimate * LEAST > window:
                msg = f"the question does not fit into the {window:,} tokens that the model reads at once"
                hint = "ask for less, offer fewer tools, or use a model or a `num_ctx` with a larger window"
                raise ModelError(msg, hint=hint)
        self._more, self._estimate = estimate - self._estimate, estimate
        return notices

    def note_usage(self, usage: Usage) -> str:
        """Compare what the API read with what was sent; return what to tell the person if it was cut."""
        model, read = self.model, usage.input_tokens
        if model is None or not read or not self._estimate:
            return ""
        least = self._read + self._more * LEAST if self._read else self._estimate * LEAST
        if model.cuts and read < least * SLACK:
            self._read = 0
            return (
                f"the model read only {read:,} tokens of a longer request: its server cut the beginning, the "
                "system prompt and the tools; give the model a larger window (`--num-ctx`), or ask for less"
            )
        self._read = read
        return ""

    def learn(self, said: str) -> bool:
        """Read the window from an API's refusal; return whether it is smaller than it was known."""
        found = _LIMIT.search(said)
        size = int(next(filter(None, found.groups()))) if found else 0
        if not size or (self.model is not None and size >= self.model.tokens):
            return False
        tools = self.takes_tools
        self.model = ModelWindow(tokens=size, source="the API's refusal", tools=tools, cuts=False)
        return True
