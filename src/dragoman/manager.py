"""McpManager: the object users hold. It composes one supervisor per server, the registry and the calls.

Entering offers what every server offered last time, starts every server and waits for none. A server that
fails is logged and skipped; the others, and the program, go on. What a lazy server offers is unknown until it
was connected once: its status then says `tools=0`, since observing a server never starts it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dragoman.crew import Crew
from dragoman.errors import ConnectError, DragomanError, InvalidSpecError
from dragoman.guard import Guard
from dragoman.model import Handlers, ServerState, Settings
from dragoman.observe.bus import EventBus
from dragoman.reload import Watcher
from dragoman.server.roster import see_out
from dragoman.server.wire import calling
from dragoman.tools.registry import ToolRegistry
from dragoman.upkeep import Upkeep, insist_on_asyncio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from types import TracebackType

    from dragoman.call import Caller, Route
    from dragoman.config.profiles import Profile
    from dragoman.events import ConfigReloaded
    from dragoman.model import HeaderProvider, ProgressHandler, ServerSpec, ToolDef, ToolResult
    from dragoman.observe.bus import Subscription
    from dragoman.observe.calllog import CallLog
    from dragoman.spill import Spill
    from dragoman.tools.budget import Budget
    from dragoman.trust.pins import Trust
    from dragoman.trust.policy import Policy


class McpManager(Upkeep):
    """Every configured server, its tools and other offers, and the one road to them."""

    def __init__(
        self,
        servers: Iterable[ServerSpec] | Settings,
        *,
        registry: ToolRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        trust_project: bool = False,
        cache: Path | bool | None = True,
        handlers: Handlers | None = None,
        header_provider: HeaderProvider | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        default_trust: Trust = "warn",
    ) -> None:
        """Take the servers in, without starting any.

        Args:
            servers: Specs, or everything that a configuration says.
            registry: Where the tools go, beside built-in ones; a new one unless given.
            inputs: Answers to `${input:id}`, by id.
            trust_project: Whether files that came with the project are trusted. If not, what `Settings` have
                from such a file is not touched before somebody approves it; specs are the caller's own.
            cache: The folder where listings are kept from one run to the next, or whether they are kept.
            handlers: What the application answers when a server asks.
            header_provider: Given a server's name, returns more headers, or an awaitable of them, for each
                HTTP request. For a call it is asked in the caller's context; for what belongs to no call
                (handshakes, listings, probes) in an empty one.
            policy: Which calls are allowed, asked about (`handlers.approval`) or denied, as a file has it;
                the configuration's own rules can only be stricter.
            call_log: The file that every call is written to, masked and bounded, or whether the user's own is
                used; as the configuration says unless given. One that is given open is left open.
            default_trust: The `trust` of servers that say nothing about it. With `ask`, what is not as it was
                pinned is withheld until `approve`: for applications that show `changes` to a person.

        Raises:
            InvalidSpecError: Two servers have the same name.
            ConfigError: The policy cannot be read.
        """
        settings = servers if isinstance(servers, Settings) else Settings(servers=tuple(servers))
        self.registry = ToolRegistry() if registry is None else registry
        self.trust_project = trust_project
        if header_provider is not None:
            handlers = replace(handlers or Handlers(), headers=header_provider)
        self._bus = EventBus()
        root = settings.root or str(Path.cwd())
        read = settings
        self._guard = Guard(
            settings,
            root=root,
            trust_project=trust_project or settings is not servers,
            policy=policy,
            approval=handlers.approval if handlers else None,
            publish=self._bus.publish,
            default_trust=default_trust,
        )
        settings = self._guard.settings
        super().__init__(self._guard, self._bus.publish)
        # A built-in tool is judged on this road too, beside `call`.
        self.registry.watch(self._guard.permit_builtin)
        self.call_log = _opened(
            settings.call_log if call_log is None else call_log, mask=self._guard.redactor.mask
        )
        """What writes calls down, if that is wanted."""
        self._owns_log = self.call_log is not call_log
        self._crew = Crew(
            settings,
            read=read,
            root=root,
            registry=self.registry,
            guard=self._guard,
            publish=self._wishes.hear,
            remote=self._call,
            cache=cache,
            inputs=inputs,
            handlers=self._wishes.answering(handlers),
            greet=self._wishes.greet,
        )
        self._roster = self._crew.roster
        self._supervisors = self._roster.current
        self._load: Callable[[], Settings] | None = None
        self._reloading = asyncio.Lock()
        self._watcher: Watcher | None = None
        for spec in settings.servers:
            self._check_free(spec)
            self._supervisors[spec.name] = self._crew.make(spec)

    @classmethod
    def from_config(
        cls,
        profile: str | Profile = "dragoman",
        *,
        root: str | Path | None = None,
        config: str | Path | None = None,
        trust_project: bool = False,
        registry: ToolRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        cache: Path | bool | None = True,
        handlers: Handlers | None = None,
        header_provider: HeaderProvider | None = None,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
        call_log: CallLog | Path | bool | None = None,
        default_trust: Trust = "warn",
    ) -> Self:
        """Make a manager of what the configuration files say; what is wrong in them is logged and skipped.

        Args:
            profile: The application whose files, variables and naming count.
            root: The project's directory; the current one unless given.
            config: A file to read instead of searching.
            trust_project: As for the class; so are the others.
            registry: Where the tools go.
            inputs: Answers to `${input:id}`.
            cache: Where listings are kept.
            handlers: What the application answers.
            header_provider: Gives headers.
            policy: Which calls may be made.
            call_log: Where calls are written down.
            default_trust: The `trust` of servers that say nothing about it.
        """
        from dragoman.config.discover import load

        def read() -> Settings:
            return load(profile, root=root, config=config)

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
        )
        manager._load = read
        manager._watcher = Watcher(manager._candidates, manager._on_files_changed)
        return manager

    @classmethod
    async def connect_all(
        cls,
        servers: Iterable[ServerSpec] | Settings,
        *,
        registry: ToolRegistry | None = None,
        cache: Path | bool | None = True,
        trust_project: bool = False,
        policy: Policy | Mapping[str, Any] | list[Any] | None = None,
    ) -> Self:
        """Return a started manager once every server is ready or has failed once; later `shutdown()` it."""
        insist_on_asyncio()
        manager = cls(servers, registry=registry, cache=cache, trust_project=trust_project, policy=policy)
        try:
            await manager._start()
            await manager._require()
            await manager.wait_ready()
        except BaseException:
            await manager.shutdown()
            raise
        return manager

    async def __aenter__(self) -> Self:
        await self._start()
        await self._require()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def shutdown(self) -> None:
        """Stop every server and wait until all are gone, also if this is cancelled; twice does no harm."""
        insist_on_asyncio()
        self._closed = True
        watching = self._watcher.stop() if self._watcher else ()
        try:
            await self._roster.close()
        finally:
            for name in self._supervisors:
                self._crew.toolbox.forget(name)
            self._bus.close()
            try:
                await see_out({*self._wishes.close(), *watching})
                await self._crew.leave()
            finally:
                self._guard.end()
                if self.call_log is not None and self._owns_log:
                    await see_out({asyncio.create_task(asyncio.to_thread(self.call_log.close))})

    async def wait_ready(self, names: Iterable[str] | None = None, timeout: float | None = None) -> bool:
        """Wait until servers are ready or have failed; tell whether all are ready.

        Args:
            names: The servers to wait for; all that start by themselves unless given.
            timeout: Seconds; a server that is still connecting then counts as not ready.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._check_open()
        if names is None:
            waited = [one for one in self._supervisors.values() if self._crew.starts(one.spec)]
        else:
            waited = [self._supervisor(name) for name in names]
        try:
            async with asyncio.timeout(timeout):
                for supervisor in waited:
                    await supervisor.wait_settled()
        except TimeoutError:
            pass
        return all(supervisor.state is ServerState.READY for supervisor in waited)

    def tools(self) -> list[ToolDef]:
        """Return the exposed tools of all servers, sorted by name."""
        return [tool for tool in self.registry if tool.source == "mcp" and tool.server in self._supervisors]

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressHandler | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ToolResult:
        """Call a tool by its exposed name; a failed call is a result.

        Args:
            name: The exposed name, of a server's tool or a built-in one.
            arguments: What the tool takes.
            timeout: Seconds; the server's own `timeouts.call` unless given.
            on_progress: Given progress, total and message; each report gives the call its time anew.
            headers: For a server behind a URL: sent with this call's requests, and with no other's.

        Raises:
            DragomanError: The manager is not started, or closed.
        """
        self._check_open()
        with calling(headers) if headers else nullcontext():
            return await self._run(self._route, name, arguments, timeout=timeout, on_progress=on_progress)

    def caller(
        self,
        *,
        mends: bool = False,
        budget: Budget | None = None,
        spill: Spill | None = None,
        registry: ToolRegistry | None = None,
    ) -> Caller:
        """Return what calls as `call` does, but by other rules: for an agent beside the program itself.

        Args:
            mends: Whether arguments that nearly fit are mended, where a server's spec does not say.
            budget: How long the text of a result may be; unlimited unless given.
            spill: Where results over the budget are kept, and pieces that are bytes.
            registry: Built-in tools that are not in the manager's registry: the policy covers them too, and
                their calls are neither counted nor written down.
        """
        from dragoman.call import caller, unrecorded

        route = replace(self._route, mends=mends, budget=budget, spill=spill)
        if registry is not None:
            route = unrecorded(route, registry)
        return caller(route, self._check_open)

    @property
    def settings(self) -> Settings:
        """Everything that the configuration says."""
        return self._crew.settings

    def events(self) -> Subscription:
        """Return what happens from now on, until the manager is shut down."""
        return self._bus.subscribe()

    async def add(self, spec: ServerSpec) -> None:
        """Take one more server in; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: There is a server of that name already.
        """
        self._check_open()
        self._check_free(spec)
        self._guard.vouch(spec)
        supervisor = self._crew.make(spec)
        self._roster.seat(supervisor)
        if self._crew.starts(spec):
            supervisor.start()
            await supervisor.wait_settled()

    async def remove(self, name: str) -> None:
        """Stop a server and forget it, with its tools.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._check_open()
        supervisor = self._supervisor(name)
        del self._supervisors[name]
        self._crew.toolbox.empty(name)
        self._guard.pinboard.forget(name)
        await supervisor.stop()
        self._metrics.forget(name)

    async def reload(self) -> ConfigReloaded:
        """Read the configuration again and apply the difference: unchanged servers are not touched.

        What a file says that cannot be read now stays as it was. One reload waits for another.

        Raises:
            DragomanError: The manager was not made by `from_config`.
        """
        self._check_open()
        if self._load is None:
            msg = "this manager has no configuration to read again"
            raise DragomanError(msg, hint="make it with `from_config()`, or use `add` and `remove`")
        async with self._reloading:
            found = await asyncio.to_thread(self._load)
            self._check_open()
            try:
                report = await self._crew.change(found)
            finally:
                self._keep_watch()
        self._bus.publish(report)
        return report

    async def _call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        return await self._run(self._route, name, arguments, timeout=timeout)

    @cached_property
    def _run(self) -> Callable[..., Awaitable[ToolResult]]:
        # What a call needs is imported by the first one: tools are known and shown long before.
        from dragoman.call import run

        return run

    @cached_property
    def _route(self) -> Route:
        from dragoman.call import Route

        return Route(
            registry=self.registry,
            supervisors=self._supervisors,
            publish=self._bus.publish,
            is_heard=self._bus.is_heard,
            guard=self._guard,
            metrics=self._metrics,
            log=self.call_log,
        )

    async def _start(self) -> None:
        insist_on_asyncio()
        if self._closed or self._started:
            msg = "the manager is closed" if self._closed else "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        self._started = True
        self._guard.begin()
        for name, supervisor in self._supervisors.items():
            self._metrics.watch(name, supervisor.state, time.monotonic())
        try:
            await self._crew.look()
        except BaseException:
            await self.shutdown()
            raise
        self._crew.begin()
        self._keep_watch()

    async def _require(self) -> None:
        """Wait for the servers that the program cannot do without; fail if one of them cannot be had."""
        for supervisor in list(self._supervisors.values()):
            if not supervisor.spec.required or not self._crew.starts(supervisor.spec):
                continue
            if supervisor.is_refused:
                continue  # A project's file that is not approved cannot keep the program from starting.
            if await supervisor.wait_settled() is not ServerState.READY:
                await self.shutdown()
                name = supervisor.spec.name
                msg = f"server `{name}` is required, and it is not ready: {supervisor.error}"
                hint = "mend it, or take `required` out of its entry"
                raise ConnectError(msg, server=name, stage="start", hint=hint) from supervisor.error

    def _check_free(self, spec: ServerSpec) -> None:
        if spec.name in self._supervisors:
            msg = f"there are two servers named `{spec.name}`"
            raise InvalidSpecError(msg, source=spec.origin.source, line=spec.origin.line)

    def _keep_watch(self) -> None:
        """Watch the configuration's files if that is wanted, and only then."""
        if self._watcher is None:
            return
        if self.settings.auto_reload:
            self._watcher.start()
        else:
            self._watcher.stop()

    async def _on_files_changed(self) -> None:
        if not self._closed:
            await self.reload()

    def _candidates(self) -> list[Path]:
        """Return every file that may hold servers, also if it does not exist yet."""
        return [Path(source.path) for source in self.settings.sources if Path(source.path).is_absolute()]


def _opened(wanted: object, *, mask: Callable[[str], str]) -> CallLog | None:
    """Open the call log that is wanted, as the manager's `call_log` says."""
    if wanted is False:
        return None
    # The database is loaded by those who want it.
    from dragoman.observe.calllog import CallLog

    if isinstance(wanted, CallLog):
        return wanted
    return CallLog(None if wanted is True else Path(str(wanted)), mask=mask)
