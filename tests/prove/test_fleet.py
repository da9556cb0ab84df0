"""50 servers, 10 of which hang at their start: the other 40 are usable as soon as they can be."""

from __future__ import annotations

import asyncio
import random
import time

import anyio
import pytest
from tests.behaviour.faults import faulty

from dragoman import McpManager

pytestmark = pytest.mark.anyio

SERVERS, HANGING = 50, 10
SLACK = 3.0


async def usable_after(names: list[str], hanging: set[str]) -> float:
    specs = [faulty(name, "mute" if name in hanging else "sound") for name in names]
    began = time.monotonic()
    async with McpManager(specs) as mcp:
        good = [name for name in names if name not in hanging]
        assert await mcp.wait_ready(good)
        results = await asyncio.gather(*(mcp.call(f"mcp_{name}_echo", {"text": name}) for name in good))
        took = time.monotonic() - began
        assert [result.text for result in results] == good
        assert all(mcp.status()[name].state == "connecting" for name in hanging)
    return took


async def test_hanging_servers_delay_nobody() -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    names = [f"s{number}" for number in range(SERVERS)]
    hanging = set(random.Random(seed).sample(names, HANGING))
    with anyio.fail_after(300):
        # Importing the SDK is not a server's start-up.
        await usable_after(names[:1], set())
        alone = await usable_after([name for name in names if name not in hanging], set())
        beside = await usable_after(names, hanging)
        first = await usable_after(
            [*sorted(hanging), *(name for name in names if name not in hanging)], hanging
        )
    print(f"40 alone: {alone:.2f} s; beside 10 hanging: {beside:.2f} s; behind 10 hanging: {first:.2f} s")
    assert beside <= alone + SLACK
    assert first <= alone + SLACK
