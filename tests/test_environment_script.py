"""scripts/environment.py: what is shown while packages are installed."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).resolve().parents[1] / "scripts/environment.py"
LINES = [
    *(f"Collecting package-a{number}=={number}.0 (from -r run.txt)\n" for number in range(1, 7)),
    "Processing /wheels/package_a7-1.0-py3-none-any.whl (from -r run.txt)\n",
    "Processing ./package_a8-1.0.tar.gz\n",
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def shown(script: Any, out: io.StringIO) -> str:
    progress = script.Progress(len(LINES) + 1, out)
    for line in [
        "Ignoring pywin32: markers don't match your environment\n",
        *LINES,
        "Installing collected packages: package-1, package-2\n",
    ]:
        progress.line(line)
    progress.end()
    return out.getvalue()


def test_a_terminal_has_one_line_that_changes_and_goes(script: ModuleType) -> None:
    text = shown(script, Terminal())
    assert "\n" not in text
    assert "package 3 of 8: package-a3\r" in text
    assert text.endswith("installing 8 packages …\r\x1b[K")


def test_a_log_has_a_line_for_each_quarter(script: ModuleType) -> None:
    assert shown(script, io.StringIO()).splitlines() == [
        "  package 2 of 8: package-a2",
        "  package 4 of 8: package-a4",
        "  package 6 of 8: package-a6",
        "  package 8 of 8: package_a8",
        "  installing 8 packages …",
    ]


def test_a_command_that_fails_says_what_it_printed(script: ModuleType) -> None:
    seen: list[str] = []
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    with pytest.raises(script.InstallError, match=r"(?s)exited with 3:.*one"):
        script.run_quietly([sys.executable, "-c", code], on_line=seen.append)
    assert sorted(seen) == ["one\n", "two\n"]
