"""A table of rows that stay where they are: only what changed is drawn again, so that nothing blinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Row = tuple[Text, ...]


class RowTable(DataTable[Text]):
    """A table with a cursor for rows, each known by a key; Textual draws those that are in sight only."""

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
        """Make an empty table.

        Args:
            columns: Their names and widths.
            id: The widget's id.
            right: The columns that stand at the right of their width.
        """
        super().__init__(id=id, cursor_type="row", cell_padding=0, cursor_foreground_priority="renderable")
        self._wanted = tuple(columns)
        self._right = right
        self._rows_shown: dict[str, Row] = {}

    def on_mount(self) -> None:
        """Make the columns."""
        self._make_columns()

    @property
    def keys(self) -> list[str]:
        """The keys of the rows, from top to bottom."""
        return list(self._rows_shown)

    @property
    def current(self) -> str | None:
        """The key of the row that the cursor is in."""
        keys = self.keys
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else None

    def set_columns(self, columns: Sequence[tuple[str, int]]) -> None:
        """Have other columns from now on; the rows have to be shown again."""
        if tuple(columns) == self._wanted:
            return
        self._wanted = tuple(columns)
        self.clear(columns=True)
        self._rows_shown = {}
        self._make_columns()

    def show(self, rows: Mapping[str, Row], *, follow: bool = False) -> None:
        """Show these rows in this order.

        Args:
            rows: By key.
            follow: Whether a cursor in the last row stays in the last row when rows are added.
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
        row = tuple(self._fitted(cell, *column) for cell, column in zip(row, self._wanted, strict=True))
        shown = self._rows_shown.get(key)
        if shown is None:
            self.add_row(*row, key=key)
        else:
            for (name, _), old, new in zip(self._wanted, shown, row, strict=True):
                if old != new:
                    self.update_cell(key, name, new)
        self._rows_shown[key] = row

    def _make_columns(self) -> None:
        for name, width in self._wanted:
            self.add_column(self._fitted(Text(name), name, width), key=name, width=width + 1)

    def _go_to(self, row: int) -> None:
        if row != self.cursor_row:
            self.move_cursor(row=row, animate=False)

    def _fitted(self, cell: Text, column: str, width: int) -> Text:
        """Cut a cell to its column, so that a long text never pushes another aside."""
        if cell.cell_len > width:
            cell = cell.copy()
            cell.truncate(width, overflow="ellipsis")
        if column in self._right and cell.cell_len < width:
            return Text.assemble(" " * (width - cell.cell_len), cell)
        return cell
