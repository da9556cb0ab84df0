"""100 parallel calls over 5 servers, 2 of them killed; 200 random cancellations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.agent_storm import cancel_anywhere, kill_while_it_works

if TYPE_CHECKING:
    from pathlib import Path

    from tests.prove.conftest import Proof

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("run", range(5))
async def test_a_hundred_calls_over_five_servers_two_of_them_killed(
    tmp_path: Path, run: int, proof: Proof
) -> None:
    with anyio.fail_after(60):
        outcome = await kill_while_it_works(
            calls=100, servers=5, victims=2, seed=proof.seed, path=tmp_path / "talk.jsonl"
        )
    proof.record(calls=100, servers=5, killed=2, answered=outcome.answered, failed=outcome.failed)
    assert outcome.answered + outcome.failed == 100


async def test_two_hundred_cancellations_leave_nothing_half_done(tmp_path: Path, proof: Proof) -> None:
    with anyio.fail_after(120):
        cut = await cancel_anywhere(points=200, seed=proof.seed, path=tmp_path / "talk.jsonl")
    proof.record(cancellations=200, cut_short=cut)
    assert cut > 50
