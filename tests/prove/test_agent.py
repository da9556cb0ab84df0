"""100 parallel calls over 5 servers, 2 of them killed; 200 random cancellations. The seed is printed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.agent_storm import cancel_anywhere, kill_while_it_works

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("run", range(5))
async def test_a_hundred_calls_over_five_servers_two_of_them_killed(tmp_path: Path, run: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    with anyio.fail_after(60):
        outcome = await kill_while_it_works(
            calls=100, servers=5, victims=2, seed=seed, path=tmp_path / "talk.jsonl"
        )
    print(outcome)
    assert outcome.answered + outcome.failed == 100


async def test_two_hundred_cancellations_leave_nothing_half_done(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    with anyio.fail_after(120):
        cut = await cancel_anywhere(points=200, seed=seed, path=tmp_path / "talk.jsonl")
    print(f"cut short: {cut}")
    assert cut > 50
