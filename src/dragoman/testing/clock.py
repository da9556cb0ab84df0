"""An event loop clock that jumps to the next timer instead of waiting.

The loops of an `InstantClock` skip to the next timer when nothing else can happen. While real work is running
(a function in a thread of the loop, a watched socket or pipe such as that of a child process), they wait in
real time, so nothing is skipped by mistake.

`time.monotonic` returns the loop's time in code that runs on the loop, so that both clocks agree.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

T = TypeVar("T")

_OWN_DESCRIPTORS = 1
"""The loop's own descriptor: the pipe that other threads wake it with."""

_real_monotonic = time.monotonic
_lock = threading.Lock()
_running: dict[int, InstantClock] = {}
"""The clocks by the thread that runs one of their loops."""


class InstantClock:
    """A clock for tests: `InstantClock().run(main())` is `asyncio.run(main())` without the waiting."""

    def __init__(self) -> None:
        self.now = _real_monotonic()
        """The current time in seconds; it starts at the system's clock."""
        self.skipped = 0.0
        """The seconds that were skipped instead of waited."""
        self._began = self.now

    @property
    def elapsed(self) -> float:
        """The seconds that have passed on this clock."""
        return self.now - self._began

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in a new loop, as `asyncio.run` does."""
        with asyncio.Runner(loop_factory=self.loop) as runner:
            return runner.run(main)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return a new event loop with this clock, as a `loop_factory` for your test runner."""
        return _InstantLoop(self)

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def _skip(self, seconds: float) -> None:
        self.now += seconds
        self.skipped += seconds

    @contextmanager
    def _shown(self) -> Generator[None]:
        """Make `time.monotonic` return this clock's time in this thread."""
        me = threading.get_ident()
        with _lock:
            _running[me] = self
            time.monotonic = _monotonic
        try:
            yield
        finally:
            with _lock:
                del _running[me]
                if not _running:
                    time.monotonic = _real_monotonic


class _InstantLoop(asyncio.SelectorEventLoop):
    """An event loop with an `InstantClock`."""

    def __init__(self, clock: InstantClock) -> None:
        self._clock = clock
        self._in_threads = 0
        super().__init__(_InstantSelector(clock, lambda: self._in_threads > 0))
        # A timer is due within this much of its time. After months of uptime, asyncio's own nanosecond is
        # lost in rounding, and a clock that only skips would stand still.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the clock's time."""
        return self._clock.now

    def run_forever(self) -> None:
        """Run until stopped; `time.monotonic` returns the clock's time meanwhile."""
        with self._clock._shown():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- its other half
            super().run_forever()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run a function in a thread; until it ends, time is real."""
        self._in_threads += 1
        try:
            future = super().run_in_executor(executor, func, *args)
        except BaseException:
            self._in_threads -= 1
            raise
        future.add_done_callback(self._left_thread)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the loop's threads in real time."""
        self._in_threads += 1
        try:
            await super().shutdown_default_executor(*([] if timeout is None else [timeout]))
        finally:
            self._in_threads -= 1

    def _left_thread(self, _: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


class _InstantSelector(selectors.DefaultSelector):
    """Waits for the loop, or skips the wait."""

    def __init__(self, clock: InstantClock, busy: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._busy = busy

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is or can become ready, skip the timeout."""
        real = self._busy() or len(self.get_map()) > _OWN_DESCRIPTORS or _awaits_child()
        # Check for real work first: work that ends in between has made its descriptor ready by now.
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is not None and not real:
            self._clock._skip(timeout)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- its other half
            return []
        before = _real_monotonic()
        ready = super().select(timeout)
        self._clock._pass(_real_monotonic() - before)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- as above
        return ready


def _awaits_child() -> bool:
    """Return whether a thread of asyncio waits for a child process."""
    return any("waitpid-" in thread.name for thread in threading.enumerate())


def _monotonic() -> float:
    clock = _running.get(threading.get_ident())
    return _real_monotonic() if clock is None else clock.now
