"""Parts: what a manager is composed of, for the manager, its facets and the packages above.

Each part is in a module of its own and gets what it needs in its constructor. Applications use `McpManager`;
the gateway and the agent get the parts by `parts_of`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dragoman.errors import DragomanError
from dragoman.manager.catalog import AsyncRemoteTool, ToolCatalog
from dragoman.manager.pool import STARTING_AT_ONCE, ServerPool, find_server
from dragoman.manager.resources import Resources
from dragoman.manager.subscriptions import Subscriptions
from dragoman.model import ApprovalCaller, Handlers, UserLimits
from dragoman.observe.bus import EventBus
from dragoman.observe.metrics import Metrics
from dragoman.observe.turns import CallThrottle, FailureLog
from dragoman.server.in_progress import current_caller
from dragoman.server.late_import import late_import_module
from dragoman.server.sharing import SharedConnections
from dragoman.storage.manifests import ManifestCache, ManifestMemory, default_folder
from dragoman.storage.tasks import TaskStore
from dragoman.struct import Struct, field
from dragoman.tools.names import Pair, names_server
from dragoman.trust.gate import Gate
from dragoman.trust.masking import spec_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from dragoman.call import CallContext
    from dragoman.events import Event
    from dragoman.manager.forward import Forward
    from dragoman.manager.users import Users
    from dragoman.model import AlwaysRule, PendingApproval, ServerSpec, Settings, Texts, ToolResult
    from dragoman.observe.call_log import CallLog
    from dragoman.server.observer import Room
    from dragoman.server.supervisor import Supervisor
    from dragoman.tools.registry import ToolRegistry
    from dragoman.trust.approval_store import Approvals
    from dragoman.trust.inbox import Inbox
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy, PolicyRequest

PIPELINE = "dragoman.call"
"""The module of calls: imported after the servers have started, or by the first call."""


def remote_tool(server: str, tool: str, execute: Callable[..., Awaitable[ToolResult]]) -> Callable[..., Any]:
    """Return the `func` of a tool that `execute` runs."""
    return AsyncRemoteTool(server, tool, execute).call


class UserContext(Struct, kw_only=True):
    """Whose servers these are, and what their manager shares with the other managers of the program."""

    user: str = ""
    """The id of the user; empty for the program itself."""
    gate: Gate | None = None
    """The rules of the program, which those of a user can only make stricter."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(STARTING_AT_ONCE))
    """Limits how many servers start at once."""
    connections: SharedConnections = field(default_factory=lambda: SharedConnections(between_users=True))
    """The connections that several managers share."""
    room: Room | None = None
    """The place that this user takes up among all users."""
    failures: FailureLog = field(default_factory=FailureLog)
    throttle: CallThrottle = field(default_factory=CallThrottle)
    make_func: Callable[..., Callable[..., Any]] = remote_tool
    """Makes the `func` of a tool: from its server, its name and what runs it."""

    def closed_error(self) -> DragomanError:
        """Return the error for a use after the end."""
        if self.user:
            return DragomanError(f"the manager of user `{self.user}` is closed", hint="call `as_user` again")
        return DragomanError("the manager is closed", hint="make a new one")


class Given(Struct, kw_only=True):
    """Arguments of a manager that its users get too."""

    approvals: Literal["inbox", "off"] | None = None

    handlers: Handlers | None = None
    inputs: Mapping[str, str] | None = None
    default_trust: Trust = "warn"
    env: Mapping[str, str] | None = None


