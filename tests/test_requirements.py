"""Every requirement has a test that names it, and every named requirement exists.

Marks are read from the source, so that the answer is the same for one test file, for all, and for workers.
Proofs (tests/prove) do not count: `make test` does not run them.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

import pytest

TESTS = Path(__file__).resolve().parent
HOW_MANY = {"excel": 33, "legal": 18, "otter": 28, "kode": 22, "rrclaw": 14}
LAST_STEP = 7


def read_requirements(file: Path) -> dict[str, dict[str, Any]]:
    """Return every requirement by its id, `table-key`."""
    tables = tomllib.loads(file.read_text("utf-8"))
    return {f"{table}-{key}": entry for table, entries in tables.items() for key, entry in entries.items()}


def marks_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (id, place) for each `pytest.mark.requirement("…")`, wherever it stands in a file."""
    for path in sorted(folder.rglob("*.py")):
        if "prove" in path.relative_to(folder).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.requirement"):
                place = f"{path.relative_to(folder)}:{node.lineno}"
                for argument in node.args:
                    yield (ast.literal_eval(argument) if isinstance(argument, ast.Constant) else ""), place


def problems(requirements: dict[str, dict[str, Any]], marks: list[tuple[str, str]]) -> list[str]:
    named = {identifier for identifier, _ in marks}
    unproven = [
        f"{identifier}: no test names it: {entry['says']}"
        for identifier, entry in requirements.items()
        if identifier not in named and "pending" not in entry
    ]
    unknown = [f"{place}: `{name}` is no requirement" for name, place in marks if name not in requirements]
    return unproven + unknown


def test_every_requirement_has_a_test_and_every_mark_a_requirement() -> None:
    found = problems(read_requirements(TESTS / "requirements.toml"), list(marks_in(TESTS)))
    assert not found, "\n".join(found)


def test_no_requirement_is_dropped() -> None:
    tables = tomllib.loads((TESTS / "requirements.toml").read_text("utf-8"))
    assert {table: len(entries) for table, entries in tables.items()} == HOW_MANY


def test_entries_are_well_formed() -> None:
    for identifier, entry in read_requirements(TESTS / "requirements.toml").items():
        assert set(entry) <= {"says", "pending"}, identifier
        assert entry["says"].endswith("."), identifier
        assert 2 <= entry.get("pending", 2) <= LAST_STEP, identifier


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@pytest.mark.requirement('a-1')\ndef test_x(): ...", []),
        ("pytestmark = [pytest.mark.requirement('a-1', 'a-2')]", []),
        ("x = pytest.param(1, marks=pytest.mark.requirement('a-1'))", []),
        ("def test_x(): ...", ["a-1: no test names it: One."]),
        (
            "@pytest.mark.requirement('a-9')\n@pytest.mark.requirement('a-1')\ndef test_x(): ...",
            ["test_x.py:1: `a-9` is no requirement"],
        ),
    ],
)
def test_the_check_itself(source: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(source, "utf-8")
    (tmp_path / "prove").mkdir()
    (tmp_path / "prove" / "test_y.py").write_text("x = pytest.mark.requirement('a-1')", "utf-8")
    requirements = {"a-1": {"says": "One."}, "a-2": {"says": "Two.", "pending": 3}}
    assert problems(requirements, list(marks_in(tmp_path))) == expected
