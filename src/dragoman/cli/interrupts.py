"""Ctrl-C ends a command once: more of them while it ends change nothing and print nothing.

Python raises `KeyboardInterrupt` for each one, wherever the program is: in the code that stops servers, or in
the code that reports the first. Every command begins here, so only the standard library is used.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
"""Not imported: `typing` takes longer than this module."""
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import FrameType, TracebackType
else:
    try:
        import _signal as signal  # `signal` takes 2 ms, for enumerations that are not needed here
    except ImportError:  # another Python than CPython
        import signal

PATIENCE = 10.0
"""Seconds that the end of a command may take; Ctrl-C after that ends the process at once."""
INTERRUPTED = 130

_actions: list[Callable[[], object]] = []
_ended_at: list[float] = []
"""When the program began to end."""


def install() -> None:
    """Handle Ctrl-C for this program, unless it is ignored."""
    _ended_at.clear()
    _set(signal.default_int_handler, _on_signal)


def begin_end() -> None:
    """Ignore Ctrl-C from now on: the command has ended, or is about to."""
    if not _ended_at:
        _ended_at.append(time.monotonic())


class calling:  # noqa: N801 -- a context manager that is used like a function; `contextlib` takes 2 ms
    """Call a function at each Ctrl-C inside the block; it must not raise."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._is_first = False

    def __enter__(self) -> None:
        _actions.append(self._action)
        self._is_first = _set(signal.default_int_handler, _on_signal)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_first:
            _set(_on_signal, signal.default_int_handler)
            _ended_at.clear()
        _actions.remove(self._action)


def _set(before: object, after: Callable[[int, FrameType | None], object]) -> bool:
    """Replace a handler of Ctrl-C by another; return whether it was the current one."""
    if signal.getsignal(signal.SIGINT) is not before:
        return False
    try:
        signal.signal(signal.SIGINT, after)
    except ValueError:  # not the main thread
        return False
    return True


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    if _ended_at:
        if time.monotonic() - _ended_at[0] > PATIENCE:
            os._exit(INTERRUPTED)  # the servers end with us
    elif _actions:
        _actions[-1]()
    else:
        begin_end()
        raise KeyboardInterrupt
