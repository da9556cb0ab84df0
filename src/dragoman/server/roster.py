"""Who serves under which name, and how one server takes another's place.

A changed server is started beside the one that runs and takes its place when it is ready; the one before
leaves when its calls are done. If the new one does not get ready, and the one that runs may be in its way (a
port, a lock), that one is stopped and the new one tried once more; failing that, the one before is started
again. `replace = "stop-first"` stops first at once. At every moment exactly one of both serves: a change of
place is one step, and whoever is cancelled around it leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dragoman.errors import AuthRequiredError, ConnectError, ConnectionLostError, ServerNotReadyError
from dragoman.model import ServerState, Stdio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dragoman.errors import DragomanError
    from dragoman.model import ServerSpec
    from dragoman.server.supervisor import Supervisor

logger = logging.getLogger("dragoman")

LEAVE_SECONDS = 5.0
"""How long a server that is stopped may go on with calls that are under way."""

_RUNNING = frozenset({ServerState.CONNECTING, ServerState.READY, ServerState.DEGRADED})


class Roster:
    """Who serves under which name; who is on the way in or out is known here too, until it is gone."""

    def __init__(
        self, make: Callable[[ServerSpec], Supervisor], moved: Callable[[str, Supervisor | None], None]
    ) -> None:
        """Begin with nobody.

        Args:
            make: Makes the supervisor of a spec, without starting it.
            moved: Told that another serves under a name, or by other rules, or nobody; and who did before.
        """
        self.current: dict[str, Supervisor] = {}
        self._make = make
        self._moved = moved
        self._beside: set[Supervisor] = set()
        self._leaving: dict[asyncio.Task[None], Supervisor] = {}
        self._closed = False

    def seat(self, supervisor: Supervisor, *, instead_of: Supervisor | None = None) -> bool:
        """Let a supervisor serve under its name, unless somebody else has changed that meanwhile."""
        name = supervisor.spec.name
        if self._closed or self.current.get(name) is not instead_of:
            return False
        self.current[name] = supervisor
        self._moved(name, instead_of)
        return True

    def retire(self, supervisor: Supervisor, seconds: float | None = LEAVE_SECONDS) -> asyncio.Task[None]:
        """Stop a server once its calls are done, or after so many seconds; does not wait."""
        job = _see_off(supervisor, seconds)
        task = asyncio.create_task(job, name=f"dragoman server {supervisor.spec.name} leaves")
        self._leaving[task] = supervisor
        task.add_done_callback(self._leaving.pop)
        return task

    def drop(self, supervisor: Supervisor) -> None:
        """Let nobody serve under a name, and the one who did leave."""
        del self.current[supervisor.spec.name]
        self._moved(supervisor.spec.name, supervisor)
        self.retire(supervisor)

    def put(self, spec: ServerSpec) -> None:
        """Let a server of another spec have a place without starting it: it is switched off."""
        old = self.current.get(spec.name)
        if self.seat(self._make(spec), instead_of=old) and old is not None:
            self.retire(old)

    def adjust(self, spec: ServerSpec) -> None:
        """Let a server go on by other rules."""
        supervisor = self.current[spec.name]
        supervisor.adopt(spec)
        self._moved(spec.name, supervisor)

    async def start(self, spec: ServerSpec, *, starts: bool) -> DragomanError | None:
        """Take one more server in; say why it did not get ready, if it is one that starts."""
        new = self._make(spec)
        if not self.seat(new):
            return overtaken(spec.name)
        if not starts:
            return None
        new.start()
        return await _outcome(new)

    async def exchange(self, old: Supervisor, spec: ServerSpec, *, starts: bool) -> DragomanError | None:
        """Let a server of a new spec take the place of an old one; say why it did not.

        Whenever this is cancelled, exactly one of both serves, and the other one is on its way out.
        """
        new = self._make(spec)
        was_running = old.state in _RUNNING
        if was_running and spec.replace == "start-first":
            error = await self._prove(new)
            if error is None and self.seat(new, instead_of=old):
                self.retire(old, None)
                return None
            if error is None or self._closed or not _may_be_in_the_way(error, spec):
                self.retire(new, 0)
                return error or overtaken(spec.name)
        if not self.seat(new, instead_of=old):
            self.retire(new, 0)
            return overtaken(spec.name)
        new.follow(self.retire(old))
        if not was_running and not starts:
            return None
        await new.restart()
        error = await _outcome(new)
        if error is None or not was_running or not self.seat(old, instead_of=new):
            return error
        logger.error("%s: it does not start as it is configured now; the former one goes on", spec.name)
        old.follow(self.retire(new, 0))
        await old.restart()
        await old.wait_settled()
        return error

    async def settle(self) -> None:
        """Wait, within bounds, for those who leave and are not held up by calls."""
        if going := [task for task, supervisor in self._leaving.items() if not supervisor.busy]:
            await asyncio.wait(going, timeout=LEAVE_SECONDS)

    async def close(self) -> None:
        """Stop everybody and wait until all are gone, also if this is cancelled."""
        self._closed = True
        everybody = {*self.current.values(), *self._beside, *self._leaving.values()}
        for supervisor in everybody:
            supervisor.close()
            self.retire(supervisor, 0)
        await see_out(self._leaving)

    async def _prove(self, new: Supervisor) -> DragomanError | None:
        """Start a server beside the one that it is to replace."""
        self._beside.add(new)
        try:
            new.start()
            return await _outcome(new)
        except asyncio.CancelledError:
            self.retire(new, 0)
            raise
        finally:
            self._beside.discard(new)


async def see_out(tasks: Iterable[asyncio.Task[None]]) -> None:
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


async def _see_off(supervisor: Supervisor, seconds: float | None) -> None:
    try:
        await supervisor.wait_unused(seconds)
    finally:
        await supervisor.stop()


async def _outcome(supervisor: Supervisor) -> DragomanError | None:
    state = await supervisor.wait_settled()
    if state is ServerState.READY:
        return None
    name = supervisor.spec.name
    return supervisor.error or ServerNotReadyError(f"server `{name}` is {state}", server=name, state=state)


def overtaken(name: str) -> DragomanError:
    """Return the error for a server that two wanted to change at once."""
    msg = f"server `{name}` was changed by somebody else during the reload"
    return ServerNotReadyError(msg, server=name, state=ServerState.CLOSED, hint="reload again")


def _may_be_in_the_way(error: DragomanError, spec: ServerSpec) -> bool:
    """Tell whether a server may have failed because another one was running."""
    if not isinstance(spec.transport, Stdio) or isinstance(error, AuthRequiredError):
        return False
    if isinstance(error, ConnectError):
        return error.stage not in {"approval", "variables", "spawn"}
    return isinstance(error, ConnectionLostError)
