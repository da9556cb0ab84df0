"""The calls pane: a live list of calls, and the details of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from dragoman.cli.dashboard.lists import (
    RowTable,
    arguments_line,
    clock_time,
    picture,
    picture_line,
    pretty,
    took,
)
from dragoman.cli.output import one_line, safe
from dragoman.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from textual.app import ComposeResult
    from textual.widgets import DataTable

    from dragoman.events import CallFinished, CallStarted
    from dragoman.model import Part, ToolResult
    from dragoman.observe.call_history import CallHistory, CallRecord

MAX_SHOWN = 20_000
"""Characters shown of a result."""
MAX_PICTURES = 4
SHORT = 200
"""Arguments up to this length are shown on one line, longer ones as JSON."""
NARROW = 90


class CallsPane(Vertical):
    """The calls, the newest at the bottom, and the details of the call at the cursor."""

    def __init__(self, *, time_of: Callable[[float], str] = clock_time) -> None:
        super().__init__(id="calls", classes="pane")
        self._time_of = time_of
        self._entries: dict[str, CallEntry] = {}
        self._detailed: tuple[str, int] | None = None

    def compose(self) -> ComposeResult:
        """Create the table and the details."""
        yield RowTable(_columns(80), id="call-list", right={"took"})
        with VerticalScroll(id="call-detail"):
            yield Static(Text(""), id="call-text")

    def draw(self, entries: Sequence[CallEntry], *, width: int) -> None:
        """Show these calls in a pane of this width."""
        table = self.query_one("#call-list", RowTable)
        columns = _columns(width)
        table.set_columns(columns)
        self._entries = {entry.call_id: entry for entry in entries}
        table.show({key: self._row(entry, columns) for key, entry in self._entries.items()}, follow=True)
        self._detail()

    def choose(self, call_id: str) -> None:
        """Move the cursor to a call."""
        table = self.query_one("#call-list", RowTable)
        if call_id in table.keys:
            table.move_cursor(row=table.keys.index(call_id), animate=False)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the details of the call at the cursor."""
        event.stop()
        self._detail()

    def _row(self, entry: CallEntry, columns: Sequence[tuple[str, int]]) -> tuple[Text, ...]:
        style = "yellow" if entry.duration is None else "red" if entry.error_code else "green"
        cells = {
            "time": Text(self._time_of(entry.at), "dim"),
            "server": Text(one_line(entry.server) or "built in"),
            "tool": Text(one_line(entry.tool), "cyan"),
            "arguments": Text(entry.arguments),
            "took": Text(entry.timing),
            "outcome": Text(entry.outcome, style),
        }
        return tuple(cells[name] for name, _ in columns)

    def _detail(self) -> None:
        entry = self._entries.get(self.query_one("#call-list", RowTable).current or "")
        mark = (entry.call_id, entry.version) if entry else ("", -1)
        if mark == self._detailed:
            return
        moved = self._detailed is None or self._detailed[0] != mark[0]
        self._detailed = mark
        text = Text("No calls yet. Press Enter on a tool, or use /call.", "dim")
        self.query_one("#call-text", Static).update(text if entry is None else details(entry, self._time_of))
        scroll = self.query_one("#call-detail", VerticalScroll)
        scroll.query(".picture").remove()
        images = [part for part in entry.parts if part.kind == "image"] if entry else []
        scroll.mount_all(widget for part in images[:MAX_PICTURES] if (widget := picture(part)) is not None)
        if moved:
            scroll.scroll_home(animate=False)


def details(entry: CallEntry, time_of: Callable[[float], str] = clock_time) -> Text:
    """Return the details of a call."""
    text = Text(one_line(entry.tool), "bold cyan")
    style = "yellow" if entry.duration is None else "red" if entry.error_code else "green"
    took_it = "" if entry.duration is None else f" in {took(entry.duration)}"
    where = "this program" if entry.is_here else "another program"
    text = Text.assemble(
        text,
        "  ",
        (f"{entry.outcome}{took_it}", style),
        (f"  {time_of(entry.at)}, by {where}, {one_line(entry.call_id)}\n", "dim"),
    )
    record = entry.record
    if record is None:
        return text
    text.append("arguments  ", "bold")
    short = arguments_line(record.arguments)
    text.append(f"{short if len(short) <= SHORT else pretty(record.arguments)}\n")
    if record.missing:
        places = ", ".join(f"{one_line(place)} ({why})" for place, why in list(record.missing.items())[:5])
        text.append(f"omitted    {places}\n", "dim")
    text.append("result\n", "bold")
    shown = safe(record.result[:MAX_SHOWN])
    text.append(f"{shown}\n", "red" if entry.error_code else "")
    if record.result_chars > len(record.result[:MAX_SHOWN]):
        text.append(f"… {record.result_chars} characters in total\n", "dim")
    for part in entry.parts:
        if part.kind == "image":
            text.append(f"{picture_line(part)}\n", "magenta")
    return text


def _columns(width: int) -> tuple[tuple[str, int], ...]:
    """Return the columns for a pane of this width; a narrow one has no column for the server."""
    server = () if width < NARROW else (("server", 14),)
    tool = 26 if width < NARROW else 32
    before, after = (("time", 8), *server, ("tool", tool)), (("took", 7), ("outcome", 11))
    taken = sum(size + 1 for _, size in (*before, *after))
    return (*before, ("arguments", max(8, width - taken - 4)), *after)


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
        return one_line(self.error_code) or "ok"

    @property
    def arguments(self) -> str:
        """The arguments, on one line."""
        return arguments_line(self.record.arguments) if self.record else ""

    @property
    def result(self) -> str:
        """The start of the result, on one line."""
        return one_line(self.record.result[:1000]) if self.record else ""

    @property
    def timing(self) -> str:
        """The duration as text."""
        return "…" if self.duration is None else took(self.duration)

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
