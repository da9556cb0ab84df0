"""Tables and panes of the dashboard: servers, logs, tools, resources, prompts and images."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import DataTable, Log, Static

from dragoman.cli.arguments import pieces, properties_of, required_of, resolved, type_name
from dragoman.cli.output import NO_SERVERS, one_line, safe
from dragoman.cli.tables import in_session
from dragoman.diagnosis.fleet import count_fleet, read_broken, read_server
from dragoman.struct import Struct
from dragoman.tools.result.render import image_size, image_type

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.widget import Widget

    from dragoman.diagnosis.fleet import FleetRow
    from dragoman.model import Part, Prompt, Resource, ServerSpec, ServerStatus, Settings, ToolDef
    from dragoman.observe.metrics import ServerMetrics

Row = tuple[Text, ...]


class RowTable(DataTable[Text]):
    """A table with a row cursor; rows have keys, and only changed cells are redrawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("home,g", "scroll_top", show=False),
        Binding("end,G", "scroll_bottom", show=False),
    ]

    def __init__(
        self,
        columns: Sequence[tuple[str, int]],
        *,
        id: str,  # noqa: A002 -- Textual's name
        right: Collection[str] = (),
    ) -> None:
        """Create an empty table.

        Args:
            columns: Names and widths.
            id: The id of the widget.
            right: The columns that are aligned right.
        """
        super().__init__(id=id, cursor_type="row", cell_padding=0, cursor_foreground_priority="renderable")
        self._column_specs = tuple(columns)
        self._right = right
        self._rows_shown: dict[str, Row] = {}

    def on_mount(self) -> None:
        """Create the columns."""
        self._make_columns()

    @property
    def keys(self) -> list[str]:
        """The keys of the rows, from top to bottom."""
        return list(self._rows_shown)

    @property
    def current(self) -> str | None:
        """The key of the row at the cursor."""
        keys = self.keys
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else None

    def set_columns(self, columns: Sequence[tuple[str, int]]) -> None:
        """Change the columns; the rows must be shown again."""
        if tuple(columns) == self._column_specs:
            return
        self._column_specs = tuple(columns)
        self.clear(columns=True)
        self._rows_shown = {}
        self._make_columns()

    def show(self, rows: Mapping[str, Row], *, follow: bool = False) -> None:
        """Show these rows in this order.

        Args:
            rows: By key.
            follow: Whether a cursor in the last row stays there when rows are added.
        """
        at, current = self.cursor_row, self.current
        at_end = at >= self.row_count - 1
        known = list(self._rows_shown)
        if known != list(rows)[: len(known)]:
            self.clear()
            self._rows_shown = {}
        for key, row in rows.items():
            self._show_row(key, row)
        if current is None and not rows:
            return
        if follow and at_end:
            self._go_to(self.row_count - 1)
        elif not known or current in rows:
            self._go_to(list(rows).index(current) if current is not None and current in rows else 0)
        elif self.row_count:
            self._go_to(min(at, self.row_count - 1))

    def _show_row(self, key: str, row: Row) -> None:
        row = tuple(self._fitted(cell, *column) for cell, column in zip(row, self._column_specs, strict=True))
        shown = self._rows_shown.get(key)
        if shown is None:
            self.add_row(*row, key=key)
        else:
            for (name, _), old, new in zip(self._column_specs, shown, row, strict=True):
                if old != new:
                    self.update_cell(key, name, new)
        self._rows_shown[key] = row

    def _make_columns(self) -> None:
        for name, width in self._column_specs:
            self.add_column(self._fitted(Text(name), name, width), key=name, width=width + 1)

    def _go_to(self, row: int) -> None:
        if row != self.cursor_row:
            self.move_cursor(row=row, animate=False)

    def _fitted(self, cell: Text, column: str, width: int) -> Text:
        """Cut a cell to the width of its column."""
        if cell.cell_len > width:
            cell = cell.copy()
            cell.truncate(width, overflow="ellipsis")
        if column in self._right and cell.cell_len < width:
            return Text.assemble(" " * (width - cell.cell_len), cell)
        return cell


