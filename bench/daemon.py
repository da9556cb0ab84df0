"""Measure new processes that make one call, with the daemon and without, and calls over its socket.

Goals: a warm `dragoman call` uses at most 1.6 times the CPU of `import click`, and takes at most 120 ms and
0.15 times what a program with the SDK's `Client` takes for the same call, from its start to its end. A
program with `McpManager` takes at most 0.9 times that. A call over the socket costs at most 0.7 ms of CPU
more in the daemon than the same call inside one process. CPU times are those of the process and its
children, as the system counts them.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.gateway import cpu_of

ROUNDS = 25
CALLS = 2_000
SERVER = Path(__file__).with_name("echo_server.py")
REFERENCE = "import click"
BARE = "pass"
CLIENT = "import dragoman.gateway.client"
WARM = "dragoman call (warm)"
MANAGER, SDK = "one call with McpManager", "one call with the SDK's Client"
GOALS = {MANAGER: 0.9, WARM: 0.15}
"""The time of a process, from its start to its end, over that of the SDK's client."""
PROGRAMS = {
    MANAGER: """
import asyncio, sys
from dragoman import McpManager, ServerSpec, Stdio

async def main():
    async with McpManager([ServerSpec("echo", Stdio(sys.executable, [sys.argv[1]]))], cache=False) as mcp:
        await mcp.wait_ready()
        assert (await mcp.call("mcp_echo_echo", {"text": "hello"})).text == "hello"

asyncio.run(main())
""",
    SDK: """
import asyncio, sys
from mcp import Client, StdioServerParameters

async def main():
    async with Client(StdioServerParameters(command=sys.executable, args=[sys.argv[1]])) as client:
        await client.list_tools()
        assert (await client.call_tool("echo", {"text": "hello"})).content[0].text == "hello"

asyncio.run(main())
""",
}


def main() -> None:
    """Measure alternately, so that noise of the machine affects all alike, and print the ratios."""
    program = str(Path(sys.executable).with_name("dragoman"))
    commands = {
        BARE: [sys.executable, "-c", BARE],
        REFERENCE: [sys.executable, "-c", REFERENCE],
        CLIENT: [sys.executable, "-c", CLIENT],
        WARM: [program, "call", "echo", "echo", "text=hello"],
        **{name: [sys.executable, "-c", text, str(SERVER)] for name, text in PROGRAMS.items()},
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, ".config", "dragoman", "mcp.json")
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"mcpServers": {"echo": _entry()}}), "utf-8")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("XDG_", "DRAGOMAN_", "PYTHON"))
        }
        os.environ.clear()
        os.environ.update({**kept, "HOME": folder})
        subprocess.run([program, "daemon", "start"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        try:
            _cost(commands[WARM], folder)
            for _ in range(ROUNDS):
                for name, command in commands.items():
                    times[name].append(_cost(command, folder))
            _print(times)
            _calls(folder)
        finally:
            subprocess.run([program, "daemon", "stop"], cwd=folder, stdout=subprocess.DEVNULL, check=True)


def _entry() -> dict[str, object]:
    return {"command": sys.executable, "args": [str(SERVER)]}


def _cost(command: list[str], folder: str) -> tuple[float, float]:
    """Run a command; return its CPU and wall seconds."""
    began = time.perf_counter()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    taken = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        msg = f"{command} ended with {child.returncode}"
        raise RuntimeError(msg)
    return usage.ru_utime + usage.ru_stime, taken


def _print(times: dict[str, list[tuple[float, float]]]) -> None:
    cpu = {name: statistics.median(cost for cost, _ in taken) for name, taken in times.items()}
    for name, taken in times.items():
        wall = sorted(seconds for _, seconds in taken)
        ratio = cpu[name] / cpu[REFERENCE]
        print(
            f"{name:<32} CPU {cpu[name] * 1000:6.1f} ms = {ratio:4.2f} × `{REFERENCE}`, "
            f"wall best {wall[0] * 1000:6.1f} ms, median {statistics.median(wall) * 1000:6.1f} ms"
        )
    ratio, best = cpu[WARM] / cpu[REFERENCE], min(seconds for _, seconds in times[WARM])
    is_light, is_fast = ratio <= 1.6, best <= 0.12
    print(f"goals: 1.6 × CPU {'met' if is_light else 'MISSED'}, 120 ms {'met' if is_fast else 'MISSED'}")
    walls = {name: statistics.median(seconds for _, seconds in taken) for name, taken in times.items()}
    for name, goal in GOALS.items():
        share = walls[name] / walls[SDK]
        outcome = "met" if share <= goal else "MISSED"
        print(f"{name}: {share:.2f} × the time of the SDK's (goal {goal}: {outcome})")
    print(f"{CLIENT}: {(cpu[CLIENT] - cpu[BARE]) * 1000:.1f} ms of CPU over the bare interpreter")


def _calls(folder: str) -> None:
    """Compare calls over the socket with the same calls inside one process."""
    from dragoman.gateway.client import Client

    with Client(folder) as client:
        client.call("mcp_echo_echo", {"text": "hello"})
        pid = client.status()["pid"]
        before, own = cpu_of(pid), time.process_time()
        for _ in range(CALLS):
            client.call("mcp_echo_echo", {"text": "hello"})
        served, client_cost = cpu_of(pid) - before, time.process_time() - own
    alone = asyncio.run(_in_process(folder))
    per = 1000 / CALLS
    print(
        f"CPU per call: daemon {served * per:.3f} ms, client {client_cost * per:.3f} ms, in one process "
        f"{alone * per:.3f} ms; the daemon adds {(served - alone) * per:.3f} ms (goal 0.7)"
    )


async def _in_process(folder: str) -> float:
    from dragoman import McpManager, ServerSpec, Stdio

    spec = ServerSpec("echo", Stdio(sys.executable, [str(SERVER)], cwd=folder))
    async with McpManager([spec], cache=False, call_log=True) as mcp:
        await mcp.wait_ready()
        await mcp.call("mcp_echo_echo", {"text": "hello"})
        before = time.process_time()
        for _ in range(CALLS):
            await mcp.call("mcp_echo_echo", {"text": "hello"})
        return time.process_time() - before
