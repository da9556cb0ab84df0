"""Keep the requests of an agent within the window of its model, and notice when one was cut anyway.

Sizes are estimated from above; what the API read already is known. Of the window, the definitions of tools
take at most `DEFINITIONS`; above that the model searches for tools.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from typing import TYPE_CHECKING

from dragoman.agent.providers.window import LEAST_WINDOW, ModelWindow
from dragoman.errors import ModelError
from dragoman.tools.result.budget import tokens_at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dragoman.agent.compaction import SentMessages
    from dragoman.agent.messages import Message, Provider, Usage
    from dragoman.agent.offer import ToolLimit
    from dragoman.model import JsonObject

logger = logging.getLogger("dragoman")

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
_NUMBER = r"(\d[\d,._]{2,14})"
_LIMIT = re.compile(
    rf"context (?:length|size|window)\D{{0,40}}?{_NUMBER} tokens|n_ctx\D{{0,9}}{_NUMBER}|{_NUMBER} maximum"
    rf"|context (?:length|size|window) is {_NUMBER}",
    re.IGNORECASE,
)


async def find_window(provider: Provider, given: int | None = None) -> ModelWindow | None:
    """Return the window of a model: the given one, or what its provider knows."""
    ask = getattr(provider, "window", None)
    window: object = None
    try:
        window = ask() if callable(ask) else None
        window = await window if inspect.isawaitable(window) else window
    except Exception:
        logger.warning("the window of the model is not known: its provider failed to say", exc_info=True)
    known = window if isinstance(window, ModelWindow) else None
    if given is None:
        return known
    if known is None or not known.cuts:
        return ModelWindow(tokens=given, source="given", cuts=False)
    return known.replace(tokens=min(given, known.tokens))


def cost_of(tools: Sequence[JsonObject]) -> int:
    """Return the most tokens that the definitions in a request take; deferred ones take none."""
    shown = [tool for tool in tools if not tool.get("defer_loading")]
    return tokens_at_most(json.dumps(shown, ensure_ascii=False, separators=(",", ":"))) if shown else 0


class RequestWindow:
    """The window of one model, and what is known of the size of its requests."""

    def __init__(self, model: ModelWindow | None, max_tokens: int | None = None) -> None:
        self.model = model
        self._answer = max_tokens
        self._estimate = 0
        """Of the request that was sent last."""
        self._read: tuple[int, int] | None = None
        """The estimate of a request and what the API read of it, while later requests only add to it."""
        self._fixed: tuple[object, str, int] | None = None
        self._told = False

    @property
    def takes_tools(self) -> bool:
        """Whether the model can call tools."""
        return self.model is None or self.model.tools

    def forget(self) -> None:
        """Forget the size of a conversation that has ended."""
        self._read = None

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
            ModelError: The question and the system prompt do not fit; the conversation stays as it was.
        """
        if self.model is None:
            return []
        if self._fixed is None or self._fixed[0] is not tools or self._fixed[1] != system:
            self._fixed = (tools, system, tokens_at_most(system) + cost_of(tools))
        fixed, window = self._fixed[2], self.model.tokens
        room = window - (min(ANSWER, window // 4) if self._answer is None else self._answer)
        notices = [] if self.model.tools or self._told else [NO_TOOLS]
        estimate = fixed + sent.tokens
        # What was read once is known; only what is new has to be estimated.
        known = estimate if self._read is None else estimate - self._read[0] + self._read[1]
        if min(estimate, known) > room:
            shorter = sent.shortened(asked, room - fixed)
            estimate = fixed + shorter.tokens
            if room <= 0 or estimate * LEAST > window:
                msg = f"the question does not fit into the {window:,} tokens that the model reads at once"
                hint = "ask for less, offer fewer tools, or use a model or a `num_ctx` with a larger window"
                raise ModelError(msg, hint=hint)
            if shorter.changed:
                self._read = None
                what = "message was" if shorter.changed == 1 else "messages were"
                notices.append(
                    f"{shorter.changed} older {what} shortened or left out: the model reads {window:,} tokens"
                )
            if estimate > window:
                notices.append(
                    f"this request may be longer than the {window:,} tokens that the model reads: its server "
                    "then cuts the beginning, the system prompt and the tools"
                )
            sent.take(shorter)
        self._told, self._estimate = True, estimate
        return notices

    def note_usage(self, usage: Usage) -> str:
        """Compare what the API read with what was sent; return what to tell the person if it was cut."""
        model, read, before = self.model, usage.input_tokens, self._read
        self._read = None
        if model is None or not read or not self._estimate:
            return ""
        more = self._estimate if before is None else self._estimate - before[0]
        least = more * LEAST + (0 if before is None else before[1])
        if model.cuts and read < least * SLACK:
            return (
                f"the model read only {read:,} tokens of a longer request: its server cut the beginning, the "
                "system prompt and the tools; give the model a larger window (`--num-ctx`), or ask for less"
            )
        self._read = (self._estimate, read)
        return ""

    def learn(self, said: str) -> bool:
        """Read an API's refusal; return whether it says that the request was too long."""
        found = _LIMIT.search(said) if "token" in said.lower() or "n_ctx" in said else None
        if found is None:
            return False
        self._read = None
        size = int(re.sub(r"\D", "", next(filter(None, found.groups())))[:12])
        if size >= LEAST_WINDOW and (self.model is None or size < self.model.tokens):
            source = "the API's refusal"
            self.model = ModelWindow(tokens=size, source=source, tools=self.takes_tools, cuts=False)
        return self.model is not None