BARS = "▁▂▃▄▅▆▇█"

# The mark and the word say the same as the color.
_STATES = {
    "idle": ("○", "dim"),
    "connecting": ("◐", "yellow"),
    "ready": ("●", "green"),
    "degraded": ("◑", "yellow"),
    "backoff": ("◌", "yellow"),
    "needs_auth": ("◉", "magenta"),
    "failed": ("✗", "red"),
    "closed": ("○", "dim"),
    "off": ("○", "dim"),
    "broken": ("✗", "red"),
}


def server_cells(row: FleetRow, *, bars: int = 10) -> dict[str, Text]:
    """Return the cells of one server, without escape codes."""
    # The column is as wide as `not started`.
    word = "unapproved" if row.word == "not approved" else row.word
    mark, style = _STATES[row.state]
    return {
        "server": Text(one_line(row.name), "bold"),
        "state": Text(f"{mark} {word}", style),
        "via": Text(row.transport),
        "protocol": Text(row.protocol),
        "tools": Text(str(row.tools or "")),
        "latency": Text(spark(row.recent, bars), "cyan"),
        "p50": Text("" if row.p50 is None else took(row.p50)),
        "run": Text(str(row.in_flight or ""), "bold yellow"),
        "calls": Text(str(row.calls or "")),
        "err": Text(str(row.failed or ""), "red"),
        "note": note_of(row),
    }


def note_of(row: FleetRow) -> Text:
    """Return the cause and the next step, or the name and version of the server."""
    if not row.is_on:
        return Text("disabled (press e to enable)", "dim")
    pieces: list[tuple[str, str]] = []
    if row.cause:
        step = "press l" if row.next_step.startswith("dragoman login ") else in_session(row.next_step)
        pieces.append((one_line(f"{row.cause} → {step}"), "red"))
    if row.retry_in is not None:
        often = " (failed repeatedly)" if row.crash_loop else ""
        pieces.append((f"retrying in {took(row.retry_in, coarse=True)}{often}", "yellow"))
    if not pieces:
        pieces.append((one_line(row.server_label), "dim"))
        if row.pid is not None:
            pieces.append((f"pid {row.pid}", "dim"))
        if row.sandbox:
            pieces.append((f"sandbox {row.sandbox}", "dim"))
    return Text(" · ").join(Text(text, style) for text, style in pieces if text)


def spark(durations: Sequence[float], bars: int) -> str:
    """Return a sparkline of the latest durations, the newest on the right."""
    shown = durations[-bars:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(len(BARS) - 1, int(one / top * len(BARS)))] for one in shown)


def took(seconds: float, *, coarse: bool = False) -> str:
    """Format a duration in at most seven columns; `coarse` omits fractions of a second."""
    if coarse:
        return f"{max(0, round(seconds))} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    if seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"


