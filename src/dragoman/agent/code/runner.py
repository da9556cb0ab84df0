"""Run programs that call tools: check first, then make each call like any other tool call.

Owns the programs of one agent: their variables, limits, and what of them reaches the model. It never talks to
a server itself: calls go through the function that it is given. A program that waits for a person is saved,
and goes on in this process or, after a crash, in another.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from dragoman.agent.code.program import declared, explain, outline
from dragoman.agent.code.sandbox import CodeLimits, ProgramStep, Sandbox, is_installed, not_installed
from dragoman.agent.code.stubs import modules_of
from dragoman.agent.offer import RUN_CODE
from dragoman.errors import AgentError, ToolFailedError
from dragoman.model import Continuation, Provenance, ToolDef, ToolResult
from dragoman.storage.programs import ProgramStore, SavedProgram, new_id
from dragoman.tools.result.budget import TextBudget, fit
from dragoman.tools.result.render import attribution
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from dragoman.agent.code.stubs import Function, Module
    from dragoman.call import ToolCaller
    from dragoman.model import SourceRef, Texts
    from dragoman.storage.results import ResultStore

PROGRAM = "dragoman/program"
"""The key in a result's `meta` with the id of a program that waits."""
MAX_CODE = 100_000
SLOW = 2.0
"""Seconds after which the program of an unfinished call is saved."""
MAX_LISTED = 6_000
"""Characters of signatures in the description of `run_code`."""
MAX_DEPTH = 60
MAX_ERROR = 4_000


@dataclass
class _ProgramRun:
    """One program in progress."""

    code: str
    printed: str = ""
    calls: int = 0
    made: list[str] = field(default_factory=list[str])
    sources: list[SourceRef] = field(default_factory=list["SourceRef"])
    saved: SavedProgram | None = None
    at: tuple[str, str, dict[str, Any]] = ("", "", {})
    """The tool, its server and the arguments of the call that is being made."""


