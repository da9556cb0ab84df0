"""The conversation with a model: messages, token usage, and switching the model."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dragoman.agent.engine import AgentEngine
from dragoman.agent.messages import Transcript, Usage
from dragoman.cli.output import one_line
from dragoman.errors import AgentError, DragomanError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from dragoman.agent.messages import AgentEvent, Answer, Message, Price, Provider
    from dragoman.manager.manager import McpManager


class Conversation:
    """Holds the agent of the current model."""

    def __init__(
        self,
        mcp: McpManager,
        provider: Provider | None = None,
        *,
        transcript: str | Path | None = None,
        price: Price | None = None,
        how: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Create a conversation; nothing is opened yet.

        Args:
            mcp: The manager with the tools for the model.
            provider: The model; None: it can be chosen later.
            transcript: The file in which the conversation is saved and from which it continues.
            price: The price of the first model.
            how: The options with which models are opened: `num_ctx` and `think`.
            env: Environment variables with API keys; default: `os.environ`.
        """
        self._mcp = mcp
        self._first = provider
        self._transcript = None if transcript is None else Path(transcript)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._kept = 0
        """How many files are in it."""
        self._price = price
        self._priced = provider.model if provider is not None else ""
        self._how = dict(how or {})
        self._env = os.environ if env is None else env
        self._agent: AgentEngine | None = None
        self._off: list[str] = []
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
        """Whether there is a model."""
        return self._agent is not None

    @property
    def model(self) -> str:
        """The name of the model; empty without a model."""
        return self._agent.provider.model if self._agent is not None else ""

    @property
    def provider(self) -> Provider:
        """The model.

        Raises:
            AgentError: There is no model.
        """
        if self._agent is None:
            msg = "no model configured"
            raise AgentError(msg, hint="choose one with /model NAME")
        return self._agent.provider

    @property
    def messages(self) -> Sequence[Message]:
        """All messages."""
        return self._agent.messages if self._agent is not None else ()

    @property
    def usage(self) -> dict[str, Usage]:
        """The token usage of each model, by name."""
        found: dict[str, Usage] = {}
        now = [] if self._agent is None else [(self.model, self._agent.usage)]
        for name, used in [*self._past, *now]:
            found[name] = found.get(name, Usage()) + used
        return found

    @property
    def tokens(self) -> int:
        """Input and output tokens of all models."""
        return sum(used.input_tokens + used.output_tokens for used in self.usage.values())

    def money(self, model: str = "") -> float | None:
        """Return the cost of one model or of all models; None if a price is unknown."""
        names = [model] if model else [name for name, used in self.usage.items() if used != Usage()]
        if self._price is None or any(name != self._priced for name in names):
            return None
        return sum(self._price.cost(self.usage[name]) for name in names)

    async def ask(self, question: str, on_event: Callable[[AgentEvent], None]) -> Answer:
        """Send a message to the model and return its answer.

        Raises:
            AgentError: There is no model.
            ModelError: Its API failed.
        """
        if self._agent is None:
            msg = "no model configured"
            raise AgentError(msg, hint="choose one with /model NAME")
        self.questions += 1
        return await self._agent.run(question, on_event=on_event)

    def forget(self) -> Path | None:
        """Start a new conversation with the same model; return the transcript that keeps the old one."""
        kept = self._transcript if self._scratch is None else None
        self._transcript = None
        self.questions = 0
        if self._agent is not None:
            self._agent.forget()
        return kept

    @property
    def off(self) -> Sequence[str]:
        """The rules of the tools that the model may not use: exposed names, `server:tool`, or globs."""
        return tuple(self._off)

    @property
    def think(self) -> bool | str | None:
        """Whether or how much the model thinks first; None: as it does by itself."""
        return self._how.get("think")

    async def set_think(self, think: bool | str | None) -> None:
        """Continue with the same model, which thinks as much.

        Raises:
            AgentError: There is no model, or it cannot be opened by name.
            ProviderError: The model takes no such setting; it stays as it was.
        """
        before, self._how["think"] = self.think, think
        try:
            await self.switch(self._name())
        except DragomanError:
            self._how["think"] = before
            raise

    async def set_off(self, rules: Sequence[str]) -> None:
        """Continue with the same model, which may use all tools but these.

        Raises:
            AgentError: There is no model, or it cannot be opened by name; the tools stay as they were.
        """
        name = self._name()
        before, self._off = self._off, list(dict.fromkeys(rules))
        try:
            await self.switch(name)
        except DragomanError:
            self._off = before
            raise

    async def load(self, path: Path) -> int:
        """Continue a saved conversation; return how many messages it has. Its file stays as it is.

        Raises:
            AgentError: There is no model, or the file is not a transcript.
        """
        name = self._name()
        messages = await asyncio.to_thread(Transcript(path).read)
        kept = self._transcript
        self._transcript = self._keep(messages)
        try:
            await self.switch(name)
        except DragomanError:
            self._transcript = kept
            raise
        self.questions = sum(message.role == "user" for message in messages)
        return len(messages)

    def _name(self) -> str:
        """Return the name by which the model can be opened once more."""
        provider = self.provider
        kind = getattr(provider, "provider", "")
        if not kind:
            msg = f"`{provider.model}` cannot be opened by name"
            raise AgentError(msg, hint="choose a model with /model NAME")
        return f"{kind}:{provider.model}"

    def _keep(self, messages: Sequence[Message]) -> Path:
        """Keep messages in a file until the session ends: a new agent can only start from one."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="dragoman-")
        self._kept += 1
        path = Path(self._scratch.name, f"talk-{self._kept}.jsonl")
        Transcript(path).append(messages)
        return path

    async def switch(self, name: str) -> None:
        """Continue with another model.

        Raises:
            ProviderError: The model cannot be used; the current one stays.
        """
        from dragoman.agent.providers import open_provider

        provider = await open_provider(name, env=self._env, **self._how)
        former = self._agent
        if former is not None and self._transcript is None and former.messages:
            self._transcript = self._keep(former.messages)
        await self._begin(provider)
        if former is not None:
            self._past.append((former.provider.model, former.usage))
            await former.close()

    async def _begin(self, provider: Provider) -> None:
        window = self._how.get("num_ctx")
        agent = AgentEngine(
            provider,
            self._mcp,
            deny=self._off,
            ask=True,
            transcript=self._transcript,
            start_wait=0,
            window=window,
        )
        await agent.start()
        self._agent = agent


async def available_models(env: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Return names of models that can be chosen, each with a description."""
    from dragoman.agent.providers.local import find_local
    from dragoman.agent.providers.open import VARIABLES, installed_providers

    found = [(f"{name}:MODEL", "API key is set") for name, key in VARIABLES.items() if env.get(key)]
    others = await asyncio.to_thread(installed_providers)
    found += [(f"{one_line(name)}:MODEL", f"of {one_line(entry.value)}") for name, entry in others.items()]
    local = await find_local()
    if local is None:
        found.append(("local:MODEL", "no local Ollama, llama.cpp, LM Studio or vLLM found"))
    else:
        found += [(f"local:{one_line(name)}", f"at {local.base_url}") for name in local.models]
    needs: dict[str, list[str]] = {}
    for name, key in VARIABLES.items():
        if not env.get(key):
            needs.setdefault(key, []).append(f"{name}:MODEL")
    return found + [
        (", ".join(names), f"needs {key}, or a key in the keyring") for key, names in needs.items()
    ]


def as_markdown(messages: Sequence[Message]) -> str:
    """Return a conversation as markdown, including the tool calls."""
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
