"""No order of signals leads out of the table, leaves a call waiting, or starts a server too often."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.property.simulating import CrashLoop, Life, crash_for_hours, live

from dragoman.model import ServerState
from dragoman.server.lifecycle import Signal

pytestmark = pytest.mark.requirement("kode-lifecycle.reconnect", "otter-crash", "legal-error.lost")

S = ServerState


class AnyLife(RuleBasedStateMachine):
    """Hypothesis chooses what happens, and when; `Life` asserts at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.life = Life(random.Random(0))

    @rule(seed=st.integers(0, 2**32))
    def chance(self, seed: int) -> None:
        self.life.chance.seed(seed)

    @rule()
    def start(self) -> None:
        self.life.signal(Signal.START)

    @rule()
    def call(self) -> None:
        self.life.call()

    @rule()
    def restart(self) -> None:
        self.life.signal(Signal.RESTART)
        assert self.life.state is S.CONNECTING
        assert not self.life.backoff.slow(self.life.now)

    @rule()
    def stop(self) -> None:
        self.life.signal(Signal.STOP)
        assert self.life.state is S.CLOSED

    @rule()
    def log_in(self) -> None:
        self.life.signal(Signal.LOGGED_IN)

    @rule(signal=st.sampled_from([Signal.LOST, Signal.LISTING_FAILED, Signal.UNUSED, Signal.LISTED]))
    @precondition(lambda self: self.life.connection is not None and self.life.connection.shaken)
    def happen(self, signal: Signal) -> None:
        assert self.life.connection is not None
        self.life.tell(self.life.connection, signal)

    @rule(seconds=st.sampled_from([0.01, 0.5, 1, 10, 100, 10_000]))
    def wait(self, seconds: float) -> None:
        self.life.run(self.life.now + seconds)

    @invariant()
    def holds(self) -> None:
        self.life.check()

    def teardown(self) -> None:
        self.life.finish()


TestAnyLife = AnyLife.TestCase
TestAnyLife.settings = settings(stateful_step_count=40)


@given(seed=st.integers(0, 2**32))
def test_every_call_of_a_life_is_resolved_exactly_once(seed: int) -> None:
    life = live(random.Random(seed))
    assert len(life.calls) > 0


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_ten_hours_of_crashing_stay_within_the_table(seed: int) -> None:
    life = crash_for_hours(random.Random(seed))
    assert len(life.opened) >= 36_000 / 72 / 2


def test_lives_reach_every_state() -> None:
    reached: set[ServerState] = set()
    for seed in range(50):
        life = Life(random.Random(seed))
        life.signal(Signal.START)
        for _ in range(200):
            life.run(life.now + 1)
            reached.add(life.state)
            if life.state is S.FAILED:
                life.call()
        life.finish()
        reached.add(life.state)
    assert reached | {S.IDLE} == set(ServerState)


def test_crash_loop_is_shown_as_one() -> None:
    life = CrashLoop(random.Random(1))
    life.signal(Signal.START)
    life.run(1000)
    assert life.backoff.slow(life.now)
    life.finish()
