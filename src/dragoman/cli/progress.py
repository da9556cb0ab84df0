"""What is under way, on standard error: one line that is drawn over on a terminal, few lines elsewhere.

Short work says nothing: the line comes after a moment, and where there is no terminal after some seconds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from dragoman.cli.output import cut, safe

if TYPE_CHECKING:
    from types import TracebackType

TICK = 0.1
SOON = 0.2
"""Seconds before a terminal shows anything."""
PAUSE = 4.0
"""Seconds before, and between, lines where there is no terminal."""

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "|/-\\"


class Progress:
    """Shows what is under way while it is entered."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        """What is shown; change it at will."""
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self._task: asyncio.Task[None] | None = None
        self._drawn = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._show(), name="dragoman progress")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self.clear()

    def clear(self) -> None:
        """Take the line away, so that something else can be printed."""
        if self._drawn:
            self._write("\r\x1b[K")
            self._drawn = False

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Take in what a server says about a call."""
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        self.text = " ".join(part for part in (share, safe(" ".join((message or "").split()))) if part)

    async def _show(self) -> None:
        began = last = since = time.monotonic()
        shown = seen = ""
        frame = 0
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if self.text != seen:
                seen, since = self.text, now
            if self._live and self.text and now - began >= SOON:
                frame += 1
                self._draw(frame)
            elif not self._live and self.text not in ("", shown) and self._is_due(now - last, now - since):
                shown, last = self.text, now
                self._write(f"{shown}\n")

    def _is_due(self, silent: float, same: float) -> bool:
        """Tell whether a line is due: what is over in a moment is worth none, unless moments go on and on."""
        return silent >= PAUSE and (same >= PAUSE / 2 or silent >= 2 * PAUSE)

    def _draw(self, frame: int) -> None:
        frames = _FRAMES if "utf" in (sys.stderr.encoding or "").lower() else _PLAIN_FRAMES
        width = shutil.get_terminal_size().columns - 1
        # The line is written over and its rest cleared: clearing first would flicker.
        self._write(f"\r{cut(f'{frames[frame % len(frames)]} {self.text}', width)}\x1b[K")
        self._drawn = True

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()
