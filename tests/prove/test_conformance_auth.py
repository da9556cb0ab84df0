"""Everything that the official suite asks of clients, scenario by scenario, at every version it has them for.

The suite itself says what there is, so that a scenario that a new release brings is run without anybody's
doing. Exit codes count: those of our client as well, unless the scenario expects it to give up.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.real.test_conformance import SUITE, node, run

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED_FAILURES = {
    "auth/enterprise-managed-authorization": "an identity provider of a company is asked first (SEP-990)",
    "auth/wif-jwt-bearer": "a workload's own token is the grant (SEP-1933)",
}
NOTHING_TO_CHECK = "sep-2640-"
"""Skills, which are not read: the suite skips its checks then, and calls that passed."""
SCORED = ("2025-11-25", "2026-07-28")
LINE = re.compile(r"- (?P<name>\S+) \[(?P<versions>[^\]]+)\]")


@cache
def offered() -> list[tuple[str, str]]:
    """Ask the suite what it has: names and versions, where there is one."""
    script = SUITE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    if not script.is_file():
        return []
    listed = subprocess.run(
        [node(), str(script), "list", "--client"], capture_output=True, text=True, check=True
    )
    found: list[tuple[str, str]] = []
    for match in LINE.finditer(listed.stdout):
        versions = [] if match["versions"] == "extension" else match["versions"].split(",")
        found += [(match["name"], version) for version in versions or [""]]
    return found


def test_suite_has_the_runs_that_are_scored() -> None:
    scored = [name for name, version in offered() if version in SCORED]
    assert len(scored) >= 50
    assert {name for name, _ in offered()} >= set(EXPECTED_FAILURES)


@pytest.mark.parametrize(("scenario", "version"), offered())
def test_scenario_passes(scenario: str, version: str, tmp_path: Path) -> None:
    code, said = run(scenario, version, tmp_path, seconds=60)
    if scenario in EXPECTED_FAILURES:
        assert code != 0, f"{scenario} passes: take it off the list"
        pytest.xfail(EXPECTED_FAILURES[scenario])
    assert code == 0, said
    assert ("Passed: 0/0" in said) == scenario.startswith(NOTHING_TO_CHECK), said
