from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from dragoman.server.late_import import is_loaded, late_import_module

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

CIRCLE = """
import late_circle_gate
late_circle_gate.entered.append("{here}")
late_circle_gate.together.wait(0.2)
import late_circle_{there}
"""


async def test_modules_that_import_each_other_are_imported_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = "import threading\nentered = []\ntogether = threading.Event()\n"
    (tmp_path / "late_circle_gate.py").write_text(gate, "utf-8")
    for here, there in (("a", "b"), ("b", "a")):
        text = CIRCLE.format(here=here, there=there)
        (tmp_path / f"late_circle_{here}.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    names = ["late_circle_a", "late_circle_b"] * 3
    found = await asyncio.gather(*map(late_import_module, names))
    assert [module.__name__ for module in found] == names
    assert sorted(sys.modules["late_circle_gate"].entered) == ["a", "b"]
    assert is_loaded("late_circle_a")
    assert not is_loaded("late_circle_gate")


async def test_module_that_cannot_be_imported_can_be_asked_for_again() -> None:
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            await late_import_module("no_such_module_at_all")
    assert not is_loaded("no_such_module_at_all")
