"""Tables on disk: rows of CSV, Excel and JSON Lines files, read and written as a stream.

Rows are numbered from 1 without the header; empty rows do not count. An empty cell is `None`. A row that
cannot be read is a `BadRow` instead of cells, so that the others can be used. Cells that come from a server
are written as text: a spreadsheet never takes one for a formula.
"""

from __future__ import annotations

import csv
import json
import os
import re
from contextlib import closing, suppress
from datetime import date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from dragoman.errors import BulkError
from dragoman.visible import HARMFUL

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from dragoman.bulk.outcomes import RowOutcome

FORMATS = ("csv", "tsv", "xlsx", "jsonl")
MAX_CELL_CHARS = 32_767
"""Excel's limit for one cell."""
MAX_SHEET_ROWS = 1_048_576
CUT = "… [cut]"
MAX_LINE_BYTES = 64 << 20
_DELIMITERS = ",;\t"
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?%?")
_SEPARATOR = r"[,;|\t\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]"
_FORMULA = re.compile(
    rf'^(?=[\t\r])|(?:^|(?<={_SEPARATOR}))(?:(?!{_SEPARATOR})(?:[\s"]|{HARMFUL}))*+(?=[=+\-@＝＋－＠])'
)
"""Where a formula may begin: at the start of a cell, and behind every character that separates cells or rows.

In many countries spreadsheets separate at `;`; they ignore the quotes of a line that we separate at `,`. Some
ignore blanks and invisible characters before a formula.
"""
_NUMBER_CELL = re.compile(rf"{_NUMBER.pattern} *(?:[;|\t\r\n]|$)")
_ILLEGAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
"""Characters that the XML of a workbook cannot hold."""


class BadRow(NamedTuple):
    """A row that cannot be read, and why."""

    problem: str


Row: TypeAlias = "Mapping[str, Any] | BadRow"


class Table:
    """A table in a file; every iteration reads the file from its beginning."""

    def __init__(
        self, path: str | os.PathLike[str], *, sheet: str | None = None, encoding: str = "utf-8-sig"
    ) -> None:
        """Name a table; nothing is read yet.

        Args:
            path: The file; its name ends in `.csv`, `.tsv`, `.xlsx` or `.jsonl`.
            sheet: The sheet of a workbook; the active one unless given.
            encoding: Of a text file.

        Raises:
            BulkError: The name has another ending.
        """
        self.path = Path(path)
        self.kind = format_of(self.path)
        self._sheet = sheet
        self._encoding = encoding

    def columns(self) -> list[str]:
        """Return the names of the columns; of JSON Lines all keys, in the order in which they appear."""
        if self.kind == "jsonl":
            found: dict[str, None] = {}
            for row in self:
                if not isinstance(row, BadRow):
                    found.update(dict.fromkeys(row))
            return list(found)
        with closing(self._records()) as records:
            return next(records)

    def __iter__(self) -> Iterator[Row]:
        if self.kind == "jsonl":
            yield from self._objects()
            return
        with closing(self._records()) as records:
            columns = next(records)
            width = len(columns)
            for cells in records:
                if len(cells) == width:
                    yield dict(zip(columns, cells, strict=True))
                elif len(cells) < width:
                    yield dict(zip(columns, [*cells, *[None] * (width - len(cells))], strict=True))
                else:
                    yield BadRow(f"the row has {len(cells)} cells, but the table has {width} columns")

    def _records(self) -> Generator[list[Any]]:
        """Return the header, then the cells of each row that is not empty."""
        raw = self._sheet_rows() if self.kind == "xlsx" else self._lines()
        with closing(raw):
            header = next(raw, None)
            if header is None:
                msg = f"{self.path} is empty"
                raise BulkError(msg, hint="the first row must name the columns")
            yield self._header(header)
            for cells in raw:
                if any(cell is not None for cell in cells):
                    yield cells

    def _header(self, cells: Sequence[Any]) -> list[str]:
        names = ["" if cell is None else str(cell).strip() for cell in cells]
        while names and not names[-1]:
            names.pop()
        for at, name in enumerate(names, 1):
            if not name or names.count(name) > 1:
                problem = f"two columns are called `{name}`" if name else f"column {at} has no name"
                msg = f"{self.path}: {problem}"
                raise BulkError(msg, hint="the first row must name each column once")
        if not names:
            msg = f"{self.path} has no columns"
            raise BulkError(msg, hint="the first row must name the columns")
        return names

    def _lines(self) -> Generator[list[Any]]:
        try:
            with self._open(newline="") as file:
                first = file.readline(MAX_LINE_BYTES)
                file.seek(0)
                delimiter = "\t" if self.kind == "tsv" else max(_DELIMITERS, key=first.count)
                for cells in csv.reader(file, delimiter=delimiter, strict=True):
                    while cells and not cells[-1]:
                        cells.pop()
                    yield [cell or None for cell in cells]
        except csv.Error as exc:
            msg = f"{self.path} is not a valid CSV file: {exc}"
            raise BulkError(msg, hint="check its quotes") from exc
        except UnicodeError as exc:
            raise self._not_text(exc) from exc

    def _objects(self) -> Generator[Row]:
        try:
            with self._open() as file:
                while line := file.readline(MAX_LINE_BYTES):
                    if line.strip():
                        yield _object(line)
        except UnicodeError as exc:
            raise self._not_text(exc) from exc

    def _not_text(self, exc: UnicodeError) -> BulkError:
        msg = f"{self.path} is not {self._encoding.removesuffix('-sig')} text: {exc}"
        return BulkError(msg, hint="save it as UTF-8, or name its encoding, e.g. gb18030")

    def _open(self, newline: str | None = None) -> Any:
        try:
            return self.path.open("r", encoding=self._encoding, newline=newline)
        except OSError as exc:
            msg = f"{self.path} cannot be read: {exc.strerror}"
            raise BulkError(msg) from exc
        except LookupError as exc:
            msg = f"unknown encoding `{self._encoding}`"
            raise BulkError(msg, hint="for example utf-8, gb18030 or cp1252") from exc

    def _sheet_rows(self) -> Generator[list[Any]]:
        openpyxl = load_openpyxl()
        try:
            # Read-only: rows come from the file one by one. `data_only`: the values of formulas.
            book = openpyxl.load_workbook(self.path, read_only=True, data_only=True)
        except OSError as exc:
            msg = f"{self.path} cannot be read: {exc.strerror or exc}"
            raise BulkError(msg) from exc
        except Exception as exc:  # a broken file makes openpyxl raise errors of many kinds
            msg = f"{self.path} is not an Excel workbook (.xlsx): {exc}"
            raise BulkError(msg, hint="open it in a spreadsheet program and save it again") from exc
        try:
            if self._sheet is not None and self._sheet not in book.sheetnames:
                msg = f"{self.path} has no sheet `{self._sheet}`"
                raise BulkError(msg, hint=f"its sheets: {', '.join(book.sheetnames)}")
            sheet = book[self._sheet] if self._sheet is not None else book.active
            for cells in sheet.iter_rows(values_only=True):
                found = [_cell(cell) for cell in cells]
                while found and found[-1] is None:
                    found.pop()
                yield found
        finally:
            book.close()


