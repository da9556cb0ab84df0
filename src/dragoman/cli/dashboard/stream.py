"""The stream of calls: what this program's servers are asked, and what other processes wrote to the call log.

A call is known by its id. It appears when it begins, gets its outcome when it ends, and its arguments and
result from the log, where both are masked and bounded. Only what one asked for here brings its images along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.cli.dashboard.readings import arguments_line, took
from dragoman.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dragoman.events import CallFinished, CallStarted
    from dragoman.model import Part, ToolResult
    from dragoman.observe.call_history import CallHistory
    from dragoman.observe.call_rows import CallRecord

KEPT = 500
"""How many calls are shown; older ones are in the log."""
SLACK = 100
"""So many more are let in before the oldest are dropped, all at once."""


@dataclass(slots=True, kw_only=True)
class CallEntry:
    """One call as far as it is known."""

    call_id: str
    server: str
    tool: str
    at: float
    """Seconds since the epoch, when it began."""
    is_here: bool = False
    """Whether this program made it."""
    duration: float | None = None
    """Nothing while it runs."""
    error_code: str = ""
    record: CallRecord | None = None
    parts: Sequence[Part] = ()
    """What the result is made of, if it was asked for here."""
    version: int = 0
    """Counts the changes."""

    @property
    def outcome(self) -> str:
        """What became of it, in a word."""
        if self.duration is None:
            return "running"
        return one_line(self.error_code) or "ok"

    @property
    def arguments(self) -> str:
        """The arguments, on one line."""
        return arguments_line(self.record.arguments) if self.record else ""

    @property
    def result(self) -> str:
        """The beginning of the result, on one line."""
        return one_line(self.record.result[:1000]) if self.record else ""

    @property
    def timing(self) -> str:
        """How long it took."""
        return "…" if self.duration is None else took(self.duration)

    def matches(self, words: str) -> bool:
        """Tell whether the words stand somewhere in what is shown of it."""
        text = " ".join((self.server, self.tool, self.outcome, self.arguments, self.result))
        return words.casefold() in text.casefold()


class CallStream:
    """The latest calls, in the order in which they became known."""

    def __init__(self) -> None:
        self._entries: dict[str, CallEntry] = {}

    def entries(self, words: str = "") -> list[CallEntry]:
        """Return the calls that the words stand in, the oldest first."""
        return [entry for entry in self._entries.values() if not words or entry.matches(words)]

    def get(self, call_id: str) -> CallEntry | None:
        """Return one call."""
        return self._entries.get(call_id)

    def begin(self, event: CallStarted, now: float) -> None:
        """Take in that a call began just now."""
        entry = self._entry(event.call_id, event.server, event.tool, now)
        entry.is_here = True
        entry.version += 1

    def end(self, event: CallFinished, now: float) -> None:
        """Take in that a call has ended just now."""
        entry = self._entry(event.call_id, event.server, event.tool, now - event.duration)
        entry.is_here = True
        entry.duration, entry.error_code = event.duration, event.error_code
        entry.version += 1

    def take(self, records: Iterable[CallRecord]) -> None:
        """Take in what the log says, the oldest first."""
        for record in records:
            entry = self._entry(record.call_id, record.server, record.tool, record.at)
            entry.duration, entry.error_code, entry.record = record.duration, record.error_code, record
            entry.version += 1

    def attach(self, result: ToolResult) -> None:
        """Add the pieces of a result that was asked for here, for its images."""
        entry = self._entries.get(result.call_id)
        if entry is not None:
            entry.parts = result.parts
            entry.version += 1

    def _entry(self, call_id: str, server: str, tool: str, at: float) -> CallEntry:
        entry = self._entries.get(call_id)
        if entry is None:
            entry = self._entries[call_id] = CallEntry(call_id=call_id, server=server, tool=tool, at=at)
            if len(self._entries) > KEPT + SLACK:
                for old in list(self._entries)[: len(self._entries) - KEPT]:
                    del self._entries[old]
        return entry


class Follower:
    """Reads what is new in the call log; it waits for the disk, so it belongs into a thread."""

    def __init__(self, history: CallHistory) -> None:
        self._history = history
        self._mark: list[tuple[int, int]] | None = None
        self._last = 0

    def poll(self) -> list[CallRecord]:
        """Return the calls that were logged since the last time, the oldest first.

        Raises:
            DragomanError: The log cannot be read.
        """
        mark = [_stamp(path) for path in self._files()]
        if mark == self._mark:
            # Nobody wrote: looking at two files is all that a quiet moment costs.
            return []
        found = self._history.list(limit=KEPT)
        newest = max((one.number for one in found), default=0)
        # A log that was moved aside begins to count anew.
        known = self._last if newest >= self._last else 0
        self._mark, self._last = mark, newest
        return [one for one in reversed(found) if one.number > known]

    def _files(self) -> tuple[Path, Path]:
        path = self._history.path
        return path, path.with_name(f"{path.name}-wal")


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
