"""`dragoman map`: tables in, tables out, and nothing called by accident."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import openpyxl
import pytest
from tests.unit.cli.program import configure, dragoman, dragoman_command, entry, misfits
from tests.unit.cli.terminal import CTRL_C, at_terminal

from dragoman.cli.commands.map_ import MapPlanReport, MapReport, rows_text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    configure(rows=entry("rowwise.py", str(path)))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("word,number\none,1\ntwo,2\nfail three,3\n", "utf-8")
    return path


def noted(notes: Path) -> list[str]:
    return notes.read_text("utf-8").splitlines()


def results(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


ARGS = ("rows.csv", "--arg", "text={word}", "--arg", "number={number}", "--concurrency", "1")


def test_a_table_comes_back_with_results_and_errors(notes: Path, table: Path, tmp_path: Path) -> None:
    done = dragoman("map", "rows.note", *ARGS, "--out", "out.csv")
    assert done.returncode == 7, done.stderr
    assert "3 rows: 2 ok, 1 failed" in done.stdout
    assert "row 3: noted fail three\n" in done.stderr
    assert "--repeat-failed" in done.stderr
    first, _, third = results(tmp_path / "out.csv")
    assert (first["word"], first["outcome"], first["result"]) == ("one", "ok", "noted one")
    assert (third["outcome"], third["result"], third["error"]) == ("failed", "", "noted fail three")
    assert noted(notes) == ["one", "two", "fail three"]
    # The same command again repeats nothing.
    done = dragoman("map", "rows", "note", *ARGS, "--out", "out.csv", "--json")
    report = json.loads(done.stdout)
    assert misfits(report, MapReport) == []
    assert (report["ok"], report["failed"], report["earlier"]) == (2, 1, 3)
    assert len(noted(notes)) == 3


def test_workbooks_go_in_and_out_and_columns_can_name_the_arguments(notes: Path, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["text", "number", "own"], ["a", 1, "x"], ["b", None, "y"]):
        book.active.append(row)
    book.save(tmp_path / "rows.xlsx")
    done = dragoman("map", "mcp_rows_note", "rows.xlsx", "--out", "out.xlsx")
    assert done.returncode == 0, done.stderr
    sheet = openpyxl.load_workbook(tmp_path / "out.xlsx").active
    rows = [row[:5] for row in sheet.iter_rows(values_only=True)]
    assert rows[0] == ("text", "number", "own", "outcome", "result")
    assert rows[1:] == [("a", 1, "x", "ok", "noted a"), ("b", None, "y", "ok", "noted b")]


def test_a_dry_run_tells_the_cost_and_calls_nothing(notes: Path, table: Path, tmp_path: Path) -> None:
    done = dragoman("map", "rows.note", *ARGS, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "3 calls of mcp_rows_note, 1 at once, time not known yet" in done.stdout
    assert 'first call: {"text": "one", "number": 1}' in done.stdout
    assert noted(notes) == []
    assert sorted(path.name for path in tmp_path.glob("*.journal")) == []
    dragoman("map", "rows.note", *ARGS, "--out", "first.csv", "--limit", "2")
    plan = json.loads(dragoman("map", "rows.note", *ARGS, "--out", "first.csv", "--dry-run", "--json").stdout)
    assert misfits(plan, MapPlanReport) == []
    assert (plan["rows"], plan["done"], plan["calls"]) == (3, 2, 1)
    assert plan["seconds"] == pytest.approx(plan["seconds_per_call"])


def test_invalid_rows_stop_the_run_before_the_first_call(notes: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("word,number\none,1\n,2\nthree,many\n", "utf-8")
    done = dragoman("map", "rows.note", *ARGS, "--out", "out.csv")
    assert done.returncode == 2
    assert "2 of 3 rows are invalid, and nothing was called: row 2: " in done.stderr
    assert noted(notes) == []
    done = dragoman("map", "rows.note", *ARGS, "--out", "out.csv", "--skip-invalid")
    assert [row["outcome"] for row in results(tmp_path / "out.csv")] == ["ok", "failed", "failed"]
    assert noted(notes) == ["one"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--arg", "text={wrod}"), "no column `wrod` (did you mean `{word}`?"),
        (("--arg", "text"), "Expected key=value"),
        ((), "no column is named like a parameter of `look`"),
    ],
)
def test_arguments_that_do_not_fit_the_table_are_explained(
    words: tuple[str, ...], problem: str, notes: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("word,size\none,1\n", "utf-8")
    done = dragoman("map", "rows.look", "rows.csv", *words, "--out", "out.csv")
    assert done.returncode == 2
    assert problem in done.stderr
    assert noted(notes) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("rows.note", "rows.csv"), "Missing --out"),
        (("rows.note",), "Missing TOOL or ROWS"),
        (("rows.note", "gone.csv", "--out", "out.csv"), "gone.csv does not exist"),
        (("rows.note", "rows.csv", "--out", "rows.csv"), "the output is the input"),
        (("rows.note", "rows.csv", "--out", "no/out.csv"), "the folder of no/out.csv does not exist"),
        (("rows.note", "rows.csv", "--out", "out.docx"), "`out.docx` is not a table"),
        (("rows.note", "rows.csv", "--out", "taken.csv"), "taken.csv exists, and it has no journal"),
    ],
)
def test_files_that_cannot_be_used_are_told_before_a_server_starts(
    words: tuple[str, ...], problem: str, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "taken.csv").write_text("mine\n", "utf-8")
    done = dragoman("map", *words)
    assert done.returncode == 2
    assert problem in done.stderr
    assert (tmp_path / "taken.csv").read_text("utf-8") == "mine\n"


def test_an_output_can_be_replaced_on_purpose_only(notes: Path, table: Path, tmp_path: Path) -> None:
    dragoman("map", "rows.note", *ARGS, "--out", "out.csv")
    table.write_text(table.read_text("utf-8").replace("two", "2"), "utf-8")
    done = dragoman("map", "rows.note", *ARGS, "--out", "out.csv")
    assert done.returncode == 2
    assert "row 2 is not the row that was sent" in done.stderr
    assert len(noted(notes)) == 3
    dragoman("map", "rows.note", *ARGS, "--out", "out.csv", "--overwrite")
    assert noted(notes)[3:] == ["one", "2", "fail three"]


def test_after_a_kill_the_same_command_goes_on(notes: Path, tmp_path: Path) -> None:
    count = 300
    text = "".join(f"row {number}\n" for number in range(1, count + 1))
    (tmp_path / "rows.csv").write_text(f"text\n{text}", "utf-8")
    command = ("map", "rows.note", "rows.csv", "--out", "out.csv", "--rate", "200")
    child = subprocess.Popen(
        [*dragoman_command(), *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while len(noted(notes)) < 20:
        assert child.poll() is None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "out.csv").exists()
    done = dragoman(*command[:-2], "--json")
    report = json.loads(done.stdout)
    assert report["ok"] + report["unknown"] == count
    assert report["earlier"] >= 10
    assert set(Counter(noted(notes)).values()) == {1}
    told = [row["outcome"] for row in results(tmp_path / "out.csv")]
    assert [at for at, outcome in enumerate(told, 1) if outcome == "unknown"] == report["unknown_rows"]
    assert done.returncode == (1 if report["unknown"] else 0)
    assert ("--repeat-unknown" in done.stderr) is bool(report["unknown"])


def test_a_rule_that_asks_denies_without_a_terminal_and_yes_allows(table: Path, tmp_path: Path) -> None:
    path = configure(rows=entry("rowwise.py", str(tmp_path / "notes")))
    rules = json.loads(path.read_text("utf-8"))
    path.write_text(
        json.dumps(rules | {"mcp": {"policy": {"rules": [{"tool": "note", "action": "ask"}]}}}), "utf-8"
    )
    dragoman("map", "rows.note", *ARGS, "--out", "denied.csv")
    assert [row["outcome"] for row in results(tmp_path / "denied.csv")] == ["failed"] * 3
    assert noted(tmp_path / "notes") == []
    dragoman("map", "rows.note", *ARGS, "--out", "denied.csv", "--yes", "--repeat-failed")
    assert [row["outcome"] for row in results(tmp_path / "denied.csv")] == ["ok", "ok", "failed"]


def test_a_terminal_shows_progress_and_ctrl_c_loses_nothing(notes: Path, tmp_path: Path) -> None:
    text = "".join(f"row {number}\n" for number in range(1, 201))
    (tmp_path / "rows.csv").write_text(f"text\n{text}", "utf-8")
    command = ("map", "rows.note", "rows.csv", "--out", "out.csv")
    with at_terminal(*command, "--rate", "20") as terminal:
        terminal.wait_until(lambda: re.search(r"[░-] \d+/200 +[\d.]+/s +.* left", terminal.text) is not None)
        terminal.type(CTRL_C)
        assert terminal.wait_for_end() == 130
        assert re.search(r"\d+ of 200 rows have an outcome; the same command goes on", terminal.text)
        assert "left" not in terminal.text
    done = dragoman(*command, "--json")
    report = json.loads(done.stdout)
    assert (report["ok"], report["unknown"]) == (200, 0)
    assert report["earlier"] > 0
    assert set(Counter(noted(notes)).values()) == {1}


def test_without_ray_the_command_says_what_to_install(table: Path, notes: Path) -> None:
    done = dragoman("map", "rows.note", *ARGS, "--out", "out.csv", "--on", "ray")
    assert done.returncode == 2
    assert "install `dragoman[ray]`" in done.stderr
    assert noted(notes) == []


@pytest.mark.parametrize(("rows", "text"), [([3], "row 3"), ([1, 2, 3, 7, 9, 10], "rows 1-3, 7, 9-10")])
def test_rows_are_told_as_ranges(rows: list[int], text: str) -> None:
    assert rows_text(rows) == text


def test_many_ranges_are_cut() -> None:
    assert rows_text(range(1, 100, 2)).endswith("21, 23 and 38 more ranges")
