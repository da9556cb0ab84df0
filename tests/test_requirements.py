"""Every requirement has a test that names it, every named requirement exists, and the page shows them all."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts.draw_mission import marks_in, page, read_requirements

if TYPE_CHECKING:
    from scripts.draw_mission import Mark

TESTS = Path(__file__).resolve().parent
HOW_MANY = {"excel": 33, "legal": 18, "otter": 28, "kode": 22, "rrclaw": 15, "users": 9}


def problems(requirements: dict[str, str], marks: list[Mark]) -> list[str]:
    named = {mark.identifier for mark in marks}
    unproven = [
        f"{identifier}: no test names it: {says}"
        for identifier, says in requirements.items()
        if identifier not in named
    ]
    unknown = [
        f"{mark.file}:{mark.line}: `{mark.identifier}` is no requirement"
        for mark in marks
        if mark.identifier not in requirements
    ]
    return unproven + unknown


def test_every_requirement_has_a_test_and_every_mark_a_requirement() -> None:
    found = problems(read_requirements(TESTS / "requirements.toml"), list(marks_in(TESTS)))
    assert not found, "\n".join(found)


def test_no_requirement_is_dropped_or_put_off() -> None:
    tables = tomllib.loads((TESTS / "requirements.toml").read_text("utf-8"))
    assert {table: len(entries) for table, entries in tables.items()} == HOW_MANY
    for table, entries in tables.items():
        for key, entry in entries.items():
            assert set(entry) == {"says"}, f"{table}-{key}"
            assert entry["says"].endswith("."), f"{table}-{key}"


@pytest.mark.parametrize(
    ("source", "test", "expected"),
    [
        ("@pytest.mark.requirement('a-1')\ndef test_x(): ...", "test_x", []),
        ("pytestmark = [pytest.mark.requirement('a-1', 'a-1')]", "", []),
        ("x = pytest.param(1, marks=pytest.mark.requirement('a-1'))", "", []),
        (
            "@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.requirement('a-1'))])\nasync def test_x(n): ...",
            "test_x",
            [],
        ),
        ("def test_x(): ...", None, ["a-1: no test names it: One."]),
        (
            "x = 'a-1'\npytestmark = pytest.mark.requirement(x)",
            "",
            ["a-1: no test names it: One.", "test_x.py:2: `` is no requirement"],
        ),
        (
            "@pytest.mark.requirement('a-9')\n@pytest.mark.requirement('a-1')\ndef test_x(): ...",
            "test_x",
            ["test_x.py:1: `a-9` is no requirement"],
        ),
    ],
)
def test_the_check_itself(source: str, test: str | None, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(source, "utf-8")
    (tmp_path / "prove").mkdir()
    (tmp_path / "prove" / "test_y.py").write_text("x = pytest.mark.requirement('a-1')", "utf-8")
    marks = list(marks_in(tmp_path))
    assert problems({"a-1": "One."}, marks) == expected
    assert {mark.test for mark in marks} == ({test} if test is not None else set())


def test_the_page_shows_each_requirement_with_its_tests(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("@pytest.mark.requirement('a-1')\ndef test_it_is_so(): ...", "utf-8")
    (tmp_path / "test_y.py").write_text("pytestmark = pytest.mark.requirement('a-1')", "utf-8")
    lines = page({"a-1": "One.", "b-1": "Two."}, marks_in(tmp_path)).splitlines()
    assert (
        "| a-1 | One. | [it is so](../tests/test_x.py)<br>[all of test_y.py](../tests/test_y.py) |" in lines
    )
    assert "| b-1 | Two. | **nothing yet** |" in lines
