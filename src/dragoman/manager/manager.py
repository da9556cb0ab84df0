"""McpManager: the object that users hold. It composes the servers, their tools and the calls.

Entering it offers the cached tools of every server, starts the servers and waits only for required ones. A
server that fails is logged and skipped; the others go on. A lazy server that was never connected has no known
tools: its status says `tools=0`, because reading the status does not start a server.

The parts, each in its own module:

- `pool.ServerPool` makes, starts, replaces and stops the supervisors, one per server.
- `catalog.ToolCatalog` keeps the tool registry in step with what the servers list.
- `resources.Resources` lists and reads resources and prompts.
- `subscriptions.Subscriptions` keeps subscriptions, log levels and roots across reconnections.
- `dragoman.call.run` runs one call.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias, cast

from dragoman.errors import ConnectError, DragomanError
from dragoman.manager.catalog import AsyncRemoteTool, ToolCatalog
from dragoman.manager.pool import ServerPool, find_server, wait_all
from dragoman.manager.reload import Watcher
from dragoman.manager.resources import Resources
from dragoman.manager.subscriptions import Subscriptions
from dragoman.model import (
    App,
    Continuation,
    Handlers,
    LoginUI,
    ReadyReport,
    ServerSpec,
    ServerState,
    Settings,
    UserLimits,
)
from dragoman.observe.bus import EventBus
from dragoman.observe.metrics import Metrics
from dragoman.server.late_import import is_loaded, late_import_module
from dragoman.server.protocol.context import with_headers
from dragoman.server.sharing import SharedConnections
from dragoman.storage.manifests import ManifestCache, ManifestMemory, default_folder
from dragoman.storage.spellings import Spellings
from dragoman.storage.tasks import TaskStore
from dragoman.tools.names import Pair, use_spelling
from dragoman.tools.registry import ToolRegistry
from dragoman.trust.gate import Gate
from dragoman.trust.masking import spec_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from os import PathLike
    from types import TracebackType

    from dragoman.bulk.run import BulkRun, Executor, Rows
    from dragoman.call import CallContext, Caller
    from dragoman.config.profiles import Profile
    from dragoman.events import ConfigReloaded, Event
    from dragoman.manager.apps import AppProxy
    from dragoman.manager.forward import Forward
    from dragoman.manager.skills import Skills
    from dragoman.manager.subscriptions import ChangeHandler, LogLevel
    from dragoman.manager.users import OfUser, UserManager, Users
    from dragoman.model import (
        ApprovalHandler,
        Audience,
        Auth,
        HeaderProvider,
        Part,
        ProgressHandler,
        Prompt,
        Resource,
        ServerStatus,
        Task,
        Texts,
        ToolDef,
        ToolResult,
        UserStatus,
    )
    from dragoman.observe.bus import Subscription
    from dragoman.observe.call_log import CallLog
    from dragoman.observe.metrics import ServerMetrics
    from dragoman.server.supervisor import Supervisor
    from dragoman.storage.results import ResultStore
    from dragoman.storage.tasks import TaskRecord
    from dragoman.tools.host import HostRegistry
    from dragoman.tools.result.budget import TextBudget
    from dragoman.tools.view import ToolView
    from dragoman.trust.approval_store import Approvals
    from dragoman.trust.pin_checker import Changes
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy

    Servers: TypeAlias = (
        Iterable[ServerSpec]
        | Mapping[str, ServerSpec | Mapping[str, Any]]
        | Mapping[str, Any]
        | Settings
        | str
        | PathLike[str]
    )
    """What a manager is made of."""


PIPELINE = "dragoman.call"


class _Given(NamedTuple):
    """Arguments of a manager that its users get too."""

    handlers: Handlers | None
    inputs: Mapping[str, str] | None
    default_trust: Trust
    env: Mapping[str, str] | None


class McpManager:
    """All configured servers, with their tools, resources and prompts."""

    user: str = ""
    """Whose servers these are, for a manager that `as_user` returned."""
    _of_user: OfUser | None = None
    """What such a manager shares with the one that made it."""

    def __init__(
        self,
        servers: Servers,
        *,
        profile: str | Profile | None = None,
        registry: ToolRegistry | HostRegistry | None = None,
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
        connections: SharedConnections | None = None,
        users: UserLimits | None = None,
    ) -> None:
        """Create a manager without starting any server.

        Args:
            servers: Specs, or the settings of a whole configuration; the path of a configuration file; its
                content (`{"mcpServers": {…}}`); or a mapping of names to specs or to entries as in such a
                file (`{"fs": {"command": "npx", "args": […]}}`). An invalid entry is logged and skipped.
            profile: The application by whose rules a mapping or a file is read, with its names and words. By
                default dragoman's; a map with every field of RRClaw's own is read by its rules.
            registry: Where the tools go, next to built-in ones; a new registry by default. An application's
                own registry (see `dragoman.HostRegistry`) gets each tool with a `func` that calls it.
            inputs: Answers to `${input:id}`, by id.
            trust_project: Whether to trust the project's own files. If not, entries of `Settings` that come
                from such a file are not used until the user approves them. Specs are always trusted.
            cache: The folder for cached listings, or whether to cache them.
            handlers: What the application answers when a server asks.
            header_provider: Given a server's name, returns extra headers, or an awaitable of them, for each
                HTTP request. During a call it runs in the caller's context, otherwise (handshakes, listings,
                probes) in an empty one.
            policy: Which calls are allowed, denied, or need a yes from `handlers.approval`, in the form of
                the configuration file. The rules of the configuration can only make it stricter.
            call_log: The file to record every call in, masked and bounded, or whether to use the user's own,
                beside which the standard error of servers is kept, too. By default as configured, and off if
                the configuration does not say. A `CallLog` that is given open stays open.
            default_trust: The `trust` of servers without one. With `ask`, tools that differ from their pins
                are withheld until `approve`: for applications that show `changes` to a person.
            missing_ok: Whether the file that `servers` names may be missing; it is used once it exists.
            env: The environment that variables are read from and servers inherit; this process's by default.
            connections: The connections that several managers share; by default each has its own.
            users: How many users of `as_user` may be connected at a time, and for how long without use.

        Raises:
            InvalidSpecError: Two servers have the same name.
            ConfigError: The policy cannot be read, or the named file does not exist.
        """
        use_spelling(Spellings().of)
        load = _file_loader(servers, profile, missing_ok=missing_ok)
        read = _settings(servers, profile) if load is None else load()
        self._profile = profile
        self._root = root = read.root or str(Path.cwd())
        of_user = self._of_user
        if header_provider is not None:
            handlers = (handlers or Handlers()).replace(headers=header_provider)
        self.registry = registry if isinstance(registry, ToolRegistry) else ToolRegistry(host=registry)
        self.registry.owners.append(self)
        self.trust_project = trust_project
        self._approval = handlers.approval if handlers else None
        self._answers_later = (
            handlers is not None and handlers.durable_questions and handlers.elicitation is None
        )
        self._started = False
        self._closed = False
        self._bus = EventBus()
        self._metrics = Metrics()
        self._gate = Gate(
            read,
            root=root,
            trust_project=trust_project or read is not servers,
            policy=policy,
            approval=handlers.approval if handlers else None,
            publish=self._publish,
            default_trust=default_trust,
            approvals=lambda: _approvals(env),
            program=of_user.gate if of_user else None,
            user=self.user,
        )
        # `registry.call` does not go through `call`, so the policy has to judge built-in tools there too.
        self.registry.watch(self._gate.permit_builtin)
        settings = self._gate.settings
        wanted = settings.call_log if call_log is None else call_log
        self.call_log = _open_log(wanted, mask=self._gate.redactor.mask)
        """Records calls, if configured."""
        self._owns_log = self.call_log is not call_log
        self._supervisors: dict[str, Supervisor] = {}
        self._resources = Resources(self._supervisors, self._gate)
        self._subscriptions = Subscriptions(
            self._resources.ask,
            self._bus.publish,
            lambda server, uri: self._gate.forbids("resource", uri, server=server),
        )
        self._catalog = ToolCatalog(
            self.registry,
            _memory(cache, root=root, gate=self._gate),
            gate=self._gate,
            publish=self._publish,
            remote=self._call,
            make_func=self._make_func,
            order=self._name_order,
        )
        self._pool = ServerPool(
            settings,
            supervisors=self._supervisors,
            read=read,
            root=root,
            gate=self._gate,
            catalog=self._catalog,
            publish=self._publish,
            on_connected=self._subscriptions.on_connected,
            handlers=self._subscriptions.with_roots(handlers),
            inputs=inputs,
            keeps_stderr=wanted is True,
            env=env,
            connections=connections or SharedConnections(between_users=True),
            slots=of_user.slots if of_user else None,
            user=self.user,
            room=of_user.room if of_user else None,
            starts_none=users is not None and users.alone,
        )
        self.user_limits = users or UserLimits()
        """How many users of `as_user` may be connected."""
        self._given = _Given(handlers, inputs, default_trust, env)
        self._load: Callable[[], Settings] | None = load
        self._watcher = Watcher(self._config_files, self._on_files_changed) if load else None
        self._reloading = asyncio.Lock()
        self._preloading: asyncio.Task[None] | None = None

    @classmethod
    def from_config(
        cls,
        profile: str | PathLike[str] | Profile = "dragoman",
        *,
        root: str | PathLike[str] | None = None,
        config: str | PathLike[str] | None = None,
        missing_ok: bool = False,
        trust_project: bool = False,
        registry: ToolRegistry | HostRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        cache: Path | bool | None = True,
        handlers: Handlers | None = None,
        header_provider: HeaderProvider | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        default_trust: Trust = "warn",
        users: UserLimits | None = None,
    ) -> Self:
        """Create a manager from the configuration files; invalid entries are logged and skipped.

        Args:
            profile: The application whose files, variables and naming to use; or the path of the one file to
                read, as `config`.
            root: The project's directory; the current one by default.
            config: A file to read instead of searching.
            missing_ok: Whether the file that is named here may be missing.
            trust_project: As for the class; so are the others.
            registry: Where the tools go.
            inputs: Answers to `${input:id}`.
            cache: The folder for cached listings.
            handlers: What the application answers.
            header_provider: Returns extra headers.
            policy: Which calls are allowed.
            call_log: Where to record calls.
            default_trust: The `trust` of servers without one.
            users: How many users may be connected.

        Raises:
            ConfigError: The profile is unknown, or the named file does not exist.
        """
        from dragoman.config.load import insist_on_file, is_path, load

        named = cast("str | Profile", profile)
        if config is None and is_path(profile):
            config, named = cast("str | PathLike[str]", profile), "dragoman"
        if config is not None and not missing_ok:
            insist_on_file(config, root)

        def read() -> Settings:
            return load(named, root=root, config=config, missing_ok=missing_ok)

        manager = cls(
            read(),
            registry=registry,
            inputs=inputs,
            trust_project=trust_project,
            cache=cache,
            handlers=handlers,
            header_provider=header_provider,
            policy=policy,
            call_log=call_log,
            default_trust=default_trust,
            users=users,
        )
        manager._load = read
        manager._watcher = Watcher(manager._config_files, manager._on_files_changed)
        return manager

    @classmethod
    async def connect_all(
        cls,
        servers: Servers,
        *,
        profile: str | Profile | None = None,
        registry: ToolRegistry | HostRegistry | None = None,
        cache: Path | bool | None = True,
        trust_project: bool = False,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
    ) -> Self:
        """Return a started manager once every server is ready or has failed; call `shutdown()` later."""
        insist_on_asyncio()
        manager = cls(
            servers,
            profile=profile,
            registry=registry,
            cache=cache,
            trust_project=trust_project,
            policy=policy,
        )
        try:
            await manager._start()
            await manager._wait_required()
            await manager.wait_ready()
        except BaseException:
            await manager.shutdown()
            raise
        return manager

    async def __aenter__(self) -> Self:
        await self._start()
        await self._wait_required()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def shutdown(self) -> None:
        """Stop every server and wait until all have stopped, even if cancelled; safe to call twice."""
        insist_on_asyncio()
        self._closed = True
        watching = self._watcher.stop() if self._watcher else ()
        try:
            if "_users" in self.__dict__:
                await self._users.close()
            await self._pool.close()
        finally:
            for name in self._supervisors:
                self._catalog.forget(name)
            if self in self.registry.owners:
                self.registry.owners.remove(self)
            self._bus.close()
            try:
                loading = (self._preloading,) if self._preloading else ()
                await wait_all({*self._subscriptions.close(), *watching, *loading})
                await self._pool.flush()
            finally:
                self._gate.end()
                self._close_tasks()
                if self.call_log is not None and self._owns_log:
                    await wait_all({asyncio.create_task(asyncio.to_thread(self.call_log.close))})

    async def close(self) -> None:
        """Same as `shutdown`, for `contextlib.aclosing` and those who look for it."""
        await self.shutdown()

    @property
    def started(self) -> bool:
        """Whether the manager was entered; stays true after it is closed."""
        return self._started

    @property
    def settings(self) -> Settings:
        """The configuration in effect."""
        return self._pool.settings

    @property
    def texts(self) -> Texts:
        """The words for users and models: the application's own, the rest in the user's language."""
        return self._pool.texts

    async def wait_ready(
        self, names: Iterable[str] | None = None, timeout: float | None = None
    ) -> ReadyReport:
        """Wait until servers are ready or have failed; the report is true if all are ready.

        Args:
            names: The servers to wait for; by default all that start by themselves.
            timeout: Seconds; a server that is still connecting then counts as not ready.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._check_open()
        if names is None:
            waited = [one for one in self._supervisors.values() if self._pool.starts(one.spec)]
        else:
            waited = [find_server(self._supervisors, name) for name in names]
        try:
            async with asyncio.timeout(timeout):
                for supervisor in waited:
                    await supervisor.wait_settled()
        except TimeoutError:
            pass
        statuses = [supervisor.status() for supervisor in waited]
        return ReadyReport(
            ready=tuple(one.name for one in statuses if one.state is ServerState.READY),
            not_ready={one.name: _why_not(one) for one in statuses if one.state is not ServerState.READY},
        )

    # ── Tools and calls

    def tools(self, *, audience: Audience = "model") -> list[ToolDef]:
        """Return the exposed tools of all servers, sorted by name.

        Args:
            audience: For whom: tools for a model by default, or those that a server's app may call.
        """
        for supervisor in self._supervisors.values():
            supervisor.need_listing()
        return [
            tool
            for tool in self.registry
            if tool.source == "mcp" and tool.server in self._supervisors and audience in tool.audience
        ]

    async def call(
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
            on_progress: Called with progress, total and message; each report restarts the
                timeout, within ten minutes in all.
            headers: Sent with the HTTP requests of this call only.
            meta: Sent as the `_meta` of the request, over any transport: trace context, run context. Keys
                that the protocol reserves for itself are refused.
            audience: For whom the call is made. A tool that a server has for its app only is called with
                `"app"`, and never for a model.
            detach: Whether to return at once if the server makes a task of the call, with `ToolResult.task`.
                By default the call waits for the task's end: until `timeout` if it is given, else as long as
                it takes.
            on_input: If the server needs input from a person in the middle of the call: `"ask"` the handlers
                and wait, or `"return"` the questions as `ToolResult.input_required`. The latter needs
                `Handlers(durable_questions=True)` or an elicitation handler, and a server of 2026-07-28.

        Raises:
            DragomanError: The manager is not started, or closed.
        """
        self._check_open()
        if not is_loaded(PIPELINE):
            await late_import_module(PIPELINE)
        if self._of_user is not None:
            await self._prepare_call(name, timeout)
        mode = None
        if detach or on_input == "return":
            from dragoman.call import CallMode

            mode = CallMode(detach=detach, pauses=on_input == "return")
        context = self._call_context if audience == "model" else self._call_context.replace(audience=audience)
        call = self._run(
            context, name, arguments, timeout=timeout, on_progress=on_progress, meta=meta, mode=mode
        )
        if not headers:
            return await call
        with with_headers(headers):
            return await call

    @property
    def answers_later(self) -> bool:
        """Whether agents should call with `on_input="return"`: questions may wait, and no handler asks."""
        return self._answers_later

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
        """Call a tool once for every row: iterate over the outcomes, or `await run.wait()` for a report.

        Args:
            name: The tool, as for `call`.
            rows: The path of a `.csv`, `.tsv`, `.xlsx` or `.jsonl` file, or mappings from any iterable; it is
                read as a stream.
            arguments: The arguments with `{column}` in their texts; by default each row is the arguments.
            journal: A file that records what was sent and each outcome. A run with the same journal goes on
                where the last one was interrupted, even by a kill.
            concurrency: Calls at once, at most the server's `max_concurrency`.
            rate: Calls per second at most.
            timeout: Seconds for each call; by default the server's `timeouts.call`.
            retries: How often a call that may have run is repeated, if the tool is read-only or idempotent
                and the server's `trust_annotations` is set. Calls that certainly did not run are always
                repeated.
            patience: Seconds for which the server may be unavailable before the run stops with its error.
            limit: Only the first rows.
            repeat_unknown: Whether to send rows again that an earlier run sent without a recorded answer.
                If not, their outcome is `unknown`, unless the tool is safe to repeat.
            repeat_failed: Whether to send rows again that failed in an earlier run.
            coerce: Whether to coerce arguments to the schema's types; by default for files, whose cells are
                texts.
            on: Where the calls are made, such as `dragoman.adapters.ray.RayCluster()`; by default here.

        Raises:
            BulkError: The arguments of this method cannot be used, or the file is not a table.
        """
        from dragoman.bulk.run import BulkRun

        async def start() -> CallContext:
            self._check_open()
            await late_import_module(PIPELINE)
            if self.registry.find(name) is None:
                await self.wait_ready()  # Its server may still be starting.
            return self._call_context

        return BulkRun(
            start,
            name,
            rows,
            settings=self.settings,
            on=on,
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
        )

    async def tasks(self) -> list[Task]:
        """Return the tasks that servers of this manager still work on, also those of earlier programs."""
        from dragoman.call import as_task

        records = await asyncio.to_thread(self._call_context.tasks.all)
        return [as_task(one) for one in records if self._knows(one)]

    async def resume(
        self,
        what: Task | Continuation | str,
        answers: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ToolResult:
        """Wait for the result of a task, or go on with a call that asked a person; any process can do it.

        Args:
            what: A task or its id, or a continuation.
            answers: For a continuation: the answers by key, as `elicitation/create` is answered:
                `{"action": "accept", "content": {…}}`. If some are missing, the result has the rest of the
                questions, and nothing is sent: a host can ask one question at a time.
            timeout: Seconds, after which a task is cancelled; unlimited by default.

        Raises:
            DragomanError: The manager is not started, the task is unknown, its server is not the one that it
                began with, or the continuation was changed, used already, or answered in a wrong way. Nothing
                is sent then.
        """
        self._check_open()
        from dragoman.manager.resuming import resume_call, resume_task

        if isinstance(what, Continuation):
            return await resume_call(self._call_context, what, answers or {})
        return await resume_task(self._call_context, what if isinstance(what, str) else what.id, timeout)

    async def cancel_task(self, task: Task | str) -> None:
        """Ask a server to cancel a task, and forget the task.

        Raises:
            DragomanError: The task is unknown, or its server does not answer.
        """
        self._check_open()
        from dragoman.manager.resuming import find_task
        from dragoman.server.tasks import TaskFollower

        context = self._call_context
        record, supervisor = await find_task(context, task if isinstance(task, str) else task.id)
        await TaskFollower(record, supervisor, context.tasks).cancel()

    def _knows(self, record: TaskRecord) -> bool:
        supervisor = self._supervisors.get(record.server)
        return supervisor is not None and self._call_context.server_key(supervisor.spec) == record.server_key

    @cached_property
    def skills(self) -> Skills:
        """The skills of the connected servers: `all`, `get`, `load`, `read`, `directory`, `approve`."""
        from dragoman.manager.skills import Skills

        return Skills(
            self._resources,
            key=lambda server: self._server_key(find_server(self._supervisors, server).spec),
            limits=lambda server: find_server(self._supervisors, server).limits,
            approval=self._approval,
        )

    async def open_app(self, result: ToolResult | App) -> AppProxy:
        """Read the page of a result's app; return it with the calls that it may make.

        Args:
            result: A result with an `app`, or the app itself.

        Raises:
            DragomanError: The result has no app, the server does not answer, or the resource is not a page.
            CallDeniedError: The policy does not allow reading it.
        """
        from dragoman.manager.apps import AppProxy, read_app  # Only front ends use it.

        app = result if isinstance(result, App) else result.app
        if app is None:
            msg = "this result has no app"
            raise DragomanError(msg, hint="only tools whose `app_uri` is set have one")
        self._open_server(app.server)
        return AppProxy(self, await read_app(app, self._resources))

    def caller(
        self,
        *,
        coerce: bool = False,
        budget: TextBudget | None = None,
        spill: ResultStore | None = None,
        registry: ToolRegistry | None = None,
        tools: ToolView | None = None,
        for_model: bool = False,
        ask: bool | ApprovalHandler = False,
        while_asking: Callable[[], AbstractAsyncContextManager[None]] | None = None,
        returns_questions: bool = False,
        mends: bool | None = None,
    ) -> Caller:
        """Return a function like `call` with other rules, for example for an agent.

        Args:
            coerce: Whether to coerce arguments that nearly match the schema, if the spec does not say.
            budget: The maximum length of a result's text; unlimited by default.
            spill: Where to keep results over the budget, and binary content.
            registry: Extra built-in tools that are not in the manager's registry. The policy covers them;
                metrics and the call log do not.
            tools: A view of the manager's registry; only these tools can be called.
            for_model: Whether a model reads the results: their texts end with their sources then.
            ask: Whether a call that no rule decides needs a yes of `Handlers.approval`, unless the tool is
                read-only; or a function that is asked instead.
            while_asking: Entered before a person is asked about a call, and left before the call is sent.
            returns_questions: Whether calls end with the questions of a server, as with `on_input="return"`,
                if the application has `Handlers(durable_questions=True)` and no `elicitation`.
            mends: The old name of `coerce`.
        """
        from dragoman.call import CallMode, make_caller, unrecorded

        coerce = coerce if mends is None else mends
        context = self._call_context.replace(
            coerce=coerce,
            budget=budget,
            spill=spill,
            for_model=for_model,
            ask=ask,
            while_asking=while_asking,
        )
        if registry is not None:
            context = unrecorded(context, registry)
        elif tools is not None:
            context = context.replace(registry=tools)
        mode = CallMode(pauses=True) if returns_questions and self._answers_later else None
        return make_caller(context, self._check_open, mode=mode)

    @cached_property
    def forward(self) -> Forward:
        """Passes requests of other clients on, and returns the servers' answers as they came."""
        from dragoman.manager.forward import Forward

        return Forward(self._supervisors, self._resources, self._call_context, self._check_open)

    # ── Users

    def as_user(
        self,
        user: str,
        *,
        headers: Mapping[str, str] | HeaderProvider | None = None,
        auth: str | Auth | Mapping[str, str | Auth] | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        handlers: Handlers | None = None,
        env: Mapping[str, str] | None = None,
    ) -> UserManager:
        """Return these servers as one user of the program sees them, with the same API.

        The user has sessions, listings, tokens, logins, pins, tasks and metrics of their own. A stdio server
        has one process for each user, or one for all with `share = true`. The same id gives the same manager;
        what is given again replaces what was given before, for the requests from then on.

        Args:
            user: The id of the user in the application, which has authenticated them.
            headers: Sent to every server behind a URL, after those of its entry and of `header_provider`. To
                send something to one server only, give a function as for `header_provider`.
            auth: A bearer token, or the OAuth settings, for every server behind a URL; or these by server.
            policy: Rules for this user; they can only make the manager's stricter.
            handlers: What answers the servers' questions to this user; the manager's by default.
            env: Added to the manager's environment, for variables in entries and for processes of this user.

        Raises:
            DragomanError: The manager is not started, or closed, or the id is not valid.
            ConfigError: The policy cannot be read.
        """
        self._check_open()
        from dragoman.manager.users import UserOptions

        options = UserOptions(headers=headers, auth=auth, policy=policy, handlers=handlers, env=env)
        return self._users.get(user, options)

    def users(self) -> dict[str, UserStatus]:
        """Return the users of `as_user` who are connected, or whose managers are in use, by id."""
        return self._users.status() if "_users" in self.__dict__ else {}

    @cached_property
    def _users(self) -> Users:
        from dragoman.manager.users import Users

        return Users(self._share_with_user, self.user_limits)

    def _share_with_user(self) -> OfUser:
        from dragoman.manager.users import OfUser

        settings = self.settings
        return OfUser(
            # The configuration's rules are those of `gate`, and its files were approved or not already.
            settings=settings.replace(
                servers=[one.spec for one in self._supervisors.values()],
                policy=(),
                layers=None,
                auto_reload=False,
            ),
            root=self._root,
            trust_project=self.trust_project,
            refused={name: one.error for name, one in self._supervisors.items() if one.is_refused},
            builtins=[tool for tool in self.registry if tool.source != "mcp"],
            gate=self._gate,
            slots=self._pool.slots,
            connections=self._pool.connections,
            context=self._call_context,
            make_func=self._tool_func,
            **self._given._asdict(),
        )

    async def _update_users(self) -> None:
        """Let the users have the servers that the manager has now."""
        if "_users" in self.__dict__:
            await asyncio.gather(*(one.follow() for one in self._users.all()))

    # ── Status and events

    def status(self, names: Iterable[str] | None = None) -> dict[str, ServerStatus]:
        """Return the status of servers, by name; this starts no server.

        Args:
            names: Which servers; by default all.

        Raises:
            UnknownServerError: No server has this name.
        """
        known = self._supervisors
        chosen = known if names is None else {name: find_server(known, name) for name in names}
        return {name: supervisor.status() for name, supervisor in chosen.items()}

    def metrics(self) -> dict[str, ServerMetrics]:
        """Return the metrics of every server, by name.

        Calls of built-in tools, and of unknown tools, are under the empty name.
        """
        return self._metrics.read(time.monotonic())

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """Return the last lines of a server's standard error, with known secrets masked.

        They come from the current connection, or from the last one. A server behind a URL has none.

        Raises:
            UnknownServerError: No server has this name.
        """
        supervisor = find_server(self._supervisors, name)
        return supervisor.stderr().splitlines()[-lines:] if lines > 0 else []

    def events(self) -> Subscription:
        """Return the stream of events from now until the manager is shut down."""
        return self._bus.subscribe()

    # ── Changing servers

    async def add(self, spec: ServerSpec) -> None:
        """Add a server; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: A server with this name exists.
        """
        self._check_open()
        self._pool.check_free(spec)
        self._gate.trust(spec)
        await self._pool.add(spec)
        await self._update_users()

    async def remove(self, name: str) -> None:
        """Remove a server with its tools, and stop it.

        Raises:
            UnknownServerError: No server has this name.
        """
        supervisor = self._open_server(name)
        self._pool.uninstall(supervisor)
        await supervisor.stop()
        self._metrics.forget(name)
        await self._update_users()

    async def restart(self, name: str) -> None:
        """Restart a server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        supervisor = self._open_server(name)
        await supervisor.restart()
        await supervisor.wait_settled()

    def start_servers(self, names: Iterable[str]) -> None:
        """Begin to connect servers that are not connected: lazy ones, and at once those that wait to retry.

        Raises:
            UnknownServerError: No server has this name.
        """
        for name in names:
            self._pool.start_now(self._open_server(name))

    async def enable(self, name: str) -> None:
        """Enable a disabled server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        supervisor = self._open_server(name)
        if not supervisor.spec.enabled:
            spec = supervisor.spec.replace(enabled=True)
            await self._pool.replace(supervisor, spec, starts=not spec.lazy)
            await self._update_users()

    async def disable(self, name: str) -> None:
        """Disable a server: remove its tools, and stop it once its calls are done.

        Raises:
            UnknownServerError: No server has this name.
        """
        supervisor = self._open_server(name)
        if supervisor.spec.enabled:
            self._pool.install_stopped(supervisor.spec.replace(enabled=False))
            await self._pool.wait_drained()
            await self._update_users()

    async def reload(self, settings: Servers | None = None) -> ConfigReloaded:
        """Read the configuration again and apply what changed; unchanged servers are not touched.

        Files that cannot be read now keep their effect. Reloads run one after another.

        Args:
            settings: The new configuration, for a manager that was made of settings, specs or a mapping; a
                mapping is read by the rules of the same profile.

        Raises:
            DragomanError: The manager reads no file, and no settings are given; or the other way round.
        """
        self._check_open()
        if self._load is None and settings is None:
            msg = "this manager was made of what the program gave it, so there is no file to read again"
            hint = "give the new settings: `reload(settings)`; or make it with `from_config()` or of a path"
            raise DragomanError(msg, hint=hint)
        if self._load is not None and settings is not None:
            msg = "this manager reads its own files, and takes no settings"
            raise DragomanError(msg, hint="call `reload()`")
        async with self._reloading:
            if settings is None:
                found = await asyncio.to_thread(cast("Callable[[], Settings]", self._load))
            else:
                found = _settings(settings, self._profile if isinstance(settings, Mapping) else None)
            self._check_open()
            try:
                report = await self._pool.reload(found)
            finally:
                self._watch_files()
        await self._update_users()
        # Not by `_publish`: the metrics of stopped servers stay readable.
        self._bus.publish(report)
        return report

    # ── Login and approval

    async def login(
        self,
        name: str,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], Awaitable[str]] | None = None,
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Log a person in to a server; wait until it is ready or has failed.

        Args:
            name: The server.
            open_url: Called with the URL that the person has to open; may be async.
            paste: Asks the person for the URL that the browser ended at; for machines without a browser.
            on_refused: Called with the reason why a pasted URL is not usable, before asking again.

        Raises:
            AuthRequiredError: The login was refused or not completed.
            ConfigError: The server does not use OAuth.
        """
        supervisor = self._open_server(name)
        await supervisor.login(LoginUI(open_url=open_url, paste=paste, on_refused=on_refused))
        await supervisor.wait_settled()

    async def begin_login(self, name: str) -> str:
        """Begin a login to a server, and return the address to send the person's browser to.

        The login goes on by itself until the person is done, for ten minutes at most. It ends with
        `complete_login` if the application is the `redirect_uri` of the server's `auth`, and otherwise at a
        page on this machine. Calls made meanwhile say that the server requires login.

        Raises:
            UnknownServerError: No server has this name.
            ConfigError: The server does not use OAuth.
            AuthRequiredError: The server, or its authorization server, refuses.
        """
        return await self._open_server(name).begin_login()

    async def complete_login(self, address: str) -> str:
        """Go on with the login that ended at an address; return the server once it is ready or has failed.

        Call it on the manager of the user who is signed in to the application, so that the login of another
        person is not accepted.

        Args:
            address: The whole address of the request to the `redirect_uri`, with its `code` and `state`.

        Raises:
            DragomanError: No login of this manager waits for it.
            AuthRequiredError: The login was refused.
        """
        self._check_open()
        for name, supervisor in list(self._supervisors.items()):
            if await supervisor.complete_login(address):
                return name
        msg = "no login in progress belongs to this address"
        raise DragomanError(msg, hint="begin the login again; it may be over, or another user's")

    async def logout(self, name: str) -> bool:
        """Forget the login of a server; return whether there was one."""
        return await self._open_server(name).logout()

    def changes(self, name: str) -> Changes:
        """Return how a server's definitions differ from their pins; empty until they were checked.

        Its `fingerprint` approves exactly these changes: `approve(name, fingerprint=…)`.

        Raises:
            UnknownServerError: No server has this name.
        """
        find_server(self._supervisors, name)
        return self._gate.pin_checker.changes(name)

    async def approve(
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
        supervisor = self._open_server(name)
        await self._gate.pin_checker.approve(
            supervisor.spec, tools=tools, in_project=in_project, fingerprint=fingerprint
        )
        await self._pool.recheck_pins(supervisor)

    # ── Resources, prompts and subscriptions

    async def resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and URI."""
        return await self._resources.list_resources(server)

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource.

        Args:
            uri: Its URI.
            server: Its server; required if several servers have the resource.

        Raises:
            DragomanError: No connected server lists it, several do, or it cannot be read.
            CallDeniedError: The policy does not allow it.
        """
        return await self._resources.read(uri, server)

    async def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name."""
        return await self._resources.list_prompts(server)

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt: role and content, as the server gives them.

        Raises:
            CallDeniedError: The policy does not allow it, or it differs from its pin and the server's `trust`
                withholds it.
            DragomanError: The server does not have it, or does not answer.
        """
        return await self._resources.get_prompt(name, arguments, server=server)

    async def complete(self, ref: Mapping[str, str], argument: str, value: str, *, server: str) -> list[str]:
        """Propose values for an argument of a prompt (`{"name": …}`) or of a template (`{"uri": …}`).

        Raises:
            CallDeniedError: The policy does not allow that prompt or template.
            DragomanError: The server does not answer.
        """
        return await self._resources.complete(ref, argument, value, server=server)

    def instructions(self) -> dict[str, str]:
        """Return the instructions of the connected servers, by server, cleaned for a model.

        Invisible characters and terminal control codes are removed, and long texts are cut.
        """
        return self._resources.instructions()

    async def subscribe(
        self, uri: str, server: str | None = None, *, on_change: ChangeHandler | None = None
    ) -> None:
        """Publish changes of a resource as `ResourceChanged` events, also after a reconnection.

        Args:
            uri: The resource.
            server: Its server; required if several servers have the resource.
            on_change: Also called with each event; may be async.

        Raises:
            DragomanError: No connected server lists it, several do, or its server does not support it.
            CallDeniedError: The policy does not allow reading it.
        """
        server = await self._resources.permit(uri, server)
        await self._subscriptions.subscribe(uri, server, on_change)

    async def unsubscribe(self, uri: str, server: str | None = None) -> None:
        """Cancel the subscriptions to a resource: at one server, or at all."""
        await self._subscriptions.unsubscribe(uri, server, self._resources.connected())

    async def set_log_level(self, level: LogLevel, server: str | None = None) -> None:
        """Set the lowest level of the log messages that one server, or all, send to `Handlers.logging`.

        Raises:
            UnknownServerError: No server has this name.
        """
        await self._subscriptions.set_log_level(level, server, self._resources.connected(server))

    async def set_roots(self, roots: Iterable[str], server: str | None = None) -> None:
        """Set the directories, by their URIs, that one server, or all, may use.

        A server that was connected while there were no roots gets them with its next connection.

        Raises:
            UnknownServerError: No server has this name.
        """
        await self._subscriptions.set_roots(roots, server, self._resources.connected(server))

    # ── Inside

    async def _prepare_call(self, name: object, timeout: float | None) -> None:
        """Do what has to be done before a call of a tool; the manager of a user may have to list it."""

    def _publish(self, event: Event) -> None:
        """Take an event of a server to the bus: the metrics first, then the subscriptions, which pass it on.

        Changes of tools are in the registry already. `StateChanged` comes before what the new state brings:
        `ready` before its tools. Calls count themselves in the metrics, so their events go to the bus.
        """
        self._metrics.take(event, time.monotonic())
        self._subscriptions.on_event(event)

    async def _call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        await late_import_module(PIPELINE)
        return await self._run(self._call_context, name, arguments, timeout=timeout)

    def _make_func(self, server: str, tool: str) -> Callable[..., Any]:
        make = self._of_user.make_func if self._of_user else self._tool_func
        return make(server, tool, self._execute)

    def _tool_func(
        self, server: str, tool: str, execute: Callable[..., Awaitable[ToolResult]]
    ) -> Callable[..., Any]:
        """Make the `func` of a tool that `execute` runs."""
        return AsyncRemoteTool(server, tool, execute).call

    async def _execute(
        self, server: str, tool: str, arguments: Mapping[str, Any] | None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call a tool of a server under whatever name it has now."""
        self._check_open()
        await late_import_module(PIPELINE)
        return await self._run(self._call_context, Pair(server, tool), arguments, timeout=timeout)

    @cached_property
    def _run(self) -> Callable[..., Awaitable[ToolResult]]:
        from dragoman.call import run  # Loaded by `_preload`, or by the first call in a thread.

        return run

    @cached_property
    def _call_context(self) -> CallContext:
        from dragoman.call import CallContext

        made = CallContext(
            registry=self.registry,
            supervisors=self._supervisors,
            publish=self._bus.publish,
            has_listeners=self._bus.has_listeners,
            sources_in_text=self.settings.sources_in_text,
            texts=self.texts,
            gate=self._gate,
            metrics=self._metrics,
            log=self.call_log,
            tasks=TaskStore(user=self.user),
            server_key=self._server_key,
            user=self.user,
        )
        if self._of_user is None:
            return made
        # One turn of the event loop is what all users have together.
        program = self._of_user.context
        return made.replace(throttle=program.throttle, failures=program.failures)

    def _close_tasks(self) -> None:
        if "_call_context" in self.__dict__:
            self._call_context.tasks.close()

    def _server_key(self, spec: ServerSpec) -> str:
        """Return what tasks and approvals of skills belong to: a server's entry, and the user."""
        key = spec_key(spec, self._root)
        if not self.user:
            return key
        return hashlib.sha256(f"{key}\n{self.user}".encode("utf-8", "surrogatepass")).hexdigest()[:40]

    async def _start(self) -> None:
        insist_on_asyncio()
        if self._closed or self._started:
            msg = "the manager is closed" if self._closed else "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        self._started = True
        self.registry.read_host()
        self._gate.begin()
        for name, supervisor in self._supervisors.items():
            self._metrics.watch(name, supervisor.state, time.monotonic())
        try:
            await self._pool.refuse_unapproved()
            await self._pool.start_all()
        except BaseException:
            await self.shutdown()
            raise
        if any(self._pool.starts(one.spec) for one in self._supervisors.values()):
            self._preloading = asyncio.create_task(self._preload())
        self._watch_files()

    async def _preload(self) -> None:
        """Import what the first call needs, once the servers have started: until then it would delay them."""
        for supervisor in list(self._supervisors.values()):
            await supervisor.wait_settled()
        if not self._closed:
            await late_import_module(PIPELINE)

    async def _wait_required(self) -> None:
        """Wait for the servers with `required`; shut down and raise if one of them fails."""
        for supervisor in list(self._supervisors.values()):
            if not supervisor.spec.required or not self._pool.starts(supervisor.spec):
                continue
            if supervisor.is_refused:
                continue  # An unapproved file of the project must not prevent the program from starting.
            if await supervisor.wait_settled() is not ServerState.READY:
                await self.shutdown()
                name = supervisor.spec.name
                msg = f"required server `{name}` is not ready: {supervisor.error}"
                hint = "fix it, or remove `required` from its entry"
                raise ConnectError(msg, server=name, stage="start", hint=hint) from supervisor.error

    def _check_open(self) -> None:
        if self._closed:
            msg = "the manager is closed"
            raise DragomanError(msg, hint="make a new one")
        if not self._started:
            msg = "the manager is not started"
            raise DragomanError(msg, hint="use `async with`, or `await McpManager.connect_all(…)`")

    def _open_server(self, name: str) -> Supervisor:
        """Return a server of this manager, which has to be started and not closed."""
        self._check_open()
        return find_server(self._supervisors, name)

    def _name_order(self) -> list[str] | None:
        """Return the servers in the order in which they get names, if the order decides."""
        return list(self._supervisors) if self.settings.collisions == "skip" else None

    def _watch_files(self) -> None:
        """Start or stop watching the configuration files, as `auto_reload` says."""
        if self._watcher is None:
            return
        if self.settings.auto_reload:
            self._watcher.start()
        else:
            self._watcher.stop()

    async def _on_files_changed(self) -> None:
        if not self._closed:
            await self.reload()

    def _config_files(self) -> list[Path]:
        """Return every file that may configure servers, including those that do not exist yet."""
        return [Path(source.path) for source in self.settings.sources if Path(source.path).is_absolute()]


