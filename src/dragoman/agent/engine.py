"""AgentEngine: asks the model, makes the calls that it wants, gives the results back, until it has an answer.

Owns the conversation and the order in it: after every turn of the model stand the answers to its calls, one
each, in its order, whatever happened to them. Never talks to a server: calls go through the manager like any
other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from dragoman import call as pipeline
from dragoman.agent.budget import Budget, Spending
from dragoman.agent.messages import Answered, Message, ModelRequest, Usage
from dragoman.agent.notices import Notices
from dragoman.agent.offering import Offering, ToolLimit
from dragoman.agent.steps import (
    Answer,
    Noticed,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
)
from dragoman.agent.transcript import Transcript, interrupted
from dragoman.errors import AgentError, DragomanError, ModelError
from dragoman.manager import McpManager
from dragoman.model import Settings, ToolResult
from dragoman.resource_tools import result_tool
from dragoman.spill import Spill, default_folder
from dragoman.tools.budget import Budget as TextBudget
from dragoman.tools.registry import ToolRegistry
from dragoman.trust.sanitize import for_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from types import TracebackType

    from dragoman.agent.messages import Provider, ToolCall
    from dragoman.agent.offering import Offered
    from dragoman.agent.steps import AgentEvent
    from dragoman.model import ServerSpec

logger = logging.getLogger("dragoman")

START_WAIT = 10.0
"""Seconds that a start waits for servers of which nothing is known yet."""
RESULT_TOKENS = 25_000
"""How much of one result a model is shown."""
MAX_INSTRUCTIONS = 2_000
"""Characters that a server's instructions may take in the system prompt."""
ATTRIBUTION = (
    "Tool results may end with a block that begins with `Sources:`. When your answer rests on such a result, "
    "name those sources and their dates in the answer."
)


