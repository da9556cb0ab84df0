"""The servers that the peers use (working, slow and dead ones), and which of them still run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

BENCH = Path(__file__).resolve().parents[1]
SLOW_SECONDS = 1.5
# The base interpreter, not an environment's: all peers start the same servers.
PYTHON = getattr(sys, "_base_executable", sys.executable)


def stdio(name: str, *options: str, tools: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a server over stdio."""
    command = [PYTHON, "-S", str(BENCH / "echo_server.py"), str(tools), *options]
    return {"name": name, "command": command, **fields}


def fleet(count: int, *, tools: int = 1, name: str = "s") -> list[dict[str, Any]]:
    """Return this number of working servers; the name is that of the first without its number."""
    return [stdio(f"{name}{number}", tools=tools) for number in range(count)]


def mixed(count: int) -> list[dict[str, Any]]:
    """Return this number of servers; the second is slow and the third is dead."""
    servers = fleet(count)
    servers[1] = stdio("slow", "--delay", str(SLOW_SECONDS), odd=True)
    servers[2] = dead()
    return servers


def dead() -> dict[str, Any]:
    """Return a server that exits at once."""
    return {"name": "dead", "command": [PYTHON, "-S", "-c", "raise SystemExit(1)"], "odd": True}


@asynccontextmanager
async def http(tools: int = 1) -> AsyncGenerator[str]:
    """Run a server over HTTP, and yield its URL."""
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, "-S", str(BENCH / "echo_http_server.py"), str(tools)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}/mcp"
    finally:
        process.terminate()
        await process.wait()


def processes(mark: str) -> dict[int, str]:
    """Return the processes with a marker in their arguments: servers and their helpers."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if mark in arguments:
            found[int(folder.name)] = "helper" if "-c" in arguments else "server"
    return found


async def settled(mark: str, seconds: float) -> dict[int, str]:
    """Wait until no process with the marker runs, or the time is over; return those that still run."""
    until = time.monotonic() + seconds
    while (left := processes(mark)) and time.monotonic() < until:  # noqa: ASYNC110 -- nothing tells of it
        await asyncio.sleep(0.05)
    return left


def end(pids: dict[int, str]) -> None:
    """Kill the remaining processes."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def gone(pid: int, seconds: float = 2.0) -> None:
    """Wait until a killed process is dead, reaped or not."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if _is_dead(pid):
            return
        await asyncio.sleep(0.01)


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2].startswith("Z")
    except OSError:
        return True