def insist_on_asyncio() -> None:
    """Check that this runs under asyncio; other event loops fail in obscure ways.

    Raises:
        DragomanError: No asyncio event loop is running, or another library runs this task.
    """
    library = getattr(getattr(sys.modules.get("sniffio"), "thread_local", None), "name", None)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        library = library or "no event loop of asyncio"
    if library not in (None, "asyncio"):
        msg = f"dragoman needs asyncio, and this runs under {library}"
        hint = "under trio use `dragoman.blocking` in a thread: `await trio.to_thread.run_sync(…)`"
        raise DragomanError(msg, hint=hint)


def _settings(servers: Servers, profile: str | Profile | None = None) -> Settings:
    """Return the settings for what a manager is made of."""
    if isinstance(servers, Mapping):
        from dragoman.config.load import load_given  # Most programs make specs, or read files.

        return load_given(cast("Mapping[str, Any]", servers), profile)
    if profile is not None:
        msg = "`profile` says how to read a mapping or a file; specs and settings are complete"
        raise TypeError(msg)
    if isinstance(servers, Settings):
        return servers
    wrong = "a manager is made of a list of servers, a mapping, or the path of a configuration file"
    if isinstance(servers, ServerSpec):
        msg = f"{wrong}: write McpManager([spec])"
        raise TypeError(msg)
    specs = tuple(cast("Iterable[ServerSpec]", servers))
    for spec in specs:
        if not isinstance(cast("object", spec), ServerSpec):
            msg = f"{wrong}; the list holds a {type(spec).__name__}"
            raise TypeError(msg)
    return Settings(servers=specs)


