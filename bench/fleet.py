"""Measure the start of twenty servers: until all their tools are listed, and with cached tools.

The first rows compare with `asyncio.gather` over the SDK's clients. Both have imported `mcp`; the cost of the
import is printed separately. So is the CPU of the servers, which is most of the time: a busy machine changes
the ratio by a fifth, so one run proves little. The next rows are the CPU of this process. The last rows are
the CPU of a new process until `manager.tools()` returns all cached tools, counted after the import of
`McpManager`, and from `import dragoman`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pairs import report

if TYPE_CHECKING:
    from dragoman import ServerSpec
    from dragoman.model.server import SandboxLevel

SERVER = str(Path(__file__).with_name("echo_server.py"))
SERVERS, TOOLS, ROUNDS = 20, 50, 5
START_GOAL = 0.8
SANDBOXES: tuple[SandboxLevel, ...] = ("credentials", "strict")
WARM_GOAL_SECONDS = 0.025
CPU_GOAL = 0.8
FOLDERS = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
IMPORT = "import time; t = time.process_time(); import mcp; print(time.process_time() - t)"
WARM = """
import asyncio, json, sys, time
from pathlib import Path
import dragoman
start = time.process_time()
from dragoman import McpManager, ServerSpec, Stdio
imported = time.process_time()
command, names, folder = json.loads(sys.argv[1])
async def run():
    async with McpManager([ServerSpec(name, Stdio(*command)) for name in names], cache=Path(folder)) as mcp:
        tools = len(mcp.tools())
        known = time.process_time()
        heavy = sorted({"aiohttp", "jsonschema_rs", "mcp", "pydantic", "watchfiles"} & sys.modules.keys())
        print(json.dumps([known - imported, known - start, tools, heavy]))
asyncio.run(run())
"""


def main() -> None:
    """Measure and print; caches are written to a temporary folder."""
    before = {name: os.environ.get(name) for name in FOLDERS}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for tools in (1, TOOLS):
                os.environ.update({name: str(Path(folder, name, str(tools))) for name in FOLDERS})
                asyncio.run(_start(tools))
            _warm()
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def specs(tools: int, sandbox: SandboxLevel = "off") -> list[ServerSpec]:
    """Return the servers, each with this number of tools."""
    from dragoman import ServerSpec, Stdio

    command, args = _command(tools)
    return [ServerSpec(f"s{number}", Stdio(command, args, sandbox=sandbox)) for number in range(SERVERS)]


def _command(tools: int) -> tuple[str, list[str]]:
    return sys.executable, ["-S", SERVER, str(tools)]


async def _start(tools: int) -> None:
    # Both need this import, so it is not measured.
    import_module("dragoman.server.connection")
    best: dict[str, tuple[float, float]] = {}
    servers = float("inf")
    levels = {level: partial(_start_ours, sandbox=level) for level in SANDBOXES if tools == 1}
    for _ in range(ROUNDS):
        for name, start in {"theirs": _start_theirs, "ours": _start_ours, **levels}.items():
            gc.collect()
            before = _children_cpu()
            taken = await start(tools)
            if name not in levels:
                servers = min(servers, _children_cpu() - before)
            earlier = best.get(name, taken)
            best[name] = min(taken[0], earlier[0]), min(taken[1], earlier[1])
    label = f"{SERVERS} servers × {tools}"
    report(f"start to all tools, {label}", best["ours"][0], best["theirs"][0], START_GOAL)
    report(f"  our own CPU of it, {label}", best["ours"][1], best["theirs"][1], CPU_GOAL)
    cores = len(os.sched_getaffinity(0))
    each = servers / cores
    print(
        f"{'':<34} beside it the servers' CPU: {servers * 1e3:.0f} ms, {each * 1e3:.0f} ms on {cores} cores"
    )
    if tools == 1:
        for level in levels:
            more = (best[level][0] - best["ours"][0]) / SERVERS
            print(f"{'':<34} more in the sandbox `{level}`: {more * 1e3:.2f} ms for each server")
        print(f"{'':<34} beside it `import mcp`: {min(_printed(IMPORT) for _ in range(3)):.2f} s of CPU")


async def _start_ours(tools: int, sandbox: SandboxLevel = "off") -> tuple[float, float]:
    from dragoman import McpManager

    start, cpu = time.perf_counter(), time.process_time()
    async with McpManager(specs(tools, sandbox), cache=False) as mcp:
        assert await mcp.wait_ready()
        assert len(mcp.tools()) == SERVERS * tools
        return time.perf_counter() - start, time.process_time() - cpu


async def _start_theirs(tools: int) -> tuple[float, float]:
    from mcp import Client, StdioServerParameters

    command, args = _command(tools)
    listed = 0
    all_listed = asyncio.Event()

    async def run() -> None:
        nonlocal listed
        async with Client(StdioServerParameters(command=command, args=args)) as client:
            assert len((await client.list_tools()).tools) == tools
            listed += 1
            if listed == SERVERS:
                all_listed.set()
            await all_listed.wait()

    start, cpu = time.perf_counter(), time.process_time()
    running = asyncio.gather(*(run() for _ in range(SERVERS)))
    await all_listed.wait()
    taken = time.perf_counter() - start, time.process_time() - cpu
    await running
    return taken


def _children_cpu() -> float:
    """Return the CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _warm() -> None:
    names = [spec.name for spec in specs(TOOLS)]
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_fill(Path(folder, "manifests")))
        arguments = json.dumps([_command(TOOLS), names, str(Path(folder, "manifests"))])
        # Installed programs have bytecode; the source folder may not be writable.
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        taken: list[tuple[float, float, int, list[str]]] = [
            _printed(WARM, arguments, env=env) for _ in range(ROUNDS * 2)
        ]
    assert {tools for _, _, tools, _ in taken} == {SERVERS * TOOLS}
    seconds = min(seconds for seconds, _, _, _ in taken)
    counted = min(counted for _, counted, _, _ in taken)
    heavy = ", ".join(sorted({name for _, _, _, names in taken for name in names})) or "nothing heavy"
    verdict = "met" if seconds <= WARM_GOAL_SECONDS and heavy == "nothing heavy" else "MISSED"
    label = f"known tools, {SERVERS} servers × {TOOLS}"
    print(
        f"{label:<34} dragoman {seconds * 1e3:7.1f} ms of CPU, {heavy} imported  "
        f"(goal {WARM_GOAL_SECONDS * 1e3:.0f} ms: {verdict})"
    )
    print(f"{'':<34} with the modules that are imported on the way: {counted * 1e3:.1f} ms of CPU")


async def _fill(folder: Path) -> None:
    from dragoman import McpManager

    async with McpManager(specs(TOOLS), cache=folder) as mcp:
        assert await mcp.wait_ready()


def _printed(program: str, *arguments: str, env: dict[str, str] | None = None) -> Any:
    """Run a program in a new process, and return its output, parsed as JSON."""
    command = [sys.executable, "-c", program, *arguments]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True, env=env).stdout)
