"""The lowest version of every dependency: the program, the library and the gateway work with it.

It needs a package index.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.prove.test_packaging import OURS, UV

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
RUNNERS = ("pytest", "pytest-timeout", "anyio", "hypothesis", "cryptography", "opentelemetry-sdk", "pyte")
"""What the tests need themselves, in any version that goes with the lowest of the project's."""
EXTRAS = "anthropic,openai,tui"
SUITES = (
    "tests/behaviour/test_calls.py",
    "tests/behaviour/test_connecting.py",
    "tests/behaviour/test_first_calls.py",
    "tests/behaviour/test_cli_calling.py",
    "tests/behaviour/test_cli_listing.py",
    "tests/behaviour/test_gateway_rules.py",
    "tests/behaviour/test_supervision.py",
    "tests/unit/config",
    "tests/unit/tools",
    "tests/unit/trust",
)


@pytest.mark.timeout(1800)
def test_the_lowest_version_of_every_dependency_works(tmp_path: Path, proof: Proof) -> None:
    python = tmp_path / "bin/python"
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, tmp_path], check=True, env=OURS)
    install = [
        UV,
        "pip",
        "install",
        "-q",
        "--python",
        python,
        "--only-binary",
        ":all:",
        "--no-binary",
        "dragoman",
    ]
    lowest = tmp_path / "lowest.txt"
    subprocess.run(
        [*install, "--resolution", "lowest-direct", "-e", f"{ROOT}[{EXTRAS}]"], check=True, env=OURS
    )
    frozen = subprocess.run(
        [UV, "pip", "freeze", "--python", python], check=True, env=OURS, capture_output=True, text=True
    ).stdout
    names = {re.split(r"[>=\[]", wanted)[0] for wanted in PROJECT["dependencies"]}
    pins = [line for line in frozen.splitlines() if line.partition("==")[0] in names]
    assert len(pins) == len(names)
    lowest.write_text("\n".join(pins))
    subprocess.run([*install, "-c", lowest, *RUNNERS], check=True, env=OURS)
    run = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES],
        cwd=ROOT,
        env=OURS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:]
    proof.record(dependencies=len(pins), summary=run.stdout.splitlines()[-1])
