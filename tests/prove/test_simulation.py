"""100,000 simulated lives, 1,000 crash loops of ten hours, each replayable by its seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.property.simulating import crash_for_hours, live

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

LIVES = 100_000
CRASH_LOOPS = 1_000


def test_a_hundred_thousand_lives(proof: Proof) -> None:
    first = proof.seed
    calls = starts = 0
    for seed in range(first, first + LIVES):
        try:
            life = live(random.Random(seed))
        except AssertionError as exc:
            exc.add_note(f"seed {seed}")
            raise
        calls += len(life.calls)
        starts += len(life.opened)
    proof.record(lives=LIVES, starts=starts, calls_each_resolved_once=calls)


def test_a_thousand_crash_loops_of_ten_hours(proof: Proof) -> None:
    first = proof.seed
    most = 0
    for seed in range(first, first + CRASH_LOOPS):
        try:
            life = crash_for_hours(random.Random(seed))
        except AssertionError as exc:
            exc.add_note(f"seed {seed}")
            raise
        most = max(most, len(life.opened))
    proof.record(crash_loops=CRASH_LOOPS, hours_each=10, most_starts=most)
