"""50 servers, 10 of which hang at their start: the other 40 are usable as soon as they can be."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.faults import faulty

from dragoman import McpManager

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

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


async def test_hanging_servers_delay_no_others(proof: Proof) -> None:
    names = [f"s{number}" for number in range(SERVERS)]
    hanging = set(random.Random(proof.seed).sample(names, HANGING))
    with anyio.fail_after(300):
        # Importing the SDK is not a server's start-up.
        await usable_after(names[:1], set())
        alone = await usable_after([name for name in names if name not in hanging], set())
        beside = await usable_after(names, hanging)
        first = await usable_after(
            [*sorted(hanging), *(name for name in names if name not in hanging)], hanging
        )
    proof.record(
        servers=SERVERS,
        hanging=HANGING,
        usable_alone_seconds=alone,
        beside_the_hanging_seconds=beside,
        behind_the_hanging_seconds=first,
    )
    assert beside <= alone + SLACK
    assert first <= alone + SLACK
