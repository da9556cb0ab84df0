"""ServerPool: the supervisors of one manager. It makes, starts, replaces and stops them.

A server is replaced in two ways. With `replace = "start-first"` the new one starts next to the old one and
takes over once it is ready; calls that are running on the old one may finish. In all other cases the old one
is stopped first, after `DRAIN_SECONDS` at most, and comes back if the new one does not start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.config.templates import ExpansionContext
from dragoman.errors import (
    AuthRequiredError,
    ConnectError,
    ConnectionLostError,
    InvalidSpecError,
    ServerNotReadyError,
    UnknownServerError,
)
from dragoman.events import ConfigReloaded, StateChanged
from dragoman.languages import in_language, language_of
from dragoman.manager.reload import diff, hold, unapproved
from dragoman.model import Handlers, ServerState, Settings, Stdio
from dragoman.server.observer import Observer
from dragoman.server.protocol.context import caller_headers
from dragoman.server.supervisor import Supervisor
from dragoman.suggest import suggest
from dragoman.tools.registry import SLICE
from dragoman.trust.layers import name_conflict, with_program, without_effect
from dragoman.trust.own_gateway import is_own_gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from dragoman.errors import DragomanError
    from dragoman.events import Event
    from dragoman.manager.catalog import ToolCatalog
    from dragoman.manager.reload import Plan
    from dragoman.model import ServerSpec, Texts
    from dragoman.server.observer import Room
    from dragoman.server.sharing import SharedConnections
    from dragoman.trust.gate import Gate

logger = logging.getLogger("dragoman")

DRAIN_SECONDS = 5.0
"""How long a server that is being stopped may finish the calls that are running."""
STARTING_AT_ONCE = 32
"""How many servers start at the same time; a server that hangs gives up its slot soon."""

_RUNNING = frozenset({ServerState.CONNECTING, ServerState.READY, ServerState.DEGRADED})

AT_ONCE = 20
"""Servers that are started in one turn of the event loop; each takes a third of a millisecond."""


class ServerPool(Observer):
    """The servers in use, by name, and those that are starting or stopping."""

    def __init__(
        self,
        settings: Settings,
        *,
        supervisors: dict[str, Supervisor],
        read: Settings | None = None,
        root: str,
        gate: Gate,
        catalog: ToolCatalog,
        publish: Callable[[Event], None],
        on_connected: Callable[[str], None],
        handlers: Handlers,
        inputs: Mapping[str, str] | None = None,
        keeps_stderr: bool = False,
        env: Mapping[str, str] | None = None,
        connections: SharedConnections | None = None,
        slots: asyncio.Semaphore | None = None,
        user: str = "",
        room: Room | None = None,
        starts_none: bool = False,
    ) -> None:
        """Make a supervisor for every configured server, without starting it.

        Args:
            settings: The configuration in effect.
            supervisors: An empty dict for the servers in use. Other parts of the manager read it; only the
                pool changes it.
            read: The configuration as the files have it, for a later reload.
            root: The project's directory.
            gate: The trust rules for all servers.
            catalog: Where the tools of each server go.
            publish: Called with every event of a server in use.
            on_connected: Called when a replacement that is already connected takes over.
            handlers: What the application answers when a server asks.
            inputs: Answers to `${input:id}`, by id.
            keeps_stderr: Whether what servers write to their standard error is kept for some days.
            env: The environment that variables are read from and servers inherit.
            connections: The connections that several managers share.
            slots: Limits how many servers start at once; those of a user count with all others.
            user: Whose servers these are, in a program with many users.
            room: The place that this user takes up among all users.
            starts_none: Whether no server starts without being asked for, as if all were lazy.

        Raises:
            InvalidSpecError: Two servers have the same name.
        """
        self.settings = settings
        """The configuration in effect."""
        self.supervisors = supervisors
        self._read = read
        self._root = root
        self._gate = gate
        self._catalog = catalog
        self._publish = publish
        self._on_connected = on_connected
        self._adds_headers = handlers.headers is not None
        self._handlers = handlers.replace(headers=gate.watch_headers(handlers.headers, caller_headers))
        self._inputs = dict(inputs or {})
        self._keeps_stderr = keeps_stderr
        self._env = os.environ if env is None else env
        self.connections = connections
        self.slots = slots or asyncio.Semaphore(STARTING_AT_ONCE)
        """Limits how many servers start at once."""
        self._user = user
        self._room = room
        self._starts_none = starts_none
        self._candidates: set[Supervisor] = set()
        """Servers that start next to the one they are to replace."""
        self._draining: dict[asyncio.Task[None], Supervisor] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        for spec in settings.servers:
            self.check_free(spec)
            supervisors[spec.name] = self._make(spec)

    @property
    def texts(self) -> Texts:
        """The words for users and models: the application's own, the rest in the user's language."""
        return in_language(self.settings.texts, self.settings.language or language_of(self._env))

    def check_free(self, spec: ServerSpec) -> None:
        """Check that no server has the name of a spec.

        Raises:
            InvalidSpecError: One has.
        """
        if spec.name in self.supervisors:
            msg = f"there are two servers named `{spec.name}`"
            raise InvalidSpecError(msg, source=spec.origin.source, line=spec.origin.line)

    def starts(self, spec: ServerSpec) -> bool:
        """Return whether a server starts without being asked for: it is enabled and not lazy."""
        return self.settings.enabled and spec.enabled and not spec.lazy and not self._starts_none

    async def refuse_unapproved(self) -> None:
        """Mark the servers that are not approved as they are now, before any of their tools are offered."""
        specs = [one.spec for one in self.supervisors.values() if self._gate.needs_approval(one.spec)]
        for name, error in (await asyncio.to_thread(self._gate.refused, specs) if specs else {}).items():
            self.supervisors[name].refuse(error)

    async def start_all(self) -> None:
        """Offer the cached tools of every server, and start those that start by themselves."""
        self._warn_of_unapproved(Settings())
        supervisors = list(self.supervisors.values())
        loaded = 0
        for supervisor in supervisors if self.settings.enabled else ():
            if not supervisor.is_refused:
                spec, starts = supervisor.spec, self.starts(supervisor.spec)
                supervisor.tools = await self._catalog.load_cached(spec, self.settings.naming, starts=starts)
                supervisor.handshake = self._catalog.handshake(spec.name)
                loaded += supervisor.tools
            if loaded >= SLICE:
                loaded = 0
                await asyncio.sleep(0)
        for number, supervisor in enumerate(supervisors, 1):
            if self.starts(supervisor.spec) and not self._closed:
                supervisor.start()
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)

    def start_now(self, supervisor: Supervisor) -> None:
        """Start a server that is not running; one that waits for its next attempt tries at once."""
        if not self.settings.enabled or not supervisor.spec.enabled or supervisor.is_refused:
            return
        if supervisor.state in (ServerState.BACKOFF, ServerState.NEEDS_AUTH):
            supervisor.retry()
        else:
            supervisor.start()

    def install(self, supervisor: Supervisor, *, instead_of: Supervisor | None = None) -> bool:
        """Use a supervisor under its name from now on.

        Returns:
            False if the pool is closed, or another task has changed the server of this name in the meantime.
        """
        name = supervisor.spec.name
        if self._closed or self.supervisors.get(name) is not instead_of:
            return False
        self.supervisors[name] = supervisor
        self._on_installed(name, instead_of)
        return True

    def install_stopped(self, spec: ServerSpec) -> None:
        """Use a new spec without starting it, and stop the server that had the name."""
        old = self.supervisors.get(spec.name)
        if self.install(self._make(spec), instead_of=old) and old is not None:
            self.drain_and_stop(old)

    def uninstall(self, supervisor: Supervisor) -> None:
        """Remove a server from use, with its tools; the caller stops it."""
        name = supervisor.spec.name
        del self.supervisors[name]
        self._catalog.clear(name)
        self._gate.pin_checker.forget(name)

    def drain_and_stop(
        self, supervisor: Supervisor, seconds: float | None = DRAIN_SECONDS
    ) -> asyncio.Task[None]:
        """Stop a server in the background once its calls are done.

        Args:
            supervisor: The server.
            seconds: Stop it after this time even if calls are running; `None` waits for them.

        Returns:
            The task that stops it.
        """
        job = _drain_and_stop(supervisor, seconds)
        task = asyncio.create_task(job, name=f"dragoman stops server {supervisor.spec.name}")
        self._draining[task] = supervisor
        task.add_done_callback(self._draining.pop)
        return task

    async def add(self, spec: ServerSpec) -> DragomanError | None:
        """Add a server; wait until it is ready or has failed, if it is one that starts.

        Returns:
            Why it is not ready, if it should be.
        """
        new = self._make(spec)
        if not self.install(new):
            return _changed_meanwhile(spec.name)
        if not self.starts(spec):
            return None
        new.start()
        return await _outcome(new)

    async def replace(self, old: Supervisor, spec: ServerSpec, *, starts: bool) -> DragomanError | None:
        """Replace a server by one of a new spec.

        Whenever this is cancelled, exactly one of the two is in use, and the other one is being stopped.

        Args:
            old: The server in use.
            spec: The new spec.
            starts: Whether to start the new server even if the old one was not running.

        Returns:
            Why the new server is not ready, if it should be.
        """
        new = self._make(spec)
        was_running = old.state in _RUNNING
        if was_running and spec.replacement == "start-first":
            error = await self._start_beside(new)
            if error is None and self.install(new, instead_of=old):
                self.drain_and_stop(old, None)
                return None
            if error is None or self._closed or not _may_be_in_the_way(error, spec):
                self.drain_and_stop(new, 0)
                return error or _changed_meanwhile(spec.name)
            # The old server may hold a port or a lock that the new one needs: stop the old one first.
        if not self.install(new, instead_of=old):
            self.drain_and_stop(new, 0)
            return _changed_meanwhile(spec.name)
        # The new server connects only after the old one has stopped; calls wait for it until then.
        new.follow(self.drain_and_stop(old))
        if not was_running and not starts:
            return None
        await new.restart()
        error = await _outcome(new)
        if error is None or not was_running or not self.install(old, instead_of=new):
            return error
        logger.error("%s: it does not start with its new configuration; keeping the old one", spec.name)
        old.follow(self.drain_and_stop(new, 0))
        await old.restart()
        await old.wait_settled()
        return error

    async def reload(self, found: Settings) -> ConfigReloaded:
        """Apply a configuration that was just read; unchanged servers are not touched."""
        old = self.settings.replace(servers=[one.spec for one in self.supervisors.values()])
        # Servers in the code's own settings come and go with them; those that were added later stay.
        given = {spec.name for spec in self._read.servers} if self._read is not None else set[str]()
        self._read = found if self._read is None else hold(self._read, found)
        decided = await asyncio.to_thread(self._gate.decide, self._read)
        names = {spec.name for spec in decided.servers}
        kept_out = names | given
        added = [spec for spec in old.servers if spec.origin.scope == "code" and spec.name not in kept_out]
        self.settings = decided.replace(servers=[*decided.servers, *added])
        self._gate.update(self.settings)
        self._warn_of_unapproved(old)
        plan = diff(old, self.settings)
        if plan.adjust:
            specs = [spec for spec in self.settings.servers if spec.name in plan.adjust]
            plan = unapproved(plan, await asyncio.to_thread(self._gate.refused, specs))
        failed = await self._carry_out(plan)
        await self.wait_drained()
        self._catalog.arrange()
        return ConfigReloaded(
            kept=(*plan.keep, *plan.adjust),
            started=tuple(name for name in plan.start if name not in failed),
            replaced=tuple(name for name in plan.restart if name not in failed),
            stopped=plan.stop,
            failed=failed,
            problems=tuple(self.settings.problems),
        )

    async def recheck_pins(self, supervisor: Supervisor) -> None:
        """Compare a server's tools with its pins again, and offer those that match."""
        await self._gate.pin_checker.revisit(supervisor.spec)
        if self.supervisors.get(supervisor.spec.name) is supervisor:
            supervisor.offer()

    async def wait_drained(self) -> None:
        """Wait, for a limited time, for the servers that are being stopped and have no running calls."""
        if idle := [task for task, supervisor in self._draining.items() if not supervisor.busy]:
            await asyncio.wait(idle, timeout=DRAIN_SECONDS)

    async def close(self) -> None:
        """Stop every server and wait until all have stopped, even if this is cancelled."""
        self._closed = True
        for supervisor in {*self.supervisors.values(), *self._candidates, *self._draining.values()}:
            supervisor.close()
            self.drain_and_stop(supervisor, 0)
        await wait_all(self._draining)

    async def flush(self) -> None:
        """Wait until pins are checked and listings are saved."""
        await wait_all(self._tasks)
        await wait_all({*self._gate.pin_checker.looking(), *self._catalog.saving()})

    def _make(self, spec: ServerSpec) -> Supervisor:
        """Make the supervisor of a spec, without starting it."""
        if spec.enabled and is_own_gateway(spec.transport):
            logger.info("%s: not started, since it is dragoman's own gateway", spec.name)
            spec = spec.replace(enabled=False)

        return Supervisor(
            spec,
            expansion=ExpansionContext(env=self._env, root=self._root, home=str(Path.home())),
            answers=partial(self._gate.answers, spec, self.settings, self._inputs),
            observer=self,
            slots=self.slots,
            health_check_interval=self.settings.health_check_interval,
            handlers=self._handlers,
            gate=self._gate,
            keeps_stderr=self._keeps_stderr,
            texts=self.texts,
            failure_level=self.settings.failure_level,
            connections=self.connections,
            user=self._user,
            room=self._room,
        )

    # What a supervisor reports. One that starts next to the one in use, or was replaced, changes nothing.

    def on_event(self, supervisor: Supervisor, event: Event) -> None:
        """Publish an event of a server in use."""
        if self.supervisors.get(supervisor.spec.name, supervisor) is supervisor:
            self._publish(event)

    def on_tools(self, supervisor: Supervisor, listing: Sequence[dict[str, Any]]) -> int:
        """Offer the tools of a listing; return how many are exposed."""
        return self._catalog.update(
            supervisor.spec,
            listing,
            self.settings.naming,
            is_current=self.supervisors.get(supervisor.spec.name) is supervisor,
            is_ready=supervisor.state is ServerState.READY,
            is_private=supervisor.has_private_listing(adds_headers=self._adds_headers),
            handshake=supervisor.handshake,
        )

    async def read_ahead(self, supervisor: Supervisor, listing: Sequence[dict[str, Any]]) -> None:
        """Prepare a listing for the catalog, unless the server is replaced meanwhile."""

        def is_current() -> bool:
            return self.supervisors.get(supervisor.spec.name) is supervisor and supervisor.is_connected

        naming = self.settings.naming
        await self._catalog.read_ahead(supervisor.spec, listing, naming, is_current=is_current)

    def _on_installed(self, name: str, before: Supervisor | None) -> None:
        """Offer the tools of the server that now has a name, after `before` or with changed rules."""
        supervisor = self.supervisors[name]
        if before is not None and before.state is not supervisor.state:
            change = StateChanged(server=name, before=before.state, after=supervisor.state, reason="replaced")
            self._publish(change)
        if supervisor.state is ServerState.READY:
            supervisor.offer()
            if before is supervisor:
                # Its rules have changed, and its `trust` may be one of them.
                self._run_in_background(self.recheck_pins(supervisor))
            else:
                self._on_connected(name)
        elif self.settings.enabled and not supervisor.is_refused:
            spec, naming = supervisor.spec, self.settings.naming
            supervisor.tools = self._catalog.reload(spec, naming, starts=self.starts(spec))
        else:
            self._catalog.clear(name)

    async def _carry_out(self, plan: Plan) -> dict[str, DragomanError]:
        """Carry out a plan, all servers at once; return why some servers are not ready, by name."""
        specs = {spec.name: spec for spec in self.settings.servers}
        for name in (*plan.stop, *plan.forget):
            if name not in specs:
                supervisor = self.supervisors[name]
                self.uninstall(supervisor)
                self.drain_and_stop(supervisor)
        for name in plan.keep:
            self.supervisors[name].adopt(specs[name])
        for name in plan.adjust:
            supervisor = self.supervisors[name]
            supervisor.adopt(specs[name])
            self._on_installed(name, supervisor)
        for name in specs.keys() - {*plan.keep, *plan.adjust, *plan.start, *plan.restart}:
            self.install_stopped(specs[name])
        failed: dict[str, DragomanError] = {}

        async def change(spec: ServerSpec) -> None:
            old = self.supervisors.get(spec.name)
            try:
                if old is None:
                    error = await self.add(spec)
                else:
                    error = await self.replace(old, spec, starts=self.starts(spec))
            except Exception:
                logger.exception("%s: the reload failed unexpectedly", spec.name)
                error = _changed_meanwhile(spec.name)
            if error is not None:
                failed[spec.name] = error

        async with asyncio.TaskGroup() as group:
            for name in (*plan.start, *plan.restart):
                group.create_task(change(specs[name]))
        # Put the servers into the order of the configuration: it may decide which tool gets a name.
        for name in specs:
            if name in self.supervisors:
                self.supervisors[name] = self.supervisors.pop(name)
        return failed

    async def _start_beside(self, new: Supervisor) -> DragomanError | None:
        """Start a server next to the one that it is to replace; return why it is not ready."""
        self._candidates.add(new)
        try:
            new.start()
            return await _outcome(new)
        except asyncio.CancelledError:
            self.drain_and_stop(new, 0)
            raise
        finally:
            self._candidates.discard(new)

    def _warn_of_unapproved(self, before: Settings) -> None:
        """Log which settings of the project have no effect, unless they had none before."""
        for spec in self.settings.unapproved:
            if spec not in before.unapproved:
                logger.warning("%s", with_program(name_conflict(spec), self.settings))
        idle = without_effect(self.settings)
        if idle and idle != without_effect(before):
            text = "%s: the project's settings (%s) are not approved and not in effect for your servers: %s"
            keys = ", ".join(dict.fromkeys(one.key for one in idle))
            hint = with_program("review them with `dragoman trust approve --settings`", self.settings)
            logger.warning(text, idle[0].source, keys, hint)

    def _run_in_background(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job, name="dragoman server pool")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def find_server(supervisors: Mapping[str, Supervisor], name: str) -> Supervisor:
    """Return the server with this name.

    Raises:
        UnknownServerError: No server has this name; the error suggests similar ones.
    """
    supervisor = supervisors.get(name)
    if supervisor is None:
        near = suggest(name, supervisors)
        hint = f"known servers: {', '.join(f'`{known}`' for known in supervisors) or 'none'}"
        msg = f"unknown server `{name}`"
        raise UnknownServerError(msg, server=name, suggestions=near, hint=hint)
    return supervisor


