"""Failed calls in the log: each with its context, but never so many at once that logging delays the program.

When a server dies, all calls that it carried fail in the same turn of the loop; a line takes longer to write
than such a call to end. So the first few of a turn get a line each, and the others one line per server and
kind of error, with their number and the context of the last.
"""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger("dragoman")

LINES_PER_TURN = 20


class FailureLog:
    """Writes what fails, from the event loop."""

    def __init__(self) -> None:
        self._lines = 0
        """How many were written in this turn of the loop."""
        self._more: dict[tuple[str, str], tuple[int, str, str]] = {}
        """By server and code of the error: how many others failed, the last call, and what it was told."""

    def note(self, server: str, code: str, call: str, error: str | None) -> None:
        """Log that a call failed.

        Args:
            server: Whose tool it was; empty for a built-in one.
            code: The stable code of the error.
            call: The call, as `id of tool`.
            error: What its caller is told.
        """
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._end_turn)
        if self._lines < LINES_PER_TURN:
            self._lines += 1
            logger.error("%s: call %s failed: %s", server or "builtin", call, error)
        else:
            known = self._more.get((server, code))
            self._more[server, code] = (known[0] + 1 if known else 1, call, error or "")

    def _end_turn(self) -> None:
        self._lines = 0
        more, self._more = self._more, {}
        for (server, code), (count, call, error) in more.items():
            line = "%s: %d more calls failed at the same time (%s), the last is call %s: %s"
            logger.error(line, server or "builtin", count, code, call, error)
