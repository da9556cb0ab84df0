"""McpManager: the object users hold. It composes one supervisor per server, the registry and the calls.

Entering offers what every server offered last time, starts every server and waits for none. A server that
fails is logged and skipped; the others, and the program, go on. What a lazy server offers is unknown until it
was connected once: its status then says `tools=0`, since observing a server never starts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import nullcontext
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dragoman import call
from dragoman.cache import ManifestCache, Memory, default_folder
from dragoman.config.expand import Surroundings, expand_transport
from dragoman.errors import ConnectError, DragomanError, InvalidSpecError, UnknownServerError
from dragoman.events import ConfigReloaded, StateChanged
from dragoman.model import Handlers, ServerState, Settings
from dragoman.observe.bus import EventBus
from dragoman.offers import Offers
from dragoman.reload import Watcher, apply, diff, hold
from dragoman.server.roster import Roster, see_out
from dragoman.server.supervisor import Supervisor
from dragoman.server.wire import calling
from dragoman.toolbox import Toolbox
from dragoman.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from dragoman.config.profiles import Profile
    from dragoman.events import Event
    from dragoman.model import (
        HeaderProvider,
        ProgressHandler,
        ServerSpec,
        ServerStatus,
        ToolDef,
        ToolResult,
        Transport,
    )
    from dragoman.observe.bus import Subscription

logger = logging.getLogger("dragoman")

STARTING_AT_ONCE = 16
"""How many servers are started side by side; a hanging one gives its place up soon."""


class McpManager(Offers):
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
    ) -> None:
        """Take the servers in, without starting any.

        Args:
            servers: Specs, or everything that a configuration says.
            registry: Where the tools go, beside built-in ones; a new one unless given.
            inputs: Answers to `${input:id}`, by id.
            trust_project: Whether files that came with the project are trusted.
            cache: The folder where listings are kept from one run to the next, or whether they are kept.
            handlers: What the application answers when a server asks.
            header_provider: Given a server's name, returns more headers, or an awaitable of them, for each
                HTTP request. For a call it is asked in the caller's context; for what belongs to no call
                (handshakes, listings, probes) in an empty one.

        Raises:
            InvalidSpecError: Two servers have the same name.
        """
        settings = servers if isinstance(servers, Settings) else Settings(servers=tuple(servers))
        self.registry = ToolRegistry() if registry is None else registry
        self.settings = settings
        self.trust_project = trust_project
        self._inputs = dict(inputs or {})
        if header_provider is not None:
            handlers = replace(handlers or Handlers(), headers=header_provider)
        self._handlers = handlers
        self._bus = EventBus()
        self._root = settings.root or str(Path.cwd())
        folder = default_folder() if cache is True else cache or None
        self._memory = folder and Memory(ManifestCache(folder), root=self._root, expand=self._expand)
        self._toolbox = Toolbox(self.registry, self._memory, publish=self._bus.publish, remote=self._call)
        self._roster = Roster(self._make, self._on_moved)
        super().__init__(self._roster.current)
        self._route = call.Route(
            registry=self.registry,
            supervisors=self._supervisors,
            publish=self._bus.publish,
            is_heard=self._bus.is_heard,
        )
        self._slots = asyncio.Semaphore(STARTING_AT_ONCE)
        self._load: Callable[[], Settings] | None = None
        self._reloading = asyncio.Lock()
        self._watcher: Watcher | None = None
        self._started = False
        self._closed = False
        for spec in settings.servers:
            self._check_free(spec)
            self._supervisors[spec.name] = self._make(spec)

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
    ) -> Self:
        """Return a started manager once every server is ready or has failed once; later `shutdown()` it."""
        manager = cls(servers, registry=registry, cache=cache)
        try:
            manager._start()
            await manager._require()
            await manager.wait_ready()
        except BaseException:
            await manager.shutdown()
            raise
        return manager

    async def __aenter__(self) -> Self:
        self._start()
        await self._require()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def shutdown(self) -> None:
        """Stop every server and wait until all are gone, also if this is cancelled; twice does no harm."""
        self._closed = True
        watching = self._watcher.stop() if self._watcher else ()
        try:
            await self._roster.close()
        finally:
            for name in self._supervisors:
                self._toolbox.empty(name)
            self._bus.close()
            await see_out({*watching, *(self._memory.saving() if self._memory else ())})

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
            waited = [one for one in self._supervisors.values() if self._starts_itself(one.spec)]
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
            return await call.run(self._route, name, arguments, timeout=timeout, on_progress=on_progress)

    def status(self) -> dict[str, ServerStatus]:
        """Return a reading of every server, by name; it starts nothing."""
        return {name: supervisor.status() for name, supervisor in self._supervisors.items()}

    @property
    def started(self) -> bool:
        """Whether it was entered, also if it is closed by now."""
        return self._started

    def events(self) -> Subscription:
        """Return what happens from now on, until the manager is shut down."""
        return self._bus.subscribe()

    async def restart(self, name: str) -> None:
        """Stop a server and start it anew; wait until it is ready or has failed.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._check_open()
        supervisor = self._supervisor(name)
        await supervisor.restart()
        await supervisor.wait_settled()

    async def login(
        self,
        name: str,
        *,
        open_url: Callable[[str], Any] | None = None,
        paste: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """Have a person log in to a server, and wait until it is ready or has failed.

        Args:
            name: The server.
            open_url: Given the address that the person has to open; may be async.
            paste: Asks the person for the address that the browser ended at; for machines without a browser.

        Raises:
            AuthRequiredError: It was refused, or nobody logged in.
            ConfigError: It is no server that one logs in to.
        """
        self._check_open()
        supervisor = self._supervisor(name)
        await supervisor.login(open_url=open_url, paste=paste)
        await supervisor.wait_settled()

    async def logout(self, name: str) -> bool:
        """Forget the login of a server; returns whether there was one."""
        self._check_open()
        return await self._supervisor(name).logout()

    async def add(self, spec: ServerSpec) -> None:
        """Take one more server in; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: There is a server of that name already.
        """
        self._check_open()
        self._check_free(spec)
        supervisor = self._make(spec)
        self._roster.seat(supervisor)
        if self._starts_itself(spec):
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
        self._toolbox.empty(name)
        await supervisor.stop()

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
            old = replace(self.settings, servers=[one.spec for one in self._supervisors.values()])
            self.settings = hold(old, found)
            plan = diff(old, self.settings)
            self._keep_watch()
            failed = await apply(plan, self.settings, roster=self._roster, starts=self._starts_itself)
            await self._roster.settle()
        report = ConfigReloaded(
            kept=(*plan.keep, *plan.adjust),
            started=tuple(name for name in plan.start if name not in failed),
            replaced=tuple(name for name in plan.replace if name not in failed),
            stopped=plan.stop,
            failed=failed,
            problems=tuple(self.settings.problems),
        )
        self._bus.publish(report)
        return report

    async def _call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        return await call.run(self._route, name, arguments, timeout=timeout)

    def _start(self) -> None:
        if self._closed or self._started:
            msg = "the manager is closed" if self._closed else "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        self._started = True
        for supervisor in self._supervisors.values() if self.settings.enabled else ():
            supervisor.tools = self._toolbox.fill(supervisor.spec, self.settings.naming)
        for supervisor in self._supervisors.values():
            if self._starts_itself(supervisor.spec):
                supervisor.start()
        self._keep_watch()

    async def _require(self) -> None:
        """Wait for the servers that the program cannot do without; fail if one of them cannot be had."""
        for supervisor in list(self._supervisors.values()):
            if not supervisor.spec.required or not self._starts_itself(supervisor.spec):
                continue
            if await supervisor.wait_settled() is not ServerState.READY:
                await self.shutdown()
                name = supervisor.spec.name
                msg = f"server `{name}` is required, and it is not ready: {supervisor.error}"
                hint = "mend it, or take `required` out of its entry"
                raise ConnectError(msg, server=name, stage="start", hint=hint) from supervisor.error

    def _starts_itself(self, spec: ServerSpec) -> bool:
        return self.settings.enabled and spec.enabled and not spec.lazy

    def _check_open(self) -> None:
        if self._closed:
            msg = "the manager is closed"
            raise DragomanError(msg, hint="make a new one")
        if not self._started:
            msg = "the manager is not started"
            raise DragomanError(msg, hint="use `async with`, or `await McpManager.connect_all(…)`")

    def _supervisor(self, name: str) -> Supervisor:
        supervisor = self._supervisors.get(name)
        if supervisor is None:
            near = get_close_matches(name, self._supervisors, n=3)
            hint = f"there are: {', '.join(f'`{known}`' for known in self._supervisors) or 'none'}"
            msg = f"there is no server `{name}`"
            raise UnknownServerError(msg, server=name, suggestions=near, hint=hint)
        return supervisor

    def _check_free(self, spec: ServerSpec) -> None:
        if spec.name in self._supervisors:
            msg = f"there are two servers named `{spec.name}`"
            raise InvalidSpecError(msg, source=spec.origin.source, line=spec.origin.line)

    def _make(self, spec: ServerSpec) -> Supervisor:
        def listed(_: ServerSpec, listing: Sequence[dict[str, Any]]) -> int:
            return self._on_listed(supervisor, listing)

        def publish(event: Event) -> None:
            # Nobody hears of a server that is tried beside the one in use, nor of one that was replaced.
            if self._supervisors.get(spec.name, supervisor) is supervisor:
                self._bus.publish(event)

        supervisor = Supervisor(
            spec,
            surroundings=self._surroundings(),
            publish=publish,
            listed=listed,
            slots=self._slots,
            health_check_interval=self.settings.health_check_interval,
            handlers=self._handlers,
        )
        return supervisor

    def _surroundings(self) -> Surroundings:
        defaults = {item.id: item.default for item in self.settings.inputs if item.default is not None}
        return Surroundings(
            env=os.environ,
            root=self._root,
            home=str(Path.home()),
            inputs=defaults | self._inputs,
        )

    def _on_listed(self, supervisor: Supervisor, listing: Sequence[dict[str, Any]]) -> int:
        spec = supervisor.spec
        serves = self._supervisors.get(spec.name) is supervisor
        ready = supervisor.state is ServerState.READY
        return self._toolbox.listed(spec, listing, self.settings.naming, serves=serves, ready=ready)

    def _on_moved(self, name: str, before: Supervisor | None) -> None:
        """Offer the tools of whoever serves under a name now."""
        supervisor = self._supervisors.get(name)
        if supervisor is None:
            self._toolbox.empty(name)
            return
        if before is not None and before.state is not supervisor.state:
            change = StateChanged(server=name, before=before.state, after=supervisor.state, reason="replaced")
            self._bus.publish(change)
        if supervisor.state is ServerState.READY:
            supervisor.offer()
        elif self.settings.enabled:
            spec, naming = supervisor.spec, self.settings.naming
            supervisor.tools = self._toolbox.refill(spec, naming, starts=self._starts_itself(spec))
        else:
            self._toolbox.empty(name)

    def _expand(self, spec: ServerSpec) -> Transport:
        return expand_transport(spec, self._surroundings())

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
