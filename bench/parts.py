"""Measure the parts of a start and a close of twenty servers: the CPU of each, in whatever thread it runs.

The servers were started before. The parts are those that the SDK's client does not have. `fleet` and `peers`
compare the whole with other clients. The last lines are the memory of a new process after each import.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.fleet import FOLDERS, SERVERS, TOOLS, specs

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 8
PARTS = (
    ("starting the processes", "dragoman.server.process.spawn:_start"),
    ("  of it the process, by the watchdog", "dragoman.server.process.spawn:_Spawner.launch"),
    ("  of it the record of processes", "dragoman.server.process.spawn:Ledger.add"),
    ("  of it the identity of the process", "dragoman.server.process.spawn:identify"),
    ("search for left processes", "dragoman.server.process.family:descendants"),
    ("comparison with the pins", "dragoman.trust.pin_checker:PinChecker._is_known"),
    ("known tools", "dragoman.storage.manifests:ManifestMemory.recall"),
    ("manager and supervisors", "dragoman.manager.manager:McpManager.__init__"),
    ("secrets to mask", "dragoman.trust.gate:Gate.register_secrets"),
    ("offering and withdrawing the tools", "dragoman.manager.catalog:ToolCatalog.update"),
    ("  of it checking the definitions", "dragoman.manager.catalog:admit"),
    ("  of it names and registration", "dragoman.tools.registry:ToolRegistry.replace_server"),
)
IMPORTS = (
    "dragoman.manager.manager",
    "mcp.client.session",
    "dragoman.server.connection",
    "jsonschema_rs",
    "dragoman.call",
    "mcp.server.mcpserver",
)
"""In the order of a program that makes a call; the last is what it does not import."""
MEMORY = """
import asyncio, gc, sys
from dragoman.server.late_import import late_import_module
for name in sys.argv[1:]:
    asyncio.run(late_import_module(name))
    gc.collect()
    with open("/proc/self/statm") as file:
        print(name, int(file.read().split()[1]) * 4096)
"""


def main() -> None:
    """Measure and print; lock files are written to a temporary folder."""
    before = {name: os.environ.get(name) for name in FOLDERS}
    taken: defaultdict[str, float] = defaultdict(float)
    import_module("dragoman.server.connection")
    for label, place in PARTS:
        _count(label, place, taken)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for tools in (1, TOOLS):
                # With other tools these would be servers that changed.
                os.environ.update({name: str(Path(folder, name, str(tools))) for name in FOLDERS})
                asyncio.run(_measure(tools, taken))
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})
    _memory()


def _count(label: str, place: str, taken: defaultdict[str, float]) -> None:
    """Add the CPU of a function to `taken` whenever it is called."""
    module, _, path = place.partition(":")
    owner: Any = import_module(module)
    *outer, name = path.split(".")
    for one in outer:
        owner = getattr(owner, one)
    function: Callable[..., Any] = getattr(owner, name)

    def counted(*args: Any, **more: Any) -> Any:
        start = time.thread_time()
        try:
            return function(*args, **more)
        finally:
            taken[label] += time.thread_time() - start

    setattr(owner, name, counted)


async def _measure(tools: int, taken: defaultdict[str, float]) -> None:
    from dragoman import McpManager

    start = 0.0
    for number in range(ROUNDS + 2):
        if number == 2:
            # The first rounds import, pin and create files.
            taken.clear()
            gc.collect()
            start = time.process_time()
        async with McpManager(specs(tools)) as mcp:
            assert await mcp.wait_ready()
    whole = (time.process_time() - start) / ROUNDS
    print(f"{SERVERS} servers × {tools}: start and close {whole * 1e3:7.1f} ms of CPU")
    for label, _ in PARTS:
        print(f"  {label:<40} {taken[label] / ROUNDS * 1e3:7.1f} ms")


def _memory() -> None:
    command = [sys.executable, "-c", MEMORY, *IMPORTS]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    for line in said.splitlines():
        name, size = line.split()
        print(f"memory after `import {name}`".ljust(56), f"{int(size) / 2**20:5.1f} MiB")
