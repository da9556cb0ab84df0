"""One live session with one server: open it, list its tools, call them, probe it, close it.

`serve` is the session's whole stay and belongs to one task, which enters and leaves the SDK's contexts; the
rest is for any task. Over our own wires a call runs in its caller's task, since nothing below can cancel it;
over the SDK's transports it runs in a task of its own. Either way it races its deadline, its caller's
cancellation and the connection's end, and so it always ends.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from dragoman.errors import AuthRequiredError, ConnectError, ConnectionLostError, DragomanError
from dragoman.events import offer_changed
from dragoman.model import Handlers
from dragoman.server import sdk
from dragoman.server.attempts import attempts_at, recount, trail_of
from dragoman.server.deadlines import Deadline, deadline
from dragoman.server.handlers import sdk_answers
from dragoman.trust.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from dragoman.events import OfferChanged
    from dragoman.model import ProgressHandler, ServerSpec, Transport
    from dragoman.server.headstart import HeadStart
    from dragoman.server.http_client import HttpAuth
    from dragoman.tools.content import Answer

logger = logging.getLogger("dragoman")

CLOSE_SECONDS = 10.0
"""More than our wires and the SDK's ever take to close: 2 s for the input, 2 s for TERM, then KILL."""
CANCEL_SECONDS = 1.0
SLOT_SECONDS = 1.5
"""How long a starting server holds its place: a hanging one must not keep others waiting."""
RELIST_PAUSE = 0.1
"""Announced changes of the listing within this time are one; while they go on, it grows."""
RELIST_LONGEST = 5.0
PROBE_SECONDS = 10.0
PROBE_MISSES = 3
LONGEST_CALL = 600.0
"""Seconds that a call may last at most, however much progress it reports."""

T = TypeVar("T")


def _nothing(*_: object) -> None:
    """Stand in for a listener until there is one."""


@dataclass(slots=True)
class _Silence:
    """How long a server that is being called has said nothing."""

    since: float
    heard: int | None
    """How many messages had come by then; `None` if it was not silent."""
    calls: int = 0