class CodeRunner:
    """The programs of one agent, one at a time; variables stay between them."""

    def __init__(
        self,
        tools: Callable[[], Iterable[ToolDef]],
        *,
        limits: CodeLimits | None = None,
        budget: TextBudget | None = None,
        spill: ResultStore | None = None,
        store: ProgramStore | None = None,
        words: Texts | None = None,
    ) -> None:
        """Prepare to run programs; the interpreter starts with the first one.

        Args:
            tools: Returns the tools that programs can call: the same object while nothing has changed, or
                equal tools.
            limits: The limits of one program.
            budget: The most text of one program that the model sees.
            spill: Keeps output over the budget.
            store: Keeps programs that wait for a person.
            words: The words above the sources.

        Raises:
            AgentError: The extra `code` is not installed.
        """
        if not is_installed():
            raise not_installed()
        self._tools = tools
        self._limits = limits or CodeLimits()
        self._budget = budget
        self._spill = spill
        self._words = words
        self._store = store or ProgramStore()
        self._sandbox = Sandbox(self._limits)
        self._known: list[ToolDef] = []
        self._modules: dict[str, Module] = {}
        self._names: dict[str, None] = {}
        self._imports: dict[str, None] = {}
        self._imported: set[str] = set()
        self._turn = asyncio.Lock()
        self._running: _ProgramRun | None = None
        self._call: ToolCaller | None = None
        self._resume_call: Callable[[Continuation, Mapping[str, Any]], Any] | None = None
        self._result: ToolResult | None = None

    def connect(
        self,
        call: ToolCaller,
        resume: Callable[[Continuation, Mapping[str, Any]], Any] | None = None,
    ) -> None:
        """Set how calls are made.

        Args:
            call: Makes a call; its `while_asking` is `self.while_asking`.
            resume: Goes on with a call that asked a person: `McpManager.tasks.resume`.
        """
        self._call, self._resume_call = call, resume

    async def modules(self) -> Mapping[str, Module]:
        """Return the modules of the current tools."""
        tools = list(self._tools())
        if tools != self._known or not self._modules:
            old, self._known = self._modules, tools
            self._modules = await asyncio.to_thread(modules_of, tools)
            stale = await asyncio.to_thread(_changed, old, self._modules, self._imported)
            if stale:
                await self._forget()
        return self._modules

    async def signature(self, tool: str, *, documented: bool = False) -> str:
        """Return how a program calls a tool, by its exposed name; empty if it cannot.

        Args:
            tool: The exposed name.
            documented: Whether to say what the parameters mean.
        """
        for module in (await self.modules()).values():
            if (function := module.find(tool)) is not None:
                return function.shown(module.name, documented=documented)
        return ""

    async def tool(self, *, listed: bool, keeps: bool = True) -> ToolDef:
        """Return the tool `run_code`.

        Args:
            listed: Whether its description lists the functions; without that, a search shows them.
            keeps: Whether variables stay for the next program.
        """
        modules = await self.modules()
        stay = "stay for the next program" if keeps else "are gone after the program"
        about = await asyncio.to_thread(_listing, modules) if listed else _names_of(modules)
        return ToolDef(
            name=RUN_CODE,
            description=(
                "Run a Python program that calls tools: for loops, chains, and to pick what is needed from "
                "large results. Tools are plain functions (not async) of modules, one per server; they take "
                "and return typed values, and raise RuntimeError. Only what is printed, and the value of the "
                f"last expression, comes back. Variables {stay}. The program is type-checked first. It has "
                "no files, network or packages; json, re, math, datetime, collections, itertools, asyncio "
                f"work; generators (yield) do not. {about}"
            ),
            input_schema={
                "type": "object",
                "properties": {"code": {"type": "string"}},
                "required": ["code"],
            },
            func=self._run_tool,
            source="builtin",
        )

    async def run(self, code: str) -> ToolResult:
        """Check and run a program; a failure is a result."""
        async with self._turn:
            return await self._checked_run(code)

    async def paused(self) -> list[SavedProgram]:
        """Return the programs that wait for a person and have no process any more."""
        return await asyncio.to_thread(self._store.all)

    async def resume(self, identifier: str, answers: Mapping[str, Any] | None = None) -> ToolResult:
        """Go on with a program that waits; any process of the user can do it.

        Args:
            identifier: The program's id.
            answers: The answers to a server's questions, as for `McpManager.tasks.resume`.

        Raises:
            AgentError: The program is unknown, was changed, or waits in another process.
        """
        async with self._turn:
            program = await asyncio.to_thread(self._store.take, identifier)
            if program is None:
                msg = f"the program `{identifier}` cannot be continued"
                raise AgentError(msg, hint="it has ended, was changed, or waits in another process")
            modules = await self.modules()
            run = _ProgramRun(program.code, printed=program.printed, calls=program.calls, saved=program)
            step = await self._sandbox.work(self._sandbox.restore, program.snapshot, modules)
            self._names = dict.fromkeys(program.names)
            self._imports = dict.fromkeys(program.imports)
            self._imported = set()
            if step.kind == "call" and program.state == "sent":
                msg = f"the host stopped during `{program.tool}`: it may have run; check before you repeat it"
                step = await self._sandbox.work(self._sandbox.fail, RuntimeError(msg))
            elif step.kind == "call" and program.state == "question":
                held = Continuation.from_json(program.continuation)
                answered = await self._answer(held, answers or {})
                if answered.input_required is not None:
                    return await self._wait(run, answered)
                function = self._function(step)
                step = await self._go_on(run, function, answered)
            return await self._drive(run, step)

    async def close(self) -> None:
        """End the interpreter; saved programs stay."""
        await self._sandbox.close()

    @asynccontextmanager
    async def while_asking(self) -> AsyncGenerator[None]:
        """Save the program while a person decides about its call, and note when the call is sent."""
        run = self._running
        if run is None:
            yield
            return
        await self._save(run, "asking")
        yield
        if run.saved is not None:
            # From here on the call may have run.
            await self._save(run, "sent")

    def take_result(self) -> ToolResult | None:
        """Return the whole result of the last program that the tool has run, once."""
        result, self._result = self._result, None
        return result

    async def _run_tool(self, code: str) -> str:
        self._result = None
        self._result = result = await self.run(code)
        if not result.success:
            raise ToolFailedError(result.text, tool=RUN_CODE)
        return result.text

    async def _checked_run(self, code: str) -> ToolResult:
        if self._call is None:
            msg = "the runner is not connected"
            raise AgentError(msg)
        if len(code) > MAX_CODE:
            return _failure(f"The program was not run: it has more than {MAX_CODE} characters.")
        modules = await self.modules()
        about = await asyncio.to_thread(outline, code)
        # The checker finds a module only if it is imported at the top.
        used = [name for name in modules if name in about.names | about.imported and name not in about.bound]
        prefix = declared(about, names=self._names, imports=self._imports, modules=used)
        problems = await self._sandbox.work(self._sandbox.check, prefix, code, modules)
        if problems:
            return _failure(await asyncio.to_thread(explain, problems, code, modules))
        if missing := [name for name in used if name not in self._imported]:
            await self._sandbox.work(self._sandbox.offer, modules)
            await self._sandbox.work(self._sandbox.import_modules, missing)
        self._imported |= {*used, *(name for name in about.imported if name in modules)}
        step = await self._sandbox.work(self._sandbox.start, code, modules)
        self._names |= dict.fromkeys(name for name in about.bound if name not in about.imports)
        self._imports |= dict.fromkeys(about.imports.values())
        return await self._drive(_ProgramRun(code), step)

    async def _drive(self, run: _ProgramRun, step: ProgramStep) -> ToolResult:
        self._running = run
        try:
            while step.kind == "call":
                run.calls += 1
                if run.calls > self._limits.calls:
                    await self._forget()
                    text = f"the program made more than {self._limits.calls} calls"
                    step = ProgramStep("failed", error=text, is_lost=True)
                    break
                function = self._function(step)
                if function is None:
                    error = RuntimeError(f"the tool `{step.function}` is not available any more")
                    step = await self._sandbox.work(self._sandbox.fail, error)
                    continue
                try:
                    arguments = _plain(function.arguments(step.args, step.kwargs or {}))
                except (TypeError, ValueError) as exc:
                    step = await self._sandbox.work(self._sandbox.fail, TypeError(str(exc)))
                    continue
                result = await self._made(run, function, cast("dict[str, Any]", arguments))
                if result.input_required is not None:
                    return await self._wait(run, result)
                step = await self._go_on(run, function, result)
            run.printed += await self._sandbox.work(self._sandbox.take_printed)
            if step.is_lost:
                await self._forget()
            return await asyncio.to_thread(self._ended, run, step)
        except BaseException:
            # A program that was cancelled must not go on with a later call.
            await self._forget()
            raise
        finally:
            self._running = None
            await self._clear(run)

    async def _made(self, run: _ProgramRun, function: Function, arguments: dict[str, Any]) -> ToolResult:
        """Make one call; one that takes long is saved meanwhile."""
        tool = function.tool
        run.at = (tool.name, tool.server, arguments)
        run.made.append(tool.name)
        call = cast("ToolCaller", self._call)
        making = asyncio.ensure_future(call(tool.name, arguments))
        try:
            done, _ = await asyncio.wait({making}, timeout=SLOW)
            if not done and run.saved is None:
                await self._save(run, "sent")
            return await making
        finally:
            if not making.done():
                making.cancel()
                with suppress(asyncio.CancelledError):
                    await making

    async def _go_on(self, run: _ProgramRun, function: Function | None, result: ToolResult) -> ProgramStep:
        await self._clear(run)
        if result.provenance is not None:
            run.sources += [one for one in result.provenance.sources if one not in run.sources]
        work = self._sandbox.work
        if function is None or not result.success:
            return await work(self._sandbox.fail, RuntimeError(result.text or "the call failed"))
        if function.tool.output_schema is None:
            return await work(self._sandbox.give, result.text)
        if result.structured is None:
            text = f"`{function.tool.name}` returned no structured content: {result.text[:MAX_ERROR]}"
            return await work(self._sandbox.fail, RuntimeError(text))
        return await work(self._sandbox.give, result.structured)

    def _function(self, step: ProgramStep) -> Function | None:
        module, _, name = step.function.rpartition(".")
        found = self._modules.get(module)
        return None if found is None else found.functions.get(name)

    async def _answer(self, held: Continuation, answers: Mapping[str, Any]) -> ToolResult:
        if self._resume_call is None:
            msg = "this agent has no manager, so it cannot answer a server"
            raise AgentError(msg)
        return await self._resume_call(held, answers)

    async def _wait(self, run: _ProgramRun, result: ToolResult) -> ToolResult:
        """End the run with a server's questions; `resume` goes on with it."""
        await self._save(run, "question", continuation=cast("Continuation", result.input_required))
        saved = cast("SavedProgram", run.saved)
        run.saved = None
        await asyncio.to_thread(self._store.release, saved.id)
        await self._forget()
        text = f"The program waits for an answer: {result.text}"
        return _failure(text).replace(input_required=result.input_required, meta={PROGRAM: saved.id})

    async def _save(self, run: _ProgramRun, state: Any, continuation: Continuation | None = None) -> None:
        run.printed += await self._sandbox.work(self._sandbox.take_printed)
        known = run.saved
        tool, server, arguments = run.at
        snapshot = known.snapshot if known is not None else await self._sandbox.work(self._sandbox.save)
        program = SavedProgram(
            id=known.id if known is not None else new_id(),
            state=state,
            tool=tool or (known.tool if known is not None else ""),
            server=server or (known.server if known is not None else ""),
            arguments=arguments,
            code=run.code,
            created=time.time(),
            printed=run.printed,
            # The call is made again, and counted again.
            calls=run.calls - 1 if run.at[0] else run.calls,
            names=list(self._names),
            imports=list(self._imports),
            continuation="" if continuation is None else continuation.to_json(),
            snapshot=snapshot,
        )
        await asyncio.to_thread(self._store.save, program)
        run.saved = program

    async def _clear(self, run: _ProgramRun) -> None:
        saved, run.saved = run.saved, None
        if saved is not None:
            await asyncio.to_thread(self._store.forget, saved.id)

    async def _forget(self) -> None:
        """Drop all variables."""
        self._names, self._imports, self._imported = {}, {}, set()
        await self._sandbox.work(self._sandbox.reset)

    def _ended(self, run: _ProgramRun, step: ProgramStep) -> ToolResult:
        body = for_model(run.printed).rstrip("\n")
        if step.kind == "done" and step.value is not None:
            try:
                shown = for_model(_shown_value(step.value))
                body = f"{body}\n{shown}" if body else shown
            except (ValueError, RecursionError):
                text = "The last value cannot be shown: it has an integer of too many digits, or is too deep."
                step = ProgramStep("failed", error=text)
        is_done = step.kind == "done"
        if not is_done:
            error = for_model(step.error, MAX_ERROR)
            lost = "\nAll variables are lost." if step.is_lost else ""
            made = f"\nCalls made before: {', '.join(run.made)}." if run.made else "\nNo call was made."
            body = "\n".join(part for part in (body, f"The program failed.\n{error}{made}{lost}") if part)
        body = body or "The program ended and printed nothing."
        end = attribution(run.sources, self._words)
        end = f"\n{end}" if end else ""
        text = body + end
        if self._budget is not None and not self._budget.holds(text):
            path = self._spill.keep_text(text) if self._spill is not None else None
            text = fit(body, self._budget, end=end, whole=f"the file `{path}`" if path is not None else "")
        origin = Provenance(server="", tool=RUN_CODE, at=time.time(), sources=tuple(run.sources))
        return ToolResult(
            success=is_done, text=text, error=None if is_done else text, structured=None, provenance=origin
        )


