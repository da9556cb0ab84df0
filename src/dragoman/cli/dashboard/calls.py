"""The calls pane: a live list of calls, and the details of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.containers import Vertical, VerticalScroll
from textual.widgets import Static

from dragoman.cli.dashboard.lists import (
    RowTable,
    clock_time,
    picture,
    picture_line,
    pretty,
    took,
)
from dragoman.cli.output import one_line, safe
from dragoman.observe.call_stream import arguments_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.widgets import DataTable

    from dragoman.observe.call_stream import CallEntry

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
            "took": Text("…" if entry.duration is None else took(entry.duration)),
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
