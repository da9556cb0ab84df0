"""A million calls over 20 servers that are killed and restarted: memory, descriptors and tasks stay as they are.

`SOAK_CALLS=…` makes it shorter. The first tenth is the warm-up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.behaviour.soaking import KILLS, SERVERS

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
CALLS = int(os.environ.get("SOAK_CALLS") or 1_000_000)
ROUNDS = 20
WARM_UP = ROUNDS // 10
MOST_GROWTH = 10 * 2**20


def test_a_million_calls_leave_the_process_as_it_was(proof: Proof) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.behaviour.soaking", str(CALLS), str(ROUNDS), str(proof.seed)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    outcome, readings = found["outcome"], found["readings"]
    warm, later = readings[WARM_UP], readings[WARM_UP + 1 :]
    growth = max(reading["rss"] for reading in later) - warm["rss"]
    proof.record(
        calls=CALLS,
        servers=SERVERS,
        kills=found["kills"],
        restarts=found["restarts"],
        answered=outcome["answered"],
        lost=outcome["lost"],
        refused=outcome["refused"],
        timed_out=outcome["timed_out"],
        calls_per_second=round(CALLS / found["seconds"]),
        RSS_after_warm_up_MiB=warm["rss"] / 2**20,
        most_RSS_growth_MiB=growth / 2**20,
        descriptors=", ".join(map(str, sorted({reading["descriptors"] for reading in readings}))),
        tasks=", ".join(map(str, sorted({reading["tasks"] for reading in readings}))),
    )
    assert outcome["strange"] == []
    assert outcome["answered"] + outcome["lost"] + outcome["refused"] + outcome["timed_out"] == CALLS
    assert found["kills"] >= ROUNDS * KILLS * 0.9
    assert growth < MOST_GROWTH
    assert {(reading["descriptors"], reading["tasks"]) for reading in later} == {
        (warm["descriptors"], warm["tasks"])
    }
