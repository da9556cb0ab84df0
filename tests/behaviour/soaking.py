"""A long life under load: many calls while servers are killed and restarted, and what the process keeps of it.

The small test and the proof share it. It runs as a process of its own, since a test framework holds on to what
is logged: `python -m tests.behaviour.soaking CALLS ROUNDS SEED` prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.behaviour.chaos import Outcome, note

from dragoman import McpManager, ServerSpec, ServerState, Stdio

ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "bench" / "echo_server.py"
SERVERS = 20
AT_ONCE = 64
KILLS = 5
"""In each round. A server killed in one round is restarted in the next, so none gets into a crash loop."""
STILL = 10
"""So many equal readings in a row mean that the last traces of a lost server are gone."""
SETTLING = 10.0
"""Seconds that this may take."""


@dataclass(frozen=True)
class Reading:
    """What the process holds while no call is under way."""

    rss: int
    """Bytes of memory that are resident."""
    descriptors: int
    tasks: int


@dataclass
class Soak:
    """What came of a long life."""

    outcome: Outcome = field(default_factory=Outcome)
    kills: int = 0
    restarts: int = 0
    seconds: float = 0.0
    readings: list[Reading] = field(default_factory=list[Reading])
    """The first before any call, then one after each round."""


class Life:
    """One manager, its servers, and their end in each round."""

    def __init__(self, mcp: McpManager, seed: int) -> None:
        self._mcp, self._chance = mcp, random.Random(seed)
        self._names = list(mcp.status())
        self._killed: list[str] = []
        self.found = Soak()

    async def round(self, calls: int) -> None:
        """Make so many calls; at random moments of it, kill some servers and restart those killed before."""
        moments = self._chance.sample(range(calls), len(self._killed) + KILLS)
        restarted = dict(zip(moments, self._killed, strict=False))
        self._killed = self._chance.sample(self._names, KILLS)
        doomed = dict(zip(moments[-KILLS:], self._killed, strict=True))
        queue = iter(range(calls))

        async def caller() -> None:
            for number in queue:
                if (name := restarted.get(number)) is not None:
                    await self._mcp.restart(name)
                    self.found.restarts += 1
                if (name := doomed.get(number)) is not None:
                    self._kill(name)
                await self._call(f"{number}")

        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))

    async def _call(self, token: str) -> None:
        name = self._chance.choice(self._names)
        note(self.found.outcome, await self._mcp.call(f"mcp_{name}_echo", {"text": token}), token)

    def _kill(self, name: str) -> None:
        # A server that is between two lives has no process.
        if (pid := self._mcp.status()[name].pid) is not None:
            os.kill(pid, signal.SIGKILL)
            self.found.kills += 1

    async def rest(self) -> None:
        """Wait until everybody is back, and take a reading once nothing changes any more."""
        events = self._mcp.events()
        while any(status.state is not ServerState.READY for status in self._mcp.status().values()):
            await anext(events)
        now, same, deadline = read(), 0, time.monotonic() + SETTLING
        while same < STILL and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
            before, now = now, read()
            same = same + 1 if (now.descriptors, now.tasks) == (before.descriptors, before.tasks) else 0
        self.found.readings.append(now)


async def soak(*, calls: int, rounds: int, seed: int) -> Soak:
    """Make so many calls in so many rounds."""
    began = time.monotonic()
    specs = [
        ServerSpec(f"s{number}", Stdio(sys.executable, ["-S", str(SERVER)])) for number in range(SERVERS)
    ]
    async with McpManager(specs, cache=False) as mcp:
        assert await mcp.wait_ready()
        life = Life(mcp, seed)
        await life.rest()
        for number in range(rounds):
            await life.round(calls * (number + 1) // rounds - calls * number // rounds)
            await life.rest()
    life.found.seconds = time.monotonic() - began
    return life.found


def read() -> Reading:
    """Take a reading of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return Reading(pages * os.sysconf("SC_PAGE_SIZE"), descriptors, len(asyncio.all_tasks()))


def main(calls: str, rounds: str, seed: str) -> None:
    """Print what came of it."""
    found = asyncio.run(soak(calls=int(calls), rounds=int(rounds), seed=int(seed)))
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