class Connection:
    """A session that is opened, stays, and ends; it is not used again."""

    def __init__(
        self,
        spec: ServerSpec,
        transport: Transport,
        *,
        env: Mapping[str, str],
        era: sdk.Era | None = None,
        slots: asyncio.Semaphore | None = None,
        health_check_interval: float = math.inf,
        handlers: Handlers | None = None,
        auth: HttpAuth | None = None,
        limits: Limits | None = None,
        start: HeadStart | None = None,
    ) -> None:
        self.spec = spec
        self.trail = trail_of(transport)
        self.era = era
        """The protocol generation: what the last connection found, then what this one did."""
        self.tools: list[dict[str, Any]] = []
        """The server's listing, raw."""
        self.listing_error: DragomanError | None = None
        """Why there is no listing, if the server is connected without one."""
        self.calls = 0
        """How many requests are under way."""
        self.vet: Callable[[list[dict[str, Any]], str], Awaitable[None]] | None = None
        """Given every listing, and the instructions, before anybody else is told of it."""
        self.admit: Callable[[], Awaitable[Any]] | None = None
        """Asked right before each start or connection; it raises if there must be none."""
        self.on_ready: Callable[[], None] = _nothing
        self.on_listing: Callable[[DragomanError | None], None] = _nothing
        """Told of every listing after the first, with the error if it failed."""
        self.on_lost: Callable[[DragomanError], None] = _nothing
        """Told when the connection ended without our doing."""
        self.on_changed: Callable[[OfferChanged], None] = _nothing
        """Told of changes other than the tools'."""
        self._transport = transport
        self._env = env
        self._slots = slots
        self._answers = sdk_answers(handlers or Handlers(), spec.name)
        self._header_provider = handlers.headers if handlers else None
        self._auth = auth
        self._start_ahead = start
        self._limits = limits or Limits()
        self._health_check_interval = health_check_interval
        self._session: sdk.Session | None = None
        self._scope: anyio.CancelScope | None = None
        self._loop = asyncio.get_running_loop()
        self._leave: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[str] = self._loop.create_future()
        self._relist_due = asyncio.Event()
        self._silence = _Silence(0.0, None)
        self._tasks: set[asyncio.Future[Any]] = set()

    @property
    def session(self) -> sdk.Session | None:
        """The session while it can be used."""
        return self._session

    async def serve(self) -> None:
        """Open the session, list the tools, say so, and stay until `close` or the end.

        Raises:
            ConnectError: It could not be opened.
            ConnectionLostError: It was open and ended without our doing.
        """
        attempts = attempts_at(self._transport)
        failures: list[ConnectError] = []
        seconds = self.spec.connect_timeout
        for transport in attempts:
            last = transport is attempts[-1]
            self.trail = trail_of(transport)
            try:
                await self._serve_either_era(transport, seconds if last else seconds / 2)
            except ConnectError as exc:
                failures.append(exc)
                if last or not self.trail.refused:
                    recount(failures)
                    raise
                seconds /= 2
            else:
                return

    def close(self) -> None:
        """Ask the session to end, in whatever phase it is; `serve` returns when it has."""
        if not self._leave.done():
            self._leave.set_result(None)
        if self._session is None and self._scope is not None:
            self._scope.cancel()

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        seconds: float,
        *,
        on_progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Answer]:
        """Call a tool by the name that the server uses; progress puts its deadline off, within bounds.

        Raises:
            TimeoutError: The deadline passed; the server was told.
            ConnectionLostError: The connection ended; the call may have run.
            ToolExecutionError: The server answered, but not with a result.
        """
        fields = dict(arguments)
        if on_progress is None and meta is None:
            # A closure would be a dozen objects.
            return self.use(methodcaller("call_tool", name, fields), seconds, what=name)

        def call(session: sdk.Session) -> Awaitable[Answer]:
            report = None if on_progress is None else self._progress(on_progress, seconds)
            return session.call_tool(name, fields, on_progress=report, meta=meta)

        return self.use(call, seconds, what=name)

    def _progress(self, handler: ProgressHandler, seconds: float) -> Any:
        """Return what the session calls with progress: the call gets more time, the handler is told."""
        end = deadline.get()
        latest = self._loop.time() + max(seconds, LONGEST_CALL)

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if end is not None:
                end.at = min(latest, self._loop.time() + seconds)
            outcome = handler(progress, total, message)
            if inspect.isawaitable(outcome):
                await outcome

        return report

    async def use(self, job: Callable[[sdk.Session], Awaitable[T]], seconds: float, *, what: str) -> T:
        """Do something with the session; it ends by its outcome, its deadline, or the connection's end.

        Args:
            job: Given the session.
            seconds: Until the deadline.
            what: What it is about, for errors.

        Raises:
            TimeoutError: The deadline passed; the server was told.
            ConnectionLostError: The connection ended; the request may have been carried out.
            ToolExecutionError: The server answered, but not with a result.
        """
        session = self._session
        if session is None:
            raise self._ended_under_call(may_have_run=False)
        self.calls += 1
        began, heard = self._loop.time(), session.received
        try:
            if not session.direct:
                return await self._apart(job(session), seconds)
            before = deadline.get()
            deadline.set(Deadline(began + seconds))
            try:
                answer = job(session)
                # Thousands of calls may be under way: what is not needed is not kept while they wait.
                del job
                return await answer
            finally:
                deadline.set(before)
        except DragomanError:
            raise
        except Exception as exc:  # noqa: BLE001 -- whatever it is, it becomes one of our errors
            error = sdk.call_error(exc, server=self.spec.name, tool=what)
            if isinstance(error, TimeoutError) and session.direct:
                self._note_silence(began, None if session.received != heard else heard)
            raise error from (None if error in (exc, exc.__cause__) else exc)
        finally:
            self.calls -= 1

    async def _apart(self, job: Awaitable[T], seconds: float) -> T:
        """Run a job in a task of its own: trouble below the SDK's transports cancels who is in there."""
        task = asyncio.ensure_future(job)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait({task, self._lost}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A cancelled call tells the server so, in its own time: nobody waits for that.
            task.cancel()
        failed = task.done() and not task.cancelled() and sdk.is_end(task.exception())
        if failed and (session := self._session) and not await session.probe(CANCEL_SECONDS):
            # A writer of the SDK's may die alone, which nobody learns but who calls.
            self._on_ended("nothing can be sent any more")
        if task.done() and not task.cancelled() and (task.exception() is None or not self._lost.done()):
            return task.result()
        if self._lost.done() or task.done():
            raise self._ended_under_call(may_have_run=True)
        raise TimeoutError

    # The owner's side

    async def _serve_either_era(self, transport: Transport, seconds: float) -> None:
        """Serve; a server that ended when it was asked for its era is started once more, and not asked."""
        until = self._loop.time() + seconds
        try:
            await self._serve(transport, seconds)
        except ConnectError:
            if not self.trail.ended_by_probe:
                raise
            logger.info("%s: it ended when asked for its protocol; trying the older one", self.spec.name)
            self.era, self.trail = sdk.Era("legacy"), trail_of(transport)
            try:
                await self._serve(transport, max(1.0, until - self._loop.time()))
            except ConnectError:
                self.era = None
                raise

    async def _serve(self, transport: Transport, seconds: float) -> None:
        failure: Exception | None = None
        if self._lost.done():
            self._lost = self._loop.create_future()
        scope = anyio.CancelScope()
        is_open = False
        release = await self._take_slot()
        scope.deadline = anyio.current_time() + seconds
        try:
            # The deadline is set on a scope around everything: a scope inside could not outlive the SDK's.
            with scope:
                self._scope = scope
                if self._leave.done():
                    return
                if self.admit is not None:
                    await self.admit()
                async with sdk.open_session(
                    self.spec,
                    transport,
                    env=self._env,
                    trail=self.trail,
                    era=self.era,
                    ended=self._on_ended,
                    changed=self._on_changed,
                    answers=self._answers,
                    header_provider=self._header_provider,
                    auth=self._auth,
                    start=self._start_ahead,
                ) as session:
                    self.trail.stage = "listing"
                    await self._first_listing(session)
                    scope.deadline = math.inf
                    is_open = True
                    release()
                    await self._stay(session, scope)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # noqa: BLE001 -- the SDK's groups may hold anything; they are opened here
            failure = sdk.telling(exc)
        finally:
            release()
            self._session = None
            self._scope = None
            self._cancel_tasks()
        if self._leave.done():
            return
        if is_open:
            raise sdk.lost_error(failure, self.spec, self.trail) from failure
        if scope.cancel_called:
            failure = TimeoutError()
        if isinstance(failure, ConnectError) and failure.stage == "approval":
            raise failure
        if failure is not None:
            if sdk.is_answer(failure):
                self.era = None
            raise sdk.connect_error(failure, self.spec, self.trail) from failure

    async def _take_slot(self) -> Callable[[], None]:
        """Wait for a place among the starting servers; returns what gives it back, once."""
        slots = self._slots
        if slots is None or self._leave.done():
            return _nothing
        await slots.acquire()
        held = [slots]

        def release() -> None:
            timer.cancel()
            if held:
                held.pop().release()

        timer = self._loop.call_later(SLOT_SECONDS, lambda: held.pop().release() if held else None)
        return release

    async def _stay(self, session: sdk.Session, scope: anyio.CancelScope) -> None:
        if not self._lost.done() and not self._leave.done():
            self._session = session
            self.era = session.era
            self.on_ready()
            self._start(self._keep_listing(session))
            self._start(self._keep_probing(session))
            self._start(session.watch_changes(self._on_changed))
        try:
            await asyncio.wait({self._leave, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Trouble below the SDK's transports ends the wait by a cancellation, before anybody else knows.
            self._on_ended()
            self._session = None
            scope.deadline = anyio.current_time() + CLOSE_SECONDS
        if tasks := self._cancel_tasks():
            # The server is told of cancelled calls while there is still a way to tell it.
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    async def _first_listing(self, session: sdk.Session) -> None:
        try:
            self.tools = await self._vetted(session)
        except Exception as exc:
            # A server that was modern and shows no sign of it is asked for its era anew.
            if self._lost.done() or (self.era is not None and self.era.discover is not None):
                raise
            self.listing_error = sdk.connect_error(exc, self.spec, self.trail)
            if isinstance(self.listing_error, AuthRequiredError):
                raise self.listing_error from exc
            self._relist_due.set()

    async def _keep_listing(self, session: sdk.Session) -> None:
        """List again whenever the server says that something changed, or while there is no good listing."""
        pause, last = RELIST_PAUSE, -math.inf
        while True:
            await self._relist_due.wait()
            if self.listing_error is None:
                # A server that announces a change with every listing would keep both of us busy.
                calm = self._loop.time() - last > RELIST_LONGEST
                pause = RELIST_PAUSE if calm else min(RELIST_LONGEST, pause * 2)
            await asyncio.sleep(pause)
            self._relist_due.clear()
            error: DragomanError | None = None
            try:
                async with asyncio.timeout(self.spec.connect_timeout):
                    self.tools = await self._vetted(session)
            except Exception as exc:  # noqa: BLE001 -- whatever it is, it becomes one of our errors
                error = sdk.connect_error(exc, self.spec, self.trail)
            if self._session is None:
                return
            self.on_listing(error)
            self.listing_error, last = error, self._loop.time()
            if error is not None:
                pause = min(60.0, pause * 4)
                self._relist_due.set()

    async def _keep_probing(self, session: sdk.Session) -> None:
        """Probe an idle connection; any traffic is proof of life, and a server at work is left in peace."""
        if not session.direct or not math.isfinite(self._health_check_interval):
            return
        misses, heard = 0, session.received
        while True:
            pause = self._health_check_interval
            await asyncio.sleep(min(1.0, pause) if misses else pause)
            if session.received != heard or self.calls:
                misses, heard = 0, session.received
                continue
            alive = await session.probe(min(PROBE_SECONDS, max(1.0, self._health_check_interval)))
            misses = 0 if alive or self.calls or session.received != heard else misses + 1
            heard = session.received
            if misses >= PROBE_MISSES:
                self._on_ended(f"it did not answer {misses} probes")
                return

    def _note_silence(self, began: float, heard: int | None) -> None:
        """Count a call that met complete silence: several are as good as unanswered probes.

        A server that somebody always calls is never idle, so that no probe would find out that it is stuck.
        """
        if heard is None or heard != self._silence.heard:
            self._silence = _Silence(began, heard)
        if heard is None:
            return
        silence = self._silence
        silence.calls += 1
        seconds = self._loop.time() - silence.since
        if silence.calls >= PROBE_MISSES and seconds >= self._health_check_interval and self.calls == 1:
            self._on_ended(f"it said nothing for {seconds:.0f} s, in which {silence.calls} calls timed out")

    async def _vetted(self, session: sdk.Session) -> list[dict[str, Any]]:
        tools = await self._list(session)
        if self.vet is not None:
            await self.vet(tools, session.instructions or "")
        return tools

    async def _list(self, session: sdk.Session) -> list[dict[str, Any]]:
        tools, why = await session.list_all("tools", self._limits)
        found: dict[str, dict[str, Any]] = {}
        for tool in tools:
            if found.setdefault(str(tool.get("name")), tool) is not tool:
                logger.warning("%s: tool `%s` is listed twice", self.spec.name, tool.get("name"))
        if why:
            logger.warning("%s: the listing was cut short: %s", self.spec.name, why)
        return list(found.values())

    def _on_changed(self, what: str) -> None:
        if what == "tools":
            self._relist_due.set()
        else:
            self.on_changed(offer_changed(self.spec.name, what))

    def _on_ended(self, reason: str = "") -> None:
        if self._leave.done() or self._lost.done():
            return
        self._lost.set_result(reason)
        if self._session is not None:
            self._session = None
            self.on_lost(sdk.lost_error(None, self.spec, self.trail, reason))

    def _start(self, job: Any) -> None:
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _cancel_tasks(self) -> set[asyncio.Future[Any]]:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            logger.debug("%s: a background job ended: %r", self.spec.name, exc)

    def _ended_under_call(self, *, may_have_run: bool) -> ConnectionLostError:
        how = "was lost" if self._lost.done() else "was closed"
        msg = f"the connection to server `{self.spec.name}` {how}"
        return ConnectionLostError(msg, server=self.spec.name, may_have_run=may_have_run)
