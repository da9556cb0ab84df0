"""Measure what grows with users and tools: memory of a tool in a client, and of a connection in the gateway.

`docs/scale.md` computes with these figures, and with those of the other benchmarks.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from bench.gateway import LEGACY, MODERN, Connection, Contender

SERVER = str(Path(__file__).with_name("echo_server.py"))
FEW, MANY = 50, 10_000
CLIENTS = 1000
TOKEN = "a-token-for-the-benchmark"
CLIENT = """
import asyncio, sys
from dragoman import McpManager, ServerSpec, Stdio

async def main(server, count):
    async with McpManager([ServerSpec("s", Stdio(sys.executable, [server, count]))], cache=False) as mcp:
        await mcp.wait_ready()
        assert len(mcp.tools()) == int(count)
        await mcp.call("mcp_s_echo", {"text": "a"})
        print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS")))

asyncio.run(main(*sys.argv[1:]))
"""


def main() -> None:
    """Measure and print."""
    few, many = (_client_kib(count) for count in (FEW, MANY))
    print(f"client, {FEW} tools: {few / 1024:.1f} MiB; {MANY:,} tools: {many / 1024:.1f} MiB")
    print(f"memory of a tool: {(many - few) / (MANY - FEW):.1f} KiB")
    with tempfile.TemporaryDirectory() as folder:
        for version in (MODERN, LEGACY):
            before, after = asyncio.run(_gateway(Path(folder), version))
            print(
                f"gateway, {version}: {before / 1024:.1f} MiB, {CLIENTS:,} clients: {after / 1024:.1f} MiB, "
                f"{(after - before) / CLIENTS:.1f} KiB each"
            )


def _client_kib(count: int) -> int:
    command = [sys.executable, "-c", CLIENT, SERVER, str(count)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


async def _gateway(folder: Path, version: str) -> tuple[int, int]:
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"s": {"command": sys.executable, "args": [SERVER]}}}))
    serve = [sys.executable, "-m", "dragoman", "serve", "--config", str(config), "--http", "0"]
    gateway = Contender(
        "dragoman", serve, "mcp_s_echo", headers={"Authorization": f"Bearer {TOKEN}"}, versions=(version,)
    )
    process = await asyncio.create_subprocess_exec(
        *serve,
        *("--token", TOKEN, "--no-access-log"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    connections: list[Connection] = []
    before = 0
    try:
        while b"serving at http" not in (line := await process.stdout.readline()):
            assert line, "the gateway ended"
        gateway.port = int(line.decode().rpartition(":")[2].partition("/")[0])
        for number in range(CLIENTS + 20):
            connection = Connection(gateway, version)
            await connection.open()
            await connection.call()
            connections.append(connection)
            if number == 19:  # warm: everything is imported, and the server behind it runs
                before = _rss(process.pid)
        return before, _rss(process.pid)
    finally:
        for connection in connections:
            connection.close()
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


def _rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
