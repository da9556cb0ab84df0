"""A thread with an event loop, for code that cannot await: it hands a job over and waits for the outcome.

Any thread may do so at any time, also one in which another loop runs. Whoever is interrupted while it waits
(Ctrl-C) takes its job back. The thread is a daemon, since Python waits for others before it runs any of our
code; what is open at the interpreter's end is closed just before the thread pools are, which closing needs.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import importlib
import inspect
import os
import threading
import warnings
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from dragoman.errors import DragomanError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from dragoman.events import Event

T = TypeVar("T")

_open: set[Portal] = set()


class Portal:
    """One thread, one loop, until it is closed."""

    def __init__(self, farewell: Callable[[], Awaitable[None]]) -> None:
        """Start the thread.

        Args:
            farewell: Run on the loop when the portal closes, before everything that still runs is cancelled.
        """
        self._farewell = farewell
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._accepts = True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="dragoman", daemon=True)
        self._thread.start()
        _open.add(self)

    @property
    def is_open(self) -> bool:
        """Whether jobs are taken, in this process."""
        return self._accepts and self._pid == os.getpid()

    @property
    def is_mine(self) -> bool:
        """Whether this is the portal's own thread, in which nothing may wait."""
        return self._thread is threading.current_thread()

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run what `make` gives on the loop, and wait for its outcome.

        Raises:
            DragomanError: The portal is closed, was made before a fork, or this is its own thread.
        """
        if self._pid != os.getpid():
            msg = f"this manager belongs to process {self._pid}, from which this one was forked"
            raise DragomanError(msg, hint="make a manager in each process, after the fork")
        if self.is_mine:
            msg = "a blocking call inside of the manager's own thread would wait for itself"
            raise DragomanError(
                msg, hint="an async handler awaits `dragoman.McpManager`; make it a plain function"
            )
        job = _Job(make)
        try:
            with self._guard:
                if not self._accepts:
                    raise closed()
                self._loop.call_soon_threadsafe(job.begin)
            job.wait()
            return job.result()
        finally:
            if not job.ended and self._accepts:
                # Something other than the outcome ended the wait, mostly Ctrl-C; a second one ends this too.
                self._soon(job.cancel)
                job.wait()
            # Else an error would hold itself, through the traceback that begins here.
            del job

    def close(self) -> None:
        """Run the farewell, cancel what is left, and wait for the thread's end; twice does no harm."""
        if self._pid != os.getpid():
            return
        try:
            if not self.is_mine and self._accepts:
                self.run(self._farewell)
        except DragomanError:
            if self._accepts:
                raise
        finally:
            self._stop()
            if not self.is_mine:
                self._thread.join()

    def close_soon(self) -> None:
        """Close without waiting, from wherever an object is collected."""
        if self.is_open:
            self._soon(lambda: _keep(self._loop.create_task(self._leave())))

    async def _leave(self) -> None:
        try:
            await self._farewell()
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._guard:
            if self._accepts:
                self._accepts = False
                # Every job that was taken is begun before this, and so it gets an outcome.
                self._loop.call_soon_threadsafe(self._loop.stop)
        _open.discard(self)

    def _soon(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is nothing left to do it to
            self._loop.call_soon_threadsafe(action)

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            # Does not wait for functions that run in the loop's threads: one of them may never end.
            loop.close()


class _Job(Generic[T]):
    """Something to run on the loop, and its outcome, which another thread waits for.

    It waits on a bare lock, which the loop only ever releases. The standard library's futures are built on
    locks that a waiting thread may keep if Ctrl-C comes at the wrong moment; the loop would wait for them.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self.ended = False
        self._make = make
        self._task: asyncio.Task[T] | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def begin(self) -> None:
        """Start; on the loop."""
        self._task = asyncio.ensure_future(_awaited(self._make))
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Give it up; on the loop."""
        if self._task is not None:
            self._task.cancel()
        else:  # The interrupt came before it was handed over.
            self._end(None)

    def wait(self) -> None:
        """Wait for the end."""
        if not self.ended:
            self._lock.acquire()

    def result(self) -> T:
        """Return what came of it, or raise the error that did."""
        # Forgotten here: an error must not hold itself, through its traceback, this frame and the task.
        task, self._task = self._task, None
        try:
            if task is None or task.cancelled():
                raise closed()
            return task.result()
        finally:
            del task

    def _end(self, task: asyncio.Task[T] | None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # Whoever was interrupted does not ask for it, and asyncio would complain.
        self.ended = True
        self._lock.release()


class Background:
    """What runs things: here before the start and after the end, on the background loop between."""

    def __init__(self) -> None:
        self.portal: Portal | None = None
        self.closed = False

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run something that awaits."""
        if self.closed:
            raise closed()
        if self.portal is None:
            msg = "the manager is not started"
            raise DragomanError(msg, hint="use `with`, or `McpManager.connect_all(…)`")
        return self.portal.run(make)

    def read(self, function: Callable[[], T]) -> T:
        """Run something that does not await, where nothing else changes what it reads."""

        async def apart() -> T:
            return function()

        if self.portal is None or not self.portal.is_open or self.portal.is_mine:
            return function()
        return self.portal.run(apart)


class Pulled:
    """Events from the moment it was made, to be read with `for`."""

    def __init__(self, events: AsyncIterator[Event], thread: Background) -> None:
        self._events = events
        self._thread = thread

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        portal = self._thread.portal
        try:
            if portal is not None and portal.is_open:
                return portal.run(self._events.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        except DragomanError:
            # Shut down meanwhile: what came before that is still to be had.
            if portal is not None and portal.is_open:
                raise
        return self._rest()

    def _rest(self) -> Event:
        step = self._events.__anext__()
        try:
            # Nothing more can come, so this never waits: it has an event, or the end.
            step.__await__().send(None)
        except StopIteration as done:
            event: Event = done.value
            return event
        except StopAsyncIteration:
            pass
        raise StopIteration


def closed() -> DragomanError:
    """Return the error of whoever comes too late."""
    return DragomanError("the manager is closed", hint="make a new one")


def in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a plain function that the loop calls run in a thread of its own: it may wait, and call us back.

    The thread is a daemon: a function that waits for a person must not keep a program from ending.
    """
    if inspect.iscoroutinefunction(function):
        return function

    async def call(*args: Any) -> Any:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        work = partial(contextvars.copy_context().run, function, *args)

        def run() -> None:
            settle: Callable[[], object]
            try:
                settle = partial(_settle, outcome, work())
            except Exception as exc:  # noqa: BLE001 -- it is raised where the function was called from
                settle = partial(_fail, outcome, exc)
            with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                loop.call_soon_threadsafe(settle)

        threading.Thread(target=run, name="dragoman handler", daemon=True).start()
        value = await outcome
        return await value if inspect.isawaitable(value) else value

    return call


def warn_of_open(what: object) -> None:
    """Warn that something was collected that should have been closed."""
    warnings.warn(f"{what} was not closed", ResourceWarning, stacklevel=3, source=what)


async def _awaited(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


def _settle(outcome: asyncio.Future[Any], value: Any) -> None:
    if not outcome.done():
        outcome.set_result(value)


def _fail(outcome: asyncio.Future[Any], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)


_kept: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    _kept.add(task)
    task.add_done_callback(_kept.discard)


def _close_all() -> None:
    for portal in list(_open):
        portal.close()


# Pools of threads end before `atexit` functions run. Only a private hook comes first, and what was registered
# last is run first: so that of the pools has to be there.
importlib.import_module("concurrent.futures.thread")
getattr(threading, "_register_atexit", atexit.register)(_close_all)
