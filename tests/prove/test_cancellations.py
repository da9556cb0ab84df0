"""1,000 random cancellations, 200 of them doubled, at any moment of a manager's life: clean within 6 seconds."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.faults import faulty

from dragoman import McpManager

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

pytestmark = pytest.mark.anyio

TIMES = 1000
DOUBLED = 200
AT_ONCE = 10
LIMIT = 6.0
MODES = [
    "sound",
    "sound",
    "modern",
    "slow-start",
    "mute",
    "mute-listing",
    "wrapper-leaves-child",
    "crash-at-start",
]


async def work(modes: list[str], kinds: list[str]) -> None:
    """Use a manager in every way, until it is cancelled."""
    async with McpManager([faulty(f"s{number}", mode) for number, mode in enumerate(modes)]) as mcp:
        await mcp.wait_ready(timeout=0.5)
        for kind in kinds:
            await asyncio.gather(
                *(mcp.call(f"mcp_s{number}_fault", {"kind": kind}, timeout=2) for number in range(len(modes)))
            )
            await mcp.restart("s0")


async def cancel_once(chance: random.Random, *, doubled: bool) -> float:
    modes = chance.sample(MODES, 2)
    kinds = chance.choices(["ok", "never", "exits", "late", "half-line", "junk"], k=3)
    task = asyncio.ensure_future(work(modes, kinds))
    await asyncio.wait({task}, timeout=chance.choice([0, 0.001, 0.01, 0.05, 0.2, 0.6, 1.5]) * chance.random())
    began = time.monotonic()
    task.cancel()
    if doubled:
        await asyncio.wait({task}, timeout=chance.choice([0, 0.001, 0.05, 0.5]) * chance.random())
        task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
    return time.monotonic() - began


async def test_random_cancellations_leave_nothing_behind(proof: Proof) -> None:
    chance = random.Random(proof.seed)
    doubled = [True] * DOUBLED + [False] * (TIMES - DOUBLED)
    chance.shuffle(doubled)
    # What is opened once for the whole process does not count.
    await cancel_once(chance, doubled=False)
    tasks, descriptors = len(asyncio.all_tasks()), descriptors_open()
    longest, turns = 0.0, iter(doubled)

    async def canceller() -> None:
        nonlocal longest
        for twice in turns:
            longest = max(longest, await cancel_once(chance, doubled=twice))

    with anyio.fail_after(3000):
        await asyncio.gather(*(canceller() for _ in range(AT_ONCE)))
    proof.record(cancellations=TIMES, of_them_doubled=DOUBLED, longest_until_clean_seconds=longest)
    assert longest <= LIMIT
    assert len(asyncio.all_tasks()) == tasks
    assert descriptors_open() <= descriptors
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # noqa: ASYNC222 -- it does not wait


def descriptors_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
