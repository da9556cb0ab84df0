"""The base of every adapter: tools under names that model APIs accept, and calls back to the manager.

Built-in and remote tools both go through the manager, so that arguments are checked, timeouts apply and
events are published. The manager may be `dragoman.McpManager` or the one of `dragoman.blocking`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import re
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from dragoman.errors import DragomanError
from dragoman.model import Continuation, ToolDef, ToolResult
from dragoman.tools.search.missing import missing_servers
from dragoman.trust.sanitizing import for_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from dragoman.errors import UnknownToolError
    from dragoman.model import ServerStatus
    from dragoman.tools.export.export import Export

    ToolProgress: TypeAlias = Callable[[str, float, float | None, str | None], Any]
    """Called with a tool's name, its progress, the total and a message."""

MISSING = "mcp_unavailable_servers"
"""A tool that exists while configured servers are broken: its description shows the model which, and why."""

LOOP_PATIENCE = 5.0
"""Seconds to wait for a sign of the manager's loop before a call from another thread."""


class UsableTools(Protocol):
    """The tools that an agent may use."""

    @property
    def allowed(self) -> Sequence[str] | None:
        """What they are: exposed names or `server:tool`, or globs of them; `None` for all."""
        ...

    def export(self, api: str, *, strict: bool = False) -> Export:
        """Return them in the format of a model API."""
        ...

    def get(self, name: str) -> ToolDef | None:
        """Return one by its exposed name."""
        ...

    def unknown(self, name: str) -> UnknownToolError:
        """Return the error for an unknown name."""
        ...


