"""Handle a signal in the event loop, on every platform."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def on_signal(number: int, action: Callable[[], object]) -> Callable[[], None]:
    """Call an action in the running event loop when a signal arrives; return what undoes it.

    Not every loop handles signals (none does on Windows): Python's own handler then wakes the loop. Outside
    the main thread no signal can be handled, and nothing changes.
    """
    loop = asyncio.get_running_loop()
    before = signal.getsignal(number)

    def wake(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(action)

    try:
        loop.add_signal_handler(number, action)
    except NotImplementedError:
        with suppress(ValueError):
            signal.signal(number, wake)
    except (RuntimeError, ValueError):
        return _nothing

    def undo() -> None:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(number)
        # It is not Python's if it was set before Python started.
        with suppress(ValueError):
            signal.signal(number, signal.SIG_DFL if before is None else before)

    return undo


def _nothing() -> None:
    """Do nothing: there is nothing to undo."""
