"""AgentEngine: ask the model, make its tool calls, return the results, until it has an answer.

Owns the conversation and its order: each turn of the model is followed by one answer for each of its calls,
in the same order, even if a call failed. It never talks to a server itself: calls go through the manager.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from dragoman import call as pipeline
from dragoman.agent.budget import Budget, Spending
from dragoman.agent.compaction import SentMessages
from dragoman.agent.messages import (
    Answer,
    Answered,
    Message,
    ModelRequest,
    Noticed,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolProgressed,
    ToolStarted,
    Transcript,
    Usage,
    interrupted,
)
from dragoman.agent.notices import Notices
from dragoman.agent.offer import RESERVED, RUN_CODE, ToolLimit, ToolOffer
from dragoman.agent.request_window import RequestWindow, find_window
from dragoman.agent.skills import SkillOffer
from dragoman.agent.tracing import AgentTracing
from dragoman.errors import AgentError, DragomanError, ModelError
from dragoman.languages import fill
from dragoman.manager.caller import caller_of
from dragoman.manager.manager import McpManager, parts_of
from dragoman.manager.resources import result_tool
from dragoman.model import Texts, ToolResult
from dragoman.observe.call_history import CallHistory
from dragoman.storage.results import ResultStore, default_folder
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.result.budget import TextBudget
from dragoman.tools.search.finders import SEARCH
from dragoman.tools.search.missing import missing_servers
from dragoman.tools.view import ToolView
from dragoman.trust.sanitizing import for_model, merged_instructions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from dragoman.agent.code.runner import CodeRunner
    from dragoman.agent.code.sandbox import CodeLimits
    from dragoman.agent.messages import AgentEvent, Provider, ToolCall
    from dragoman.agent.offer import OfferedTools
    from dragoman.agent.providers.window import ModelWindow
    from dragoman.manager.reloader import Servers
    from dragoman.model import ApprovalHandler, JsonObject, ToolDef
    from dragoman.storage.programs import SavedProgram

    ToolSource: TypeAlias = McpManager | ToolRegistry | ToolView | Servers
    """Where an agent's tools come from."""

MAX_HISTORY = 500
"""Calls of the call log that are read for the search's order."""


logger = logging.getLogger("dragoman")

START_WAIT = 10.0
"""Seconds that a start waits for servers without a cached list of tools."""
RESULT_TOKENS = 25_000
"""The most tokens of one result that a model sees, if its window is large."""
MAX_INSTRUCTIONS = 2_000
"""Characters that a server's instructions may take in the system prompt."""
ATTRIBUTION = (
    "Tool results may end with a block that begins with `{sources}`. When your answer rests on such a "
    "result, name those sources and their dates in the answer."
)
SKILLS = (
    "Servers have skills: instructions for certain tasks. Load the skill of a task with `load_skill` before "
    "you begin it:"
)