class Registry(Protocol):
    """All tools of a manager."""

    def view(self, *, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> UsableTools:
        """Return a filtered view."""
        ...


class BridgeTasks(Protocol):
    """The tasks of a manager, asynchronous or blocking."""

    @property
    def keeps_questions(self) -> bool:
        """Whether a call may end with the questions of a server."""
        ...

    def resume(
        self, what: Continuation, answers: Mapping[str, Any] | None = None
    ) -> Awaitable[ToolResult] | ToolResult:
        """Go on with a call that asked a person."""
        ...


class Manager(Protocol):
    """A manager, asynchronous or blocking."""

    @property
    def registry(self) -> Registry:
        """Its tools."""
        ...

    @property
    def tasks(self) -> BridgeTasks:
        """Its calls that wait for a person."""
        ...

    @property
    def call(self) -> Callable[..., Awaitable[ToolResult] | ToolResult]:
        """Call a tool by its exposed name."""
        ...

    def toolset(self, name: str) -> UsableTools:
        """Return a toolset of the configuration."""
        ...

    def status(self) -> dict[str, ServerStatus]:
        """Return the status of every server."""
        ...


class Offer(NamedTuple):
    """One tool, as a framework needs it."""

    tool: ToolDef
    description: str
    schema: dict[str, Any]
    """Of the arguments."""

    @property
    def metadata(self) -> dict[str, Any]:
        """Where the tool comes from, as JSON."""
        return {
            "server": self.tool.server,
            "tool": self.tool.own_name,
            "annotations": dict(self.tool.annotations),
        }


class Bridge:
    """Some tools of a manager, for one framework."""

    def __init__(
        self,
        mcp: Manager,
        api: str,
        *,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (),
        toolset: str | None = None,
        on_progress: ToolProgress | None = None,
        pauses: bool = False,
        illegal: str = "",
    ) -> None:
        """Serve the tools of `mcp`.

        Args:
            mcp: The manager.
            api: The model API whose rules names and schemas follow.
            allow: Exposed names or `server:tool`, or globs of them; all tools unless given.
            deny: The same; these win.
            toolset: The same by the name of a toolset of the configuration.
            on_progress: Called with each report of progress, in the context of the call.
            pauses: Whether calls may end with the questions of a server, for the framework to ask them.
            illegal: A pattern of what names must not have although the API takes it; it becomes `_`.

        Raises:
            ValueError: A toolset is given together with `allow` or `deny`.
            ConfigError: No toolset has this name.
        """
        self._mcp = mcp
        self._api = api
        if toolset is None:
            self._view = mcp.registry.view(allow=allow, deny=deny)
        elif allow is not None or tuple(deny):
            msg = "give a toolset, or `allow` and `deny`"
            raise ValueError(msg)
        else:
            self._view = mcp.toolset(toolset)
        self._on_progress = on_progress
        self._illegal = illegal
        self._renamed: dict[str, str] = {}
        self.pauses = pauses and mcp.tasks.keeps_questions
        """Whether a call may end with a question, see `question`."""
        self._blocks = not inspect.iscoroutinefunction(mcp.call)
        self._loop = None if self._blocks else _running_loop()

    def offered(self) -> dict[str, Offer]:
        """Return the current tools by alias; any thread may ask.

        Raises:
            DragomanError: The manager's loop does not answer.
        """
        if self._loop is None or self._loop is _running_loop() or not self._loop.is_running():
            return self._offered()
        found: concurrent.futures.Future[dict[str, Offer]] = concurrent.futures.Future()

        def read() -> None:
            try:
                found.set_result(self._offered())
            except Exception as exc:  # noqa: BLE001 -- raised again in the other thread
                found.set_exception(exc)

        self._loop.call_soon_threadsafe(read)
        try:
            return found.result(LOOP_PATIENCE)
        except TimeoutError as exc:
            raise _blocked() from exc

    def _offered(self) -> dict[str, Offer]:
        export = self._view.export(self._api)
        found: dict[str, Offer] = {}
        for (name, alias), form in zip(export.aliases.items(), export.tools, strict=True):
            if (tool := self._view.get(name)) is not None:
                fields = form.get("function", form)
                schema = next(value for key, value in fields.items() if key in _SCHEMAS)
                found[self._legal(alias, found)] = Offer(tool, fields["description"], schema)
        if MISSING not in found and (missing := self._missing()):
            about = f"Show which configured servers cannot be used now, and why. {_now(missing)}"
            schema = {"type": "object", "properties": cast("dict[str, Any]", {})}
            tool = ToolDef(name=MISSING, description=about, input_schema=schema)
            found[MISSING] = Offer(tool, about, schema)
        return found

    async def call(self, alias: str, arguments: Mapping[str, Any] | None) -> ToolResult:
        """Call a tool by its alias; a failure is a result."""
        options = self._options(alias)

        def ask() -> Any:
            name, restored = self._restore(alias, arguments)
            if self._view.get(name) is None:
                return self._other(name)
            return self._mcp.call(name, restored, **options)

        return await self._await(ask)

    def call_and_wait(self, alias: str, arguments: Mapping[str, Any] | None) -> ToolResult:
        """Call a tool from synchronous code.

        Raises:
            DragomanError: The manager's loop runs in this thread, or is unknown.
        """
        if self._blocks:
            name, restored = self._restore(alias, arguments)
            if self._view.get(name) is None:
                return self._other(name)
            return cast("ToolResult", self._mcp.call(name, restored, **self._options(alias)))
        if self._loop is None or self._loop is _running_loop():
            msg = f"`{alias}` cannot be called without `await` here: it would block the loop that answers it"
            hint = "use the framework's async call, or `dragoman.blocking.manager.McpManager`"
            raise DragomanError(msg, hint=hint)
        try:
            self._sign_of_life().result(LOOP_PATIENCE)
        except TimeoutError as exc:
            raise _blocked() from exc
        return asyncio.run_coroutine_threadsafe(self.call(alias, arguments), self._loop).result()

    async def resume(self, question: Mapping[str, Any], answers: object) -> ToolResult:
        """Go on with a call that asked; answers that cannot be used are a failure, and nothing is sent.

        Args:
            question: What `question` returned, also in another process.
            answers: The answers by key, as for `McpManager.tasks.resume`; `"decline"` or `"cancel"` for all.
        """
        try:
            what = Continuation.from_json(question["continuation"])
            if answers in ("decline", "cancel"):
                answers = {key: {"action": answers} for key in what.open_questions}
            given = cast("dict[str, Any]", answers) if isinstance(answers, dict) else {"answers": answers}
            return await self._await(partial(self._mcp.tasks.resume, what, given))
        except (DragomanError, ValueError, KeyError, TypeError) as exc:
            error = exc if isinstance(exc, DragomanError) else DragomanError(f"not a question: {exc}")
            return ToolResult(success=False, text=str(error), error=str(error), exception=error)

    def _legal(self, alias: str, taken: Mapping[str, Offer]) -> str:
        name = re.sub(self._illegal, "_", alias) if self._illegal else alias
        if name != alias:
            while name in taken:
                name += "_"
            self._renamed[name] = alias
        return name

    def _restore(self, alias: str, arguments: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
        """Return the exposed name of a tool, and its arguments under their own names."""
        return self._view.export(self._api).restore(self._renamed.get(alias, alias), arguments)

    async def _await(self, ask: Callable[[], Any]) -> ToolResult:
        """Ask the manager, on its own loop: some frameworks run agents in a thread with a loop of its own.

        Raises:
            DragomanError: The manager's loop does not run, or is blocked by this very call.
        """
        if self._blocks:
            return await asyncio.to_thread(ask)

        async def asked() -> ToolResult:
            found = ask()
            return found if isinstance(found, ToolResult) else await found

        if self._loop is None or self._loop is asyncio.get_running_loop():
            return await asked()
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._sign_of_life()), LOOP_PATIENCE)
        except TimeoutError as exc:
            raise _blocked() from exc
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked(), self._loop))

    def _sign_of_life(self) -> concurrent.futures.Future[None]:
        """Return a future that ends once the manager's loop runs."""
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        if self._loop is None or self._loop.is_closed():
            raise _blocked()
        # It may be cancelled by then: the loop was blocked for too long.
        self._loop.call_soon_threadsafe(
            lambda: future.set_running_or_notify_cancel() and future.set_result(None)
        )
        return future

    def _options(self, alias: str) -> dict[str, Any]:
        """Return the options of a call; progress is reported in the present context."""
        options: dict[str, Any] = {"on_input": "return"} if self.pauses else {}
        if (report := self._on_progress) is not None:
            context = contextvars.copy_context()

            def on_progress(progress: float, total: float | None, message: str | None) -> Any:
                return context.run(report, alias, progress, total, message)

            options["on_progress"] = on_progress
        return options

    def _missing(self) -> list[str]:
        """Return a line for each broken server whose tools the agent might have."""
        statuses = self._mcp.status()
        if (rules := self._view.allowed) is not None:
            statuses = {
                name: status
                for name, status in statuses.items()
                if any(fnmatchcase(name, rule.partition(":")[0]) or name in rule for rule in rules)
            }
        return missing_servers(statuses)

    def _other(self, name: str) -> ToolResult:
        """Return the result for a name that is not a tool in view."""
        if name == MISSING:
            return ToolResult(success=True, text=_now(self._missing()))
        error = self._view.unknown(name)
        return ToolResult(success=False, text=str(error), error=str(error), exception=error)


