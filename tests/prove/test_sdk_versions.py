"""Every supported release of the SDK: the behaviour tests, hostile servers and conformance, each in its own environment."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts.environment import create, fingerprint, is_current, pip_install, python_in, write_stamp

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements/dev.txt"
VERSIONS = ("2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.2.0", "2.3.0")
"""The oldest and the newest patch of each minor release."""
NEWEST = "newest"
SUITES = {
    "behaviour": ("tests/unit/server", "tests/behaviour"),
    "conformance": ("tests/prove/test_conformance.py",),
}
SDK = ("mcp", "mcp-types")
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(==[^\\\n]+)", re.MULTILINE)
"""A name with its version, and the marker for which interpreters it is."""


@pytest.fixture(scope="module", params=[*VERSIONS, NEWEST])
def environment(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The interpreter of an environment with one release of the SDK, and all else from the lock."""
    wanted: str = request.param
    folder = ROOT / ".cache" / "sdk" / wanted
    stamp = fingerprint(LOCK, ROOT / "pyproject.toml")
    if wanted == NEWEST or not is_current(folder, "lock", stamp):
        create(folder)
        others = [
            f"{name}{at.strip()}" for name, at in PINNED.findall(LOCK.read_text("utf-8")) if name not in SDK
        ]
        release = ["mcp<3"] if wanted == NEWEST else [f"{name}=={wanted}" for name in SDK]
        pip_install(folder, *release, *others)
        pip_install(folder, "--no-build-isolation", "--no-deps", "--no-index", "--editable", str(ROOT))
        write_stamp(folder, "lock", stamp)
    script = "import importlib.metadata as m; print(m.version('mcp'))"
    shown = subprocess.run([python_in(folder), "-c", script], capture_output=True, text=True, check=True)
    return shown.stdout.strip(), python_in(folder)


def test_the_environment_is_consistent(environment: tuple[str, Path], proof: Proof) -> None:
    version, python = environment
    proof.record(mcp=version)
    done = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_passes(suite: str, environment: tuple[str, Path], proof: Proof) -> None:
    version, python = environment
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *SUITES[suite]],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    last = done.stdout.strip().rpartition("\n")[2]
    proof.record(mcp=version, said=last)
    assert done.returncode == 0, "\n".join(
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
    )
