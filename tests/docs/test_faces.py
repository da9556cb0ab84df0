"""The pages about local tools, the blocking manager and testing: every block of code is run as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests import warm
from tests.docs.pages import ROOT, blocks

PAGES = {
    "local-tools": blocks("python", (ROOT / "docs/local-tools.md").read_text("utf-8")),
    "blocking": blocks("python", (ROOT / "docs/blocking.md").read_text("utf-8")),
    "testing": blocks("python", (ROOT / "docs/testing.md").read_text("utf-8")),
}
EXAMPLES = {
    f"{page}-{number}": block for page, found in PAGES.items() for number, block in enumerate(found, 1)
}
PRINTED = {
    "local-tools-1": ['{"date": "2026-01-30", "days": 14}', "`days`: expected an integer", "3"],
    "blocking-1": ["tools", "legal ready", "mcp_legal_"],
    "blocking-2": ["True True"],
    "testing-1": [],
}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command], capture_output=True, text=True, check=False, timeout=50
    )


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_prints_what_it_should(name: str) -> None:
    done = warm.run([], code=EXAMPLES[name], timeout=50)
    assert done.returncode == 0, done.stderr
    at = 0
    for part in PRINTED[name]:
        at = done.stdout.find(part, at)
        assert at >= 0, f"{part} is not in {done.stdout}"


def test_the_example_of_a_test_is_a_test() -> None:
    Path("test_example.py").write_text(EXAMPLES["testing-2"], "utf-8")
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_example.py")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_no_example_is_left_out() -> None:
    assert set(EXAMPLES) == {*PRINTED, "testing-2"}
