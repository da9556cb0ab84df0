"""McpManager without `await`, for scripts, notebooks and threads.

Written by scripts/write_blocking.py from the async classes; do not edit.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from dragoman.blocking.bulk import BulkRun
from dragoman.blocking.facets import Apps, Logins, SessionRequests, Skills, Tasks, TrustDecisions
from dragoman.blocking.lifetime import LoopManager, ManagerInThread, OwnThread, in_threads
from dragoman.blocking.loop_thread import BlockingIterator, in_thread
from dragoman.blocking.registry import ToolRegistry, ToolView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from os import PathLike
    from pathlib import Path
    from typing import Any, Literal, Self

    from dragoman.blocking.tool import ToolDef
    from dragoman.bulk.run import Executor, Rows
    from dragoman.config.profiles import Profile
    from dragoman.events import ConfigReloaded, Event
    from dragoman.manager.reloader import Servers
    from dragoman.manager.subscriptions import ChangeHandler
    from dragoman.model import (
        Audience,
        Auth,
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
        ToolResult,
        UserLimits,
        UserStatus,
    )
    from dragoman.observe.call_log import CallLog
    from dragoman.observe.metrics import ServerMetrics
    from dragoman.tools.host import HostRegistry
    from dragoman.tools.registry import ToolRegistry as AsyncToolRegistry
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy


class McpManager(ManagerInThread):
    """All configured servers, with their tools, resources and prompts."""

    def __init__(
        self,
        servers: Servers,
        *,
        profile: str | Profile | None = None,
        registry: AsyncToolRegistry | HostRegistry | None = None,
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
            users: How many users of `as_user` may be connected at a time, and for how long without use.
            approvals: With `inbox`, a call that needs a yes waits in the user's inbox, while `approval`
                asks; the configuration can turn that off. By default as configured, else `off`.

        Raises:
            InvalidSpecError: Two servers have the same name.
            ConfigError: The policy cannot be read, or the named file does not exist.
        """
        mcp = LoopManager(
            servers,
            profile=profile,
            registry=registry,
            inputs=inputs,
            trust_project=trust_project,
            cache=cache,
            handlers=in_threads(handlers),
            header_provider=header_provider,
            policy=policy,
            call_log=call_log,
            default_trust=default_trust,
            missing_ok=missing_ok,
            env=env,
            users=users,
            approvals=approvals,
        )
        super().__init__(mcp, OwnThread(mcp, mcp.runner))

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
        registry: AsyncToolRegistry | HostRegistry | None = None,
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
        return cls._of(
            LoopManager.from_config(
                profile,
                root=root,
                config=config,
                hosts=hosts,
                missing_ok=missing_ok,
                trust_project=trust_project,
                registry=registry,
                inputs=inputs,
                cache=cache,
                handlers=in_threads(handlers),
                header_provider=header_provider,
                policy=policy,
                call_log=call_log,
                default_trust=default_trust,
                users=users,
                approvals=approvals,
            )
        )

    @classmethod
    def connect_all(
        cls,
        servers: Servers,
        *,
        profile: str | Profile | None = None,
        registry: AsyncToolRegistry | HostRegistry | None = None,
        cache: Path | bool | None = True,
        trust_project: bool = False,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
    ) -> Self:
        """Return a started manager once every server is ready or has failed; call `shutdown()` later."""
        return cls._connected(
            LoopManager(
                servers,
                profile=profile,
                registry=registry,
                cache=cache,
                trust_project=trust_project,
                policy=policy,
            )
        )

    @cached_property
    def registry(self) -> ToolRegistry:
        """All tools, built-in and remote."""
        return ToolRegistry(self._async.registry, self._runner)

    @property
    def started(self) -> bool:
        """Whether the manager was started; stays true after it is closed."""
        return self._async.started

    @property
    def user(self) -> str:
        """Whose servers these are, for a manager that `as_user` returned."""
        return self._async.user

    @property
    def trust_project(self) -> bool:
        """Whether the project's own files are trusted."""
        return self._async.trust_project

    @property
    def settings(self) -> Settings:
        """The configuration in effect."""
        return self._async.settings

    @property
    def call_log(self) -> CallLog | None:
        """Records calls, if configured."""
        return self._async.call_log

    def wait_ready(self, names: Iterable[str] | None = None, timeout: float | None = None) -> ReadyReport:
        """Wait until servers are ready or have failed; the report is true if all are ready.

        Args:
            names: The servers to wait for; by default all that start by themselves.
            timeout: Seconds; a server that is still connecting then counts as not ready.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.run(lambda: self._async.wait_ready(names, timeout))

    def tools(self, *, audience: Audience = "model") -> list[ToolDef]:
        """Return the exposed tools of all servers, sorted by name.

        Args:
            audience: For whom: tools for a model by default, or those that a server's app may call.
        """
        return cast("list[ToolDef]", self._runner.read(lambda: self._async.tools(audience=audience)))

    def toolset(self, name: str) -> ToolView:
        """Return a toolset of the configuration as a live view; raise `ConfigError` if there is none."""
        return ToolView(self._runner.read(lambda: self._async.toolset(name)), self._runner)

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
        return self._runner.run(
            lambda: self._async.call(
                name,
                arguments,
                timeout=timeout,
                on_progress=on_progress and in_thread(on_progress),
                headers=headers,
                meta=meta,
                audience=audience,
                detach=detach,
                on_input=on_input,
            )
        )

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
        """Call a tool once for every row: iterate over the outcomes, or `run.wait()` for a report.

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
        return BulkRun(
            self._runner.read(
                lambda: self._async.map(
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
            ),
            self._runner,
        )

    @cached_property
    def auth(self) -> Logins:
        """Logins to servers: `login`, `begin` and `complete`, `logout`."""
        return Logins(self._async.auth, self._runner)

    @cached_property
    def trust(self) -> TrustDecisions:
        """What a person decides: `pending`, `answer` for calls, `changes`, `approve` for definitions."""
        return TrustDecisions(self._async.trust, self._runner)

    @cached_property
    def tasks(self) -> Tasks:
        """Calls that go on after their answer, or wait for a person: `list`, `resume`, `cancel`."""
        return Tasks(self._async.tasks, self._runner)

    @cached_property
    def session(self) -> SessionRequests:
        """Less common requests: `complete`, `set_log_level`, `set_roots`."""
        return SessionRequests(self._async.session, self._runner)

    @cached_property
    def skills(self) -> Skills:
        """The skills of the connected servers: `all`, `get`, `load`, `read`, `directory`, `approve`."""
        return Skills(self._async.skills, self._runner)

    @cached_property
    def apps(self) -> Apps:
        """The pages that servers have for their tools: `open`."""
        return Apps(self._async.apps, self._runner)

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
        return self._beside(
            self._runner.read(
                lambda: self._async.as_user(
                    user, headers=headers, auth=auth, policy=policy, handlers=in_threads(handlers), env=env
                )
            )
        )

    def users(self) -> dict[str, UserStatus]:
        """Return the users of `as_user` who are connected, or whose managers are in use, by id."""
        return self._runner.read(self._async.users)

    def status(self, names: Iterable[str] | None = None) -> dict[str, ServerStatus]:
        """Return the status of servers, by name; this starts no server.

        Args:
            names: Which servers; by default all.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.read(lambda: self._async.status(names))

    def metrics(self) -> dict[str, ServerMetrics]:
        """Return the metrics of every server, by name.

        Calls of built-in tools, and of unknown tools, are under the empty name.
        """
        return self._runner.read(self._async.metrics)

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """Return the last lines of a server's standard error, with known secrets masked.

        They come from the current connection, or from the last one. A server behind a URL has none.

        Raises:
            UnknownServerError: No server has this name.
        """
        return self._runner.read(lambda: self._async.logs(name, lines))

    def events(self) -> Iterator[Event]:
        """Return the stream of events from now until the manager is shut down."""
        return BlockingIterator(self._runner.read(self._async.events), self._runner)

    def add(self, spec: ServerSpec) -> None:
        """Add a server; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: A server with this name exists.
        """
        self._runner.run(lambda: self._async.add(spec))

    def remove(self, name: str) -> None:
        """Remove a server with its tools, and stop it.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._async.remove(name))

    def restart(self, name: str) -> None:
        """Restart a server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._async.restart(name))

    def enable(self, name: str) -> None:
        """Enable a disabled server; wait until it is ready or has failed.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._async.enable(name))

    def disable(self, name: str) -> None:
        """Disable a server: remove its tools, and stop it once its calls are done.

        Raises:
            UnknownServerError: No server has this name.
        """
        self._runner.run(lambda: self._async.disable(name))

    def reload(self, settings: Servers | None = None) -> ConfigReloaded:
        """Read the configuration again and apply what changed; unchanged servers are not touched.

        Files that cannot be read now keep their effect. Reloads run one after another.

        Args:
            settings: The new configuration, for a manager that was made of settings, specs or a mapping; a
                mapping is read by the rules of the same profile.

        Raises:
            DragomanError: The manager reads no file, and no settings are given; or the other way round.
        """
        return self._runner.run(lambda: self._async.reload(settings))

    def resources(self, server: str | None = None) -> list[Resource]:
        """List resources, then templates, by server and URI."""
        return self._runner.run(lambda: self._async.resources(server))

    def read(self, uri: str, server: str | None = None) -> list[Part]:
        """Read a resource.

        Args:
            uri: Its URI.
            server: Its server; required if several servers have the resource.

        Raises:
            DragomanError: No connected server lists it, several do, or it cannot be read.
            CallDeniedError: The policy does not allow it.
        """
        return self._runner.run(lambda: self._async.read(uri, server))

    def prompts(self, server: str | None = None) -> list[Prompt]:
        """List prompts, by server and name."""
        return self._runner.run(lambda: self._async.prompts(server))

    def prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, server: str
    ) -> list[dict[str, Any]]:
        """Get the messages of a prompt: role and content, as the server gives them.

        Raises:
            CallDeniedError: The policy does not allow it, or it differs from its pin and the server's `trust`
                withholds it.
            DragomanError: The server does not have it, or does not answer.
        """
        return self._runner.run(lambda: self._async.prompt(name, arguments, server=server))

    def instructions(self) -> dict[str, str]:
        """Return the instructions of the connected servers, by server, cleaned for a model.

        Invisible characters and terminal control codes are removed, and long texts are cut.
        """
        return self._runner.read(self._async.instructions)

    def subscribe(
        self, uri: str, server: str | None = None, *, on_change: ChangeHandler | None = None
    ) -> None:
        """Publish changes of a resource as `ResourceChanged` events, also after a reconnection.

        Args:
            uri: The resource.
            server: Its server; required if several servers have the resource.
            on_change: Also called with each event.

        Raises:
            DragomanError: No connected server lists it, several do, or its server does not support it.
            CallDeniedError: The policy does not allow reading it.
        """
        self._runner.run(
            lambda: self._async.subscribe(uri, server, on_change=on_change and in_thread(on_change))
        )

    def unsubscribe(self, uri: str, server: str | None = None) -> None:
        """Cancel the subscriptions to a resource: at one server, or at all."""
        self._runner.run(lambda: self._async.unsubscribe(uri, server))