def _object(line: str) -> Row:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError) as exc:
        return BadRow(f"the line is not valid JSON: {exc}")
    if not isinstance(found, dict):
        return BadRow(f"the line is {type(found).__name__}, not a JSON object")
    return cast("dict[str, Any]", found)


def _cell(value: object) -> Any:
    """Return the value of a cell as JSON."""
    if isinstance(value, float) and value.is_integer():
        return int(value)  # Excel has no integers
    if isinstance(value, datetime):
        is_day = value.time() == time()
        return value.date().isoformat() if is_day else value.isoformat(sep=" ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return None if value == "" else value


def format_of(path: Path) -> str:
    """Return the format of a table by its name.

    Raises:
        BulkError: The name has no known ending.
    """
    ending = path.suffix.lower().removeprefix(".")
    ending = {"ndjson": "jsonl", "xlsm": "xlsx"}.get(ending, ending)
    if ending not in FORMATS:
        known = ", ".join(f".{one}" for one in FORMATS)
        msg = f"`{path.name}` is not a table: its name ends in none of {known}"
        hint = "save it as .xlsx" if ending == "xls" else "rename it, or convert it"
        raise BulkError(msg, hint=hint)
    return ending


def load_openpyxl() -> Any:
    """Import openpyxl, which reads and writes workbooks.

    Raises:
        BulkError: It is not installed.
    """
    from importlib import import_module

    try:
        return import_module("openpyxl")
    except ModuleNotFoundError as exc:
        msg = "Excel files need the package `openpyxl`"
        raise BulkError(msg, hint="install `dragoman[xlsx]`, or use .csv or .jsonl") from exc


OUTCOME_COLUMNS = ("outcome", "result", "error", "sources", "seconds")


def write_results(path: Path, table: Table, outcomes: Iterable[RowOutcome | None]) -> None:
    """Write the rows of a table with their outcomes; the file is replaced as a whole.

    Args:
        path: The new file.
        table: The rows.
        outcomes: One for each row, in order; missing ones are open.

    Raises:
        BulkError: It cannot be written.
    """
    kind = format_of(path)
    new = path.with_name(f".{os.urandom(8).hex()}{path.suffix}")
    try:
        if kind == "jsonl":
            _write_jsonl(new, table, iter(outcomes))
        else:
            columns = table.columns()
            names = [_free(name, columns) for name in OUTCOME_COLUMNS]
            records = _records(table, columns, iter(outcomes))
            write = _write_xlsx if kind == "xlsx" else _write_csv
            write(new, [*columns, *names], records)
        new.replace(path)
    except OSError as exc:
        msg = f"{path} cannot be written: {exc.strerror}"
        raise BulkError(msg, hint="the journal has every outcome; run it again to write the table") from exc
    finally:
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _free(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else _free(f"call {name}", taken)


def _records(
    table: Table, columns: Sequence[str], outcomes: Iterator[RowOutcome | None]
) -> Iterator[list[Any]]:
    """Return the cells of each row, its outcome included."""
    for row in table:
        cells = [row.get(name) for name in columns] if not isinstance(row, BadRow) else [None] * len(columns)
        yield [*cells, *_outcome_cells(next(outcomes, None))]


def _outcome_cells(outcome: RowOutcome | None) -> list[Any]:
    if outcome is None:
        return ["open", None, None, None, None]
    sources = "; ".join(
        " ".join(
            part for part in (one.title, one.locator, one.updated and f"({one.updated})", one.url) if part
        )
        for one in outcome.sources
    )
    text = outcome.text if outcome.status == "ok" else None
    return [outcome.status, text, outcome.error or None, sources or None, round(outcome.seconds, 3)]


def _plain(value: object) -> Any:
    """Return a cell as a number, a text or `None`."""
    if value is None or isinstance(value, int | float | str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _write_csv(path: Path, header: list[str], records: Iterator[list[Any]]) -> None:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    # With a byte order mark, Excel reads the file as UTF-8.
    given = len(header) - len(OUTCOME_COLUMNS)
    with path.open("w", encoding="utf-8-sig", newline="", errors="backslashreplace") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(header)
        for cells in records:
            plain = [_plain(cell) for cell in cells]
            writer.writerow(plain[:given] + [_not_formula(cell) for cell in plain[given:]])


def _not_formula(cell: Any) -> Any:
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    return _FORMULA.sub(_as_text, cell)


def _as_text(found: re.Match[str]) -> str:
    """Return the start of a possible formula with an apostrophe; a number among others stays as it is."""
    is_number = found.start() > 0 and _NUMBER_CELL.match(found.string, found.end())
    return found[0] if is_number else f"{found[0]}'"


def _write_xlsx(path: Path, header: list[str], records: Iterator[list[Any]]) -> None:
    openpyxl = load_openpyxl()
    cell_type = openpyxl.cell.WriteOnlyCell
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("results")
    sheet.freeze_panes = "A2"

    def cell(value: Any) -> Any:
        value = _plain(value)
        if not isinstance(value, str):
            return value
        text = _ILLEGAL.sub("\ufffd", value)
        if len(text) > MAX_CELL_CHARS:
            text = text[: MAX_CELL_CHARS - len(CUT)] + CUT
        made = cell_type(sheet, value=text)
        made.data_type = "s"  # a text that begins with `=` is not a formula
        return made

    try:
        sheet.append([cell(name) for name in header])
        for cells in islice(records, MAX_SHEET_ROWS - 1):
            sheet.append([cell(one) for one in cells])
        if next(records, None) is not None:
            msg = f"a sheet holds {MAX_SHEET_ROWS:,} rows at most, and the table has more"
            raise BulkError(msg, hint="write .csv or .jsonl; the journal has every outcome")
        book.save(path)
    finally:
        book.close()


def _write_jsonl(path: Path, table: Table, outcomes: Iterator[RowOutcome | None]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for row in table:
            outcome = next(outcomes, None)
            shown: dict[str, Any] = {"row": None if isinstance(row, BadRow) else row, "outcome": "open"}
            if outcome is not None:
                shown |= {
                    "outcome": outcome.status,
                    "text": outcome.text,
                    "structured": outcome.structured,
                    "error": outcome.error or None,
                    "code": outcome.code or None,
                    "sources": [
                        {"title": one.title, "locator": one.locator, "url": one.url, "updated": one.updated}
                        for one in outcome.sources
                    ],
                    "seconds": outcome.seconds,
                    "at": outcome.at,
                }
            file.write(json.dumps(shown, ensure_ascii=False, default=str) + "\n")
