"""kill -9 of 20 servers, each once, in random order, during 10,000 calls; the seed is printed."""

from __future__ import annotations

import random

import anyio
import pytest
from tests.behaviour.chaos import storm

pytestmark = pytest.mark.anyio

DEADLINE = 10.0


@pytest.mark.parametrize("run", range(3))
async def test_ten_thousand_calls_while_twenty_servers_are_killed(run: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    with anyio.fail_after(600):
        outcome = await storm(servers=20, calls=10_000, timeout=DEADLINE, seed=seed)
    print(outcome)
    assert outcome.strange == []
    assert outcome.answered + outcome.lost + outcome.refused + outcome.timed_out == 10_000
    assert outcome.longest <= DEADLINE + 1
    assert outcome.latest_loss <= 0.5
    assert outcome.recovery <= 5
