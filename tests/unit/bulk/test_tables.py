"""Tables: what is read, what is refused, and what is written."""

from __future__ import annotations

import csv
import json
from datetime import date
from typing import TYPE_CHECKING, Any

import openpyxl
import pytest

from dragoman.bulk.outcomes import RowOutcome
from dragoman.bulk.tables import BadRow, Table, write_results
from dragoman.errors import BulkError
from dragoman.model import SourceRef
from dragoman.visible import visible_part

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding)
    return path


def workbook(path: Path, rows: list[list[Any]], **sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for name, more in sheets.items():
        sheet = book.create_sheet(name)
        for row in more:
            sheet.append(row)
    book.save(path)
    return path


@pytest.mark.parametrize(
    "text",
    ["\ufeffname,n\nann,1\n\nbob,\n", "name;n\nann;1\nbob\n", "name\tn\r\nann\t1\r\n\t\r\nbob\t\t\t\r\n"],
    ids=["mark", "semicolon", "tab"],
)
def test_csv_files_of_every_program_give_the_same_rows(text: str, tmp_path: Path) -> None:
    table = Table(written(tmp_path / "rows.csv", text))
    assert table.columns() == ["name", "n"]
    assert list(table) == [{"name": "ann", "n": "1"}, {"name": "bob", "n": None}]


def test_a_file_can_be_read_in_its_own_encoding(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "问题\n定金\n", "gb18030")
    assert list(Table(path, encoding="gb18030")) == [{"问题": "定金"}]
    with pytest.raises(BulkError, match=r"not utf-8 text.*gb18030"):
        list(Table(path))


def test_workbooks_give_values_with_their_types(tmp_path: Path) -> None:
    path = workbook(
        tmp_path / "rows.xlsx",
        [["name", "n", "day", None], ["ann", 2.0, date(2026, 3, 1)], [], ["bob", 2.5, None]],
        other=[["x"], [1]],
    )
    assert list(Table(path)) == [
        {"name": "ann", "n": 2, "day": "2026-03-01"},
        {"name": "bob", "n": 2.5, "day": None},
    ]
    assert list(Table(path, sheet="other")) == [{"x": 1}]
    with pytest.raises(BulkError, match=r"no sheet `third`.*Sheet, other"):
        list(Table(path, sheet="third"))


def test_a_line_that_is_not_an_object_is_one_bad_row(tmp_path: Path) -> None:
    table = Table(written(tmp_path / "rows.jsonl", '{"a": 1}\n[2]\n\n{"b": \n{"a": {"c": 3}, "d": 4}\n'))
    first, second, third, last = table
    assert (first, last) == ({"a": 1}, {"a": {"c": 3}, "d": 4})
    assert isinstance(second, BadRow)
    assert isinstance(third, BadRow)
    assert table.columns() == ["a", "d"]


def test_a_row_with_too_many_cells_is_one_bad_row(tmp_path: Path) -> None:
    first, second = Table(written(tmp_path / "rows.csv", "a,b\n1,2,3\n4,5\n"))
    assert isinstance(first, BadRow)
    assert second == {"a": "4", "b": "5"}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("rows.csv", "", "is empty"),
        ("rows.csv", "a,a\n1,2\n", "two columns are called `a`"),
        ("rows.csv", "a,,b\n1,2,3\n", "column 2 has no name"),
        ("rows.csv", 'a\n"open\n', "not a valid CSV file"),
        ("rows.xlsx", "no workbook", "not an Excel workbook"),
        ("rows.txt", "a\n", "is not a table"),
        ("rows.xls", "a\n", r"save it as \.xlsx"),
    ],
)
def test_a_file_that_is_no_table_is_refused_with_the_reason(
    name: str, text: str, problem: str, tmp_path: Path
) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(BulkError, match=problem):
        list(Table(path))
    if path.suffix in (".csv", ".xlsx"):
        path.unlink()
        with pytest.raises(BulkError, match="cannot be read"):
            list(Table(path))


