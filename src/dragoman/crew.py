"""The servers of one manager at work: makes their supervisors, and offers what each of them lists.

Who serves under which name is in the roster, the tools are in the registry; this is what ties both together
when a server is made, has listed something, or takes another's place.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.cache import ManifestCache, Memory, default_folder
from dragoman.config.expand import Surroundings
from dragoman.events import ConfigReloaded, StateChanged
from dragoman.model import Handlers, ServerState, Settings
from dragoman.reload import apply, diff, hold, unapproved
from dragoman.server.roster import Roster, see_out
from dragoman.server.supervisor import Supervisor
from dragoman.server.wire import caller_headers
from dragoman.toolbox import Toolbox
from dragoman.trust.layers import rivalry, without_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dragoman.events import Event
    from dragoman.guard import Guard
    from dragoman.model import ServerSpec
    from dragoman.tools.registry import RemoteCall, ToolRegistry

logger = logging.getLogger("dragoman")

STARTING_AT_ONCE = 32
"""How many servers are started side by side; a hanging one gives its place up soon."""


class Crew:
    """Everybody who serves, and what they offer."""

    def __init__(
        self,
        settings: Settings,
        *,
        read: Settings | None = None,
        root: str,
        registry: ToolRegistry,
        guard: Guard,
        publish: Callable[[Event], None],
        remote: RemoteCall,
        cache: Path | bool | None = True,
        inputs: Mapping[str, str] | None = None,
        handlers: Handlers | None = None,
        greet: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin with nobody.

        Args:
            settings: What of the configuration is in effect.
            read: What the files say, for a later reload.
            root: The project's directory.
            registry: Where the tools go.
            guard: The rules for all of them.
            publish: Told of everything that happens.
            remote: What runs a tool.
            cache: The folder where listings are kept, or whether they are kept.
            inputs: Answers to `${input:id}`, by id.
            handlers: What the application answers when a server asks.
            greet: Told of a server that is connected already when it takes another's place.
        """
        self.settings = settings
        """What is in effect."""
        self._read = read
        self.guard = guard
        self._root = root
        self._publish = publish
        self._inputs = dict(inputs or {})
        handlers = handlers or Handlers()
        self._handlers = replace(handlers, headers=guard.watch_headers(handlers.headers, caller_headers))
        self._greet = greet
        folder = default_folder() if cache is True else cache or None
        hides = guard.redactor.holds
        self._memory = folder and Memory(ManifestCache(folder), root=root, hides=hides)
        self.toolbox = Toolbox(
            registry, self._memory, guard=guard, publish=publish, remote=remote, order=self._order
        )
        self.roster = Roster(self.make, self._on_moved)
        self._slots = asyncio.Semaphore(STARTING_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def make(self, spec: ServerSpec) -> Supervisor:
        """Make the supervisor of a spec, without starting it."""

        def listed(_: ServerSpec, listing: Sequence[dict[str, Any]]) -> int:
            return self._on_listed(supervisor, listing)

        def publish(event: Event) -> None:
            # Nobody hears of a server that is tried beside the one in use, nor of one that was replaced.
            if self.roster.current.get(spec.name, supervisor) is supervisor:
                self._publish(event)

        supervisor = Supervisor(
            spec,
            surroundings=self._surroundings(spec),
            publish=publish,
            listed=listed,
            slots=self._slots,
            health_check_interval=self.settings.health_check_interval,
            handlers=self._handlers,
            guard=self.guard,
        )
        return supervisor

    async def look(self) -> None:
        """Find the servers that are not approved as they are now, before anything of them is offered."""
        specs = [one.spec for one in self.roster.current.values() if self.guard.binds(one.spec)]
        for name, error in (await asyncio.to_thread(self.guard.refused, specs) if specs else {}).items():
            self.roster.current[name].refuse(error)

    def begin(self) -> None:
        """Offer what every server offered last time, and start those that start by themselves."""
        self._tell_of_unapproved(Settings())
        everybody = self.roster.current.values()
        for supervisor in everybody if self.settings.enabled else ():
            if not supervisor.is_refused:
                spec, starts = supervisor.spec, self.starts(supervisor.spec)
                supervisor.tools = self.toolbox.fill(spec, self.settings.naming, starts=starts)
        for supervisor in everybody:
            if self.starts(supervisor.spec):
                supervisor.start()

    def starts(self, spec: ServerSpec) -> bool:
        """Tell whether a server is started without being asked for."""
        return self.settings.enabled and spec.enabled and not spec.lazy

    async def change(self, found: Settings) -> ConfigReloaded:
        """Apply what the configuration says now: unchanged servers are not touched."""
        current = self.roster.current
        old = replace(self.settings, servers=[one.spec for one in current.values()])
        self._read = found if self._read is None else hold(self._read, found)
        decided = await asyncio.to_thread(self.guard.decide, self._read)
        names = {spec.name for spec in decided.servers}
        added = [spec for spec in old.servers if spec.origin.scope == "code" and spec.name not in names]
        self.settings = replace(decided, servers=[*decided.servers, *added])
        self.guard.adopt(self.settings)
        self._tell_of_unapproved(old)
        plan = diff(old, self.settings)
        if plan.adjust:
            specs = [spec for spec in self.settings.servers if spec.name in plan.adjust]
            plan = unapproved(plan, await asyncio.to_thread(self.guard.refused, specs))
        failed = await apply(plan, self.settings, roster=self.roster, starts=self.starts)
        await self.roster.settle()
        self.toolbox.arrange()
        return ConfigReloaded(
            kept=(*plan.keep, *plan.adjust),
            started=tuple(name for name in plan.start if name not in failed),
            replaced=tuple(name for name in plan.replace if name not in failed),
            stopped=plan.stop,
            failed=failed,
            problems=tuple(self.settings.problems),
        )

    async def revisit(self, supervisor: Supervisor) -> None:
        """Compare what a server offers with its pins once more, and offer what they let pass."""
        await self.guard.pinboard.revisit(supervisor.spec)
        if self.roster.current.get(supervisor.spec.name) is supervisor:
            supervisor.offer()

    async def leave(self) -> None:
        """Wait until everything is written down and looked at."""
        await see_out(self._tasks)
        await see_out({*self.guard.pinboard.looking(), *(self._memory.saving() if self._memory else ())})

    def _surroundings(self, spec: ServerSpec) -> Surroundings:
        return Surroundings(
            env=os.environ,
            root=self._root,
            home=str(Path.home()),
            inputs=self.guard.answers(spec, self.settings, self._inputs),
        )

    def _tell_of_unapproved(self, before: Settings) -> None:
        """Say what of the project's files is not in effect, unless that was said."""
        for spec in self.settings.unapproved:
            if spec not in before.unapproved:
                logger.warning("%s", rivalry(spec))
        idle = without_effect(self.settings)
        if idle and idle != without_effect(before):
            text = "%s: the project's settings (%s) are not approved and not in effect for your servers: %s"
            keys = ", ".join(dict.fromkeys(one.key for one in idle))
            logger.warning(text, idle[0].source, keys, "`dragoman trust approve --settings` asks")

    def _on_listed(self, supervisor: Supervisor, listing: Sequence[dict[str, Any]]) -> int:
        spec = supervisor.spec
        serves = self.roster.current.get(spec.name) is supervisor
        ready = supervisor.state is ServerState.READY
        return self.toolbox.listed(spec, listing, self.settings.naming, serves=serves, ready=ready)

    def _on_moved(self, name: str, before: Supervisor | None) -> None:
        """Offer the tools of whoever serves under a name now."""
        supervisor = self.roster.current.get(name)
        if supervisor is None:
            self.toolbox.empty(name)
            self.guard.pinboard.forget(name)
            return
        if before is not None and before.state is not supervisor.state:
            change = StateChanged(server=name, before=before.state, after=supervisor.state, reason="replaced")
            self._publish(change)
        if supervisor.state is ServerState.READY:
            supervisor.offer()
            if before is supervisor:
                # Its rules are others now, the trust in it perhaps too.
                self._begin(self.revisit(supervisor))
            else:
                self._greet(name)
        elif self.settings.enabled and not supervisor.is_refused:
            spec, naming = supervisor.spec, self.settings.naming
            supervisor.tools = self.toolbox.refill(spec, naming, starts=self.starts(spec))
        else:
            self.toolbox.empty(name)

    def _order(self) -> list[str] | None:
        return list(self.roster.current) if self.settings.collisions == "skip" else None

    def _begin(self, job: Any) -> None:
        task = asyncio.create_task(job, name="dragoman crew")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