def clock_time(at: float) -> str:
    """Format a time as the local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def pretty(value: Any) -> str:
    """Format a value as indented JSON, without escape codes."""
    return safe(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def summary(statuses: Iterable[ServerStatus], metrics: Mapping[str, ServerMetrics]) -> str:
    """Return a one-line summary of servers and calls."""
    one = count_fleet(statuses, metrics)
    return " · ".join(
        (
            f"{one.ready} of {one.servers} server{'s' * (one.servers != 1)} ready",
            f"{one.running} running",
            f"{one.calls} call{'s' * (one.calls != 1)}",
            f"{one.failed} failed",
        )
    )


WIDE = 120
"""From this width on, the table has columns for the protocol and for errors."""

_SHORT = (
    *(("server", 12), ("state", 13), ("via", 5), ("tools", 5)),
    *(("latency", 8), ("p50", 7), ("run", 3), ("calls", 5), ("err", 4)),
)
_AT_PROTOCOL = 3
"""Where a wide table has the protocol, after what the server is reached by."""
_RIGHT = frozenset({"tools", "latency", "p50", "run", "calls", "err"})


class ServersTable(RowTable):
    """All servers with their state and statistics."""

    def __init__(self) -> None:
        super().__init__(_SHORT, id="servers", right=_RIGHT)

    def draw(
        self,
        statuses: Mapping[str, ServerStatus],
        metrics: Mapping[str, ServerMetrics],
        *,
        is_on: Callable[[str], bool],
        width: int,
        settings: Settings | None = None,
    ) -> None:
        """Show the servers, and the broken entries of the configuration, in a table of this width."""
        columns = _columns(width)
        self.set_columns(columns)
        bars = dict(columns)["latency"]
        read = [
            read_server(
                status,
                metrics.get(name),
                spec=settings.server(name) if settings is not None else None,
                is_on=is_on(name),
            )
            for name, status in statuses.items()
        ]
        rows: dict[str, tuple[Text, ...]] = {}
        for one in [*read, *(read_broken(settings) if settings is not None else ())]:
            cells = server_cells(one, bars=bars)
            rows[one.name] = tuple(cells[column] for column, _ in columns)
        self.show(rows)


class ServerLine(Static):
    """One or two lines about the chosen server."""

    def __init__(self) -> None:
        super().__init__(Text(""), id="server-line")
        self._shown = Text("")

    def draw(
        self,
        status: ServerStatus | None,
        *,
        is_on: bool,
        width: int,
        problem: str = "",
        spec: ServerSpec | None = None,
    ) -> None:
        """Update the text if it changed.

        Args:
            status: The chosen server; None without servers, or for a broken entry.
            is_on: Whether it is enabled.
            width: The width of the screen.
            problem: A problem in the configuration, shown without a status.
            spec: The chosen server's configuration.
        """
        if status is None:
            text = Text(problem or NO_SERVERS, "yellow")
        else:
            row = read_server(status, spec=spec, is_on=is_on)
            text = Text.assemble((one_line(status.name), "bold"), "  ", note_of(row))
        text.truncate(max(10, 2 * width - 10), overflow="ellipsis")
        if text != self._shown:
            self._shown = text
            self.update(text)


def _columns(width: int) -> tuple[tuple[str, int], ...]:
    if width < WIDE:
        return _SHORT
    grown = {"server": 20, "latency": 20, "calls": 6}
    columns = tuple((name, grown.get(name, size)) for name, size in _SHORT)
    columns = (*columns[:_AT_PROTOCOL], ("protocol", 10), *columns[_AT_PROTOCOL:])
    left = width - sum(size + 1 for _, size in columns) - 4
    return (*columns, ("note", max(10, left)))


KEPT = 2000
"""Lines to keep for scrolling back."""


class LogsPane(Log):
    """The last lines; new lines are followed unless the user scrolls up."""

    def __init__(self) -> None:
        super().__init__(id="logs", classes="pane", max_lines=KEPT, auto_scroll=True)
        self._about: tuple[str, str] = ("", "")
        self._seen: list[str] = []

    def draw(self, server: str, lines: Sequence[str], *, words: str = "", empty: str = "") -> None:
        """Append new lines.

        Args:
            server: The server; lines of another server are cleared.
            lines: The last lines, the newest last.
            words: Show only lines that contain this text.
            empty: Shown if there are no lines.
        """
        searched = words.casefold()
        shown = [safe(line) for line in lines if searched in line.casefold()] or [empty]
        known = self._seen if self._about == (server, words) else []
        new = added(known, shown)
        if new is None or self._about != (server, words):
            self.clear()
            new = shown
        self._about, self._seen = (server, words), shown
        if new:
            self.write_lines(new)


def added(before: Sequence[str], now: Sequence[str]) -> list[str] | None:
    """Return the lines added since `before`, whose start may be missing now; None if they do not overlap."""
    if not before:
        return list(now)
    for size in range(min(len(before), len(now)), 0, -1):
        if before[-size:] == now[:size]:
            return list(now[size:])
    return None


class OfferRow(Struct):
    """A tool, resource or prompt of a server."""

    kind: Literal["tool", "resource", "prompt"]
    name: str
    """The exposed name of a tool, the URI of a resource, or the name of a prompt."""
    label: str
    item: ToolDef | Resource | Prompt

    @property
    def key(self) -> str:
        """A unique key."""
        return f"{self.kind} {self.name}"

    def matches(self, words: str) -> bool:
        """Return whether its name contains the text."""
        return words.casefold() in f"{self.kind} {self.label}".casefold()


def offers_of(
    tools: Iterable[ToolDef], resources: Iterable[Resource] = (), prompts: Iterable[Prompt] = ()
) -> list[OfferRow]:
    """Return the tools, resources and prompts of a server as one list."""
    return [
        *(OfferRow("tool", tool.name, one_line(tool.own_name), tool) for tool in tools),
        *(OfferRow("resource", one.uri, one_line(one.uri), one) for one in resources),
        *(OfferRow("prompt", one.name, one_line(one.name), one) for one in prompts),
    ]


class OffersPane(Horizontal):
    """A list, and the details of the item at the cursor."""

    @dataclass
    class Chosen(Message):
        """The user pressed Enter on an item."""

        offer: OfferRow

    def __init__(self) -> None:
        super().__init__(id="offers", classes="pane")
        self._offers: dict[str, OfferRow] = {}
        self._described: OfferRow | None = None

    def compose(self) -> ComposeResult:
        """Create the list and the details."""
        yield RowTable(_offer_columns(80), id="offer-list")
        with VerticalScroll(id="offer-detail"):
            yield Static(Text(""), id="offer-text")

    @property
    def current(self) -> OfferRow | None:
        """The item at the cursor."""
        return self._offers.get(self.query_one("#offer-list", RowTable).current or "")

    def draw(
        self, offers: Sequence[OfferRow], *, words: str = "", found: Sequence[str] = (), width: int
    ) -> None:
        """Show the items that contain the words, or else the tools that were found; fit the width."""
        self._offers = {one.key: one for one in offers if one.matches(words)}
        if not self._offers and found:
            tools = {one.name: one for one in offers if one.kind == "tool"}
            self._offers = {tools[name].key: tools[name] for name in found if name in tools}
        rows = {key: (Text(one.kind, "dim"), Text(one.label)) for key, one in self._offers.items()}
        table = self.query_one("#offer-list", RowTable)
        table.set_columns(_offer_columns(width))
        table.show(rows)
        self._describe()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the details of the item at the cursor."""
        event.stop()
        self._describe()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Post a message that an item was chosen."""
        event.stop()
        if (offer := self.current) is not None:
            self.post_message(self.Chosen(offer))

    def _describe(self) -> None:
        offer = self.current
        if offer is not None and offer == self._described:
            return
        self._described = offer
        text = Text("No tools, resources or prompts.", "dim") if offer is None else details(offer)
        self.query_one("#offer-text", Static).update(text)
        self.query_one("#offer-detail", VerticalScroll).scroll_home(animate=False)


def details(offer: OfferRow) -> Text:
    """Return the details of an item: signature, description, arguments, schema."""
    match offer.kind:
        case "tool":
            return _tool(offer.item)  # pyright: ignore[reportArgumentType] -- the kind says it
        case "resource":
            return _resource(offer.item)  # pyright: ignore[reportArgumentType] -- the kind says it
        case "prompt":
            return _prompt(offer.item)  # pyright: ignore[reportArgumentType] -- the kind says it


def _tool(tool: ToolDef) -> Text:
    styles = {"name": "bold cyan", "type": "dim"}
    text = Text.assemble(*((piece, styles.get(kind, "")) for piece, kind in pieces(tool, tool.name)))
    text.append(f"\n\n{safe(tool.description.strip())}\n")
    schema = tool.input_schema
    required = required_of(schema)
    properties = properties_of(schema)
    if properties:
        text.append("\narguments\n", "bold")
    for name in sorted(properties, key=lambda name: name not in required):
        text.append(f"  {one_line(name)}", "cyan")
        text.append(f": {type_name(properties[name], schema)}", "dim")
        text.append(" (required)" if name in required else "", "yellow")
        about = _described(resolved(properties[name], schema))
        text.append(f"  {about}\n" if about else "\n")
    hints = ", ".join(one_line(str(key)) for key, value in tool.annotations.items() if value is True)
    if hints:
        text.append("\nannotations\n", "bold")
        text.append(f"  {hints}\n", "dim")
    text.append("\ninput schema\n", "bold")
    text.append(pretty(schema), "dim")
    if tool.output_schema is not None:
        text.append("\n\noutput schema\n", "bold")
        text.append(pretty(tool.output_schema), "dim")
    return text


def _resource(resource: Resource) -> Text:
    kind = "template" if resource.is_template else "resource"
    facts = {"name": resource.title or resource.name, "type": resource.mime_type, "kind": kind}
    return _facts(resource.uri, resource.description, facts)


def _prompt(prompt: Prompt) -> Text:
    text = _facts(prompt.name, prompt.description, {"title": prompt.title, "kind": "prompt"})
    if prompt.arguments:
        text.append("\narguments\n", "bold")
    for argument in prompt.arguments:
        text.append(f"  {one_line(str(argument.get('name', '')))}", "cyan")
        text.append(" (required)" if argument.get("required") else "", "yellow")
        text.append(f"  {one_line(str(argument.get('description') or ''))}\n")
    return text


def _facts(name: str, description: str, facts: Mapping[str, str]) -> Text:
    text = Text(one_line(name), "bold cyan")
    text = Text.assemble(text, "\n")
    if description.strip():
        text.append(f"\n{safe(description.strip())}\n")
    text.append("\n")
    for key, value in facts.items():
        if value:
            text.append(f"  {key}: ", "dim")
            text.append(f"{one_line(value)}\n")
    return text


def _described(schema: Any) -> str:
    text = schema.get("description") if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] -- it comes from a server
    return one_line(text) if isinstance(text, str) else ""


def _offer_columns(width: int) -> tuple[tuple[str, int], ...]:
    # The list uses two fifths of the pane, the details the rest.
    return ("kind", 8), ("name", max(8, width * 2 // 5 - 13))


MAX_PIXELS = 4_000_000
"""Larger images are not decoded: a small file may claim a huge size."""
MAX_ROWS = 16

_kind: list[Any] = []
"""The image widget of the library, after `prepare`."""


def prepare() -> bool:
    """Import the library; return whether images can be shown."""
    if not _kind:
        try:
            _kind.append(importlib.import_module("textual_image.widget").Image)
        except ImportError:
            return False
    return True


def picture(part: Part) -> Widget | None:
    """Return a widget that shows an image; None if that is not possible."""
    if not _kind or not 0 < _pixels(part.data) <= MAX_PIXELS:
        return None
    try:
        widget: Widget = _kind[0](BytesIO(part.data), classes="picture")
    except (OSError, ValueError, SyntaxError):  # raised by the decoder for a broken image
        return None
    return widget


def picture_line(part: Part) -> str:
    """Return a text in place of an image: `[image 640×480 png]`."""
    kind = (image_type(part.data) or part.mime_type).rpartition("/")[2]
    size = image_size(part.data).replace("x", "×")
    return f"[{' '.join(word for word in ('image', size, one_line(kind)) if word)}]"


def _pixels(data: bytes) -> int:
    width, _, height = image_size(data).partition("x")
    return int(width) * int(height) if width and height else 0
