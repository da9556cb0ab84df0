"""The arguments of a row: a template with `{column}` in its texts, filled with the cells of the row.

A text that is one placeholder takes the cell with its type; an empty cell leaves the argument out. In a
longer text the cells become text. `{{name}}` is the text `{name}`. Braces around anything but a plain name,
as in JSON, are text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from dragoman.errors import BulkError
from dragoman.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Cells = Mapping[str, Any]
    Filler = Callable[[Cells], Any]

_FIELD = re.compile(r"""\{\{([^{}]*)\}\}|\{([^{}"':\n]+)\}""")
LEFT_OUT: Any = object()
"""Stands for an argument that is not sent."""


class Template:
    """Arguments with placeholders."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.columns: list[str] = []
        """The columns that the template needs."""
        self._fields = [(name, self._filler(value)) for name, value in arguments.items()]

    def fill(self, row: Cells) -> dict[str, Any]:
        """Return the arguments of a row.

        Raises:
            KeyError: The row does not have a column; its name.
        """
        found = {name: fill(row) for name, fill in self._fields}
        if LEFT_OUT in found.values():
            return {name: value for name, value in found.items() if value is not LEFT_OUT}
        return found

    def check(self, columns: Collection[str]) -> None:
        """Check that a table has the columns of all placeholders.

        Raises:
            BulkError: It does not; the message names the column and similar ones.
        """
        for name in self.columns:
            if name not in columns:
                alike = suggest(name, columns, count=1)
                hint = f"did you mean `{{{alike[0]}}}`?" if alike else f"columns: {', '.join(columns)}"
                msg = f"the table has no column `{name}`"
                raise BulkError(msg, hint=f"{hint} Write {{{{{name}}}}} for the text {{{name}}}")

    def _filler(self, value: object) -> Filler:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(cast("dict[str, Any]", value))
        if isinstance(value, list | tuple):
            return self._items(cast("Sequence[Any]", value))
        return lambda _row: value

    def _text(self, text: str) -> Filler:
        pieces: list[str] = []
        """Texts and names of columns in turn."""
        end, literal = 0, ""
        for found in _FIELD.finditer(text):
            literal += text[end : found.start()]
            end = found.end()
            if found[2] is None:
                literal += f"{{{found[1]}}}"
                continue
            pieces += [literal, found[2].strip()]
            literal = ""
        literal += text[end:]
        names = pieces[1::2]
        self.columns += [name for name in names if name not in self.columns]
        if not names:
            return lambda _row: literal
        if len(names) == 1 and not literal and not pieces[0]:
            name = names[0]

            def cell(row: Cells) -> Any:
                return LEFT_OUT if (value := row[name]) is None else value

            return cell
        texts = [*pieces[::2], literal]

        def joined(row: Cells) -> str:
            cells = ["" if (value := row[name]) is None else str(value) for name in names]
            return "".join(piece for pair in zip(texts, [*cells, ""], strict=True) for piece in pair)

        return joined

    def _object(self, value: dict[str, Any]) -> Filler:
        inner = Template(value)
        self.columns += [name for name in inner.columns if name not in self.columns]
        return inner.fill

    def _items(self, items: Sequence[Any]) -> Filler:
        fillers = [self._filler(item) for item in items]

        def filled(row: Cells) -> list[Any]:
            # A list keeps its length: an empty cell is null there.
            return [None if (value := fill(row)) is LEFT_OUT else value for fill in fillers]

        return filled
