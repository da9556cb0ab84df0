"""McpManager without `await`, for scripts, notebooks and threads.

Everything runs in one background thread with its own event loop, which exists as long as the `with` block. A
method submits its work to that thread and waits. So it can be called from any thread, from many at once, and
where a loop is already running, as in a notebook. Ctrl-C cancels only the call that it interrupts.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from dragoman.blocking.extensions import AppProxy, Skills
from dragoman.blocking.loop_thread import (
    BlockingIterator,
    BlockingRunner,
    LoopThread,
    in_thread,
    warn_of_open,
)
from dragoman.blocking.registry import ToolDef, ToolRegistry, ToolView
from dragoman.errors import DragomanError
from dragoman.manager.manager import McpManager as AsyncManager
from dragoman.model import RemoteTool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from pathlib import Path
    from types import TracebackType

    from dragoman.blocking.bulk import BulkRun
    from dragoman.bulk.run import Executor, Rows
    from dragoman.config.profiles import Profile
    from dragoman.events import ConfigReloaded, Event
    from dragoman.manager.manager import Servers
    from dragoman.manager.subscriptions import ChangeHandler, LogLevel
    from dragoman.manager.users import UserManager
    from dragoman.model import (
        App,
        ApprovalHandler,
        Audience,
        Auth,
        Continuation,
        Handlers,
        HeaderProvider,
        Part,
        ProgressHandler,
        Prompt,
        ReadyReport,
        Resource,
        ServerSpec,
        ServerStatus,
        Settings,
        Task,
        Texts,
        ToolResult,
        UserLimits,
        UserStatus,
    )
    from dragoman.observe.call_log import CallLog
    from dragoman.observe.metrics import ServerMetrics
    from dragoman.storage.results import ResultStore
    from dragoman.tools.host import HostRegistry
    from dragoman.tools.registry import ToolRegistry as AsyncRegistry
    from dragoman.tools.result.budget import TextBudget
    from dragoman.trust.pin_checker import Changes
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy


class BlockingRemoteTool(RemoteTool):
    """A server's tool whose `func` waits."""

    __slots__ = ()

    def call(self, /, **arguments: Any) -> str:
        """Run the tool with keyword arguments and return its text.

        Raises:
            ToolExecutionError: The call failed; the subclass says why.
        """
        result: ToolResult = self.execute(arguments)
        return result.raise_for_error().text