def _blocked() -> DragomanError:
    msg = "the event loop of the manager does not answer: the agent's own call may block it"
    hint = "run the agent with `await`, or use `dragoman.blocking.manager.McpManager`"
    return DragomanError(msg, hint=hint)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_SCHEMAS = ("inputSchema", "parameters", "parameters_json_schema", "input_schema")


def _now(missing: list[str]) -> str:
    return "\n".join(["Now:", *missing]) if missing else "All servers can be used."


def needs(*, package: str, adapter: str) -> ModuleNotFoundError:
    """Return the error of an adapter whose framework is not installed."""
    extra = adapter.replace("_", "-")
    msg = f"dragoman.adapters.{adapter} needs the package `{package}`: install `dragoman[{extra}]`"
    return ModuleNotFoundError(msg, name=package)


def question(result: ToolResult) -> dict[str, Any] | None:
    """Return what a server asks before it goes on with a call, as JSON; nothing if it does not ask.

    `questions` are the parameters of `elicitation/create` by key; `continuation` holds the call's arguments.
    """
    if (asked := result.input_required) is None:
        return None
    return {
        "server": asked.server,
        "tool": asked.tool,
        "message": for_model(result.text),
        "questions": {key: dict(asked.questions[key]) for key in asked.open_questions},
        "continuation": asked.to_json(),
    }


def images(result: ToolResult) -> list[tuple[bytes, str]]:
    """Return the images of a result, each with its type."""
    return [
        (part.data, part.mime_type or "image/png")
        for part in result.parts
        if part.kind == "image" and part.data
    ]
