"""The inbox: a thousand calls, callers and answerers that are killed, answers that count for nothing.

A call runs at most once, and never without an approval; every entry ends as exactly one of sent, denied,
expired or abandoned.
"""

from __future__ import annotations

import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.errors import ApprovalError, DragomanError
from dragoman.model import PendingApproval
from dragoman.storage.inbox import InboxStore

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

pytestmark = pytest.mark.timeout(600)

CALLS, CALLERS, KILLS = 1_000, 8, 10
LATENCY = 0.05
PROGRAM = Path(__file__).with_name("inbox_program.py")
PATIENCE = 120.0


def started(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def lines(folder: Path, kind: str) -> list[list[str]]:
    found = [
        line.split() for path in folder.glob(f"{kind}-*") for line in path.read_text("utf-8").splitlines()
    ]
    return sorted(found)


def test_a_thousand_calls_survive_kills_of_callers_and_answerers(proof: Proof, tmp_path: Path) -> None:
    chance = random.Random(proof.seed)
    of_each = CALLS // CALLERS
    # Four callers end by themselves, when what nobody answers has run out of time; the others are killed.
    callers = {f"c{n}": started("ask", tmp_path, f"c{n}", of_each, 15) for n in range(CALLERS)}
    until = time.monotonic() + PATIENCE
    while len(lines(tmp_path, "asked")) < CALLS:
        assert time.monotonic() < until, "the calls do not wait"
        time.sleep(0.05)
    peak = len(lines(tmp_path, "asked"))
    number = 0

    def new_answerer() -> subprocess.Popen[str]:
        nonlocal number
        number += 1
        return started("answer", tmp_path, f"answerer-{number}", chance.randrange(2**32))

    answerers = [new_answerer(), new_answerer()]
    doomed = ["caller"] * (CALLERS // 2) + ["answerer"] * (KILLS - CALLERS // 2)
    chance.shuffle(doomed)
    killed: set[str] = set()
    for who in doomed:
        time.sleep(chance.uniform(0.05, 0.3))
        if who == "caller":
            name = f"c{len(killed)}"
            killed.add(name)
            child = callers[name]
        else:
            child = answerers.pop(chance.randrange(len(answerers)))
            answerers.append(new_answerer())
        child.send_signal(signal.SIGKILL)
        child.communicate()
    for name, child in callers.items():
        child.communicate(timeout=PATIENCE)
        assert (child.returncode == 0) == (name not in killed)
    for child in answerers:
        child.kill()
        child.communicate()
    with InboxStore() as store:
        entries = {one.id: one for one in store.pending(decided=True)}
    assert list(InboxStore().folder.glob("*.owner")) == []
    asked = dict(lines(tmp_path, "asked"))
    ran = Counter(call for call, _ in lines(tmp_path, "ran"))
    ended = dict(lines(tmp_path, "ended"))
    states = Counter(one.state for one in entries.values())
    assert len(asked) == len(entries) == CALLS
    assert states.keys() <= {"sent", "denied", "expired", "abandoned"}
    assert max(ran.values()) == 1
    for call, identifier in asked.items():
        state, caller = entries[identifier].state, call.partition("-")[0]
        assert not ran[call] or state == "sent", call
        assert state != "abandoned" or caller in killed, call
        if caller not in killed:
            assert ran[call] == (state == "sent"), call
            assert ended[call] == ("ok" if state == "sent" else "refused"), call
    approved = {identifier for identifier, said in lines(tmp_path, "said") if said == "yes"}
    # An answerer that was killed may have answered without having said so.
    assert len({asked[call] for call in ran} - approved) <= KILLS
    assert all(entries[asked[call]].answered_by.startswith("answerer-") for call in ran)
    proof.record(
        calls=CALLS,
        waiting_at_once=peak,
        kills=len(doomed),
        ran=len(ran),
        ran_twice=0,
        ran_without_approval=0,
        **dict(sorted(states.items())),
    )


def test_a_call_goes_on_right_after_the_answer(proof: Proof, tmp_path: Path) -> None:
    count = 100
    child = started("ask", tmp_path, "c", count, 60)
    answered: dict[str, float] = {}
    with InboxStore() as store:
        while len(lines(tmp_path, "asked")) < count:
            time.sleep(0.02)
        for one in store.pending():
            answered[one.arguments["call"]] = time.time()
            store.answer(one.id, allow=True, by="ann")
            time.sleep(0.05)
    child.communicate(timeout=PATIENCE)
    took = sorted(float(at) - answered[call] for call, at in lines(tmp_path, "ran"))
    assert len(took) == count
    p95 = took[int(count * 0.95)]
    proof.record(median_seconds=round(statistics.median(took), 4), p95_seconds=round(p95, 4))
    assert p95 <= LATENCY


def test_answers_that_count_for_nothing(proof: Proof) -> None:
    chance = random.Random(proof.seed)

    def put(store: InboxStore, seconds: float = 60.0) -> str:
        now = time.time()
        one = PendingApproval(
            id="", server="s", tool="t", original_name="t", asked_at=now, expires_at=now + seconds
        )
        return store.ask(one, f"{chance.random()}").id

    refused = 0

    def attempt(store: InboxStore, identifier: str, **given: Any) -> None:
        nonlocal refused
        with pytest.raises(ApprovalError):
            store.answer(identifier, **{"allow": True, "by": "mallory", **given})
        refused += 1

    with InboxStore() as own, InboxStore(user="bob") as foreign, InboxStore() as asker:
        waiting = [put(asker) for _ in range(50)]
        for one in waiting:
            attempt(foreign, one)  # Another user's.
            attempt(own, chance.choice([one[:-1], one.upper() + "0", f"{one}' OR 1=1 --", "", "%", "../x"]))
            attempt(own, one, always="server")  # A rule that was not shown.
        for one in waiting[:20]:
            own.answer(one, allow=False, by="ann")
            attempt(own, one)  # A replay.
            assert not asker.claim(one)
        for one in waiting[20:40]:
            own.answer(one, allow=True, by="ann")
            assert not own.claim(one)  # Of another process.
            assert asker.claim(one)
            attempt(own, one)
            assert not asker.claim(one)
        for _ in range(30):
            attempt(own, put(asker, seconds=-1.0))  # Too late.
        asker.close()
        for one in waiting[40:]:
            attempt(own, one)  # Its caller has gone.
        with pytest.raises(DragomanError):
            own.get("nothing")
        states = Counter(one.state for one in own.pending(decided=True))
    assert refused >= 200
    assert states == {"denied": 20, "sent": 20, "expired": 30, "abandoned": 10}
    proof.record(refused=refused)