class AgentEngine:
    """A model, its tools, and the loop between them."""

    def __init__(
        self,
        model: Provider | str,
        tools: McpManager | ToolRegistry | Settings | Iterable[ServerSpec] = (),
        *,
        system: str = "",
        budget: Budget | None = None,
        limit: ToolLimit | None = None,
        transcript: str | Path | None = None,
        mend_arguments: bool = True,
        result_tokens: int = RESULT_TOKENS,
        max_tokens: int | None = None,
        start_wait: float = START_WAIT,
    ) -> None:
        """Take in what the agent works with; nothing is started.

        Args:
            model: A provider, or a name such as `openai:gpt-5`, `anthropic:claude-…`, `local`.
            tools: A manager, a registry, or the servers of which to make a manager. A manager that is not
                started yet is started and closed with the engine.
            system: What the model is told first.
            budget: The limits of one question.
            limit: How many tools the model is offered at once.
            transcript: A file of JSON Lines; if it exists, the conversation goes on from it.
            mend_arguments: Whether obvious slips in arguments are mended, where a server does not say.
            result_tokens: How much of one result the model is shown; it can read on in the rest.
            max_tokens: The longest single answer of the model.
            start_wait: Seconds a start waits for servers of which nothing is known yet.
        """
        self.manager, self.registry, self._runs_manager = _taken_in(tools)
        self._model = model
        self._provider: Provider | None = None if isinstance(model, str) else model
        self._system = system
        self._budget = budget or Budget()
        self._limit = limit or ToolLimit()
        self._transcript = None if transcript is None else Transcript(Path(transcript))
        self._mends = mend_arguments
        self._spill = Spill(default_folder())
        self._caller = self._calling(
            mends=mend_arguments, budget=TextBudget(limit=result_tokens, unit="tokens")
        )
        self._max_tokens = max_tokens
        self._start_wait = start_wait
        self._messages: list[Message] = []
        self._offering: Offering | None = None
        self._notices = Notices()
        self._working = asyncio.Lock()
        self._closed = False
        self.usage = Usage()
        """What the model has used over all questions."""

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far; every call in it has its answer."""
        return tuple(self._messages)

    @property
    def provider(self) -> Provider:
        """The model that is asked.

        Raises:
            AgentError: The engine is not started.
        """
        if self._provider is None:
            msg = "the agent is not started"
            raise AgentError(msg, hint="use it with `async with`, or `await agent.start()`")
        return self._provider

    async def start(self) -> None:
        """Connect to the model and to every configured server; one that fails does not stop the agent."""
        if self._closed or self._offering is not None:
            msg = "the agent is closed" if self._closed else "the agent is already started"
            raise AgentError(msg, hint="make a new one")
        if self._provider is None:
            from dragoman.agent.providers import open_provider

            self._provider = await open_provider(cast("str", self._model))
        if self._transcript is not None:
            self._messages = await asyncio.to_thread(self._transcript.read)
        self._offering = Offering(self.registry, self._provider.api, self._limit)
        try:
            await self._start_manager()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close every connection that the engine opened; twice does no harm."""
        self._closed = True
        if self._offering is not None:
            self._offering.close()
        try:
            if self.manager is not None and self._runs_manager:
                await self.manager.shutdown()
        finally:
            if self._provider is not None:
                await self._provider.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(
        self, question: str | Message, *, on_event: Callable[[AgentEvent], None] | None = None
    ) -> Answer:
        """Answer a question, with as many calls as it takes.

        One question at a time; a second one waits. After a cancellation or an error the conversation is
        whole, and the next question goes on from it.

        Raises:
            ModelError: The model's API failed.
            BudgetExceededError: A limit was reached.
        """
        emit = on_event or _nobody
        asked = Message(role="user", text=question) if isinstance(question, str) else question
        async with self._working:
            if self._closed or self._offering is None:
                msg = "the agent is closed" if self._closed else "the agent is not started"
                raise AgentError(msg, hint="use it with `async with`")
            spending = Spending(self._budget, time.monotonic())
            limit = asyncio.timeout(self._budget.seconds)
            try:
                async with limit:
                    answer = await self._work(asked, spending, emit)
            except TimeoutError:
                if limit.expired():
                    reached = f"{self._budget.seconds:g} seconds"
                    raise spending.exceeded(reached) from None
                raise
        emit(answer)
        return answer

    async def stream(self, question: str | Message) -> AsyncIterator[AgentEvent]:
        """Answer a question and give what happens as it happens; the last event is the `Answer`.

        Leaving the iteration early, closed with `aclosing`, cancels the work.
        """
        events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        task = asyncio.create_task(self.run(question, on_event=events.put_nowait))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _start_manager(self) -> None:
        if self.manager is None:
            return
        self._notices.listen(self.manager)
        if self._runs_manager:
            await self.manager.__aenter__()
        unknown = [name for name, status in self.manager.status().items() if not status.tools]
        startable = {spec.name for spec in self.manager.settings.servers if spec.enabled and not spec.lazy}
        await self.manager.wait_ready([name for name in unknown if name in startable], self._start_wait)
        # What happened until now is no news to a model that has not been asked anything yet.
        self._notices.forget()

    async def _work(self, asked: Message, spending: Spending, emit: Callable[[AgentEvent], None]) -> Answer:
        first = len(self._messages)
        self._record([asked])
        system = self._system_prompt()
        while True:
            spending.check(time.monotonic())
            self._tell_news(emit)
            offered = cast("Offering", self._offering).current()
            emit(StepStarted(step=spending.steps + 1, tools=len(offered.tools)))
            said = await self._ask(system, offered, emit)
            spending.steps += 1
            spending.usage += said.usage
            self.usage += said.usage
            calls = said.message.calls
            if calls:
                await self._make_calls(said.message, offered, emit)
            else:
                self._record([said.message])
            emit(StepFinished(step=spending.steps, usage=said.usage, calls=len(calls)))
            # A paused turn goes on when it is sent back as it is.
            if not calls and said.finish != "paused":
                return Answer(
                    text=said.message.text,
                    finish=said.finish,
                    messages=tuple(self._messages[first:]),
                    usage=spending.usage,
                    steps=spending.steps,
                    money=spending.money,
                )

    async def _ask(self, system: str, offered: Offered, emit: Callable[[AgentEvent], None]) -> Answered:
        messages = [Message(role="system", text=system), *self._messages] if system else self._messages
        request = ModelRequest(messages=tuple(messages), tools=offered.tools, max_tokens=self._max_tokens)
        stream = self.provider.stream(request)
        async with aclosing(cast("Any", stream)):
            async for event in stream:
                if isinstance(event, Answered):
                    return event
                emit(event)
        msg = f"the answer of `{self.provider.model}` ended without a finish reason"
        raise ModelError(msg, hint="ask again: nothing of it was used")

    async def _make_calls(self, turn: Message, offered: Offered, emit: Callable[[AgentEvent], None]) -> None:
        """Make the calls of one turn: servers side by side, the calls to one of them in their order.

        Whatever happens, the turn and an answer to each of its calls are recorded together.
        """
        answers: dict[int, Message] = {}

        async def follow(lane: Sequence[int]) -> None:
            for at in lane:
                answers[at] = await self._make_call(turn.calls[at], offered, emit)

        try:
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes(turn.calls, offered):
                    group.create_task(follow(lane))
        finally:
            given = [answers.get(at) or interrupted(call) for at, call in enumerate(turn.calls)]
            self._record([turn, *given])

    def _lanes(self, calls: Sequence[ToolCall], offered: Offered) -> list[list[int]]:
        lanes: dict[str, list[int]] = {}
        parallel = (
            {spec.name for spec in self.manager.settings.servers if spec.parallel} if self.manager else ()
        )
        for at, call in enumerate(calls):
            tool = self.registry.get(offered.meaning(call.name))
            server = tool.server if tool is not None else ""
            lane = f"{server}\n{at}" if server in parallel else server
            lanes.setdefault(lane, []).append(at)
        return list(lanes.values())

    async def _make_call(
        self, call: ToolCall, offered: Offered, emit: Callable[[AgentEvent], None]
    ) -> Message:
        name, arguments = offered.restore(call.name, call.arguments)
        tool = self.registry.get(name)
        emit(ToolStarted(call=call, tool=name, server=tool.server if tool else ""))

        def progressed(progress: float, total: float | None, message: str | None) -> None:
            emit(ToolProgressed(call=call, progress=progress, total=total, message=message))

        if call.problem:
            result = _refused(f"the arguments could not be read: {call.problem}; write one JSON object")
        else:
            try:
                result = await self._call(name, arguments, progressed)
            except DragomanError as exc:
                result = _refused(str(exc))
            except Exception as exc:
                logger.exception("agent: the call of `%s` broke", name)
                result = _refused(f"`{name}` could not be run: {type(exc).__name__}: {exc}")
        emit(ToolFinished(call=call, tool=name, result=result))
        return Message(
            role="tool",
            text=for_model(result.text),
            parts=tuple(part for part in result.parts if part.kind != "text"),
            call_id=call.id,
            name=call.name,
            is_error=not result.success,
        )

    async def _call(
        self, name: str, arguments: Any, on_progress: Callable[[float, float | None, str | None], None]
    ) -> ToolResult:
        offering = cast("Offering", self._offering)
        if (own := offering.own(name)) is not None:
            if self.manager is not None:
                return await self.manager.caller(mends=self._mends, registry=own)(name, arguments)
            return await pipeline.run(replace(_route(own), mends=self._mends), name, arguments)
        result = await self._caller(name, arguments, on_progress=on_progress)
        if str(self._spill.folder) in result.text:
            # Something was too long to be shown as a whole: from now on the model can read on in it.
            offering.add(result_tool(self._spill))
        return result

    def _calling(self, *, mends: bool, budget: TextBudget) -> pipeline.Caller:
        if self.manager is not None:
            return self.manager.caller(mends=mends, budget=budget, spill=self._spill)
        route = replace(_route(self.registry), mends=mends, budget=budget, spill=self._spill)
        return pipeline.caller(route, lambda: None)

    def _tell_news(self, emit: Callable[[AgentEvent], None]) -> None:
        """Tell the model, in one line each, what changed since it was asked last."""
        if news := self._notices.take():
            self._record([Message(role="user", text="\n".join(f"[notice] {text}" for text in news))])
            for text in news:
                emit(Noticed(text=text))

    def _system_prompt(self) -> str:
        pieces = [self._system] if self._system else []
        if len(self.registry):
            pieces.append(ATTRIBUTION)
        said = self.manager.instructions() if self.manager is not None else {}
        pieces += [f"About the tools of `{name}`:\n{said[name][:MAX_INSTRUCTIONS]}" for name in sorted(said)]
        return "\n\n".join(pieces)

    def _record(self, messages: Sequence[Message]) -> None:
        """Take messages into the conversation and onto disk, all of them or, if that fails, none."""
        if self._transcript is not None:
            self._transcript.append(messages)
        self._messages += messages


def _taken_in(
    tools: McpManager | ToolRegistry | Settings | Iterable[ServerSpec],
) -> tuple[McpManager | None, ToolRegistry, bool]:
    if isinstance(tools, ToolRegistry):
        return None, tools, False
    if isinstance(tools, McpManager):
        return tools, tools.registry, not tools.started
    manager = McpManager(tools if isinstance(tools, Settings) else tuple(tools))
    return manager, manager.registry, True


def _route(registry: ToolRegistry) -> pipeline.Route:
    return pipeline.Route(registry=registry, supervisors={}, publish=_nobody)


def _refused(text: str) -> ToolResult:
    return ToolResult(success=False, text=text, error=text)


def _nobody(_: object) -> None:
    """Hear an event that nobody listens to."""