def _failure(text: str) -> ToolResult:
    return ToolResult(success=False, text=text, error=text)


def _changed(old: Mapping[str, Module], new: Mapping[str, Module], used: set[str]) -> bool:
    return any(name in old and (name not in new or old[name].stub != new[name].stub) for name in used)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value of a program as JSON.

    Raises:
        TypeError: It is not JSON.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if depth > MAX_DEPTH:
        msg = "an argument is nested too deeply"
        raise TypeError(msg)
    if isinstance(value, (list, tuple)):
        return [_plain(one, depth + 1) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        if all(isinstance(key, str) for key in table):
            return {key: _plain(one, depth + 1) for key, one in table.items()}
    msg = f"an argument must be JSON, not {type(cast('object', value)).__name__}"
    raise TypeError(msg)


def _shown_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(_plain(value), ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(cast("object", value))


def _names_of(modules: Mapping[str, Module]) -> str:
    shown = ", ".join(for_model(name, 60) for name in list(modules)[:40])
    more = f" and {len(modules) - 40} more" if len(modules) > 40 else ""
    return f"Modules: {shown or 'none yet'}{more}. `search_tools` shows the functions and their types."


def _listing(modules: Mapping[str, Module]) -> str:
    """Return all functions with their types, as far as there is room; else their names."""
    every = [
        function.shown(module.name) for module in modules.values() for function in module.functions.values()
    ]
    text = "\n".join(every)
    if len(text) <= MAX_LISTED:
        return f"Functions:\n{text}"
    names = [f"{module.name}: {', '.join(module.functions)}" for module in modules.values()]
    text = for_model("\n".join(names), MAX_LISTED)
    return f"Functions by module (parameters are named like the tools' arguments):\n{text}"
