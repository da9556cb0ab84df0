"""Every real server that the tests install: connected, listed, called 100 times at once, killed, called again."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.faults import comes_back
from tests.real import servers
from tests.real.test_everything import everything
from tests.real.test_real_servers import PATIENCE, make_repository, spec_of, succeed

from dragoman import McpManager, Stdio
from dragoman.events import StateChanged

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

    from dragoman import ServerSpec

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 100
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "filesystem": ("list_directory", {"path": "{folder}"}),
    "everything": ("echo", {"message": "hello"}),
    "time": ("get_current_time", {"timezone": "Asia/Shanghai"}),
    "git": ("git_status", {"repo_path": "{folder}"}),
    "excel": ("list_workbooks", {"directory": "{folder}"}),
    "china-law": ("get_article", {"law": "民法典", "article_no": "第五百六十三条"}),
}
"""One call of each server; `{folder}` is a folder of the test's own, and a git repository."""


def test_every_installed_server_has_its_proof() -> None:
    assert set(CALLS) == set(servers.NAMES)


@pytest.mark.parametrize("name", servers.NAMES)
async def test_a_real_server_connects_answers_and_comes_back(name: str, tmp_path: Path, proof: Proof) -> None:
    make_repository(tmp_path)
    words = {"filesystem": [tmp_path], "everything": ["stdio"]}.get(name, [])
    with anyio.fail_after(240):
        await use(spec_of(name, *words), tmp_path, proof)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_the_reference_server_answers_over_the_network(
    transport: str, tmp_path: Path, proof: Proof
) -> None:
    with anyio.fail_after(240):
        async with everything(transport) as spec:
            await use(spec, tmp_path, proof)


async def use(spec: ServerSpec, folder: Path, proof: Proof) -> None:
    """Use a server as an agent does, and kill it if it is ours to kill."""
    name, (tool, raw) = spec.name, CALLS[spec.name]
    arguments = {
        key: value.format(folder=folder) if isinstance(value, str) else value for key, value in raw.items()
    }
    began = time.monotonic()
    async with McpManager([spec], cache=False) as mcp:
        assert await mcp.wait_ready(timeout=PATIENCE), mcp.status()
        ready = time.monotonic() - began
        status, calls = mcp.status()[name], AT_ONCE
        assert len(mcp.tools()) == status.tools > 0
        first = await succeed(mcp, f"mcp_{name}_{tool}", **arguments)
        began = time.monotonic()
        many = await asyncio.gather(
            *(succeed(mcp, f"mcp_{name}_{tool}", **arguments) for _ in range(AT_ONCE))
        )
        took = time.monotonic() - began
        assert all(result.text for result in (first, *many))
        if isinstance(spec.transport, Stdio):
            events = mcp.events()
            number = status.pid
            assert number
            os.kill(number, signal.SIGKILL)
            async for event in events:
                if isinstance(event, StateChanged):
                    break
            await comes_back(mcp, name, events)
            assert mcp.status()[name].pid != status.pid
            await succeed(mcp, f"mcp_{name}_{tool}", **arguments)
            calls += 1
    proof.record(
        server=f"{name} {status.server_version} over {status.transport}",
        tools=status.tools,
        calls=calls + 1,
        ready_after_seconds=ready,
        hundred_calls_seconds=took,
    )


def test_the_suite_of_real_servers_passes(proof: Proof) -> None:
    # What the conformance suite asks is a part of its own.
    words = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "timeout=300",
        "--ignore",
        "tests/real/test_conformance.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "tests/real"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    summary = done.stdout.strip().splitlines()[-1]
    found = re.search(r"(\d+) passed", summary)
    proof.record(passed=int(found[1]) if found else 0)
    assert done.returncode == 0, done.stdout[-4000:]
