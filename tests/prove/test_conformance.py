"""Everything that the official suite asks of clients, scenario by scenario, at every version it has them for.

The suite itself says what there is, so a scenario of a new release is run by itself. Exit codes count: those
of our client as well, unless the scenario expects it to give up. A run that checked nothing has not passed.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.real.test_conformance import SUITE, node, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.prove.conftest import Proof

SUITE_VERSION = "0.2.0-alpha.12"
PRESERVATION = "json-schema-2020-12-preservation"
"""Belongs to no version's score, and is run on both wires."""
WANTED = {
    (PRESERVATION, "2025-11-25"),
    (PRESERVATION, "2026-07-28"),
    ("auth/2025-03-26-oauth-metadata-backcompat", "2025-03-26"),
    ("auth/2025-03-26-oauth-endpoint-fallback", "2025-03-26"),
    ("auth/client-credentials-basic", ""),
    ("auth/client-credentials-jwt", ""),
    ("auth/dpop", ""),
    ("auth/dpop-nonce", ""),
}
SCORED = {"2025-11-25": 18, "2026-07-28": 32}
LINE = re.compile(r"- (?P<name>\S+) \[(?P<versions>[^\]]+)\]")
PACKAGE = SUITE / "@modelcontextprotocol" / "conformance"


@cache
def offered() -> list[tuple[str, str]]:
    """Ask the suite what it has: names and versions, where there is one."""
    script = PACKAGE / "dist" / "index.js"
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


def test_suite_is_the_pinned_one_and_has_the_runs_that_are_scored(proof: Proof) -> None:
    assert json.loads((PACKAGE / "package.json").read_text("utf-8"))["version"] == SUITE_VERSION
    runs = offered()
    proof.record(suite=SUITE_VERSION, scenarios=len({name for name, _ in runs}), runs=len(runs))
    assert len(runs) == len(set(runs))
    for version, count in SCORED.items():
        assert len([name for name, at in runs if at == version and name != PRESERVATION]) == count, version
    assert set(runs) >= WANTED


@pytest.mark.parametrize(("scenario", "version"), offered())
def test_scenario_passes(scenario: str, version: str, tmp_path: Path, proof: Proof) -> None:
    proof.record(version=version or "extensions")
    code, said = run(scenario, version, tmp_path, seconds=60)
    assert code == 0, said
    assert "Passed: 0/0" not in said, said
