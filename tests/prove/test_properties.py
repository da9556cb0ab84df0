"""Every property test again, with new examples and more of them than `make test` draws."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "tests" / "property").glob("test_*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_properties_hold_for_new_examples(file: Path, proof: Proof) -> None:
    words = ["-q", "-p", "no:cacheprovider", "-o", "timeout=1800", "--hypothesis-profile=prove"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--hypothesis-seed={proof.seed}", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"(\d+) passed", done.stdout)
    examples = hypothesis.settings.get_profile("prove").max_examples
    proof.record(properties=int(found[1]) if found else 0, examples_each_at_most=examples)
    assert done.returncode == 0, done.stdout[-6000:]
