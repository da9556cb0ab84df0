"""Faults, one at a time, each in the code of one requirement: a test that carries the requirement fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scripts.mutants import CAUGHT, SURVIVED, Copy, read_faults, try_faults

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.mutants import Fault, Outcome
    from tests.prove.conftest import Proof

FAULTS = read_faults()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Fault, Outcome]:
    """Try the faults of this run's tests, several at the same time."""
    ours = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    asked = [item.callspec.params["fault"] for item in ours]
    return dict(try_faults(asked, tmp_path_factory.mktemp("mutants")))


def test_without_a_fault_every_requirement_holds(tmp_path: Path, proof: Proof) -> None:
    requirements = sorted({fault.requirement for fault in FAULTS})
    outcome = Copy(tmp_path).run(requirements)
    assert outcome.code == SURVIVED, outcome.output
    proof.record(requirements=len(requirements))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught_by_a_test_of_its_requirement(
    fault: Fault, outcomes: dict[Fault, Outcome], proof: Proof
) -> None:
    outcome = outcomes[fault]
    assert outcome.code == CAUGHT, f"{fault}\n{outcome.output}"
    proof.record(seconds=round(outcome.seconds, 1))
