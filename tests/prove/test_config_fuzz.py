"""Twenty thousand wrong files: each gives settings and problems with a place, and nothing else ever."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

import pytest
from tests.property.mutating import FILES, FIXTURES, mutated
from tests.property.reading import check_file

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.prove.conftest import Proof

COUNT = 20_000
BATCHES = 20


@pytest.fixture(autouse=True)
def quiet_log() -> Generator[None]:
    """Keep a hundred thousand expected errors out of the captured log."""
    logging.getLogger("dragoman").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("dragoman").setLevel(logging.NOTSET)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_wrong_file_gives_settings_and_problems_with_a_place(
    batch: int, tmp_path: Path, proof: Proof
) -> None:
    seed, dialects = proof.seed, set[str]()
    for number in range(COUNT // BATCHES):
        rng = random.Random(f"{seed}.{number}")
        original = rng.choice(FILES)
        path = tmp_path / f"{original.stem}{original.suffix}"
        path.write_bytes(mutated(original, rng))
        dialect = original.relative_to(FIXTURES).parts[0]
        dialects.add(dialect)
        try:
            check_file(path, dialect, original, rng.choice(["replace", "fields", "first"]))
        except Exception as error:
            kept = tmp_path / f"failed{original.suffix}"
            kept.write_bytes(path.read_bytes())
            error.add_note(f"file {number} of batch {batch}, made of {original}: see {kept}")
            raise
    proof.record(mutated_files=COUNT // BATCHES, dialects=len(dialects))
