"""A bulk run on a Ray cluster of three nodes on this machine, one of whose workers is killed half-way.

Usage: map_on_ray.py SERVER NOTES ROWS JOURNAL REPORTS; the last gets the reports of the run and of the repetition.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from dragoman import McpManager, ServerSpec, Stdio
from dragoman.adapters.ray import RayCluster
from dragoman.struct import asdict

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


def kill_one(notes: Path, size: int) -> int:
    """Kill a worker when the server's notes have grown to a size; return its process id."""
    while notes.stat().st_size < size or not (found := workers()):
        time.sleep(0.005)
    os.kill(found[0], signal.SIGKILL)
    return found[0]


async def main(server: str, notes: Path, rows: str, journal: str, half: int) -> str:
    spec = ServerSpec("rows", Stdio(sys.executable, [server, str(notes)]))
    how = {"arguments": {"text": "{text}"}, "journal": journal}
    async with McpManager([spec]) as mcp:
        run = mcp.map("mcp_rows_note", rows, on=RayCluster(workers=NODES), **how)
        killing = asyncio.create_task(asyncio.to_thread(kill_one, notes, half))
        first = await run.wait()
        killed = await killing
        counted = run.progress().done
        again = mcp.map("mcp_rows_note", rows, on=RayCluster(workers=NODES), repeat_unknown=True, **how)
        second = await again.wait()
    nodes = sum(node["Alive"] for node in ray.nodes())
    about = {"nodes": nodes, "killed": killed, "counted": counted}
    return json.dumps([asdict(first), asdict(second), about])


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(NODES - 1):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        server, notes, rows, journal, reports = sys.argv[1:]
        half = Path(rows).stat().st_size // 4  # the notes are half as long as the rows
        # Not to standard output: Ray prints there, too.
        Path(reports).write_text(asyncio.run(main(server, Path(notes), rows, journal, half)), "utf-8")
    finally:
        ray.shutdown()
        cluster.shutdown()
        # Workers end by themselves when their node is gone.
        until = time.monotonic() + 60
        while workers() and time.monotonic() < until:
            time.sleep(0.05)