async def wait_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Wait until all tasks have ended; a cancellation is raised only after that."""
    waited = set(tasks)
    cancelled: asyncio.CancelledError | None = None
    while waited := {task for task in waited if not task.done()}:
        try:
            await asyncio.wait(waited)
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled


async def _drain_and_stop(supervisor: Supervisor, seconds: float | None) -> None:
    try:
        await supervisor.wait_unused(seconds)
    finally:
        await supervisor.stop()


async def _outcome(supervisor: Supervisor) -> DragomanError | None:
    """Wait until a server is ready or has failed; return why it is not ready."""
    state = await supervisor.wait_settled()
    if state is ServerState.READY:
        return None
    name = supervisor.spec.name
    return supervisor.error or ServerNotReadyError(f"server `{name}` is {state}", server=name, state=state)


def _may_be_in_the_way(error: DragomanError, spec: ServerSpec) -> bool:
    """Return whether a server may have failed because the one it replaces is still running."""
    if not isinstance(spec.transport, Stdio) or isinstance(error, AuthRequiredError):
        return False
    if isinstance(error, ConnectError):
        return error.stage not in {"approval", "variables", "spawn"}
    return isinstance(error, ConnectionLostError)


def _changed_meanwhile(name: str) -> DragomanError:
    msg = f"server `{name}` was changed by another task during the reload"
    return ServerNotReadyError(msg, server=name, state=ServerState.CLOSED, hint="reload again")