OUTCOMES = [
    RowOutcome(
        row=1,
        status="ok",
        text='=HYPERLINK("http://x")',
        structured={"a": [1]},
        sources=[SourceRef(title="Act", locator="Art. 4", updated="2026-01-30")],
        seconds=0.5,
    ),
    RowOutcome(row=2, status="failed", error="the disk is full", code="tool.failed"),
    None,
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(written(tmp_path / "rows.csv", "name,error\n=own,old\nbob,\ncid,\n"))


def test_csv_results_stand_beside_the_rows_and_are_never_formulas(table: Table, tmp_path: Path) -> None:
    write_results(tmp_path / "out.csv", table, OUTCOMES)
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["name", "error", "outcome", "result", "call error", "sources", "seconds"]
    assert rows == [
        ["=own", "old", "ok", '\'=HYPERLINK("http://x")', "", "Act Art. 4 (2026-01-30)", "0.5"],
        ["bob", "", "failed", "", "the disk is full", "", "0.0"],
        ["cid", "", "open", "", "", "", ""],
    ]


def test_numbers_of_a_server_stay_numbers_in_csv(table: Table, tmp_path: Path) -> None:
    texts = ["-5", "+1,5", "-5 apples"]
    outcomes = [RowOutcome(row=at, status="ok", text=text) for at, text in enumerate(texts, 1)]
    write_results(tmp_path / "out.csv", table, outcomes)
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        assert [row["result"] for row in csv.DictReader(file)] == ["-5", "+1,5", "'-5 apples"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "a;=1+1;b",
        "a; @SUM(1)",
        'a;"=1+1";b',
        "first\n=1+1",
        "first\r+1+1|x",
        "a,-cmd|' /C calc'!A0",
        "a;-5 +cmd",
        "a\t＝1",
        "a|=1",
        " " * 50 + "=1+1",
        "a;\u00a0\u200b\ufeff=1+1",
        "\x00=1+1",
        "a\u2028＠SUM(1)",
    ],
)
def test_no_cell_is_a_formula_whatever_a_spreadsheet_separates_at(
    text: str, separator: str, table: Table, tmp_path: Path
) -> None:
    write_results(tmp_path / "out.csv", table, [RowOutcome(row=1, status="ok", text=text)])
    lines = (tmp_path / "out.csv").read_text("utf-8-sig").removeprefix("name,error,").split("=own,old,")[1]
    # As a spreadsheet reads it: quotes count only at the start of a cell.
    for cells in csv.reader(lines.replace("\0", "").splitlines(), delimiter=separator):
        assert [cell for cell in cells if visible_part(cell).strip(' "\u00a0')[:1] in tuple("=+-@＝")] == []


def test_numbers_and_words_between_separators_stay_as_they_are(table: Table, tmp_path: Path) -> None:
    text = "1;-5;+1,5\n-3\nwell-known, a=b; x @ y"
    write_results(tmp_path / "out.csv", table, [RowOutcome(row=1, status="ok", text=text)])
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        assert next(csv.DictReader(file))["result"] == text


def test_workbook_results_are_texts_that_excel_can_open(table: Table, tmp_path: Path) -> None:
    long = RowOutcome(row=3, status="ok", text="x\x07" * 40_000)
    write_results(tmp_path / "out.xlsx", table, [*OUTCOMES[:2], long])
    sheet = openpyxl.load_workbook(tmp_path / "out.xlsx").active
    cells = list(sheet.iter_rows(min_row=2))
    assert cells[0][3].value == '=HYPERLINK("http://x")'
    assert {cell.data_type for row in cells for cell in row if isinstance(cell.value, str)} == {"s"}
    assert len(cells[2][3].value) == 32_767
    assert "\x07" not in cells[2][3].value
    assert cells[2][3].value.endswith("[cut]")


def test_json_lines_have_everything(table: Table, tmp_path: Path) -> None:
    write_results(tmp_path / "out.jsonl", table, OUTCOMES)
    first, _, third = map(json.loads, (tmp_path / "out.jsonl").read_text("utf-8").splitlines())
    assert first["row"] == {"name": "=own", "error": "old"}
    assert first["structured"] == {"a": [1]}
    assert first["sources"][0]["updated"] == "2026-01-30"
    assert third == {"row": {"name": "cid", "error": None}, "outcome": "open"}


def test_a_table_that_cannot_be_written_leaves_nothing_behind(table: Table, tmp_path: Path) -> None:
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(BulkError, match="cannot be written"):
        write_results(tmp_path / "out.csv", table, OUTCOMES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "rows.csv"]