class Parts:
    """The parts of one manager, and whether it is open."""

    def __init__(
        self,
        read: Settings,
        given: Given,
        *,
        registry: ToolRegistry,
        context: UserContext,
        trust_project: bool = False,
        is_trusted: bool = False,
        cache: Path | bool | None = True,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        users: UserLimits | None = None,
    ) -> None:
        """Make the parts of a manager; no server is started.

        Args:
            read: The configuration as it was read.
            given: What users get too; see `McpManager`, as for the others.
            registry: Where the tools go.
            context: What is shared with other managers.
            trust_project: Whether the program trusts the project's own files.
            is_trusted: Whether the whole configuration is trusted, because the program gave it.
            cache: The folder for cached listings, or whether to cache them.
            policy: Which calls are allowed.
            call_log: Where to record calls.
            users: How many users may be connected.
        """
        self.context = context
        self.given = given
        self.registry = registry
        self.root = read.root or str(Path.cwd())
        self.trust_project = trust_project
        self.user_limits = users or UserLimits()
        """How many users of `as_user` may be connected."""
        self.started = False
        self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop that the manager was started in."""
        handlers, env = given.handlers, given.env
        self.approval = handlers.approval if handlers else None
        self.keeps_questions = (
            handlers is not None and handlers.durable_questions and handlers.elicitation is None
        )
        """Whether calls of agents end with a server's questions: they may wait, and no handler asks."""
        self.bus = EventBus()
        self.metrics = Metrics()
        self.gate = Gate(
            read,
            root=self.root,
            trust_project=trust_project or is_trusted,
            policy=policy,
            approval=self.approval,
            publish=self.publish,
            default_trust=given.default_trust,
            approvals=lambda: _approvals(env),
            inbox=self._open_inbox,
            uses_inbox=None if given.approvals is None else given.approvals == "inbox",
            offers=self._offered_rules,
            program=context.gate,
            user=context.user,
        )
        # `registry.call` does not go through `call`, so the policy has to judge built-in tools there too.
        registry.watch(self.gate.permit_builtin)
        settings = self.gate.settings
        wanted = settings.call_log if call_log is None else call_log
        self.call_log = _open_log(wanted, mask=self.gate.redactor.mask)
        self.owns_log = self.call_log is not call_log
        self.supervisors: dict[str, Supervisor] = {}
        """The servers in use, by name; the pool changes it."""
        self.resources = Resources(self.supervisors, self.gate)
        self.subscriptions = Subscriptions(
            self.resources.ask,
            self.bus.publish,
            lambda server, uri: self.gate.forbids("resource", uri, server=server),
        )
        self.catalog = ToolCatalog(
            registry,
            _memory(cache, root=self.root, gate=self.gate),
            gate=self.gate,
            publish=self.publish,
            remote=self._call,
            make_func=lambda server, tool: context.make_func(server, tool, self._execute),
            order=self._name_order,
        )
        self.pool = ServerPool(
            settings,
            supervisors=self.supervisors,
            read=read,
            root=self.root,
            gate=self.gate,
            catalog=self.catalog,
            publish=self.publish,
            on_connected=self.subscriptions.on_connected,
            handlers=self.subscriptions.with_roots(handlers),
            inputs=given.inputs,
            keeps_stderr=wanted is True,
            env=env,
            connections=context.connections,
            slots=context.slots,
            user=context.user,
            room=context.room,
            starts_none=users is not None and users.alone,
        )

    @property
    def user(self) -> str:
        """Whose servers these are."""
        return self.context.user

    @property
    def settings(self) -> Settings:
        """The configuration in effect."""
        return self.pool.settings

    @property
    def texts(self) -> Texts:
        """The words for users and models: the application's own, the rest in the user's language."""
        return self.pool.texts

    @cached_property
    def call_context(self) -> CallContext:
        """What calls need; the pipeline of calls is imported for it."""
        from dragoman.call import CallContext  # Loaded after the start, or by the first call in a thread.

        return CallContext(
            registry=self.registry,
            supervisors=self.supervisors,
            publish=self.bus.publish,
            has_listeners=self.bus.has_listeners,
            sources_in_text=self.settings.sources_in_text,
            texts=self.texts,
            gate=self.gate,
            metrics=self.metrics,
            log=self.call_log,
            tasks=TaskStore(user=self.user),
            names_server=self._names_server,
            server_key=self.server_key,
            user=self.user,
            failures=self.context.failures,
            throttle=self.context.throttle,
        )

    def _names_server(self, spec: ServerSpec, name: str | Pair) -> bool:
        return names_server(spec.naming or self.settings.naming, spec.name, name)

    @cached_property
    def run(self) -> Callable[..., Awaitable[ToolResult]]:
        """The function that runs one call; the pipeline of calls is imported for it."""
        from dragoman.call import run

        return run

    @cached_property
    def forward(self) -> Forward:
        """Passes requests of other clients on, and returns the servers' answers as they came."""
        from dragoman.manager.forward import Forward  # Only the gateway uses it.

        return Forward(self.supervisors, self.resources, self.call_context, self.check_open)

    @cached_property
    def users(self) -> Users:
        """The users of `as_user`."""
        from dragoman.manager.users import Users  # Few programs have users.

        return Users(self)

    @property
    def has_users(self) -> bool:
        """Whether `as_user` was ever called."""
        return "users" in self.__dict__

    def check_open(self) -> None:
        """Check that the manager is started and not closed, and that it is used in its own event loop.

        Raises:
            DragomanError: It is not.
        """
        if self.closed:
            raise self.context.closed_error()
        if not self.started:
            msg = "the manager is not started"
            raise DragomanError(msg, hint="use `async with`, or `await McpManager.connect_all(…)`")
        if asyncio._get_running_loop() not in (self.loop, None):  # noqa: SLF001 -- documented, and does not raise
            msg = "the manager belongs to another event loop, the one that it was started in"
            hint = (
                "pass the call to that loop by `asyncio.run_coroutine_threadsafe(mcp.call(…), loop)`, or use "
                "`dragoman.blocking.McpManager`, which any thread may call"
            )
            raise DragomanError(msg, hint=hint)

    def open_server(self, name: str) -> Supervisor:
        """Return a server of this manager, which has to be started and not closed.

        Raises:
            UnknownServerError: No server has this name.
        """
        self.check_open()
        return find_server(self.supervisors, name)

    def server_key(self, spec: ServerSpec) -> str:
        """Return what tasks and approvals of skills belong to: a server's entry, and the user."""
        key = spec_key(spec, self.root)
        if not self.user:
            return key
        return hashlib.sha256(f"{key}\n{self.user}".encode("utf-8", "surrogatepass")).hexdigest()[:40]

    async def _open_inbox(self) -> Inbox:
        # With its database, once a call has to wait.
        module = await late_import_module("dragoman.trust.inbox")
        return module.Inbox(
            user=self.user,
            publish=self.bus.publish,
            mask=self.gate.redactor.mask,
            caller=self._caller,
            notify=self._webhook,
        )

    def _webhook(self) -> Callable[[PendingApproval, str], Coroutine[Any, Any, None]] | None:
        settings = self.settings.approval_webhook
        if settings is None:
            return None
        from dragoman.manager.webhook import tell_webhook

        return lambda entry, code: tell_webhook(settings, entry, code=code)

    def _caller(self) -> ApprovalCaller:
        client = current_caller.get()
        return ApprovalCaller(
            user=self.user,
            principal="" if client is None else client.principal,
            client="" if client is None else client.name,
            program=program_name(),
            process=os.getpid(),
        )

    def _offered_rules(self, request: PolicyRequest, place: str) -> Sequence[AlwaysRule]:
        """Return the rules that a person can choose with a yes; a user of a program writes none."""
        if self.user:
            return ()
        from dragoman.config.rules import (
            always_rules,
            asking_rule,
            rules_file,
        )  # With the writer of files, as above.

        file = rules_file(self.settings, request.server, env=self.given.env)
        return always_rules(
            request,
            file,
            allows=lambda rule, before: self.gate.would_allow(request, rule, before=before),
            asking=asking_rule(self.settings, place),
            mask=self.gate.redactor.mask,
        )

    def publish(self, event: Event) -> None:
        """Publish an event of a server: to the metrics, the subscriptions, and then the listeners.

        Changes of tools are in the registry already. `StateChanged` comes before what the new state brings:
        `ready` before its tools. Calls count themselves in the metrics, so their events go to the bus.
        """
        self.metrics.take(event, time.monotonic())
        if not self.subscriptions.holds(event):
            self.bus.publish(event)

    def close_tasks(self) -> None:
        """Close the file of tasks, if it was opened."""
        if "call_context" in self.__dict__:
            self.call_context.tasks.close()

    async def update_users(self) -> None:
        """Give the users the servers that the manager has now."""
        if self.has_users:
            await self.users.update()

    async def _call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        await late_import_module(PIPELINE)
        return await self.run(self.call_context, name, arguments, timeout=timeout)

    async def _execute(
        self, server: str, tool: str, arguments: Mapping[str, Any] | None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call a tool of a server under whatever name it has now."""
        self.check_open()
        await late_import_module(PIPELINE)
        return await self.run(self.call_context, Pair(server, tool), arguments, timeout=timeout)

    def _name_order(self) -> list[str] | None:
        """Return the servers in the order in which they get names, if the order decides."""
        return list(self.supervisors) if self.settings.collisions == "skip" else None


def program_name() -> str:
    """Return what this program is called."""
    return Path(sys.argv[0]).name if sys.argv else ""


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
