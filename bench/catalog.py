"""Measure big catalogs: 10,000 tools on one server, and 50 tools on each of 200 servers.

A stall is the CPU time of the event loop's thread between two turns of the loop. Python's garbage collector
is off meanwhile: a full collection visits all objects of the process, whatever made them. `fleet` and `peers`
measure the time of a start.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.fleet import FOLDERS
from dragoman import McpManager, ServerSpec, Stdio, ToolRegistry
from dragoman.tools.definition import admit

SERVER = str(Path(__file__).with_name("echo_server.py"))
MANY = 10_000
STALL_GOAL, EXPORT_GOAL, UNKNOWN_GOAL = 0.05, 0.5, 0.005
TEMPLATE = "mcp_{server}_{tool}"


def main() -> None:
    """Measure and print; lock files are written to a temporary folder."""
    before = {name: os.environ.get(name) for name in FOLDERS}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for servers in (1, 200):
                # With other tools, `s0` would be a server that changed.
                os.environ.update({name: str(Path(folder, name, str(servers))) for name in FOLDERS})
                _register(servers)
                asyncio.run(_connect(servers))
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def definition(number: int) -> dict[str, Any]:
    """Return the definition of a tool with four parameters."""
    texts = {"type": "string", "description": "The path of the file"}
    return {
        "name": f"list_{number}_records",
        "description": f"List the records of account {number}, with their dates and amounts.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": texts,
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50},
                "tags": {"type": "array", "items": {"type": "string"}},
                "mode": {"type": "string", "enum": ["fast", "slow", "other"]},
            },
            "required": ["path"],
        },
    }


def _register(servers: int) -> None:
    listings = [
        (ServerSpec(f"s{one}", Stdio("none")), [definition(number) for number in range(MANY // servers)])
        for one in range(servers)
    ]
    registry = ToolRegistry()
    gc.collect()
    start = time.process_time()
    for spec, listing in listings:
        registry.replace_server(spec.name, admit(listing, spec, template=TEMPLATE)[0])
    registered = time.process_time() - start
    registry.export("openai")
    exported = time.process_time() - start
    _print(
        servers, "register and export", exported, EXPORT_GOAL, f"; registered after {registered * 1e3:.0f} ms"
    )
    best = min(_timed(registry, f"mcp_s0_list_{number}_recrods") for number in range(5))
    _print(servers, "an unknown name", best, UNKNOWN_GOAL)


def _timed(registry: ToolRegistry, name: str) -> float:
    start = time.process_time()
    assert registry.find(name) is None
    assert registry.unknown(name).suggestions
    return time.process_time() - start


async def _connect(servers: int) -> None:
    stdio = Stdio(sys.executable, ["-S", SERVER, str(MANY // servers)])
    specs = [ServerSpec(f"s{one}", stdio) for one in range(servers)]
    stalls: list[float] = []

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            stalls.append(now - before)
            before = now

    import_module("dragoman.server.connection")
    gc.collect()
    gc.disable()
    try:
        async with McpManager(specs, cache=False) as mcp:
            watching = asyncio.create_task(watch())
            assert await mcp.wait_ready()
            watching.cancel()
            assert len(mcp.tools()) == MANY
    finally:
        gc.enable()
    _print(servers, "the longest stall", max(stalls), STALL_GOAL)


def _print(servers: int, what: str, seconds: float, goal: float, more: str = "") -> None:
    label = f"{servers} × {MANY // servers}: {what}"
    verdict = "met" if seconds <= goal else "MISSED"
    print(f"{label:<34} {seconds * 1e3:7.1f} ms of CPU  (goal {goal * 1e3:g} ms: {verdict}){more}")
