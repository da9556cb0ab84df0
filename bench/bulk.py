"""Measure the rate of `mcp.map`, with its journal, compared with bare `mcp.call` at the same concurrency.

Both use the same small server, in rounds that alternate. A round is cut into slices, and the best slices
count, by the clock and by the CPU of this process: so neither what a run costs once nor what else the machine
does decides. What a run costs once is printed, too.
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
    from collections.abc import Iterator

SERVER = str(Path(__file__).with_name("echo_server.py"))
TOOL = "mcp_echo_echo"
GOAL = 0.9
AT_ONCE = (1, 8, 32)
SLICE = 512
"""Rows; a run reads half as many ahead."""
SLICES = 12
ROUNDS = 9
BEST = 0.1
"""The share of the slices that count."""


def main() -> None:
    """Measure and print."""
    asyncio.run(_run())


class Slices:
    """Numbers that note when they are taken."""

    def __init__(self) -> None:
        self.walls: list[float] = []
        self.cpus: list[float] = []

    def numbers(self) -> Iterator[int]:
        """Return the numbers of one round."""
        wall, cpu = time.perf_counter(), time.process_time()
        for number in range(SLICE * SLICES):
            if number and number % SLICE == 0:
                now, used = time.perf_counter(), time.process_time()
                if number > SLICE:  # the first slice has the costs of the beginning
                    self.walls.append((now - wall) / SLICE)
                    self.cpus.append((used - cpu) / SLICE)
                wall, cpu = now, used
            yield number

    def best(self) -> tuple[float, float]:
        """Return the seconds of a call in the best slices: by the clock, and of CPU."""
        count = max(1, int(len(self.walls) * BEST))
        return sum(sorted(self.walls)[:count]) / count, sum(sorted(self.cpus)[:count]) / count


async def _run() -> None:
    spec = ServerSpec("echo", Stdio(sys.executable, ["-S", SERVER]))
    with tempfile.TemporaryDirectory() as folder:
        async with McpManager([spec], cache=False) as mcp:
            await mcp.wait_ready()
            for at_once in AT_ONCE:
                await _compare(mcp, Path(folder), at_once)
            began, cpu = time.perf_counter(), time.process_time()
            await mcp.map(TOOL, [{"text": "a"}], journal=Path(folder, "one")).wait()
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            print(f"a run of one row: {wall * 1e3:.1f} ms, CPU {cpu * 1e3:.1f} ms")


async def _compare(mcp: McpManager, folder: Path, at_once: int) -> None:
    bare, bulk = Slices(), Slices()
    for round_ in range(ROUNDS):
        numbers = bare.numbers()

        async def work(numbers: Iterator[int] = numbers) -> None:
            for number in numbers:
                await mcp.call(TOOL, {"text": f"row {number}"})

        await asyncio.gather(*(work() for _ in range(at_once)))
        rows = ({"text": f"row {number}"} for number in bulk.numbers())
        journal = folder / f"{at_once}-{round_}"
        report = await mcp.map(TOOL, rows, concurrency=at_once, journal=journal).wait()
        assert report.ok == SLICE * SLICES
    (wall, cpu), (bulk_wall, bulk_cpu) = bare.best(), bulk.best()
    verdict = "met" if wall / bulk_wall >= GOAL else "MISSED"
    print(
        f"map, {at_once:>2} at once: {1 / bulk_wall:7,.0f} rows/s, {wall / bulk_wall:.0%} of bare calls "
        f"(goal {GOAL:.0%}: {verdict}); CPU {bulk_cpu * 1e6:.0f} µs a row, bare {cpu * 1e6:.0f} µs, "
        f"{cpu / bulk_cpu:.0%}"
    )
