"""How long twenty servers take: from the start to all their tools, and with what is known from the last time.

The first row is against `asyncio.gather` over the SDK's clients, both with `mcp` imported already; its cost
stands beside. The second is CPU in a new process that has imported `McpManager`, whose cost stands beside,
until `manager.tools()` has all tools of an earlier run.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pairs import report

if TYPE_CHECKING:
    from dragoman import ServerSpec

SERVER = str(Path(__file__).with_name("echo_server.py"))
SERVERS, TOOLS, ROUNDS = 20, 50, 5
START_GOAL = 0.8
WARM_GOAL_SECONDS = 0.025
IMPORT = "import time; t = time.process_time(); import mcp; print(time.process_time() - t)"
WARM = """
import asyncio, json, sys, time
from pathlib import Path
start = time.process_time()
from dragoman import McpManager, ServerSpec, Stdio
imported = time.process_time()
command, names, folder = json.loads(sys.argv[1])
async def run():
    async with McpManager([ServerSpec(name, Stdio(*command)) for name in names], cache=Path(folder)) as mcp:
        tools = len(mcp.tools())
        known = time.process_time()
        print(json.dumps([known - imported, imported - start, tools, "mcp" in sys.modules]))
asyncio.run(run())
"""


def main() -> None:
    """Measure and print."""
    asyncio.run(_start())
    _warm()


def _specs(tools: int) -> list[ServerSpec]:
    from dragoman import ServerSpec, Stdio

    return [ServerSpec(f"s{number}", Stdio(*_command(tools))) for number in range(SERVERS)]


def _command(tools: int) -> tuple[str, list[str]]:
    return sys.executable, ["-S", SERVER, str(tools)]


async def _start() -> None:
    # Both need it, and neither is to blame for what it costs.
    import_module("dragoman.server.connection")
    best = {"ours": float("inf"), "theirs": float("inf")}
    for _ in range(ROUNDS):
        best["theirs"] = min(best["theirs"], await _start_theirs())
        best["ours"] = min(best["ours"], await _start_ours())
    report(f"start to all tools, {SERVERS} servers", best["ours"], best["theirs"], START_GOAL)
    print(f"{'':<34} beside it `import mcp`: {min(_printed(IMPORT) for _ in range(3)):.2f} s of CPU")


async def _start_ours() -> float:
    from dragoman import McpManager

    start = time.perf_counter()
    async with McpManager(_specs(1), cache=False) as mcp:
        assert await mcp.wait_ready()
        assert len(mcp.tools()) == SERVERS
        return time.perf_counter() - start


async def _start_theirs() -> float:
    from mcp import Client, StdioServerParameters

    command, args = _command(1)
    listed = 0
    all_listed = asyncio.Event()

    async def run() -> None:
        nonlocal listed
        async with Client(StdioServerParameters(command=command, args=args)) as client:
            assert len((await client.list_tools()).tools) == 1
            listed += 1
            if listed == SERVERS:
                all_listed.set()
            await all_listed.wait()

    start = time.perf_counter()
    running = asyncio.gather(*(run() for _ in range(SERVERS)))
    await all_listed.wait()
    seconds = time.perf_counter() - start
    await running
    return seconds


def _warm() -> None:
    names = [spec.name for spec in _specs(TOOLS)]
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_fill(Path(folder)))
        arguments = json.dumps([_command(TOOLS), names, folder])
        taken: list[tuple[float, float, int, bool]] = [_printed(WARM, arguments) for _ in range(ROUNDS * 2)]
    assert {tools for _, _, tools, _ in taken} == {SERVERS * TOOLS}
    seconds = min(seconds for seconds, _, _, _ in taken)
    importing = min(importing for _, importing, _, _ in taken)
    imported = any(imported for _, _, _, imported in taken)
    verdict = "met" if seconds <= WARM_GOAL_SECONDS and not imported else "MISSED"
    label = f"known tools, {SERVERS} servers × {TOOLS}"
    without = "with" if imported else "without"
    print(
        f"{label:<34} dragoman {seconds * 1e3:7.1f} ms of CPU, {without} `mcp` imported  "
        f"(goal {WARM_GOAL_SECONDS * 1e3:.0f} ms without: {verdict})"
    )
    print(f"{'':<34} beside it importing `McpManager`: {importing * 1e3:.1f} ms of CPU")


async def _fill(folder: Path) -> None:
    from dragoman import McpManager

    async with McpManager(_specs(TOOLS), cache=folder) as mcp:
        assert await mcp.wait_ready()


def _printed(program: str, *arguments: str) -> Any:
    """Run a program in a process of its own, and return what it printed, as JSON."""
    command = [sys.executable, "-c", program, *arguments]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
