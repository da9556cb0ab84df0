"""The talk with a model: who is talked to, what was said, what it took; the model can be changed in it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dragoman.agent.engine import AgentEngine
from dragoman.agent.messages import Usage
from dragoman.agent.transcript import Transcript
from dragoman.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from dragoman.agent.messages import Message, Price, Provider
    from dragoman.agent.steps import AgentEvent, Answer
    from dragoman.manager import McpManager


class Conversation:
    """Holds an agent for the model that is talked to now."""

    def __init__(
        self,
        mcp: McpManager,
        provider: Provider | None = None,
        *,
        transcript: str | Path | None = None,
        price: Price | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Take in what is needed; nothing is opened.

        Args:
            mcp: Whose tools the model is offered.
            provider: The model; none: one can be chosen later.
            transcript: A file that the conversation is kept in, and goes on from.
            price: What the first model costs; no other's price is known.
            env: Where keys are looked for; this process's environment unless given.
        """
        self._mcp = mcp
        self._first = provider
        self._transcript = None if transcript is None else Path(transcript)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._price = price
        self._priced = provider.model if provider is not None else ""
        self._env = os.environ if env is None else env
        self._agent: AgentEngine | None = None
        self._past: list[tuple[str, Usage]] = []
        self.questions = 0

    async def __aenter__(self) -> Self:
        if self._first is not None:
            await self._begin(self._first)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._agent is not None:
                await self._agent.close()
        finally:
            if self._scratch is not None:
                self._scratch.cleanup()

    @property
    def is_open(self) -> bool:
        """Whether there is a model to talk to."""
        return self._agent is not None

    @property
    def model(self) -> str:
        """The model's name; empty if there is none."""
        return self._agent.provider.model if self._agent is not None else ""

    @property
    def provider(self) -> Provider:
        """The model.

        Raises:
            AgentError: There is none.
        """
        if self._agent is None:
            msg = "there is no model to ask"
            raise AgentError(msg, hint="choose one with `/model NAME`")
        return self._agent.provider

    @property
    def messages(self) -> Sequence[Message]:
        """Everything that was said."""
        return self._agent.messages if self._agent is not None else ()

    @property
    def usage(self) -> dict[str, Usage]:
        """What each model has taken so far, by its name."""
        found: dict[str, Usage] = {}
        now = [] if self._agent is None else [(self.model, self._agent.usage)]
        for name, used in [*self._past, *now]:
            found[name] = found.get(name, Usage()) + used
        return found

    @property
    def tokens(self) -> int:
        """Input and output of all models together."""
        return sum(used.input_tokens + used.output_tokens for used in self.usage.values())

    def money(self, model: str = "") -> float | None:
        """Return what a model, or all of them, cost; nothing where a price is not known."""
        names = [model] if model else [name for name, used in self.usage.items() if used != Usage()]
        if self._price is None or any(name != self._priced for name in names):
            return None
        return sum(self._price.cost(self.usage[name]) for name in names)

    async def ask(self, question: str, on_event: Callable[[AgentEvent], None]) -> Answer:
        """Say something to the model, and return its answer.

        Raises:
            AgentError: There is no model.
            ModelError: Its API failed.
        """
        if self._agent is None:
            msg = "there is no model to talk to"
            raise AgentError(msg, hint="choose one with `/model NAME`; commands begin with a slash")
        self.questions += 1
        return await self._agent.run(question, on_event=on_event)

    async def switch(self, name: str) -> None:
        """Go on with another model.

        Raises:
            ProviderError: It cannot be used; the former one goes on.
        """
        from dragoman.agent.providers import open_provider

        provider = await open_provider(name, env=self._env)
        former = self._agent
        if former is not None and self._transcript is None and former.messages:
            # A new agent begins from a file, and only from there.
            self._scratch = tempfile.TemporaryDirectory(prefix="dragoman-")
            self._transcript = Path(self._scratch.name, "talk.jsonl")
            Transcript(self._transcript).append(former.messages)
        await self._begin(provider)
        if former is not None:
            self._past.append((former.provider.model, former.usage))
            await former.close()

    async def _begin(self, provider: Provider) -> None:
        agent = AgentEngine(provider, self._mcp, transcript=self._transcript, start_wait=0)
        await agent.start()
        self._agent = agent


def as_markdown(messages: Sequence[Message]) -> str:
    """Return a conversation for people: who said what, and the calls in between."""
    pieces: list[str] = []
    for message in messages:
        match message.role:
            case "user":
                pieces.append(f"## You\n\n{message.text}")
            case "assistant":
                if message.text:
                    pieces.append(f"## Model\n\n{message.text}")
                for call in message.calls:
                    given = call.raw or json.dumps(call.arguments, ensure_ascii=False)
                    pieces.append(f"### Call `{call.name}`\n\n{_fenced(given, 'json')}")
            case "tool":
                word = "Failed" if message.is_error else "Result of"
                pieces.append(f"### {word} `{message.name}`\n\n{_fenced(message.text)}")
            case "system":
                pieces.append(f"## System\n\n{message.text}")
    return "\n\n".join(pieces) + "\n"


def _fenced(text: str, language: str = "text") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
