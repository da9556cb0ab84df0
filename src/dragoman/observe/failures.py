"""The log of failed calls: limited, so that logging never delays the event loop.

The caller of a failed call gets its error, as a result or an exception. So the log is for applications that
have set up logging: without a handler of theirs, Python would print each of these errors a second time.
"""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger("dragoman.calls")
logger.addHandler(logging.NullHandler())

LINES_PER_TURN = 20


class FailureLog:
    """Logs failed calls, at most `LINES_PER_TURN` in one iteration of the event loop."""

    def __init__(self) -> None:
        self._lines = 0
        """How many lines were written in this iteration of the loop."""
        self._more: dict[tuple[str, str], tuple[int, str, str]] = {}
        """By server and error code: how many more calls failed, the last one, and its error."""

    def note(self, server: str, code: str, call: str, error: str | None) -> None:
        """Log that a call failed.

        Args:
            server: The server of the tool; empty for a built-in tool.
            code: The stable code of the error.
            call: The call, as `id of tool`.
            error: The error that the caller gets.
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
