"""A model with scripted answers: for tests, examples and demos, without network or key."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence  # noqa: TC003 -- users resolve the fields' type hints
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dragoman.agent.messages import Answered, CallDelta, Message, TextDelta, ThoughtDelta, ToolCall, Usage
from dragoman.agent.providers.parsing import Ids, read_call
from dragoman.errors import ModelError
from dragoman.struct import Struct, field

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable

    from dragoman.agent.messages import Finish, ModelEvent, ModelRequest


class Say(Struct, kw_only=True):
    """One answer of a scripted model."""

    text: str = ""
    calls: Sequence[ToolCall | tuple[str, Mapping[str, Any] | str]] = ()
    """Each a tool's name with its arguments; arguments as text stand for raw output of a model."""
    thought: str = ""
    finish: Finish | None = None
    """Unless given: `tool_calls` if there are calls, else `stop`."""
    usage: Usage = field(default_factory=Usage)
    native: Mapping[str, Any] | None = None
    error: ModelError | None = None
    """Raised at the end, instead of finishing the answer."""


Line: TypeAlias = "Say | str | ModelError"
"""A text is a plain answer, an error makes the request fail."""
Script: TypeAlias = "Sequence[Line] | Callable[[ModelRequest], Line | Awaitable[Line]]"


class ScriptedProvider:
    """Answers with the next line of a list, or with a function of the request.

    The same script gives the same events, including the ids of calls. `requests` has every request so far.
    """

    def __init__(
        self,
        script: Script,
        *,
        api: Literal["openai", "responses", "anthropic", "gemini"] = "openai",
        model: str = "scripted",
        loads_tools: Literal["", "definitions", "references"] = "",
    ) -> None:
        self.api: Literal["openai", "responses", "anthropic", "gemini"] = api
        self.model = model
        self.loads_tools: Literal["", "definitions", "references"] = loads_tools
        self.requests: list[ModelRequest] = []
        self._script = script

    def __repr__(self) -> str:
        return f"ScriptedProvider({self.model!r})"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer with the script's next line; see `Provider.stream`."""
        self.requests.append(request)
        line = await self._next(request)
        if isinstance(line, ModelError):
            raise line
        say = Say(text=line) if isinstance(line, str) else line
        if say.thought:
            yield ThoughtDelta(text=say.thought)
        # Word by word, so that tests can see whether text is shown as it arrives.
        for word in _words(say.text):
            yield TextDelta(text=word)
        calls = _calls(say, request)
        for call in calls:
            yield CallDelta(id=call.id, name=call.name, raw=call.raw)
        if say.error is not None:
            raise say.error
        yield Answered(
            message=Message(role="assistant", text=say.text, calls=calls, native=say.native or {}),
            finish=say.finish or ("tool_calls" if calls else "stop"),
            usage=say.usage,
            model=self.model,
        )

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""

    async def _next(self, request: ModelRequest) -> Line:
        if callable(self._script):
            line = self._script(request)
            return await line if inspect.isawaitable(line) else line
        number = len(self.requests)
        if number > len(self._script):
            msg = f"the script has {len(self._script)} lines, and the model was asked for line {number}"
            raise ModelError(msg, hint="add a line, or give a function of the request")
        return self._script[number - 1]


def _words(text: str) -> list[str]:
    *words, last = text.split(" ")
    return [*(f"{word} " for word in words), *([last] if last else [])]


def _calls(say: Say, request: ModelRequest) -> tuple[ToolCall, ...]:
    ids = Ids(request.messages)
    calls: list[ToolCall] = []
    for call in say.calls:
        if isinstance(call, ToolCall):
            calls.append(call)
            continue
        name, written = call
        raw = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
        calls.append(read_call(ids.settle(""), name, raw))
    return tuple(calls)
