"""Looking after single servers: what each is doing, has said and has cost; restart, switch, log in, approve.

This is the part of a manager that is about one server at a time. Nothing of it is written to a file but
logins and approvals: what is switched on or off here is as the configuration says after the next reload.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dragoman.errors import DragomanError, UnknownServerError
from dragoman.observe.metrics import Metrics
from dragoman.offers import Offers
from dragoman.suggesting import suggest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from dragoman.crew import Crew
    from dragoman.events import Event
    from dragoman.guard import Guard
    from dragoman.model import ServerStatus
    from dragoman.observe.metrics import ServerMetrics
    from dragoman.pinboard import Changes
    from dragoman.server.supervisor import Supervisor


class Upkeep(Offers):
    """What can be asked of, and done to, each server of a manager."""

    _crew: Crew
    """Set by the manager before it is used."""

    def __init__(self, guard: Guard, publish: Callable[[Event], None]) -> None:
        self._tell = publish
        super().__init__(guard, self._publish)
        self._metrics = Metrics()
        self._started = False
        self._closed = False

    @property
    def started(self) -> bool:
        """Whether it was entered, also if it is closed by now."""
        return self._started

    def status(self) -> dict[str, ServerStatus]:
        """Return a reading of every server, by name; it starts nothing."""
        return {name: supervisor.status() for name, supervisor in self._supervisors.items()}

    def metrics(self) -> dict[str, ServerMetrics]:
        """Return a reading of the calls and the life of every server, by name.

        Calls of built-in tools, and of tools that do not exist, are under the empty name.
        """
        return self._metrics.read(time.monotonic())

    def logs(self, name: str, lines: int = 100) -> list[str]:
        """Return the last lines that a server wrote to its standard error, known secrets masked.

        They are those of the current connection, or of the last one; a server behind a URL has none here.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        return self._supervisor(name).stderr().splitlines()[-lines:] if lines > 0 else []

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
        on_refused: Callable[[str], Any] | None = None,
    ) -> None:
        """Have a person log in to a server, and wait until it is ready or has failed.

        Args:
            name: The server.
            open_url: Given the address that the person has to open; may be async.
            paste: Asks the person for the address that the browser ended at; for machines without a browser.
            on_refused: Told why what was pasted is of no use, before it is asked for again.

        Raises:
            AuthRequiredError: It was refused, or nobody logged in.
            ConfigError: It is no server that one logs in to.
        """
        self._check_open()
        supervisor = self._supervisor(name)
        await supervisor.login(open_url=open_url, paste=paste, on_refused=on_refused)
        await supervisor.wait_settled()

    async def logout(self, name: str) -> bool:
        """Forget the login of a server; returns whether there was one."""
        self._check_open()
        return await self._supervisor(name).logout()

    def changes(self, name: str) -> Changes:
        """Return what a server offers that is not as it was pinned; empty until it was looked at.

        Its `fingerprint` approves exactly this: `approve(name, fingerprint=…)`.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._supervisor(name)
        return self._guard.pinboard.changes(name)

    async def approve(
        self,
        name: str,
        *,
        tools: Iterable[str] | None = None,
        in_project: bool = False,
        fingerprint: str | None = None,
    ) -> None:
        """Pin what a server offers, as the last `DefinitionsChanged` or `changes` told it.

        Args:
            name: The server.
            tools: Which of its tools, by the server's own names; everything unless given.
            in_project: Whether the project's `dragoman.lock` is written too, even if there is none yet.
            fingerprint: That of the event, or of `changes`, that was shown to a person. If the server offers
                something else by now, nothing is approved.

        Raises:
            UnknownServerError: There is no server of that name.
            DragomanError: It has listed nothing yet, it offers something else than what was shown, or a lock
                file cannot be written.
        """
        self._check_open()
        supervisor = self._supervisor(name)
        await self._guard.pinboard.approve(
            supervisor.spec, tools=tools, in_project=in_project, fingerprint=fingerprint
        )
        await self._crew.revisit(supervisor)

    async def enable(self, name: str) -> None:
        """Switch a server on that was off; wait until it is ready or has failed.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._check_open()
        supervisor = self._supervisor(name)
        if supervisor.spec.enabled:
            return
        spec = replace(supervisor.spec, enabled=True)
        await self._crew.roster.exchange(supervisor, spec, starts=not spec.lazy)

    async def disable(self, name: str) -> None:
        """Switch a server off: it is stopped once its calls are done, and offers no tools any more.

        Raises:
            UnknownServerError: There is no server of that name.
        """
        self._check_open()
        supervisor = self._supervisor(name)
        if supervisor.spec.enabled:
            self._crew.roster.put(replace(supervisor.spec, enabled=False))
            await self._crew.roster.settle()

    def _publish(self, event: Event) -> None:
        self._metrics.take(event, time.monotonic())
        self._tell(event)

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
            near = suggest(name, self._supervisors, cutoff=0.6)
            hint = f"there are: {', '.join(f'`{known}`' for known in self._supervisors) or 'none'}"
            msg = f"there is no server `{name}`"
            raise UnknownServerError(msg, server=name, suggestions=near, hint=hint)
        return supervisor


def insist_on_asyncio() -> None:
    """Refuse other event loops, under which everything fails in its own obscure way.

    Raises:
        DragomanError: There is no event loop of asyncio, or another library runs this task.
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
