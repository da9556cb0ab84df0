"""Servers that try to outlive their connection, and what is said of those that had to be ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.server.process import family
from dragoman.server.process.orphans import identify

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

DAEMON = """
import json, subprocess, sys
daemon = subprocess.Popen(
    [sys.executable, "-S", "-c", "import time; time.sleep(30)"], env={}, start_new_session=True
)
open("daemon", "w").write(str(daemon.pid))
results = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                   "serverInfo": {"name": "s", "version": "1"}},
    "tools/list": {"tools": []},
}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"""
DEAF = "import os, sys, time; sys.stdin.readline(); os.close(1); time.sleep(600)"


def spec(code: str) -> ServerSpec:
    return ServerSpec("s", Stdio(sys.executable, ["-S", "-c", code]), protocol="legacy")


async def test_daemon_that_hid_from_its_mark_ends_with_its_server(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with McpManager([spec(DAEMON)]) as mcp:
            assert await mcp.wait_ready()
            daemon = int((tmp_path / "daemon").read_text())
            assert identify(daemon) is not None
        assert identify(daemon) is None


async def test_server_that_we_ended_in_its_handshake_is_told_by_what_it_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(family, "STDIN_GRACE", 0.1)
    with anyio.fail_after(30):
        async with McpManager([spec(DEAF)]) as mcp:
            assert not await mcp.wait_ready()
            said = mcp.status()["s"].last_error or ""
    assert "it closed its output" in said
    assert "signal" not in said
