"""Measure the rate of `mcp.map`, with its journal, compared with bare `mcp.call` at the same concurrency.

Both use the same small server; rounds alternate, and the best round of each counts, by the clock and by the
CPU of this process. A busy machine disturbs the clock more than the CPU.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman import McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SERVER = str(Path(__file__).with_name("echo_server.py"))
TOOL = "mcp_echo_echo"
GOAL = 0.9
ROWS = {1: 1500, 8: 4000, 32: 6000}
"""The rows of a round, by concurrency."""
ROUNDS = 9


def main() -> None:
    """Measure and print."""
    asyncio.run(_run())


async def _run() -> None:
    spec = ServerSpec("echo", Stdio(sys.executable, ["-S", SERVER]))
    with tempfile.TemporaryDirectory() as folder:
        async with McpManager([spec], cache=False) as mcp:
            await mcp.wait_ready()
            for at_once, rows in ROWS.items():
                await _compare(mcp, Path(folder), at_once, rows)


async def _compare(mcp: McpManager, folder: Path, at_once: int, rows: int) -> None:
    async def bare() -> None:
        numbers = iter(range(rows))

        async def work() -> None:
            for number in numbers:
                await mcp.call(TOOL, {"text": f"row {number}"})

        await asyncio.gather(*(work() for _ in range(at_once)))

    async def bulk() -> None:
        journal = folder / f"journal-{time.monotonic_ns()}"
        given = ({"text": f"row {number}"} for number in range(rows))
        report = await mcp.map(TOOL, given, concurrency=at_once, journal=journal).wait()
        assert report.ok == rows

    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for name, work in (("bare", bare), ("map", bulk)):
            wall, cpu = await _timed(work)
            old = best.get(name, (wall, cpu))
            best[name] = min(old[0], wall), min(old[1], cpu)
    wall, cpu = (best["bare"][at] / best["map"][at] for at in (0, 1))
    rate = rows / best["map"][0]
    verdict = "met" if wall >= GOAL else "MISSED"
    print(
        f"map, {at_once:>2} at once: {rate:7,.0f} rows/s, {wall:.0%} of bare calls "
        f"(goal {GOAL:.0%}: {verdict}); CPU {best['map'][1] / rows * 1e6:.0f} µs a row, {cpu:.0%}"
    )


async def _timed(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - wall, time.process_time() - cpu
