"""The table of servers, and the line below it that says more about the chosen one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import Static

from dragoman.cli.dashboard.lists import RowTable
from dragoman.cli.dashboard.readings import note_of, read_server
from dragoman.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dragoman.model import ServerStatus
    from dragoman.observe.metrics import ServerMetrics

WIDE = 120
"""From so many columns on, there is room for what went wrong beside every server."""

_SHORT = (
    *(("server", 12), ("state", 13), ("via", 5), ("era", 6), ("tools", 5)),
    *(("latency", 8), ("p50", 7), ("run", 3), ("calls", 5), ("err", 4)),
)
_RIGHT = frozenset({"tools", "latency", "p50", "run", "calls", "err"})


class ServersTable(RowTable):
    """Every server with its state and its counts."""

    def __init__(self) -> None:
        super().__init__(_SHORT, id="servers", right=_RIGHT)

    def draw(
        self,
        statuses: Mapping[str, ServerStatus],
        metrics: Mapping[str, ServerMetrics],
        *,
        is_on: Callable[[str], bool],
        width: int,
    ) -> None:
        """Show the servers in a table of that width."""
        columns = _columns(width)
        self.set_columns(columns)
        bars = dict(columns)["latency"]
        rows: dict[str, tuple[Text, ...]] = {}
        for name, status in statuses.items():
            one = read_server(status, metrics.get(name), is_on=is_on(name), bars=bars)
            cells = {
                "server": Text(one.name, "bold"),
                "state": one.state,
                "via": Text(one.transport),
                "era": Text(one.era),
                "tools": Text(one.tools),
                "latency": Text(one.spark, "cyan"),
                "p50": Text(one.latency),
                "run": Text(one.in_flight, "bold yellow"),
                "calls": Text(one.calls),
                "err": Text(one.errors, "red"),
                "note": one.note,
            }
            rows[name] = tuple(cells[column] for column, _ in columns)
        self.show(rows)


class ServerLine(Static):
    """A line or two about the chosen server: what went wrong, what comes next, who it is."""

    def __init__(self) -> None:
        super().__init__(Text(""), id="server-line")
        self._shown = Text("")

    def draw(self, status: ServerStatus | None, *, is_on: bool, width: int, problem: str = "") -> None:
        """Say it; nothing is drawn that is on the screen already.

        Args:
            status: The chosen server; none where there is no server at all.
            is_on: Whether it is switched on.
            width: That of the screen.
            problem: Why there may be no server: what is wrong with the files.
        """
        if status is None:
            text = Text(problem or "no server is configured: `dragoman add NAME` sets one up", "yellow")
        else:
            text = Text.assemble((one_line(status.name), "bold"), "  ", note_of(status, is_on=is_on))
        text.truncate(max(10, 2 * width - 10), overflow="ellipsis")
        if text != self._shown:
            self._shown = text
            self.update(text)


def _columns(width: int) -> tuple[tuple[str, int], ...]:
    if width < WIDE:
        return _SHORT
    grown = {"server": 20, "latency": 20, "calls": 6}
    columns = tuple((name, grown.get(name, size)) for name, size in _SHORT)
    left = width - sum(size + 1 for _, size in columns) - 4
    return (*columns, ("note", max(10, left)))
