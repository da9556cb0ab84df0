"""Every supported release of the SDK: behaviour, hostile servers and conformance, each in its own environment.

Only tests that reach the SDK are run: what reads configuration, prints, searches or asks a model is the same
with every release.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts.environment import create, fingerprint, is_current, python_in, run_quietly, write_stamp
from tests.prove.frameworks import UV

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements/dev.txt"
VERSIONS = ("2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.2.0", "2.3.0")
"""The oldest and the newest patch of each minor release; a newer release is run too, once there is one."""
BEHAVIOUR = """
    apps auth auth_many auth_reach auth_wires blocking bridge calls closing coming_back connecting
    fallback first_tries freshness gateway gateway_extensions late_imports limits observe
    offers plain_asyncio protocol_rules skills subscriptions supervision tasks transports users
    wires
""".split()
HOSTILE = ("broken_servers", "faults", "hostile_children", "hostile_streams", "rug_pulls")
UNIT = (
    "protocol",
    "oauth",
    "transports",
    "test_connection.py",
    "test_late_import.py",
    "test_supervisor.py",
    "test_sharing.py",
)
SUITES = {
    "behaviour": (
        *(f"tests/unit/server/{name}" for name in UNIT),
        *(f"tests/behaviour/test_{name}.py" for name in BEHAVIOUR),
    ),
    "hostile": tuple(f"tests/behaviour/test_{name}.py" for name in HOSTILE),
    "conformance": ("tests/prove/test_conformance.py",),
}
SDK = ("mcp", "mcp-types")
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(==[^\\\n]+)", re.MULTILINE)
"""A name with its version, and the marker for which interpreters it is."""


def releases() -> list[str]:
    """Return the releases to run: those above, and the newest of the index if it is another one."""
    command = [sys.executable, "-m", "pip", "index", "versions", "mcp"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"Available versions:.*?\b(2\.[\d.]+)", listed)
    return [*VERSIONS, *({found[1]} - set(VERSIONS) if found else ())]


@pytest.fixture(scope="module", params=releases())
def environment(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The interpreter of an environment with one release of the SDK, and all else from the lock."""
    wanted: str = request.param
    folder = ROOT / ".cache" / "sdk" / wanted
    stamp = fingerprint(LOCK, ROOT / "pyproject.toml")
    if not is_current(folder, "lock", stamp):
        create(folder)
        pinned = PINNED.findall(LOCK.read_text("utf-8"))
        others = [f"{name}{at.strip()}" for name, at in pinned if name not in SDK]
        install = [str(UV), "pip", "install", "--quiet", "--python", str(python_in(folder))]
        run_quietly([*install, *(f"{name}=={wanted}" for name in SDK), *others])
        run_quietly([*install, "--no-build-isolation", "--no-deps", "--no-index", "--editable", str(ROOT)])
        write_stamp(folder, "lock", stamp)
    return wanted, python_in(folder)


def test_the_environment_is_consistent(environment: tuple[str, Path], proof: Proof) -> None:
    version, python = environment
    proof.record(mcp=version)
    show = "import importlib.metadata as m; print(*[m.version(name) for name in ('mcp', 'mcp-types')])"
    shown = subprocess.run([python, "-c", show], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [version, version]
    checked = subprocess.run(
        [UV, "pip", "check", "--python", python], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


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
    counted = {word: int(number) for number, word in re.findall(r"(\d+) (passed|skipped|failed)", last)}
    proof.record(mcp=version, suite=suite, **counted)
    assert done.returncode == 0, "\n".join(
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))
    )