def _file_loader(
    servers: Servers, profile: str | Profile | None, *, missing_ok: bool
) -> Callable[[], Settings] | None:
    """Return what reads the file that a manager is made of; `None` if it is made of something else."""
    if not isinstance(servers, str | os.PathLike):
        return None
    from dragoman.config.load import insist_on_file, load

    root = Path.cwd()
    if not missing_ok:
        insist_on_file(servers, root)
    return lambda: load(profile or "dragoman", root=root, config=servers, missing_ok=missing_ok)


def _why_not(status: ServerStatus) -> str:
    """Say in a few words why a server is not ready."""
    if status.last_error:
        return status.last_error
    return {"connecting": "still connecting", "idle": "not started", "closed": "stopped"}.get(
        status.state.value, status.state.value
    )


def _memory(cache: object, *, root: str, gate: Gate) -> ManifestMemory | None:
    """Return the cache of listings, as the manager's `cache` says."""
    if not cache:
        return None
    folder = default_folder() if cache is True else Path(str(cache))
    return ManifestMemory(
        ManifestCache(folder), key=lambda spec: spec_key(spec, root), hides=gate.redactor.holds
    )


def _open_log(wanted: object, *, mask: Callable[[str], str]) -> CallLog | None:
    """Open the call log, as the manager's `call_log` says."""
    if wanted is False or wanted is None:
        return None
    from dragoman.observe.call_log import CallLog  # Only those who use it load the database.

    if isinstance(wanted, CallLog):
        return wanted
    return CallLog(None if wanted is True else Path(str(wanted)), mask=mask)


def _approvals(env: Mapping[str, str] | None) -> Approvals:
    from dragoman.config.load import approvals  # Only needed if the project has configuration files.

    return approvals(env=env)
