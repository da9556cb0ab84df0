"""Lifetime: how a manager starts its servers, waits for them, and ends."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from dragoman.errors import ConnectError, DragomanError
from dragoman.manager.parts import PIPELINE
from dragoman.manager.pool import find_server, wait_all
from dragoman.model import ReadyReport, ServerState
from dragoman.server.late_import import late_import_module

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dragoman.manager.parts import Parts
    from dragoman.manager.reloader import Reloader
    from dragoman.model import ServerStatus


class Lifetime:
    """The start and the end of a program's manager; that of a user has its own, see `users.UserLifetime`."""

    def __init__(self, parts: Parts, reloader: Reloader) -> None:
        """Start and stop the servers of `parts`, and the reading of changed files by `reloader`."""
        self.parts = parts
        self.reloader = reloader
        self._preloading: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Begin an `async with` block."""
        await self.start()

    async def leave(self) -> None:
        """End an `async with` block."""
        await self.shutdown()

    async def start(self) -> None:
        """Start the servers that start by themselves; wait for the required ones."""
        require_asyncio()
        parts = self.parts
        if parts.closed:
            raise parts.context.closed_error()
        if parts.started:
            msg = "the manager is already started"
            raise DragomanError(msg, hint="make a new one")
        parts.started, parts.loop = True, asyncio.get_running_loop()
        parts.registry.read_host()
        parts.gate.begin()
        for name, supervisor in parts.supervisors.items():
            parts.metrics.watch(name, supervisor.state, time.monotonic())
        try:
            await parts.pool.refuse_unapproved()
            await parts.pool.start_all()
        except BaseException:
            await self.shutdown()
            raise
        if any(parts.pool.starts(one.spec) for one in parts.supervisors.values()):
            self._preloading = asyncio.create_task(self._preload())
        self.reloader.watch_files()
        await self.wait_required()

    async def wait_required(self) -> None:
        """Wait for the servers with `required`; shut down and raise if one of them fails."""
        for supervisor in list(self.parts.supervisors.values()):
            if not supervisor.spec.required or not self.parts.pool.starts(supervisor.spec):
                continue
            if supervisor.is_refused:
                continue  # An unapproved file of the project must not prevent the program from starting.
            if await supervisor.wait_settled() is not ServerState.READY:
                await self.shutdown()
                name = supervisor.spec.name
                msg = f"required server `{name}` is not ready: {supervisor.error}"
                hint = "fix it, or remove `required` from its entry"
                raise ConnectError(msg, server=name, stage="start", hint=hint) from supervisor.error

    async def wait_ready(self, names: Iterable[str] | None, timeout: float | None) -> ReadyReport:
        """Wait until servers are ready or have failed; see `McpManager.wait_ready`."""
        parts = self.parts
        parts.check_open()
        if names is None:
            waited = [one for one in parts.supervisors.values() if parts.pool.starts(one.spec)]
        else:
            waited = [find_server(parts.supervisors, name) for name in names]
        try:
            async with asyncio.timeout(timeout):
                for supervisor in waited:
                    await supervisor.wait_settled()
        except TimeoutError:
            pass
        statuses = [supervisor.status() for supervisor in waited]
        return ReadyReport(
            ready=tuple(one.name for one in statuses if one.state is ServerState.READY),
            not_ready={one.name: _why_not(one) for one in statuses if one.state is not ServerState.READY},
        )

    async def prepare_listing(self, server: str | None) -> None:
        """Get ready for a request to one server, or to all connected ones."""

    async def prepare_call(self, name: object, timeout: float | None) -> None:
        """Get ready for the call of a tool; for users, servers are listed first."""

    def check_program(self, refusal: str, hint: str = "") -> None:
        """Check that these are the program's servers, which it may change.

        Raises:
            DragomanError: They are a user's; `refusal` says what cannot be done.
        """

    async def shutdown(self) -> None:
        """Stop every server and wait until all have stopped, even if cancelled."""
        require_asyncio()
        parts = self.parts
        parts.closed = True
        watching = self.reloader.stop_watching()
        try:
            if parts.has_users:
                await parts.users.close()
            await parts.pool.close()
        finally:
            for name in parts.supervisors:
                parts.catalog.forget(name)
            parts.bus.close()
            try:
                loading = (self._preloading,) if self._preloading else ()
                inbox = parts.gate.close_inbox()
                await wait_all({*parts.subscriptions.close(), *watching, *loading, *inbox})
                await parts.pool.flush()
            finally:
                parts.gate.end()
                parts.close_tasks()
                if parts.call_log is not None and parts.owns_log:
                    await wait_all({asyncio.create_task(asyncio.to_thread(parts.call_log.close))})

    async def _preload(self) -> None:
        """Import what the first call needs, once the servers have started: until then it would delay them."""
        for supervisor in list(self.parts.supervisors.values()):
            await supervisor.wait_settled()
        if not self.parts.closed:
            await late_import_module(PIPELINE)


def require_asyncio() -> None:
    """Check that this runs under asyncio; other event loops fail in obscure ways.

    Raises:
        DragomanError: No asyncio event loop is running, or another library runs this task.
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


def _why_not(status: ServerStatus) -> str:
    """Say in a few words why a server is not ready."""
    if status.last_error:
        return status.last_error
    return {"connecting": "still connecting", "idle": "not started", "closed": "stopped"}.get(
        status.state.value, status.state.value
    )
