"""A background thread with an event loop, for code that cannot await: it submits a job and waits for it.

Any thread may submit jobs, even one that runs another event loop. Ctrl-C cancels the job that it interrupts.
The thread is a daemon, because Python joins other threads before it runs any of our code. Threads that are
still open when the interpreter exits are closed just before the thread pools, which closing needs.
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
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator

    from dragoman.events import Event

T = TypeVar("T")

_open: set[LoopThread] = set()


class LoopThread:
    """A thread that runs an event loop until it is closed."""

    def __init__(self, on_close: Callable[[], Awaitable[None]]) -> None:
        """Start the thread.

        Args:
            on_close: Runs on the loop at `close`, before the remaining tasks are cancelled.
        """
        self._on_close = on_close
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._accepts = True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="dragoman", daemon=True)
        self._thread.start()
        _open.add(self)

    @property
    def is_open(self) -> bool:
        """Whether it accepts jobs from this process."""
        return self._accepts and self._pid == os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether the current thread is the loop's own, where waiting would deadlock."""
        return self._thread is threading.current_thread()

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run the awaitable that `make` returns on the loop, and wait for its result.

        Raises:
            DragomanError: The thread is closed, was started before a fork, or is the current one.
        """
        if self._pid != os.getpid():
            msg = f"this manager belongs to process {self._pid}; this process was forked from it"
            raise DragomanError(msg, hint="make a manager in each process, after the fork")
        if self.is_current:
            msg = "a blocking call in the manager's own thread would wait for itself"
            hint = "call it from another thread; a handler that is a plain function has one of its own"
            raise DragomanError(msg, hint=hint)
        job = _Job(make)
        try:
            with self._lock:
                if not self._accepts:
                    raise closed()
                self._loop.call_soon_threadsafe(job.begin)
            job.wait()
            return job.result()
        finally:
            if not job.ended and self._accepts:
                # Usually Ctrl-C interrupted the wait: cancel the job and wait again. A second one ends that.
                self._soon(job.cancel)
                job.wait()
            # Break the reference cycle: an error's traceback refers to this frame.
            del job

    def close(self) -> None:
        """Run `on_close`, cancel the remaining tasks, and join the thread; safe to call twice."""
        if self._pid != os.getpid():
            return
        try:
            if not self.is_current and self._accepts:
                self.run(self._on_close)
        except DragomanError:
            if self._accepts:
                raise
        finally:
            self._stop()
            if not self.is_current:
                self._thread.join()

    def close_soon(self) -> None:
        """Close without waiting; safe to call from `__del__`."""
        if self.is_open:
            self._soon(lambda: _keep(self._loop.create_task(self._close())))

    async def _close(self) -> None:
        try:
            await self._on_close()
        finally:
            self._stop()

    def _stop(self) -> None:
        with self._lock:
            if self._accepts:
                self._accepts = False
                # Accepted jobs are in the loop's queue before this, so each of them gets a result.
                self._loop.call_soon_threadsafe(self._loop.stop)
        _open.discard(self)

    def _soon(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # The loop is closed, and its tasks are gone.
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
            # Do not wait for functions in the loop's thread pool: one of them may never end.
            loop.close()


class _Job(Generic[T]):
    """A job for the loop, and its result, which another thread waits for.

    The thread waits on a bare lock, which the loop only releases. `concurrent.futures.Future` is built on
    locks that Ctrl-C at the wrong moment can leave held, and then the loop would block on them.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self.ended = False
        self._make = make
        self._task: asyncio.Task[T] | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def begin(self) -> None:
        """Start the job; runs on the loop."""
        self._task = asyncio.ensure_future(_awaited(self._make))
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Cancel the job; runs on the loop."""
        if self._task is not None:
            self._task.cancel()
        else:  # The interrupt came before the job was submitted.
            self._end(None)

    def wait(self) -> None:
        """Wait until the job has ended."""
        if not self.ended:
            self._lock.acquire()

    def result(self) -> T:
        """Return the job's result, or raise its error."""
        # Break the reference cycle: an error's traceback refers to this frame, and the task to the error.
        task, self._task = self._task, None
        try:
            if task is None or task.cancelled():
                raise closed()
            return task.result()
        finally:
            del task

    def _end(self, task: asyncio.Task[T] | None) -> None:
        if task is not None and not task.cancelled():
            task.exception()  # Mark it as retrieved: asyncio logs errors that an interrupted caller left.
        self.ended = True
        self._lock.release()


class BlockingRunner:
    """Runs functions on the manager's loop while it is open, and in the caller's thread before and after."""

    def __init__(self) -> None:
        self.loop_thread: LoopThread | None = None
        self.closed = False

    def run(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run the awaitable that `make` returns on the loop.

        Raises:
            DragomanError: The manager is not started, or closed.
        """
        if self.closed:
            raise closed()
        if self.loop_thread is None:
            msg = "the manager is not started"
            raise DragomanError(msg, hint="use `with`, or `McpManager.connect_all(…)`")
        return self.loop_thread.run(make)

    def read(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop's thread, so that nothing changes while it reads."""

        async def on_loop() -> T:
            return function()

        if self.loop_thread is None or not self.loop_thread.is_open or self.loop_thread.is_current:
            return function()
        return self.loop_thread.run(on_loop)


class BlockingIterator:
    """An async iterator of events, to be read with `for`."""

    def __init__(self, events: AsyncIterator[Event], runner: BlockingRunner) -> None:
        self._events = events
        self._runner = runner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        loop_thread = self._runner.loop_thread
        try:
            if loop_thread is not None and loop_thread.is_open:
                return loop_thread.run(self._events.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        except DragomanError:
            # Shut down while waiting: earlier events are still available.
            if loop_thread is not None and loop_thread.is_open:
                raise
        return self._rest()

    def _rest(self) -> Event:
        """Return the next event that arrived before the shutdown."""
        step = self._events.__anext__()
        try:
            # No more events can come, so one step gives an event or the end; it never waits.
            step.__await__().send(None)
        except StopIteration as done:
            event: Event = done.value
            return event
        except StopAsyncIteration:
            pass
        raise StopIteration


def iterate(items: AsyncIterable[T], runner: BlockingRunner) -> Generator[T]:
    """Return the items as they come; leaving the loop early closes the iteration."""
    stream = aiter(items)
    try:
        while True:
            try:
                item = runner.run(stream.__anext__)
            except StopAsyncIteration:
                return
            yield item
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            with suppress(DragomanError):  # The manager is closed, and its tasks have ended.
                runner.run(close)


def closed() -> DragomanError:
    """Return the error for calls after the shutdown."""
    return DragomanError("the manager is closed", hint="make a new one")


def in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function that runs a plain function in a new thread, where it may block and call us.

    The thread is a daemon: a function that waits for a person must not keep the program from exiting.
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
            except Exception as exc:  # noqa: BLE001 -- raised in the caller, through the future
                settle = partial(_fail, outcome, exc)
            with suppress(RuntimeError):  # The loop is closed, so nothing waits for this.
                loop.call_soon_threadsafe(settle)

        threading.Thread(target=run, name="dragoman handler", daemon=True).start()
        value = await outcome
        return await value if inspect.isawaitable(value) else value

    return call


def warn_of_open(what: object) -> None:
    """Warn that an object was garbage-collected without being closed."""
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
    for loop_thread in list(_open):
        loop_thread.close()


# Thread pools are shut down before `atexit` functions run; only this private hook comes earlier. It runs its
# functions in reverse order, so the one of the thread pools has to be registered first: hence the import.
importlib.import_module("concurrent.futures.thread")
getattr(threading, "_register_atexit", atexit.register)(_close_all)
