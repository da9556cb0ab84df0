"""100,000 simulated lives, 1,000 crash loops of ten hours: the seed of a failing one is printed."""

from __future__ import annotations

import random

from tests.property.simulating import crash_for_hours, live

LIVES = 100_000
CRASH_LOOPS = 1_000


def test_a_hundred_thousand_lives(record_property) -> None:
    first = random.SystemRandom().randrange(2**32)
    print(f"first seed: {first}")
    calls = starts = 0
    for seed in range(first, first + LIVES):
        try:
            life = live(random.Random(seed))
        except AssertionError as exc:
            exc.add_note(f"seed {seed}")
            raise
        calls += len(life.calls)
        starts += len(life.opened)
    print(f"{LIVES} lives, {starts} starts, {calls} calls, each resolved exactly once")


def test_a_thousand_crash_loops_of_ten_hours() -> None:
    first = random.SystemRandom().randrange(2**32)
    print(f"first seed: {first}")
    most = 0
    for seed in range(first, first + CRASH_LOOPS):
        try:
            life = crash_for_hours(random.Random(seed))
        except AssertionError as exc:
            exc.add_note(f"seed {seed}")
            raise
        most = max(most, len(life.opened))
    print(f"{CRASH_LOOPS} crash loops of ten hours, at most {most} starts")
