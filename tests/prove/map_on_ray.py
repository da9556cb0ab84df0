"""A bulk run on a Ray cluster of three nodes on this machine, one of whose workers is killed half-way.

Usage: map_on_ray.py SERVER NOTES ROWS JOURNAL; prints the reports of the run and of the repetition as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.adapters.ray import RayCluster

NODES = 3


def workers() -> list[int]:
    """Return the processes of Ray Data's actors in this session."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes()
                session = os.getsid(int(folder.name))
            except OSError:
                continue
            if words.startswith(b"ray::") and b"MapWorker" in words and session == os.getsid(0):
                found.append(int(folder.name))
    return found


async def kill_one(notes: Path, size: int) -> int:
    """Kill a worker when the server's notes have grown to a size; return its process id."""
    while notes.stat().st_size < size or not (found := workers()):
        await asyncio.sleep(0.005)
    os.kill(found[0], signal.SIGKILL)
    return found[0]


async def main(server: str, notes: Path, rows: str, journal: str) -> None:
    spec = ServerSpec("rows", Stdio(sys.executable, [server, str(notes)]))
    how = {"arguments": {"text": "{text}"}, "journal": journal}
    half = Path(rows).stat().st_size // 4
    async with McpManager([spec]) as mcp:
        run = mcp.map("mcp_rows_note", rows, on=RayCluster(workers=NODES), **how)
        killing = asyncio.create_task(kill_one(notes, half))
        first = await run.wait()
        killed = await killing
        counted = run.progress().done
        again = mcp.map("mcp_rows_note", rows, on=RayCluster(workers=NODES), repeat_unknown=True, **how)
        second = await again.wait()
    nodes = sum(node["Alive"] for node in ray.nodes())
    print(json.dumps([asdict(first), asdict(second), {"nodes": nodes, "killed": killed, "counted": counted}]))


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(NODES - 1):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
    finally:
        ray.shutdown()
        cluster.shutdown()