class _LoopManager(AsyncManager):
    """A manager whose tools block: they are run from other threads, on the loop of the manager."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.runner = BlockingRunner()
        super().__init__(*args, **settings)

    def _tool_func(
        self, server: str, tool: str, execute: Callable[..., Awaitable[ToolResult]]
    ) -> Callable[..., Any]:
        def run(
            server: str, tool: str, arguments: Mapping[str, Any] | None, *, timeout: float | None = None
        ) -> ToolResult:
            return self.runner.run(lambda: execute(server, tool, arguments, timeout=timeout))

        return BlockingRemoteTool(server, tool, run).call


class McpManager:
    """All configured servers, with their tools, resources and prompts, without `await`."""

    def __init__(
        self,
        servers: Servers,
        *,
        profile: str | Profile | None = None,
        registry: AsyncRegistry | HostRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        trust_project: bool = False,
        cache: Path | bool | None = True,
        handlers: Handlers | None = None,
        header_provider: HeaderProvider | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        default_trust: Trust = "warn",
        missing_ok: bool = False,
        env: Mapping[str, str] | None = None,
        users: UserLimits | None = None,
    ) -> None:
        """Create a manager without starting any server; as for `dragoman.McpManager`.

        A handler that is a plain function runs in its own thread, so it may ask a person or call a tool.
        """
        self._adopt(
            _LoopManager(
                servers,
                profile=profile,
                registry=registry,
                inputs=inputs,
                trust_project=trust_project,
                cache=cache,
                handlers=_in_threads(handlers),
                header_provider=header_provider,
                policy=policy,
                call_log=call_log,
                default_trust=default_trust,
                missing_ok=missing_ok,
                env=env,
                users=users,
            )
        )

    @classmethod
    def from_config(
        cls,
        profile: str | PathLike[str] | Profile = "dragoman",
        *,
        root: str | PathLike[str] | None = None,
        config: str | PathLike[str] | None = None,
        missing_ok: bool = False,
        trust_project: bool = False,
        registry: AsyncRegistry | HostRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        cache: Path | bool | None = True,
        handlers: Handlers | None = None,
        header_provider: HeaderProvider | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        default_trust: Trust = "warn",
        users: UserLimits | None = None,
    ) -> Self:
        """Create a manager from the configuration files; as for `dragoman.McpManager`."""
        made = cls.__new__(cls)
        made._adopt(  # noqa: SLF001 -- of this class
            _LoopManager.from_config(
                profile,
                root=root,
                config=config,
                missing_ok=missing_ok,
                trust_project=trust_project,
                registry=registry,
                inputs=inputs,
                cache=cache,
                handlers=_in_threads(handlers),
                header_provider=header_provider,
                policy=policy,
                call_log=call_log,
                default_trust=default_trust,
                users=users,
            )
        )
        return made

    @classmethod
    def connect_all(
        cls,
        servers: Servers,
        *,
        profile: str | Profile | None = None,
        registry: AsyncRegistry | HostRegistry | None = None,
        cache: Path | bool | None = True,
        trust_project: bool = False,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
    ) -> Self:
        """Return a started manager once every server is ready or has failed; call `shutdown()` later."""
        made = cls(
            servers,
            profile=profile,
            registry=registry,
            cache=cache,
            trust_project=trust_project,
            policy=policy,
        )
        made._start()
        try:
            made.wait_ready()
        except BaseException:
            made.shutdown()
            raise
        return made

    def _adopt(self, mcp: _LoopManager) -> None:
        self._mcp: AsyncManager = mcp
        self._runner = mcp.runner
        self.registry = ToolRegistry(mcp.registry, self._runner)

    def _start(self) -> None:
        if self._runner.closed or self._runner.loop_thread is not None:
            msg = "the manager is closed" if self._runner.closed else "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        self._runner.loop_thread = LoopThread(self._mcp.shutdown)
        try:
            self._runner.run(self._mcp.__aenter__)
        except BaseException:
            self.shutdown()
            raise

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def __del__(self) -> None:
        runner: BlockingRunner | None = getattr(self, "_runner", None)
        loop_thread = runner.loop_thread if runner is not None else None
        if loop_thread is not None and loop_thread.is_open:
            warn_of_open(self)
            loop_thread.close_soon()

    @property
    def started(self) -> bool:
        """Whether the manager was entered; stays true after it is closed."""
        return self._mcp.started

    @property
    def settings(self) -> Settings:
        """The configuration in effect."""
        return self._mcp.settings

    @property
    def texts(self) -> Texts:
        """The words for users and models: the application's own, the rest in the user's language."""
        return self._mcp.texts

    @property
    def user(self) -> str:
        """Whose servers these are, for a manager that `as_user` returned."""
        return self._mcp.user

    @property
    def trust_project(self) -> bool:
        """Whether the project's own files are trusted."""
        return self._mcp.trust_project

    def shutdown(self) -> None:
        """Stop every server and wait until all have stopped; safe to call twice.

        In a forked child process, this does nothing.
        """
        self._runner.closed = True
        if self._runner.loop_thread is not None:
            self._runner.loop_thread.close()

    def close(self) -> None:
        """Same as `shutdown`, for `contextlib.closing`."""
        self.shutdown()

    def wait_ready(self, names: Iterable[str] | None = None, timeout: float | None = None) -> ReadyReport:
        """Wait until servers are ready or have failed; the report is true if all are ready.

        Args:
            names: The servers to wait for; by default all that start by themselves.
            timeout: Seconds; a server that is still connecting then counts as not ready.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.run(lambda: self._mcp.wait_ready(names, timeout))

    def tools(self, *, audience: Audience = "model") -> list[ToolDef]:
        """Return the exposed tools of all servers, sorted by name; their `func` and `execute` block.

        Args:
            audience: For whom: tools for a model by default, or those that a server's app may call.
        """
        return cast("list[ToolDef]", self._runner.read(lambda: self._mcp.tools(audience=audience)))

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        audience: Audience = "model",
        detach: bool = False,
        on_input: Literal["ask", "return"] = "ask",
    ) -> ToolResult:
        """Call a tool; a failed call is a result.

        Args:
            name: The exposed name of a server's tool or a built-in one, or the name that an export for a
                model API gave it. `registry.resolve` finds the tool for other spellings.
            arguments: The tool's arguments.
            timeout: Seconds; by default the server's `timeouts.call`.
            on_progress: Called with progress, total and message, in its own thread; each report restarts the
                timeout.
            headers: Sent with the HTTP requests of this call only.
            meta: Sent as the `_meta` of the request.
            audience: For whom the call is made: a model, or the server's own app.
            detach: Whether to return at once if the server makes a task of the call, with `ToolResult.task`.
            on_input: If the server needs input from a person: `"ask"` the handlers and wait, or `"return"`
                the questions as `ToolResult.input_required`.

        Raises:
            DragomanError: The manager is not started, or closed.
        """
        report = None if on_progress is None else in_thread(on_progress)
        return self._runner.run(
            lambda: self._mcp.call(
                name,
                arguments,
                timeout=timeout,
                on_progress=report,
                headers=headers,
                meta=meta,
                audience=audience,
                detach=detach,
                on_input=on_input,
            )
        )

    @property
    def answers_later(self) -> bool:
        """Whether agents should call with `on_input="return"`: questions may wait, and no handler asks."""
        return self._mcp.answers_later

    def map(
        self,
        name: str,
        rows: Rows,
        *,
        arguments: Mapping[str, Any] | None = None,
        journal: str | PathLike[str] | None = None,
        concurrency: int = 8,
        rate: float | None = None,
        timeout: float | None = None,
        retries: int = 2,
        patience: float = 300.0,
        limit: int | None = None,
        repeat_unknown: bool = False,
        repeat_failed: bool = False,
        coerce: bool | None = None,
        on: Executor | None = None,
    ) -> BulkRun:
        """Call a tool once for every row; as for `dragoman.McpManager`.

        Iterables are read in the manager's own thread.

        Raises:
            BulkError: The arguments of this method cannot be used, or the file is not a table.
        """
        from dragoman.blocking.bulk import BulkRun  # Few programs use it.

        run = self._mcp.map(
            name,
            rows,
            arguments=arguments,
            journal=journal,
            concurrency=concurrency,
            rate=rate,
            timeout=timeout,
            retries=retries,
            patience=patience,
            limit=limit,
            repeat_unknown=repeat_unknown,
            repeat_failed=repeat_failed,
            coerce=coerce,
            on=on,
        )
        return BulkRun(run, self._runner)

    def tasks(self) -> list[Task]:
        """Return the tasks that servers of this manager still work on, also those of earlier programs."""
        return self._runner.run(self._mcp.tasks)

    def resume(
        self,
        what: Task | Continuation | str,
        answers: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ToolResult:
        """Wait for the result of a task, or go on with a call that asked a person; any process can do it.

        Args:
            what: A task or its id, or a continuation.
            answers: For a continuation: the answers by key. If some are missing, the result has the rest of
                the questions, and nothing is sent.
            timeout: Seconds, after which a task is cancelled; unlimited by default.

        Raises:
            DragomanError: The task is unknown, its server is not the one that it began with, or the
                continuation was changed, used already, or answered in a wrong way. Nothing is sent then.
        """
        return self._runner.run(lambda: self._mcp.resume(what, answers, timeout=timeout))

    def cancel_task(self, task: Task | str) -> None:
        """Ask a server to cancel a task, and forget the task.

        Raises:
            DragomanError: The task is unknown, or its server does not answer.
        """
        self._runner.run(lambda: self._mcp.cancel_task(task))

    @cached_property
    def skills(self) -> Skills:
        """The skills of the connected servers: `all`, `get`, `load`, `read`, `directory`, `approve`."""
        return Skills(lambda: self._mcp.skills, self._runner)

    def open_app(self, result: ToolResult | App) -> AppProxy:
        """Read the page of a result's app; return it with the calls that it may make.

        Raises:
            DragomanError: The result has no app, the server does not answer, or the resource is not a page.
            CallDeniedError: The policy does not allow reading it.
        """
        return AppProxy(self._runner.run(lambda: self._mcp.open_app(result)), self._runner)

    def caller(
        self,
        *,
        coerce: bool = False,
        budget: TextBudget | None = None,
        spill: ResultStore | None = None,
        registry: AsyncRegistry | None = None,
        tools: ToolView | None = None,
        for_model: bool = False,
        ask: bool | ApprovalHandler = False,
        while_asking: Callable[[], AbstractAsyncContextManager[None]] | None = None,
        returns_questions: bool = False,
    ) -> Callable[..., ToolResult]:
        """Return a function like `call` with other rules; as for `dragoman.McpManager`."""
        run = self._mcp.caller(
            coerce=coerce,
            budget=budget,
            spill=spill,
            registry=registry,
            tools=None if tools is None else tools.async_view,
            for_model=for_model,
            ask=ask,
            while_asking=while_asking,
            returns_questions=returns_questions,
        )
        return lambda *args, **how: self._runner.run(lambda: run(*args, **how))

    def changes(self, name: str) -> Changes:
        """Return how a server's definitions differ from their pins; empty until they were checked.

        Its `fingerprint` approves exactly these changes: `approve(name, fingerprint=…)`.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.read(lambda: self._mcp.changes(name))

    def approve(
        self,
        name: str,
        *,
        tools: Iterable[str] | None = None,
        in_project: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        """Pin a server's definitions as the last `DefinitionsChanged` or `changes` reported them.

        Args:
            name: The server.
            tools: Which of its tools to pin, by the server's own names; by default everything.
            in_project: Whether to write the project's `dragoman.lock` too, even if it does not exist yet.
            fingerprint: The one of the event, or of `changes`, that was shown to a person; needed if there
                are changes. If the definitions have changed since, nothing is approved.

        Raises:
            UnknownServerError: No server has this name.
            DragomanError: The server has not listed anything, the fingerprint is missing, its definitions
                have changed since they were shown, or a lock file cannot be written.
        """
        self._runner.run(
            lambda: self._mcp.approve(name, tools=tools, in_project=in_project, fingerprint=fingerprint)
        )

    def as_user(
        self,
        user: str,
        *,
        headers: Mapping[str, str] | HeaderProvider | None = None,
        auth: str | Auth | Mapping[str, str | Auth] | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        handlers: Handlers | None = None,
        env: Mapping[str, str] | None = None,
    ) -> BlockingUser:
        """Return these servers as one user of the program sees them; as for `dragoman.McpManager`.

        Raises:
            DragomanError: The manager is not started, or closed, or the id is not valid.
            ConfigError: The policy cannot be read.
        """
        given = _in_threads(handlers)
        found = self._runner.read(
            lambda: self._mcp.as_user(
                user, headers=headers, auth=auth, policy=policy, handlers=given, env=env
            )
        )
        return BlockingUser(found, self._runner)

    def users(self) -> dict[str, UserStatus]:
        """Return the users of `as_user` who are connected, or whose managers are in use, by id."""
        return self._runner.read(self._mcp.users)

    def begin_login(self, name: str) -> str:
        """Begin a login to a server, and return the address to send the person's browser to.

        Raises:
            UnknownServerError: No server has this name.
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The server, or its authorization server, refuses.
        """
        return self._runner.run(lambda: self._mcp.begin_login(name))

    def complete_login(self, address: str) -> str:
        """Go on with the login that ended at an address; as for `dragoman.McpManager`.

        Raises:
            DragomanError: No login of this manager waits for it.
            AuthRequiredError: The login was refused.
        """
        return self._runner.run(lambda: self._mcp.complete_login(address))

    def status(self, names: Iterable[str] | None = None) -> dict[str, ServerStatus]:
        """Return the status of servers, by name; this starts no server.

        Args:
            names: Which servers; by default all.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.read(lambda: self._mcp.status(names))

    @property
    def call_log(self) -> CallLog | None:
        """Records calls, if configured."""
        return self._mcp.call_log

    def metrics(self) -> dict[str, ServerMetrics]:
        """Return the metrics of every server, by name."""
        return self._runner.read(self._mcp.metrics)

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """Return the last lines of a server's standard error, with known secrets masked.

        They come from the current connection, or from the last one. A server behind a URL has none.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.read(lambda: self._mcp.logs(name, lines))

    def events(self) -> Iterator[Event]:
        """Return the events from now until the manager is shut down; `next` waits for one."""
        return BlockingIterator(self._runner.read(self._mcp.events), self._runner)

    def restart(self, name: str) -> None:
        """Restart a server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._mcp.restart(name))

    def start_servers(self, names: Iterable[str]) -> None:
        """Begin to connect servers that are not connected: lazy ones, and at once those that wait to retry.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.read(lambda: self._mcp.start_servers(names))

    def enable(self, name: str) -> None:
        """Enable a disabled server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._mcp.enable(name))

    def disable(self, name: str) -> None:
        """Disable a server: remove its tools, and stop it once its calls are done.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._mcp.disable(name))

    def login(
        self,
        name: str,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], str] | None = None,
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Log a person in to a server; wait until it is ready or has failed.

        Args:
            name: The server.
            open_url: Called with the URL that the person has to open.
            paste: Asks the person for the URL that the browser ended at; for machines without a browser.
            on_refused: Called with the reason why a pasted URL is not usable, before asking again.

        Raises:
            AuthRequiredError: The login was refused or not completed.
            ConfigError: The server does not use OAuth.
        """
        shown = None if open_url is None else in_thread(open_url)
        asked = None if paste is None else in_thread(paste)
        self._runner.run(lambda: self._mcp.login(name, open_url=shown, paste=asked, on_refused=on_refused))

    def logout(self, name: str) -> bool:
        """Forget the login of a server; return whether there was one."""
        return self._runner.run(lambda: self._mcp.logout(name))

    def add(self, spec: ServerSpec) -> None:
        """Add a server; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: A server with this name exists.
        """
        self._runner.run(lambda: self._mcp.add(spec))

    def remove(self, name: str) -> None:
        """Remove a server with its tools, and stop it.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._mcp.remove(name))

    def reload(self, settings: Servers | None = None) -> ConfigReloaded:
        """Read the configuration again and apply what changed; unchanged servers are not touched.

        Args:
            settings: The new configuration, for a manager that was made of settings, specs or a mapping; a
                mapping is read by the rules of the same profile.

        Raises:
            DragomanError: The manager reads no file, and no settings are given; or the other way round.
        """
        return self._runner.run(lambda: self._mcp.reload(settings))

    def resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and URI."""
        return self._runner.run(lambda: self._mcp.resources(server))

    def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name."""
        return self._runner.run(lambda: self._mcp.prompts(server))

    def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource; as for `dragoman.McpManager`."""
        return self._runner.run(lambda: self._mcp.read(uri, server))

    def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt: role and content, as the server gives them.

        Raises:
            CallDeniedError: The policy does not allow it, or it differs from its pin and the server's `trust`
                withholds it.
            DragomanError: The server does not have it, or does not answer.
        """
        return self._runner.run(lambda: self._mcp.prompt(name, arguments, server=server))

    def complete(self, ref: Mapping[str, str], argument: str, value: str, *, server: str) -> list[str]:
        """Propose values for an argument of a prompt (`{"name": …}`) or of a template (`{"uri": …}`).

        Raises:
            CallDeniedError: The policy does not allow that prompt or template.
            DragomanError: The server does not answer.
        """
        return self._runner.run(lambda: self._mcp.complete(ref, argument, value, server=server))

    def subscribe(
        self, uri: str, server: str | None = None, *, on_change: ChangeHandler | None = None
    ) -> None:
        """Publish changes of a resource as events; as for `dragoman.McpManager`."""
        handler = None if on_change is None else in_thread(on_change)
        self._runner.run(lambda: self._mcp.subscribe(uri, server, on_change=handler))

    def unsubscribe(self, uri: str, server: str | None = None) -> None:
        """Cancel the subscriptions to a resource: at one server, or at all."""
        self._runner.run(lambda: self._mcp.unsubscribe(uri, server))

    def set_log_level(self, level: LogLevel, server: str | None = None) -> None:
        """Set the lowest level of the log messages that one server, or all, send to `Handlers.logging`.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._mcp.set_log_level(level, server))

    def set_roots(self, roots: Iterable[str], server: str | None = None) -> None:
        """Set the directories that one server, or all, may use; as for `dragoman.McpManager`."""
        self._runner.run(lambda: self._mcp.set_roots(roots, server))

    def instructions(self) -> dict[str, str]:
        """Return the instructions of the connected servers, by server, cleaned for a model.

        Invisible characters and terminal control codes are removed, and long texts are cut.
        """
        return self._runner.read(self._mcp.instructions)


class BlockingUser(McpManager):
    """The servers of a manager as one user sees them, without `await`; `as_user` makes it.

    Inside `with`, the servers that start by themselves are started, and the user stays connected.
    """

    def __init__(self, user: UserManager, runner: BlockingRunner) -> None:
        """Use the loop of the manager that has made it."""
        self._mcp = self._user = user
        self._runner = runner
        self.registry = ToolRegistry(user.registry, runner)

    def __repr__(self) -> str:
        return f"BlockingUser({self.user!r})"

    def _start(self) -> None:
        self._runner.run(self._user.__aenter__)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(lambda: self._user.__aexit__(None, None, None))

    def __del__(self) -> None:
        """Leave the thread alone: it is the manager's."""

    def shutdown(self) -> None:
        """Disconnect the user at once; safe to call twice."""
        if not self._runner.closed:
            self._runner.run(self._user.shutdown)


def _in_threads(handlers: Handlers | None) -> Handlers | None:
    """Return the handlers with plain functions run in threads, so that they do not block the loop."""
    if handlers is None:
        return None
    given = {name: getattr(handlers, name) for name in ("sampling", "elicitation", "logging", "approval")}
    return handlers.replace(**{name: in_thread(one) for name, one in given.items() if one is not None})
