"""McpManager: the object users hold. It composes one supervisor per server, the registry and the calls.

Entering starts every server and waits for none. A server that fails is logged and skipped; the others,
and the program, go on.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dragoman import call
from dragoman.config.expand import Surroundings
from dragoman.errors import ConnectError, DragomanError, InvalidSpecError, UnknownServerError
from dragoman.model import ServerState, Settings
from dragoman.observe.bus import EventBus
from dragoman.server.supervisor import Supervisor
from dragoman.tools.listing import admit, difference
from dragoman.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from dragoman.config.profiles import Profile
    from dragoman.events import Event
    from dragoman.model import ServerSpec, ServerStatus, ToolDef, ToolResult

logger = logging.getLogger("dragoman")

STARTING_AT_ONCE = 16
"""How many servers are started side by side; a hanging one gives its place up soon."""


class McpManager:
    """Every configured server, its tools, and the one road to them."""

    def __init__(
        self,
        servers: Iterable[ServerSpec] | Settings,
        *,
        registry: ToolRegistry | None = None,
        inputs: Mapping[str, str] | None = None,
        trust_project: bool = False,
    ) -> None:
        """Take the servers in, without starting any.

        Args:
            servers: Specs, or everything that a configuration says.
            registry: Where the tools go, beside built-in ones; a new one unless given.
            inputs: Answers to `${input:id}`, by id.
            trust_project: Whether files that came with the project are trusted.

        Raises:
            InvalidSpecError: Two servers have the same name.
        """
        settings = servers if isinstance(servers, Settings) else Settings(servers=tuple(servers))
        self.registry = ToolRegistry() if registry is None else registry
        self.settings = settings
        self.trust_project = trust_project
        self._inputs = dict(inputs or {})
        self._bus = EventBus()
        self._supervisors: dict[str, Supervisor] = {}
        self._route = call.Route(
            registry=self.registry, supervisors=self._supervisors, publish=self._bus.publish
        )
        self._slots = asyncio.Semaphore(STARTING_AT_ONCE)
        self._load: Callable[[], Settings] | None = None
        self._started = False
        self._closed = False
        for spec in settings.servers:
            self._take_in(spec)

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
    ) -> Self:
        """Make a manager of what the configuration files say; what is wrong in them is logged and skipped.

        Args:
            profile: The application whose files, variables and naming count.
            root: The project's directory; the current one unless given.
            config: A file to read instead of searching.
            trust_project: As for the class; so are `registry` and `inputs`.
            registry: Where the tools go.
            inputs: Answers to `${input:id}`.
        """
        from dragoman.config.discover import load

        def read() -> Settings:
            return load(profile, root=root, config=config)

        manager = cls(read(), registry=registry, inputs=inputs, trust_project=trust_project)
        manager._load = read
        return manager

    @classmethod
    async def connect_all(
        cls, servers: Iterable[ServerSpec] | Settings, *, registry: ToolRegistry | None = None
    ) -> Self:
        """Return a started manager once every server is ready or has failed once; later `shutdown()` it."""
        manager = cls(servers, registry=registry)
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
        supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.close()
        cancelled: asyncio.CancelledError | None = None
        for supervisor in supervisors:
            try:
                await supervisor.stop()
            except asyncio.CancelledError as exc:
                cancelled = exc
            self._replace_tools(supervisor.spec.name, [])
        self._bus.close()
        if cancelled is not None:
            raise cancelled

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
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        """Call a tool by its exposed name; a failed call is a result.

        Args:
            name: The exposed name, of a server's tool or a built-in one.
            arguments: What the tool takes.
            timeout: Seconds; the server's own `timeouts.call` unless given.

        Raises:
            DragomanError: The manager is not started, or closed.
        """
        self._check_open()
        return await self._call(name, arguments, timeout=timeout)

    def status(self) -> dict[str, ServerStatus]:
        """Return a reading of every server, by name; it starts nothing."""
        return {name: supervisor.status() for name, supervisor in self._supervisors.items()}

    def events(self) -> AsyncIterator[Event]:
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

    async def add(self, spec: ServerSpec) -> None:
        """Take one more server in; wait until it is ready or has failed.

        Raises:
            InvalidSpecError: There is a server of that name already.
        """
        self._check_open()
        supervisor = self._take_in(spec)
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
        self._replace_tools(name, [])
        await supervisor.stop()

    async def reload(self) -> None:
        """Read the configuration again and apply the difference: unchanged servers are not touched.

        Raises:
            DragomanError: The manager was not made by `from_config`.
        """
        self._check_open()
        if self._load is None:
            msg = "this manager has no configuration to read again"
            raise DragomanError(msg, hint="make it with `from_config()`, or use `add` and `remove`")
        self.settings = await asyncio.to_thread(self._load)
        wanted = {spec.name: spec for spec in self.settings.servers}
        for name, supervisor in list(self._supervisors.items()):
            spec = wanted.get(name)
            if spec is not None and _means_the_same(spec, supervisor.spec):
                supervisor.spec = spec
            else:
                await self.remove(name)
        added = [spec for name, spec in wanted.items() if name not in self._supervisors]
        await asyncio.gather(*(self.add(spec) for spec in added))

    async def _call(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> ToolResult:
        return await call.run(self._route, name, arguments, timeout=timeout)

    def _start(self) -> None:
        if self._closed or self._started:
            msg = "the manager is closed" if self._closed else "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        self._started = True
        for supervisor in self._supervisors.values():
            if self._starts_itself(supervisor.spec):
                supervisor.start()

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

    def _take_in(self, spec: ServerSpec) -> Supervisor:
        if spec.name in self._supervisors:
            msg = f"there are two servers named `{spec.name}`"
            raise InvalidSpecError(msg, source=spec.origin.source, line=spec.origin.line)
        supervisor = Supervisor(
            spec,
            surroundings=self._surroundings(),
            publish=self._bus.publish,
            listed=self._on_listed,
            slots=self._slots,
            health_check_interval=self.settings.health_check_interval,
        )
        self._supervisors[spec.name] = supervisor
        return supervisor

    def _surroundings(self) -> Surroundings:
        defaults = {item.id: item.default for item in self.settings.inputs if item.default is not None}
        return Surroundings(
            env=os.environ,
            root=self.settings.root or str(Path.cwd()),
            home=str(Path.home()),
            inputs=defaults | self._inputs,
        )

    def _on_listed(self, spec: ServerSpec, listing: Sequence[dict[str, Any]]) -> int:
        tools, rejected = admit(listing, spec, template=spec.naming or self.settings.naming)
        for one in rejected:
            logger.warning("%s: tool `%s` is skipped: %s", spec.name, one.tool, one.reason)
        return len(self._replace_tools(spec.name, tools))

    def _replace_tools(self, server: str, tools: Sequence[ToolDef]) -> list[ToolDef]:
        before = self.registry.unregister_server(server)
        after = self.registry.register_all(tools, remote=self._call)
        if (change := difference(server, before, after)) is not None:
            self._bus.publish(change)
        return after


def _means_the_same(one: ServerSpec, other: ServerSpec) -> bool:
    """Tell whether two specs differ at most in where they are written down."""
    return (
        replace(one, origin=other.origin, shadowed=other.shadowed, lines=other.lines, notes=other.notes)
        == other
    )
