from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from dragoman.model import Http, ServerSpec, Stdio
from dragoman.server.process import spawn
from dragoman.server.process.spawn import prespawn

SERVERS = Path(__file__).resolve().parents[3] / "servers"

WAITING = Stdio(sys.executable, ["-c", "import sys; sys.stdin.read()"])


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "_prespawned", 0)


async def test_child_that_was_not_taken_is_ended_with_its_pipes() -> None:
    start = await prespawn(ServerSpec("s", WAITING), WAITING, os.environ)
    assert start is not None
    child = start.take()
    assert child is not None
    assert child.poll() is None
    assert start.take() is None
    await start.drop()
    assert child.poll() is None
    other = await prespawn(ServerSpec("s", WAITING), WAITING, os.environ)
    assert other is not None
    with anyio.fail_after(20):
        await other.drop()
        await child.abandon()
    assert child.poll() == 0


@pytest.mark.parametrize(
    "transport",
    [
        Http("http://localhost/mcp"),
        Stdio("surely-no-such-program"),
        Stdio(sys.executable, env_file=["missing.env"]),
    ],
    ids=["no child", "no such program", "no such env file"],
)
async def test_what_cannot_be_started_ahead_is_left_to_its_turn(transport: Stdio | Http) -> None:
    assert await prespawn(ServerSpec("s", transport), transport, os.environ) is None


async def test_no_more_are_started_ahead_than_start_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "MAX_PRESPAWNED", 1)
    first = await prespawn(ServerSpec("s", WAITING), WAITING, os.environ)
    assert first is not None
    assert await prespawn(ServerSpec("t", WAITING), WAITING, os.environ) is None
    with anyio.fail_after(20):
        await first.drop()


IMPORTING = """
import asyncio, sys, time
from importlib.abc import MetaPathFinder
from pathlib import Path
from dragoman import McpManager, ServerSpec, Stdio

class Hold(MetaPathFinder):
    # Holds the import of the SDK up until the child says that it runs.
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            until = time.monotonic() + 30
            while not Path("started").exists():
                if time.monotonic() > until:
                    print("the child did not start before the import")
                    break
        return None

async def main():
    sys.meta_path.insert(0, Hold())
    script = "import pathlib, sys; pathlib.Path('started').touch(); sys.path.insert(0, sys.argv[1]); import plain"
    async with McpManager([ServerSpec("fs", Stdio(sys.executable, ["-c", script, sys.argv[1]]))]) as mcp:
        assert await mcp.wait_ready(timeout=50)
        print((await mcp.call("mcp_fs_echo", {"text": "done"})).text)

asyncio.run(main())
"""


def test_child_starts_before_the_sdk_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, str(SERVERS)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
