"""The table of faults fits the code: every requirement has one, and every old text is where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scripts.draw_mission import read_requirements
from scripts.mutants import ROOT, Fault, files_by_requirement, read_faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = read_faults()


def test_every_requirement_has_a_fault_and_tests() -> None:
    requirements = read_requirements(ROOT / "tests" / "requirements.toml")
    assert {fault.requirement for fault in FAULTS} == set(requirements)
    assert set(requirements) <= set(files_by_requirement(ROOT / "tests"))


def test_every_old_text_occurs_once_and_the_new_code_can_be_read() -> None:
    wrong: list[str] = []
    for fault in FAULTS:
        try:
            fault.applied((ROOT / fault.file).read_text("utf-8"))
        except (OSError, ValueError, SyntaxError) as exc:
            wrong.append(f"{fault.name}: {exc}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a = 1", "not 0 times"), ("b = 2\nb = 2", "not 2 times"), ("b = 2", None)],
)
def test_fault_that_does_not_fit_is_told(text: str, problem: str | None) -> None:
    fault = Fault("excel-1.1", 1, "x.py", "", "b = 2", "b = 3")
    if problem is None:
        assert fault.applied(text) == "b = 3"
    else:
        with pytest.raises(ValueError, match=problem):
            fault.applied(text)


def test_new_text_that_is_not_python_is_told() -> None:
    with pytest.raises(SyntaxError):
        Fault("excel-1.1", 1, "x.py", "", "b = 2", "b =").applied("b = 2")


CODE = """\
class One:
    def run(self, first: int) -> int:
        return work(first, 2)


class Two:
    def run(self, first: int) -> int:
        return work(first, 2)
"""


@pytest.mark.parametrize(("place", "line"), [("One.run", 3), ("Two.run", 8)])
def test_code_is_found_by_its_function(place: str, line: int) -> None:
    broken = Fault("excel-1.1", 1, "x.py", place, "work(first, 2)", "work(first, 3)").applied(CODE)
    assert [at for at, text in enumerate(broken.splitlines(), 1) if "3)" in text] == [line]
    with pytest.raises(ValueError, match=r"`Two\.walk` of x\.py, not 0 times"):
        Fault("excel-1.1", 1, "x.py", "Two.walk", "work(first, 2)", "work(first, 3)").applied(CODE)


def test_code_is_found_with_other_line_breaks_and_another_indentation() -> None:
    fault = Fault(
        "excel-1.1",
        1,
        "x.py",
        "run",
        "    if a:\n        b(1, 2)\n",
        "    if a:\n        b(2)\n        c()\n",
    )
    text = "def run():\n    for a in x:\n        if a:  # why\n            b(\n                1,\n                2,\n            )\n"
    assert fault.applied(text) == (
        "def run():\n    for a in x:\n        if a:\n            b(2)\n            c()\n"
    )


def test_the_fastest_tests_come_first(tmp_path: Path) -> None:
    for name in ("real/test_a.py", "unit/test_b.py", "test_c.py", "behaviour/test_d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("pytestmark = pytest.mark.requirement('a-1')", "utf-8")
    assert files_by_requirement(tmp_path)["a-1"] == [
        "test_c.py",
        "unit/test_b.py",
        "behaviour/test_d.py",
        "real/test_a.py",
    ]
