"""dragoman beside every framework: one environment each, consistent; and apart from those that need mcp 1.x."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import blocks
from tests.prove.frameworks import LOCKS, MODULES, ROOT, python_apart, python_of

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

BESIDE = {**MODULES, "browser-use": "browser_use"}
CALL = """
import asyncio, sys, {module}
from importlib.metadata import version
from dragoman import McpManager, ServerSpec, Stdio
async def main():
    async with McpManager([ServerSpec("plain", Stdio(sys.executable, [{server!r}]))], cache=False) as mcp:
        await mcp.wait_ready()
        print(version("mcp"), (await mcp.call("mcp_plain_echo", {{"text": "beside"}})).text)
asyncio.run(main())
"""
EXAMPLES = {"semantic-kernel": "semantic_kernel", "crewai": "crewai_tools"}


def test_every_lock_is_proved() -> None:
    assert {file.stem for file in LOCKS.glob("*.txt")} - {"ray"} == set(BESIDE)
    assert {file.stem for file in (ROOT / "requirements/apart").glob("*.txt")} == set(EXAMPLES)


@pytest.mark.parametrize("name", BESIDE)
def test_a_framework_and_dragoman_are_installed_together_and_work(name: str, proof: Proof) -> None:
    python = python_of(name)
    checked = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    program = CALL.format(module=BESIDE[name], server=str(ROOT / "tests/servers/plain.py"))
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mcp, said = done.stdout.strip().rpartition("\n")[2].split()
    assert said == "beside"
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, check=True
    )
    packages = {one["name"] for one in json.loads(listed.stdout)}
    assert "torch" not in packages
    proof.record(mcp=mcp, packages=len(packages))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_framework_that_needs_mcp_1_reaches_dragoman_as_a_separate_process(
    name: str, tmp_path: Path, proof: Proof
) -> None:
    python = python_apart(name)
    found = subprocess.run(
        [python, "-c", "from importlib.metadata import version; print(version('mcp'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.startswith("1.")
    examples = blocks("python", (ROOT / "docs/how-to/mcp-1-frameworks.md").read_text("utf-8"))
    (example,) = [one for one in examples if f"from {EXAMPLES[name]}" in one]
    (tmp_path / "example.py").write_text(example, "utf-8")
    settings = tmp_path / ".config/dragoman/dragoman.toml"
    settings.parent.mkdir(parents=True)
    entry = f'[mcp.servers.legal]\ncommand = "{sys.executable}"\nargs = ["-m", "dragoman.demo.legal"]\n'
    settings.write_text(entry, "utf-8")
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [python, "example.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **quiet, "HOME": str(tmp_path), "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert ("deposit" if name == "semantic-kernel" else "mcp_legal_search_statutes") in done.stdout.lower()
    proof.record(mcp=found.stdout.strip())
