"""The latest calls of a manager and of its log, for the faces that show them live.

Events say that a call began or ended; the record in the log adds its arguments and its result. Both arrive in
any order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dragoman.struct import MutableStruct
from dragoman.trust.sanitizing import for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from dragoman.events import CallFinished, CallStarted
    from dragoman.model import Part, ToolResult
    from dragoman.observe.call_history import CallHistory, CallRecord

KEPT = 500
"""The number of calls to show; older ones are in the call log."""
SLACK = 100
"""Extra calls before the oldest are dropped, all at once."""


class CallEntry(MutableStruct, kw_only=True):
    """One call; details are added when they are known."""

    call_id: str
    server: str
    tool: str
    at: float
    """The start, in seconds since the epoch."""
    is_here: bool = False
    """Whether this program made it."""
    duration: float | None = None
    """None while it is running."""
    error_code: str = ""
    record: CallRecord | None = None
    parts: Sequence[Part] = ()
    """The parts of the result, if the call was made here."""
    version: int = 0
    """Incremented with each change."""

    @property
    def outcome(self) -> str:
        """`running`, `ok` or an error code."""
        if self.duration is None:
            return "running"
        return for_terminal(self.error_code) or "ok"

    @property
    def arguments(self) -> str:
        """The arguments, on one line."""
        return arguments_line(self.record.arguments) if self.record else ""

    @property
    def result(self) -> str:
        """The start of the result."""
        return self.record.result[:1000] if self.record else ""

    def matches(self, words: str) -> bool:
        """Return whether the shown text contains the words."""
        text = " ".join((self.server, self.tool, self.outcome, self.arguments, self.result))
        return words.casefold() in text.casefold()


class CallStream:
    """The latest calls, in the order of their arrival."""

    def __init__(self) -> None:
        self._entries: dict[str, CallEntry] = {}

    def entries(self, words: str = "") -> list[CallEntry]:
        """Return the calls that match the words, the oldest first."""
        return [entry for entry in self._entries.values() if not words or entry.matches(words)]

    def get(self, call_id: str) -> CallEntry | None:
        """Return one call."""
        return self._entries.get(call_id)

    def begin(self, event: CallStarted, now: float) -> None:
        """Add a call that has just started."""
        entry = self._entry(event.call_id, event.server, event.tool, now)
        entry.is_here = True
        entry.version += 1

    def end(self, event: CallFinished, now: float) -> None:
        """Update a call that has just ended."""
        entry = self._entry(event.call_id, event.server, event.tool, now - event.duration)
        entry.is_here = True
        entry.duration, entry.error_code = event.duration, event.error_code
        entry.version += 1

    def take(self, records: Iterable[CallRecord]) -> None:
        """Add records of the call log, the oldest first."""
        for record in records:
            entry = self._entry(record.call_id, record.server, record.tool, record.at)
            entry.duration, entry.error_code, entry.record = record.duration, record.error_code, record
            entry.version += 1

    def attach(self, result: ToolResult) -> None:
        """Add the parts of the result of a call made here, for its images."""
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
    """Reads new records of the call log; blocking, so run it in a thread."""

    def __init__(self, history: CallHistory) -> None:
        self._history = history
        self._mark: list[tuple[int, int]] | None = None
        self._last = 0

    def poll(self) -> list[CallRecord]:
        """Return the calls logged since the last poll, the oldest first.

        Raises:
            DragomanError: The log cannot be read.
        """
        mark = [_stamp(path) for path in self._files()]
        if mark == self._mark:
            # The files did not change, so the database is not opened.
            return []
        found = self._history.list(limit=KEPT)
        newest = max((one.number for one in found), default=0)
        # A new log file starts again at 1.
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


def arguments_line(arguments: Any) -> str:
    """Format arguments on one line: `a=1, b="x"`."""
    if arguments is None or arguments == {}:
        return ""
    if not isinstance(arguments, dict):
        return for_terminal(compact(arguments))
    fields: dict[str, Any] = arguments  # pyright: ignore[reportUnknownVariableType] -- it comes from JSON
    return for_terminal(", ".join(f"{key}={compact(value)}" for key, value in fields.items()))


def compact(value: Any) -> str:
    """Format a value as JSON on one line."""
    return " ".join(json.dumps(value, ensure_ascii=False, default=str).split())
