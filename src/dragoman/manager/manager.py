"""McpManager: the object that users hold. It composes the servers, their tools and the calls.

Starting it offers the cached tools of every server, starts the servers and waits only for required ones. A
server that fails is logged and skipped; the others go on. A lazy server that was never connected has no known
tools: its status says `tools=0`, because reading the status does not start a server.

Its methods are what an application needs daily; what fewer need is on the facets `auth`, `trust`, `tasks`,
`skills`, `apps` and `session`. The work is done by others, each in its own module:

- `lifetime.Lifetime` starts the servers, waits for them and stops them.
- `parts.Parts` holds `pool.ServerPool`, which makes and replaces the supervisors, one per server,
  `catalog.ToolCatalog`, which keeps the tool registry in step with what the servers list,
  `resources.Resources`, which lists and reads resources and prompts, and `subscriptions.Subscriptions`.
- `reloader.Reloader` reads the configuration again; `users.Users` has the managers of users.
- `dragoman.call.run` runs one call.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from dragoman.manager.lifetime import Lifetime, require_asyncio
from dragoman.manager.logins import Logins
from dragoman.manager.parts import PIPELINE, Given, Parts, UserContext, remote_tool
from dragoman.manager.pool import find_server
from dragoman.manager.reloader import Reloader, file_loader, settings_of
from dragoman.manager.session import SessionRequests
from dragoman.manager.tasks import Tasks
from dragoman.manager.trust import TrustDecisions
from dragoman.model import Handlers
from dragoman.server.late_import import is_loaded, late_import_module
from dragoman.server.protocol.context import with_headers
from dragoman.storage.spellings import Spellings
from dragoman.tools.names import use_spelling
from dragoman.tools.registry import ToolRegistry
from dragoman.tools.view import ToolView
from dragoman.trust.toolsets import toolset_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from os import PathLike
    from pathlib import Path
    from types import TracebackType

    from dragoman.bulk.run import BulkRun, Executor, Rows
    from dragoman.call import CallContext
    from dragoman.config.profiles import Profile
    from dragoman.events import ConfigReloaded
    from dragoman.manager.apps import Apps
    from dragoman.manager.reloader import Servers
    from dragoman.manager.skills import Skills
    from dragoman.manager.subscriptions import ChangeHandler
    from dragoman.model import (
        Audience,
        Auth,
        HeaderProvider,
        Part,
        ProgressHandler,
        Prompt,
        ReadyReport,
        Resource,
        ServerSpec,
        ServerStatus,
        Settings,
        ToolDef,
        ToolResult,
        UserLimits,
        UserStatus,
    )
    from dragoman.observe.bus import Subscription
    from dragoman.observe.call_log import CallLog
    from dragoman.observe.metrics import ServerMetrics
    from dragoman.server.sharing import SharedConnections
    from dragoman.tools.host import HostRegistry
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy


class McpManager:
    """All configured servers, with their tools, resources and prompts."""

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
        approvals: Literal["inbox", "off"] | None = None,
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
                HTTP request. During a call it runs in the caller's context, otherwise in an empty one.
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
            approvals: With `inbox`, a call that needs a yes waits in the user's inbox, while `approval`
                asks; the configuration can turn that off. By default as configured, else `off`.

        Raises:
            InvalidSpecError: Two servers have the same name.
            ConfigError: The policy cannot be read, or the named file does not exist.
        """
        use_spelling(Spellings().of)
        load = file_loader(servers, profile, missing_ok=missing_ok)
        read = settings_of(servers, profile) if load is None else load()
        if header_provider is not None:
            handlers = (handlers or Handlers()).replace(headers=header_provider)
        given = Given(handlers=handlers, inputs=inputs, default_trust=default_trust, env=env)
        context = UserContext(make_func=self._tool_func)
        parts = Parts(
            read,
            given.replace(approvals=approvals),
            registry=registry if isinstance(registry, ToolRegistry) else ToolRegistry(host=registry),
            context=context if connections is None else context.replace(connections=connections),
            trust_project=trust_project,
            is_trusted=read is not servers,
            cache=cache,
            policy=policy,
            call_log=call_log,
            users=users,
        )
        self._adopt(Lifetime(parts, Reloader(parts, load=load, profile=profile)))

    @classmethod
    def from_config(
        cls,
        profile: str | PathLike[str] | Profile = "dragoman",
        *,
        root: str | PathLike[str] | None = None,
        config: str | PathLike[str] | None = None,
        hosts: Iterable[str] | bool = (),
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
        approvals: Literal["inbox", "off"] | None = None,
    ) -> Self:
        """Create a manager from the configuration files; invalid entries are logged and skipped.

        Args:
            profile: The application whose files, variables and naming to use; or the path of the one file to
                read, as `config`.
            root: The project's directory; the current one by default.
            config: A file to read instead of searching.
            hosts: Other hosts whose servers are used too, such as `claude-code` and `cursor`; or True for
                those that the user has approved by `dragoman config hosts --use`.
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
            approvals: Where calls wait.

        Raises:
            ConfigError: The profile or a host is unknown, or the named file does not exist.
        """
        from dragoman.config.hosts import add_hosts, log_hosts
        from dragoman.config.load import is_path, load, require_file

        named = cast("str | Profile", profile)
        if config is None and is_path(profile):
            config, named = cast("str | PathLike[str]", profile), "dragoman"
        if config is not None and not missing_ok:
            require_file(config, root)
        is_own = named == "dragoman" and config is None
        if hosts:
            named = add_hosts(named, hosts)

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
            approvals=approvals,
        )
        manager._lifetime.reloader = Reloader(manager._parts, load=read)
        if is_own and not manager._parts.settings.servers:
            log_hosts()
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
        require_asyncio()
        manager = cls(
            servers,
            profile=profile,
            registry=registry,
            cache=cache,
            trust_project=trust_project,
            policy=policy,
        )
        try:
            await manager.start()
            await manager.wait_ready()
        except BaseException:
            await manager.shutdown()
            raise
        return manager

    def _adopt(self, lifetime: Lifetime) -> None:
        """Use the parts that `lifetime` starts and ends."""
        self._lifetime = lifetime
        self._parts = lifetime.parts
        self.registry.owners.append(self)

    def _tool_func(
        self, server: str, tool: str, execute: Callable[..., Awaitable[ToolResult]]
    ) -> Callable[..., Any]:
        """Make the `func` of a tool that `execute` runs."""
        return remote_tool(server, tool, execute)

    def __repr__(self) -> str:
        listed = ", ".join(f"{name} {status.state}" for name, status in self.status().items())
        return f"<McpManager of {len(self._parts.supervisors)} servers: {listed or 'none'}>"

    def _repr_html_(self) -> str:
        from dragoman.display import rows_html

        found = self.status().values()
        rows = [{"server": s.name, "state": s.state, "tools": s.tools, "error": s.last_error} for s in found]
        return rows_html(rows) or "no servers"

    async def __aenter__(self) -> Self:
        await self._lifetime.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lifetime.leave()

    async def start(self, names: Iterable[str] | None = None) -> None:
        """Start the manager, as `async with` does; or begin to connect servers of a started one.

        Without names this starts the servers that start by themselves, waits for the required ones, and can
        be done once; call `shutdown()` later. With names it does not wait.

        Args:
            names: Servers to connect that are not connected: lazy ones, and at once those that wait to retry.

        Raises:
            ConnectError: A required server is not ready.
            UnknownServerError: No server has this name.
            DragomanError: The manager is started already, or closed.
        """
        if names is None:
            await self._lifetime.start()
            return
        for name in names:
            self._parts.pool.start_now(self._parts.open_server(name))

    async def shutdown(self) -> None:
        """Stop every server and wait until all have stopped, even if cancelled; safe to call twice.

        `close` is the same method.
        """
        try:
            await self._lifetime.shutdown()
        finally:
            if self in self.registry.owners:
                self.registry.owners.remove(self)

    close = shutdown

    @property
    def registry(self) -> ToolRegistry:
        """All tools, built-in and remote."""
        return self._parts.registry

    @property
    def started(self) -> bool:
        """Whether the manager was started; stays true after it is closed."""
        return self._parts.started

    @property
    def user(self) -> str:
        """Whose servers these are, for a manager that `as_user` returned."""
        return self._parts.user

    @property
    def trust_project(self) -> bool:
        """Whether the project's own files are trusted."""
        return self._parts.trust_project

    @property
    def settings(self) -> Settings:
        """The configuration in effect."""
        return self._parts.settings

    @property
    def call_log(self) -> CallLog | None:
        """Records calls, if configured."""
        return self._parts.call_log

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
        return await self._lifetime.wait_ready(names, timeout)

    def tools(self, *, audience: Audience = "model") -> list[ToolDef]:
        """Return the exposed tools of all servers, sorted by name.

        Args:
            audience: For whom: tools for a model by default, or those that a server's app may call.
        """
        supervisors = self._parts.supervisors
        for supervisor in supervisors.values():
            supervisor.need_listing()
        return [
            tool
            for tool in self.registry
            if tool.source == "mcp" and tool.server in supervisors and audience in tool.audience
        ]

    def toolset(self, name: str) -> ToolView:
        """Return a toolset of the configuration as a live view; raise `ConfigError` if there is none."""
        return ToolView(self.registry, follows=toolset_of(lambda: self.settings, name))

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
        parts = self._parts
        parts.check_open()
        if not is_loaded(PIPELINE):
            await late_import_module(PIPELINE)
        await self._lifetime.prepare_call(name, timeout)
        mode = None
        if detach or on_input == "return":
            from dragoman.call import CallMode

            mode = CallMode(detach=detach, pauses=on_input == "return")
        context = parts.call_context if audience == "model" else parts.call_context.replace(audience=audience)
        call = parts.run(
            context, name, arguments, timeout=timeout, on_progress=on_progress, meta=meta, mode=mode
        )
        if not headers:
            return await call
        with with_headers(headers):
            return await call

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
            self._parts.check_open()
            await late_import_module(PIPELINE)
            if self.registry.find(name) is None:
                await self.wait_ready()  # Its server may still be starting.
            return self._parts.call_context

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

    @cached_property
    def auth(self) -> Logins:
        """Logins to servers: `login`, `begin` and `complete`, `logout`."""
        return Logins(self._parts)

    @cached_property
    def trust(self) -> TrustDecisions:
        """What a person decides: `pending`, `answer` for calls, `changes`, `approve` for definitions."""
        return TrustDecisions(self._parts)

    @cached_property
    def tasks(self) -> Tasks:
        """Calls that go on after their answer, or wait for a person: `list`, `resume`, `cancel`."""
        return Tasks(self._parts)

    @cached_property
    def session(self) -> SessionRequests:
        """Less common requests: `complete`, `set_log_level`, `set_roots`."""
        return SessionRequests(self._parts.resources, self._parts.subscriptions)

    @cached_property
    def skills(self) -> Skills:
        """The skills of the connected servers: `all`, `get`, `load`, `read`, `directory`, `approve`."""
        from dragoman.manager.skills import Skills  # Few programs use them.

        parts = self._parts
        return Skills(
            parts.resources,
            key=lambda server: parts.server_key(find_server(parts.supervisors, server).spec),
            limits=lambda server: find_server(parts.supervisors, server).limits,
            approval=parts.approval,
        )

    @cached_property
    def apps(self) -> Apps:
        """The pages that servers have for their tools: `open`."""
        from dragoman.manager.apps import Apps  # Only front ends use them.

        return Apps(self._parts, self)

    def as_user(
        self,
        user: str,
        *,
        headers: Mapping[str, str] | HeaderProvider | None = None,
        auth: str | Auth | Mapping[str, str | Auth] | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        handlers: Handlers | None = None,
        env: Mapping[str, str] | None = None,
    ) -> McpManager:
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
        self._lifetime.check_program(f"`{self.user}` is a user: call `as_user({user!r})` of the manager")
        self._parts.check_open()
        from dragoman.manager.user_settings import UserOptions

        options = UserOptions(headers=headers, auth=auth, policy=policy, handlers=handlers, env=env)
        return self._parts.users.get(user, options)

    def users(self) -> dict[str, UserStatus]:
        """Return the users of `as_user` who are connected, or whose managers are in use, by id."""
        return self._parts.users.status() if self._parts.has_users else {}

    def status(self, names: Iterable[str] | None = None) -> dict[str, ServerStatus]:
        """Return the status of servers, by name; this starts no server.

        Args:
            names: Which servers; by default all.

        Raises:
            UnknownServerError: No server has this name.
        """
        known = self._parts.supervisors
        chosen = known if names is None else {name: find_server(known, name) for name in names}
        return {name: one.status() for name, one in chosen.items()}

    def metrics(self) -> dict[str, ServerMetrics]:
        """Return the metrics of every server, by name.

        Calls of built-in tools, and of unknown tools, are under the empty name.
        """
        return self._parts.metrics.read(time.monotonic())

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """Return the last lines of a server's standard error, with known secrets masked.

        They come from the current connection, or from the last one. A server behind a URL has none.

        Raises:
            UnknownServerError: No server has this name.
        """
        supervisor = find_server(self._parts.supervisors, name)
        return supervisor.stderr().splitlines()[-lines:] if lines > 0 else []

    def events(self) -> Subscription:
        """Return the stream of events from now until the manager is shut down."""
        return self._parts.bus.subscribe()

    async def add(self, spec: ServerSpec) -> None:
        """Add a server; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: A server with this name exists.
        """
        self._check_program(f"add `{spec.name}`")
        parts = self._parts
        parts.check_open()
        parts.pool.check_free(spec)
        parts.gate.trust(spec)
        await parts.pool.add(spec)
        await parts.update_users()

    async def remove(self, name: str) -> None:
        """Remove a server with its tools, and stop it.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._check_program(f"remove `{name}`")
        supervisor = self._parts.open_server(name)
        self._parts.pool.uninstall(supervisor)
        await supervisor.stop()
        self._parts.metrics.forget(name)
        await self._parts.update_users()

    async def restart(self, name: str) -> None:
        """Restart a server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        supervisor = self._parts.open_server(name)
        await supervisor.restart()
        await supervisor.wait_settled()

    async def enable(self, name: str) -> None:
        """Enable a disabled server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._check_program(f"enable `{name}`")
        supervisor = self._parts.open_server(name)
        if not supervisor.spec.enabled:
            spec = supervisor.spec.replace(enabled=True)
            await self._parts.pool.replace(supervisor, spec, starts=not spec.lazy)
            await self._parts.update_users()

    async def disable(self, name: str) -> None:
        """Disable a server: remove its tools, and stop it once its calls are done.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._check_program(f"disable `{name}`")
        supervisor = self._parts.open_server(name)
        if supervisor.spec.enabled:
            self._parts.pool.install_stopped(supervisor.spec.replace(enabled=False))
            await self._parts.pool.wait_drained()
            await self._parts.update_users()

    async def reload(self, settings: Servers | None = None) -> ConfigReloaded:
        """Read the configuration again and apply what changed; unchanged servers are not touched.

        Files that cannot be read now keep their effect. Reloads run one after another.

        Args:
            settings: The new configuration, for a manager that was made of settings, specs or a mapping; a
                mapping is read by the rules of the same profile.

        Raises:
            DragomanError: The manager reads no file, and no settings are given; or the other way round.
        """
        self._check_program("reload")
        return await self._lifetime.reloader.reload(settings)

    async def resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and URI."""
        await self._lifetime.prepare_listing(server)
        return await self._parts.resources.list_resources(server)

    async def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource.

        Args:
            uri: Its URI.
            server: Its server; required if several servers have the resource.

        Raises:
            DragomanError: No connected server lists it, several do, or it cannot be read.
            CallDeniedError: The policy does not allow it.
        """
        await self._lifetime.prepare_listing(server)
        return await self._parts.resources.read(uri, server)

    async def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name."""
        await self._lifetime.prepare_listing(server)
        return await self._parts.resources.list_prompts(server)

    async def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt: role and content, as the server gives them.

        Raises:
            CallDeniedError: The policy does not allow it, or it differs from its pin and the server's `trust`
                withholds it.
            DragomanError: The server does not have it, or does not answer.
        """
        return await self._parts.resources.get_prompt(name, arguments, server=server)

    def instructions(self) -> dict[str, str]:
        """Return the instructions of the connected servers, by server, cleaned for a model.

        Invisible characters and terminal control codes are removed, and long texts are cut.
        """
        return self._parts.resources.instructions()

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
        await self._lifetime.prepare_listing(server)
        server = await self._parts.resources.permit(uri, server)
        await self._parts.subscriptions.subscribe(uri, server, on_change)

    async def unsubscribe(self, uri: str, server: str | None = None) -> None:
        """Cancel the subscriptions to a resource: at one server, or at all."""
        await self._parts.subscriptions.unsubscribe(uri, server, self._parts.resources.connected())

    def _check_program(self, change: str) -> None:
        self._lifetime.check_program(
            f"cannot {change} for one user: all users have the manager's servers",
            hint="change the manager; its users follow",
        )


def manager_of(lifetime: Lifetime) -> McpManager:
    """Return a manager over parts that exist; internal."""
    made = McpManager.__new__(McpManager)
    made._adopt(lifetime)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- of this module
    return made


def parts_of(manager: McpManager) -> Parts:
    """Return what a manager is composed of, for the packages above; internal."""
    return manager._parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- of this module