class AgentEngine:
    """A model, its tools, and the loop between them."""

    def __init__(
        self,
        model: Provider | str,
        source: ToolSource | None = None,
        *,
        tools: ToolSource | None = None,
        toolset: str | None = None,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        ask: bool | ApprovalHandler = False,
        system: str = "",
        budget: Budget | None = None,
        limit: ToolLimit | None = None,
        transcript: str | Path | None = None,
        coerce_arguments: bool = True,
        result_tokens: int | None = None,
        max_tokens: int | None = None,
        window: int | None = None,
        start_wait: float = START_WAIT,
        code: bool | Literal["auto"] = False,
        code_limits: CodeLimits | None = None,
    ) -> None:
        """Configure the agent; nothing is started yet.

        Args:
            model: A provider, or a name such as `openai:gpt-5`, `anthropic:claude-…`, `local`.
            source: A manager, a registry, a view of one, or the servers for a new manager. The engine starts
                and closes a manager that is not started yet.
            tools: A view of the registry of `source`: the tools that this agent may use. Several agents with
                different views can share a manager. To the agent, other tools do not exist.
            toolset: The same by the name of a toolset of the configuration.
            allow: The same as a filter: exposed names, `server:tool`, or globs of them; all tools by default.
            deny: The same; these win.
            ask: Whether a call that no rule of the policy decides needs a yes of `Handlers.approval`; or a
                function that is asked instead. Tools that only read are not asked about: dragoman's own,
                local ones with `readOnlyHint`, and those of servers with `trust_annotations`.
            system: The system prompt.
            budget: The limits of one question.
            limit: How many tools the model is offered at once.
            transcript: A file of JSON Lines; if it exists, the conversation continues from it.
            coerce_arguments: Whether arguments that nearly fit are corrected, such as `"3"` for a number; a
                server's own `coerce_arguments` wins.
            result_tokens: The most tokens of one result that the model sees; a tool reads the rest. 25,000
                unless given, and at most a quarter of the model's window.
            max_tokens: The most tokens of one answer of the model.
            window: How many tokens the model reads at once, its answer included; asked from a local server,
                and known for common hosted models, unless given.
            start_wait: Seconds that a start waits for servers without a cached list of tools.
            code: Whether the model can write programs that call tools (`run_code`; needs the extra `code`).
                With `"auto"` only if there are more tools than `limit` offers at once, so that it searches.
                Direct calls stay possible either way.
            code_limits: The limits of one program.

        Raises:
            ValueError: `tools` is a view of another registry, or several of `tools`, `toolset`, and `allow`
                with `deny` are given.
            ConfigError: No toolset has this name.
        """
        self.manager, self.registry, self.tools = _open_tools(source, tools, allow=allow, deny=deny)
        if toolset is not None:
            if self.manager is None or self.tools is not self.registry:
                msg = "give a toolset alone, with a manager or servers"
                raise ValueError(msg)
            self.tools = self.manager.toolset(toolset)
        """The tools of all agents are in `registry`, those of this one in `tools`."""
        self._runs_manager = self.manager is not None and not self.manager.started
        self._model = model
        self._provider: Provider | None = None if isinstance(model, str) else model
        self._system = system
        self._budget = budget or Budget()
        self._limit = limit or ToolLimit()
        self._transcript = None if transcript is None else Transcript(Path(transcript))
        self._asks = ask
        self._coerce = coerce_arguments
        # What the agent of one user keeps is not for the agents of others.
        self._user = self.manager.user if self.manager is not None else ""
        self._spill = ResultStore(default_folder(self._user))
        self._max_tokens = max_tokens
        self._given_window = window
        self._window = RequestWindow(None)
        self._start_wait = start_wait
        self._code_wanted = code
        self._code_limits = code_limits
        self._result_tokens = RESULT_TOKENS if result_tokens is None else result_tokens
        self._code: CodeRunner | None = None
        self._skills: SkillOffer | None = None
        self._known_skills = ""
        """The lines of the system prompt about skills."""
        self._messages: list[Message] = []
        self._sent = SentMessages()
        self._offering: ToolOffer | None = None
        self._prompt: str | None = None
        """The system prompt of the first request; it never changes, so that prompt caches stay valid."""
        self._words = parts_of(self.manager).texts if self.manager is not None else Texts()
        self._notices = Notices(self._words)
        self._seen: dict[str, str] = {}
        """The tools that have been in the agent's view, each with its server."""
        self._seen_export: object = None
        self._working = asyncio.Lock()
        self._redactor = parts_of(self.manager).gate.redactor if self.manager is not None else None
        self._tracing = AgentTracing(self._redactor.mask if self._redactor is not None else None)
        self._closed = False
        self.usage = Usage()
        """The tokens of all questions so far."""

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far; every call in it has its answer."""
        return tuple(self._messages)

    @property
    def window(self) -> ModelWindow | None:
        """How much the model reads at once; `None` before the start, or if it is not known."""
        return self._window.model

    @property
    def provider(self) -> Provider:
        """The provider of the model.

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
        if self._redactor is not None:
            self._redactor.add(getattr(self._provider, "secrets", ()))
        if self._transcript is not None:
            self._messages = await asyncio.to_thread(self._transcript.read)
            self._sent.add(self._messages)
        self._window = RequestWindow(await find_window(self._provider, self._given_window), self._max_tokens)
        self._result_tokens = self._window.result_tokens(self._result_tokens)
        self._caller = self._make_caller(TextBudget(limit=self._result_tokens, unit="tokens"))
        self._offering = ToolOffer(
            self.tools,
            self._provider.api,
            self._window.limit(self._limit),
            loads=self._provider.loads_tools,
            reader=result_tool(self._spill),
            about=self._instructions,
            unavailable=self._unavailable,
            used=self._earlier_calls,
            answer_tokens=None if self._window.model is None else self._result_tokens,
        )
        try:
            await self._start_manager()
            if self._code_wanted:
                await self._start_code()
        except BaseException:
            await self.close()
            raise

    def forget(self) -> None:
        """Start a new conversation with the same model and tools; the transcript keeps the old one.

        Raises:
            AgentError: A question is being answered.
        """
        if self._working.locked():
            msg = "a question is being answered"
            raise AgentError(msg, hint="wait for its answer, or cancel it")
        self._messages = []
        self._sent = SentMessages()
        self._window.forget()
        self._prompt = self._skills = None
        self._known_skills = ""
        if self._offering is not None:
            self._offering.restart()
        self._transcript = None

    async def close(self) -> None:
        """Close every connection that the engine opened; calling it again does nothing."""
        self._closed = True
        if self._offering is not None:
            # It waits for a thread that computes vectors.
            await asyncio.to_thread(self._offering.close)
        try:
            if self._code is not None:
                await self._code.close()
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

        One question runs at a time; a second one waits. After a cancellation or an error the conversation
        stays valid, and the next question continues it.

        Raises:
            ModelError: The model's API failed.
            BudgetExceededError: A limit was reached.
        """
        emit = on_event or _ignore
        asked = Message(role="user", text=question) if isinstance(question, str) else question
        async with self._working:
            if self._closed or self._offering is None:
                msg = "the agent is closed" if self._closed else "the agent is not started"
                raise AgentError(msg, hint="use it with `async with`")
            spending = Spending(self._budget, time.monotonic())
            limit = asyncio.timeout(self._budget.seconds)
            try:
                with self._tracing.question(self.provider) as traced:
                    async with limit:
                        answer = await self._work(asked, spending, emit)
                    if traced is not None:
                        traced.finished(answer)
            except TimeoutError:
                if limit.expired():
                    reached = f"{self._budget.seconds:g} seconds"
                    raise spending.exceeded(reached) from None
                raise
        emit(answer)
        return answer

    async def stream(self, question: str | Message) -> AsyncIterator[AgentEvent]:
        """Answer a question, and yield events as they happen; the last one is the `Answer`.

        Closing the iterator early (with `aclosing`) cancels the work.
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

    async def paused_programs(self) -> list[SavedProgram]:
        """Return the programs that wait for a person since an earlier process, the oldest first."""
        return await self._runner().paused()

    async def resume_program(self, identifier: str, answers: Mapping[str, Any] | None = None) -> ToolResult:
        """Go on with a program that waits for a person; the model reads its output with the next question.

        Args:
            identifier: The program's id: from `paused_programs`, or in a result's `meta` as
                `dragoman/program`.
            answers: The answers to the questions in `input_required`, as for `McpManager.tasks.resume`.

        Raises:
            AgentError: The agent has no code mode, or the program cannot be continued.
        """
        async with self._working:
            result = await self._runner().resume(identifier, answers)
            if result.input_required is None:
                text = f"[notice] the program that waited has ended:\n{for_model(result.text)}"
                self._record([Message(role="user", text=text)])
            return result

    def _runner(self) -> CodeRunner:
        if self._code is None:
            msg = "the agent has no code mode, or is not started"
            raise AgentError(msg, hint="make it with `code=True`")
        return self._code

    async def _start_code(self) -> None:
        from dragoman.agent.code.runner import CodeRunner
        from dragoman.agent.code.sandbox import is_installed
        from dragoman.storage.programs import ProgramStore

        if self._code_wanted == "auto" and not is_installed():
            return
        budget = TextBudget(limit=self._result_tokens, unit="tokens")
        self._code = runner = CodeRunner(
            self._code_tools,
            limits=self._code_limits,
            budget=budget,
            spill=self._spill,
            store=ProgramStore(user=self._user),
            words=self._words,
        )
        if self.manager is None:
            route = self._route(self.tools).replace(spill=self._spill)
            runner.connect(pipeline.make_caller(route, lambda: None))
        else:
            caller = caller_of(
                self.manager,
                coerce=self._coerce,
                ask=self._asks,
                spill=self._spill,
                tools=self.tools if isinstance(self.tools, ToolView) else None,
                while_asking=runner.while_asking,
                returns_questions=True,
            )
            runner.connect(caller, self.manager.tasks.resume)
        always = self._code_wanted is True
        offering = cast("ToolOffer", self._offering)
        is_listed = always and offering.fits_all()
        offering.add_code(await runner.tool(listed=is_listed), runner.signature, always=always)

    def _code_tools(self) -> list[ToolDef]:
        """Return the tools that a program can call: those that the model may."""
        return [tool for tool in self.tools if "model" in tool.audience and tool.name not in RESERVED]

    async def _start_manager(self) -> None:
        if self.manager is None:
            return
        self._notices.listen(self.manager)
        if self._runs_manager:
            await self.manager.__aenter__()
        unknown = [name for name, status in self.manager.status().items() if not status.tools]
        startable = {spec.name for spec in self.manager.settings.servers if spec.enabled and not spec.lazy}
        await self.manager.wait_ready([name for name in unknown if name in startable], self._start_wait)
        # The model has not been asked yet: it does not need notices about the start.
        self._notices.forget()

    async def _offer_skills(self, emit: Callable[[AgentEvent], None]) -> None:
        """Tell the model of the skills of servers that are new: in the system prompt, or in a notice."""
        if self.manager is None:
            return
        if self._skills is None:
            self._skills = SkillOffer(self.manager.skills, self._visible_servers)
        if not (lines := await self._skills.find()):
            return
        for tool in self._skills.tools():
            cast("ToolOffer", self._offering).add(tool)
        if self._prompt is None:
            self._known_skills = f"{SKILLS}\n{lines}"
        else:
            self._record([Message(role="user", text=f"[notice] {SKILLS}\n{lines}")])
            emit(Noticed(text=f"{SKILLS}\n{lines}"))

    def _visible_servers(self) -> set[str] | None:
        seen = self._known_tools()
        return None if seen is None else set(seen.values())

    async def _work(self, asked: Message, spending: Spending, emit: Callable[[AgentEvent], None]) -> Answer:
        first = len(self._messages)
        self._record([asked])
        if self.manager is not None:
            self.manager.registry.read_host()
        await self._offer_skills(emit)
        while True:
            spending.check(time.monotonic())
            self._add_notices(emit)
            offered = cast("ToolOffer", self._offering).current()
            if added := cast("ToolOffer", self._offering).take_added():
                self._record([added])
            if self._prompt is None:
                self._prompt = self._system_prompt()
            tools = offered.tools if self._window.takes_tools else ()
            emit(StepStarted(step=spending.steps + 1, tools=len(tools)))
            said = await self._ask(asked, tools, emit)
            spending.steps += 1
            spending.usage += said.usage
            self.usage += said.usage
            calls = said.message.calls
            if calls:
                await self._make_calls(said.message, offered, emit)
            else:
                self._record([said.message])
            emit(StepFinished(step=spending.steps, usage=said.usage, calls=len(calls)))
            # A paused turn continues when it is sent back unchanged.
            if not calls and said.finish != "paused":
                return Answer(
                    text=said.message.text,
                    finish=said.finish,
                    messages=tuple(self._messages[first:]),
                    usage=spending.usage,
                    steps=spending.steps,
                    money=spending.money,
                )

    async def _ask(
        self, asked: Message, tools: Sequence[JsonObject], emit: Callable[[AgentEvent], None]
    ) -> Answered:
        """Send the conversation; once more if the API says that its window is smaller than it was known."""
        try:
            return await self._send(asked, tools, emit)
        except ModelError as error:
            if not self._window.learn(str(error)):
                raise
        return await self._send(asked, tools, emit)

    async def _send(
        self, asked: Message, tools: Sequence[JsonObject], emit: Callable[[AgentEvent], None]
    ) -> Answered:
        system = self._prompt or ""
        before = self._sent.messages
        for notice in self._window.fit(self._sent, asked, system, tools):
            emit(Noticed(text=notice))
        if self._sent.messages is not before:
            cast("ToolOffer", self._offering).tell_again()
        messages = (
            [Message(role="system", text=system), *self._sent.messages] if system else self._sent.messages
        )
        request = ModelRequest(messages=tuple(messages), tools=tools, max_tokens=self._max_tokens)
        with self._tracing.chat(self.provider, request) as traced:
            stream = self.provider.stream(request)
            async with aclosing(cast("Any", stream)):
                async for event in stream:
                    if isinstance(event, Answered):
                        if traced is not None:
                            traced.answered(event)
                        if notice := self._window.note_usage(event.usage):
                            emit(Noticed(text=notice))
                        return event
                    emit(event)
        msg = f"the answer of `{self.provider.model}` ended without a finish reason"
        raise ModelError(msg, hint="ask again: the incomplete answer was discarded")

    async def _make_calls(
        self, turn: Message, offered: OfferedTools, emit: Callable[[AgentEvent], None]
    ) -> None:
        """Make the calls of one turn: servers in parallel, the calls to one server in order.

        The turn and one answer for each call are recorded together, even after a cancellation: every API
        rejects a conversation in which a call has no answer.
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

    def _lanes(self, calls: Sequence[ToolCall], offered: OfferedTools) -> list[list[int]]:
        lanes: dict[str, list[int]] = {}
        parallel = (
            {spec.name for spec in self.manager.settings.servers if spec.parallel} if self.manager else ()
        )
        for at, call in enumerate(calls):
            tool = self.tools.get(offered.restore(call.name, call.arguments)[0])
            server = tool.server if tool is not None else ""
            lane = f"{server}\n{at}" if server in parallel else server
            lanes.setdefault(lane, []).append(at)
        return list(lanes.values())

    async def _make_call(
        self, call: ToolCall, offered: OfferedTools, emit: Callable[[AgentEvent], None]
    ) -> Message:
        name, arguments = offered.restore(call.name, call.arguments)
        tool = self.tools.get(name)
        emit(ToolStarted(call=call, tool=name, server=tool.server if tool else ""))

        def progressed(progress: float, total: float | None, message: str | None) -> None:
            emit(ToolProgressed(call=call, progress=progress, total=total, message=message))

        with self._tracing.tool(call, name, tool) as traced:
            if call.problem:
                result = _refused(f"the arguments could not be read: {call.problem}; write one JSON object")
            else:
                try:
                    result = await self._call(name, arguments, progressed)
                except DragomanError as exc:
                    result = _refused(str(exc))
                except Exception as exc:
                    logger.exception("agent: the call of `%s` failed unexpectedly", name)
                    result = _refused(f"`{name}` could not be run: {type(exc).__name__}: {exc}")
            if traced is not None:
                traced.returned(result)
        emit(ToolFinished(call=call, tool=name, result=result))
        cast("ToolOffer", self._offering).note_call(name)
        return Message(
            role="tool",
            text=for_model(result.text),
            parts=tuple(part for part in result.parts if part.kind != "text"),
            call_id=call.id,
            name=call.name,
            is_error=not result.success,
            native=self._found(name),
        )

    def _found(self, name: str) -> dict[str, Any]:
        """Return the tools that a search found, in the form that the API loads."""
        found = cast("ToolOffer", self._offering).take_found() if name == SEARCH else None
        if found is None or not (found.tools or found.references):
            return {}
        loaded = {"tools": list(found.tools), "references": list(found.references), "note": found.note}
        return {self.provider.api: {key: value for key, value in loaded.items() if value}}

    async def _call(
        self, name: str, arguments: Any, on_progress: Callable[[float, float | None, str | None], None]
    ) -> ToolResult:
        offering = cast("ToolOffer", self._offering)
        if (own := offering.own(name)) is not None:
            if self.manager is not None:
                caller = caller_of(self.manager, coerce=self._coerce, ask=self._asks, registry=own)
                result = await caller(name, arguments)
            else:
                result = await pipeline.run(self._route(own), name, arguments)
            ran = self._code.take_result() if self._code is not None and name == RUN_CODE else None
            return ran or result
        result = await self._caller(name, arguments, on_progress=on_progress)
        if str(self._spill.folder) in result.text:
            # A result was cut: from now on the model has a tool to read the rest.
            offering.add(result_tool(self._spill))
        return result

    def _make_caller(self, budget: TextBudget) -> pipeline.ToolCaller:
        if self.manager is not None:
            seen = self.tools if isinstance(self.tools, ToolView) else None
            return caller_of(
                self.manager,
                coerce=self._coerce,
                ask=self._asks,
                budget=budget,
                spill=self._spill,
                tools=seen,
                for_model=True,
            )
        route = self._route(self.tools).replace(budget=budget, spill=self._spill)
        return pipeline.make_caller(route, lambda: None)

    def _route(self, registry: ToolRegistry | ToolView) -> pipeline.CallContext:
        """Return what a call needs without a manager."""
        return pipeline.CallContext(
            registry=registry, supervisors={}, publish=_ignore, coerce=self._coerce, ask=self._asks
        )

    def _add_notices(self, emit: Callable[[AgentEvent], None]) -> None:
        """Add what changed since the last request to the conversation, one line each."""
        if news := self._notices.take(self._known_tools()):
            self._record([Message(role="user", text="\n".join(f"[notice] {text}" for text in news))])
            for text in news:
                emit(Noticed(text=text))

    def _system_prompt(self) -> str:
        pieces = [self._system] if self._system else []
        if len(self.tools):
            pieces.append(fill(ATTRIBUTION, sources=self._words.sources))
        if not cast("ToolOffer", self._offering).searching:
            said = merged_instructions(self._instructions(), MAX_INSTRUCTIONS)
            pieces += [said] if said else []
        # With a search, instructions come with the first tool of their server that is found.
        if self._known_skills:
            pieces.append(self._known_skills)
        return "\n\n".join(pieces)

    def _instructions(self) -> dict[str, str]:
        """Return the instructions of the servers whose tools the agent may see."""
        said = self.manager.instructions() if self.manager is not None else {}
        seen = self._known_tools()
        return said if seen is None else {name: said[name] for name in said.keys() & set(seen.values())}

    def _unavailable(self) -> list[str]:
        return [] if self.manager is None else missing_servers(self.manager.status())

    def _earlier_calls(self) -> dict[str, int]:
        """Return how often each tool was called, from the call log if there is one; runs in a thread."""
        log = self.manager.call_log if self.manager is not None else None
        if log is None:
            return {}
        try:
            calls = CallHistory(log.path).list(limit=MAX_HISTORY)
        except DragomanError:
            return {}
        return Counter(call.tool for call in calls if not call.error_code)

    def _known_tools(self) -> Mapping[str, str] | None:
        """Return the tools that the model has been offered, each with its server; `None` if it gets all."""
        if not isinstance(self.tools, ToolView):
            return None
        export = self.tools.export(self.provider.api)
        if export is not self._seen_export:
            self._seen_export = export
            found = (self.tools.get(name) for name in export.aliases)
            self._seen.update({tool.name: tool.server for tool in found if tool is not None})
        return self._seen

    def _record(self, messages: Sequence[Message]) -> None:
        """Add messages to the transcript and the conversation: all of them, or none if writing fails."""
        if self._transcript is not None:
            self._transcript.append(messages)
        self._messages += messages
        self._sent.add(messages)


def _open_tools(
    source: ToolSource | None, tools: ToolSource | None, *, allow: Iterable[str] | None, deny: Iterable[str]
) -> tuple[McpManager | None, ToolRegistry, ToolRegistry | ToolView]:
    """Return the manager, its registry, and the tools of it that the agent may use."""
    if source is None:
        source, tools = tools, None
    if isinstance(source, ToolView) and tools is None:
        source, tools = source.registry, source
    if isinstance(source, ToolRegistry):
        managers = [one for one in source.owners if isinstance(one, McpManager)]
        if len(managers) > 1:
            msg = f"the registry belongs to {len(managers)} managers: pass one of them instead"
            raise ValueError(msg)
        manager, registry = managers[0] if managers else None, source
    else:
        manager = source if isinstance(source, McpManager) else McpManager(cast("Servers", source or ()))
        registry = manager.registry
    if tools is None:
        return (
            manager,
            registry,
            registry.view(allow=allow, deny=deny) if allow is not None or deny else registry,
        )
    if not isinstance(tools, ToolView) or tools.registry is not registry:
        msg = "`tools` must be a view of the same registry: `mcp.registry.view(allow=…)`"
        raise ValueError(msg)
    if allow is not None or deny:
        msg = "give either `tools`, or `allow` and `deny`"
        raise ValueError(msg)
    return manager, registry, tools


def _refused(text: str) -> ToolResult:
    return ToolResult(success=False, text=text, error=text)


def _ignore(_: object) -> None:
    """Discard an event that has no listener."""
