"""Twenty thousand wrong files: each gives settings and problems with a place, and nothing else ever.

The seed is printed; `PROVE_SEED=… make prove` runs the same files again.
"""

from __future__ import annotations

import logging
import os
import random
from typing import TYPE_CHECKING

import pytest
from tests.property.mutating import FILES, FIXTURES, mutated
from tests.property.reading import check_file

if TYPE_CHECKING:
    from pathlib import Path

SEED = int(os.environ.get("PROVE_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
COUNT = 20_000
BATCHES = 20


@pytest.fixture(autouse=True)
def quiet_log() -> None:
    """Keep a hundred thousand expected errors out of the captured log."""
    logging.getLogger("dragoman").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("dragoman").setLevel(logging.NOTSET)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_wrong_file_gives_settings_and_problems_with_a_place(batch: int, tmp_path: Path) -> None:
    print(f"PROVE_SEED={SEED}")
    for number in range(COUNT // BATCHES):
        rng = random.Random(f"{SEED}.{batch}.{number}")
        original = rng.choice(FILES)
        path = tmp_path / f"{original.stem}{original.suffix}"
        path.write_bytes(mutated(original, rng))
        dialect = original.relative_to(FIXTURES).parts[0]
        try:
            check_file(path, dialect, original, rng.choice(["replace", "fields", "first"]))
        except Exception as error:
            kept = tmp_path / f"failed{original.suffix}"
            kept.write_bytes(path.read_bytes())
            error.add_note(f"PROVE_SEED={SEED}, file {batch}.{number} of {original}: see {kept}")
            raise
