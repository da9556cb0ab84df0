"""What the chosen server writes to its standard error, as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Log

from dragoman.cli.output import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT = 2000
"""Lines that can be scrolled back to."""


class LogsPane(Log):
    """The last lines, followed until somebody scrolls up."""

    def __init__(self) -> None:
        super().__init__(id="logs", classes="pane", max_lines=KEPT, auto_scroll=True)
        self._about: tuple[str, str] = ("", "")
        self._seen: list[str] = []

    def draw(self, server: str, lines: Sequence[str], *, words: str = "", otherwise: str = "") -> None:
        """Show what is new.

        Args:
            server: Whose lines they are; those of another are cleared away.
            lines: The last lines, the newest last.
            words: Only lines in which they stand are shown.
            otherwise: What is said where there is no line.
        """
        wanted = words.casefold()
        shown = [safe(line) for line in lines if wanted in line.casefold()] or [otherwise]
        known = self._seen if self._about == (server, words) else []
        new = added(known, shown)
        if new is None or self._about != (server, words):
            self.clear()
            new = shown
        self._about, self._seen = (server, words), shown
        if new:
            self.write_lines(new)


def added(before: Sequence[str], now: Sequence[str]) -> list[str] | None:
    """Return the lines that came at the end of a list that may have lost its beginning; else nothing."""
    if not before:
        return list(now)
    for size in range(min(len(before), len(now)), 0, -1):
        if before[-size:] == now[:size]:
            return list(now[size:])
    return None
