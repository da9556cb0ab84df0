"""Faults, one at a time, each in the code of one requirement: a test that carries the requirement fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scripts.mutants import CAUGHT, SURVIVED, Copy, read_faults

if TYPE_CHECKING:
    from scripts.mutants import Fault
    from tests.prove.conftest import Proof

FAULTS = read_faults()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("mutants"))


def test_without_a_fault_every_requirement_holds(copy: Copy, proof: Proof) -> None:
    outcome = copy.run(sorted({fault.requirement for fault in FAULTS}))
    assert outcome.code == SURVIVED, outcome.output
    proof.record(requirements=len({fault.requirement for fault in FAULTS}))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught_by_a_test_of_its_requirement(copy: Copy, fault: Fault, proof: Proof) -> None:
    with copy.broken(fault):
        outcome = copy.run([fault.requirement])
    assert outcome.code == CAUGHT, f"{fault}\n{outcome.output}"
    proof.record(seconds=round(outcome.seconds, 1))
