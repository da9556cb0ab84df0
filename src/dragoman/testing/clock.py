"""Time that passes only while everything waits, and then at once.

The loops of an `InstantClock` jump to the next timer as soon as nothing else can happen. Where something real
is under way, they wait for it as any loop does: a function in a thread of the loop, or a socket or pipe that
is being watched, as that of a child process. Then seconds are seconds: nothing is skipped by mistake.

`time.monotonic` shows the same time as the loop to whoever runs on it: code that reads both must not see two.
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
"""What a loop watches for itself: the pipe by which other threads wake it."""

_real_monotonic = time.monotonic
_guard = threading.Lock()
_running: dict[int, InstantClock] = {}
"""By the thread that runs one of the clock's loops."""


class InstantClock:
    """A clock for tests: `InstantClock().run(main())` is `asyncio.run(main())` without the waiting."""

    def __init__(self) -> None:
        self.now = _real_monotonic()
        """What the clock shows: seconds, from the system's clock at first."""
        self.skipped = 0.0
        """How many seconds have passed without anybody waiting for them."""
        self._began = self.now

    @property
    def elapsed(self) -> float:
        """How many seconds have passed on this clock."""
        return self.now - self._began

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end in a new loop, as `asyncio.run` does."""
        with asyncio.Runner(loop_factory=self.loop) as runner:
            return runner.run(main)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return a new event loop under this clock; the `loop_factory` of whatever runs your tests."""
        return _InstantLoop(self)

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def _skip(self, seconds: float) -> None:
        self.now += seconds
        self.skipped += seconds

    @contextmanager
    def _shown(self) -> Generator[None]:
        """Show this clock's time to everything in this thread."""
        me = threading.get_ident()
        with _guard:
            _running[me] = self
            time.monotonic = _monotonic
        try:
            yield
        finally:
            with _guard:
                del _running[me]
                if not _running:
                    time.monotonic = _real_monotonic


class _InstantLoop(asyncio.SelectorEventLoop):
    """An event loop under an `InstantClock`."""

    def __init__(self, clock: InstantClock) -> None:
        self._clock = clock
        self._in_threads = 0
        super().__init__(_InstantSelector(clock, lambda: self._in_threads > 0))
        # A timer is due within this much of its time. On a machine that has been up for months,
        # asyncio's own nanosecond is lost in the sum, and a clock that only skips would stand still for ever.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the clock's time."""
        return self._clock.now

    def run_forever(self) -> None:
        """Run until stopped, with the clock's time shown to everybody."""
        with self._clock._shown():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] -- its other half
            super().run_forever()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run a function in a thread; until it ends, time goes its usual way."""
        self._in_threads += 1
        try:
            future = super().run_in_executor(executor, func, *args)
        except BaseException:
            self._in_threads -= 1
            raise
        future.add_done_callback(self._left_thread)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the loop's threads; they are real."""
        self._in_threads += 1
        try:
            await super().shutdown_default_executor(*([] if timeout is None else [timeout]))
        finally:
            self._in_threads -= 1

    def _left_thread(self, _: asyncio.Future[Any]) -> None:
        self._in_threads -= 1


class _InstantSelector(selectors.DefaultSelector):
    """Does the waiting of a loop, or skips it."""

    def __init__(self, clock: InstantClock, busy: Callable[[], bool]) -> None:
        super().__init__()
        self._clock = clock
        self._busy = busy

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; if nothing is, and nothing real can become so, let the time be over."""
        real = self._busy() or len(self.get_map()) > _OWN_DESCRIPTORS or _awaits_child()
        # What became ready meanwhile has said so before it was gone: so this comes second.
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
    """Tell whether a thread of asyncio's waits for a child process to end."""
    return any("waitpid-" in thread.name for thread in threading.enumerate())


def _monotonic() -> float:
    clock = _running.get(threading.get_ident())
    return _real_monotonic() if clock is None else clock.now
