"""kill -9 of 20 servers, each once, in random order, during 10,000 concurrent calls."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.behaviour.chaos import cull, storm

if TYPE_CHECKING:
    from tests.behaviour.chaos import Outcome
    from tests.prove.conftest import Proof

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("heap_of_the_program_alone")]

DEADLINE = 20.0
SERVERS = 20
AT_ONCE = 10_000


@pytest.mark.parametrize("run", range(3))
@pytest.mark.parametrize("calls", [AT_ONCE, 3 * AT_ONCE])
async def test_ten_thousand_concurrent_calls_while_twenty_servers_are_killed(
    calls: int, run: int, proof: Proof
) -> None:
    with anyio.fail_after(600):
        outcome = await storm(
            servers=SERVERS, calls=calls, at_once=AT_ONCE, timeout=DEADLINE, seed=proof.seed
        )
    record(proof, outcome, calls)
    assert outcome.most_at_once == AT_ONCE
    assert outcome.strange == []
    assert outcome.answered + outcome.lost + outcome.refused + outcome.timed_out == calls
    assert outcome.longest <= DEADLINE + 1
    assert outcome.latest_loss <= 0.5
    assert outcome.recovery <= 5


@pytest.mark.parametrize("run", range(3))
async def test_ten_thousand_calls_end_when_all_their_servers_are_killed_at_once(
    run: int, proof: Proof
) -> None:
    with anyio.fail_after(600):
        outcome = await cull(servers=SERVERS, calls=AT_ONCE, seed=proof.seed)
    record(proof, outcome, AT_ONCE)
    assert outcome.strange == []
    assert outcome.lost == outcome.most_at_once == AT_ONCE
    # Ten thousand errors are made in one go, at some 60 us each: the last of them has to wait for the others.
    assert outcome.latest_loss <= 1.0
    assert outcome.recovery <= 5


def record(proof: Proof, outcome: Outcome, calls: int) -> None:
    figures = asdict(outcome)
    proof.record(
        calls=calls,
        kills=SERVERS,
        **{name: figures[name] for name in ("most_at_once", "answered", "lost", "refused", "timed_out")},
        strange=len(outcome.strange),
        longest_call_seconds=outcome.longest,
        worst_loss_seconds=outcome.latest_loss,
        recovery_seconds=outcome.recovery,
    )
