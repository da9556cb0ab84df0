"""The page of proofs: written from records of a run, one part at a time, with failures shown."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.write_proof import page

ROOT = Path(__file__).resolve().parents[2]
PROOFS = ROOT / "tests" / "prove"
SAMPLE = '''
"""So many calls,
over so many servers.

More that the page does not need.
"""
import pytest

@pytest.mark.parametrize("calls", [1000, 30000])
def test_calls_end(calls, proof):
    proof.record(seed_of_its_own=proof.seed, calls=calls, worst_seconds=calls / 7e5, kind="fine")

def test_it_holds(proof):
    proof.record(seen=1)
    assert not FAILS

@pytest.mark.skipif(True, reason="none here")
def test_with_another_python(proof): ...
'''


def prove(folder: Path, *words: str, fails: bool = False, seed: str = "7") -> dict[str, Any]:
    """Run a sample of proofs, and return the records that it leaves."""
    proofs = folder / "tests" / "prove"
    proofs.mkdir(parents=True, exist_ok=True)
    shutil.copy(PROOFS / "conftest.py", proofs)
    (proofs / "test_sample.py").write_text(SAMPLE.replace("FAILS", str(fails)), "utf-8")
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *words, proofs],
        cwd=folder,
        env={"SEED": seed, "PATH": "", "HOME": str(folder)},
        capture_output=True,
        check=False,
    )
    return {file.stem: json.loads(file.read_text("utf-8")) for file in (folder / ".cache/proof").glob("*")}


def test_a_run_leaves_its_figures_its_seed_and_its_versions(tmp_path: Path) -> None:
    record = prove(tmp_path)["sample"]
    assert (record["passed"], record["seed"]) == (True, 7)
    assert record["about"] == "So many calls, over so many servers."
    assert record["outcomes"] == {"passed": 3, "skipped": 1}
    assert {"Python", "dragoman", "mcp"} <= set(record["versions"])
    assert set(record["machine"]) == {"system", "cores", "memory"}
    seeds = [case["figures"].pop("seed_of_its_own", None) for case in record["cases"]]
    assert seeds[0] != seeds[1]
    assert record["cases"][0] == {
        "proof": "calls_end",
        "outcome": "passed",
        "figures": {"calls": 1000, "worst_seconds": 1000 / 7e5, "kind": "fine"},
    }
    again = prove(tmp_path)["sample"]
    assert [case["figures"].get("seed_of_its_own") for case in again["cases"]] == seeds
    other = prove(tmp_path, seed="8")["sample"]
    assert other["cases"][0]["figures"]["seed_of_its_own"] != seeds[0]


def test_a_failure_is_recorded_with_the_figures_it_had(tmp_path: Path) -> None:
    record = prove(tmp_path, fails=True)["sample"]
    assert not record["passed"]
    assert record["cases"][2] == {"proof": "it_holds", "outcome": "failed", "figures": {"seen": 1}}


def test_a_run_of_some_tests_of_a_part_leaves_no_record(tmp_path: Path) -> None:
    assert prove(tmp_path, "-k", "holds") == {}


def test_a_run_that_stops_early_counts_what_was_not_run(tmp_path: Path) -> None:
    record = prove(tmp_path, "--maxfail=1", fails=True)["sample"]
    assert not record["passed"]
    assert record["outcomes"] == {"passed": 2, "failed": 1, "not run": 1}


def record(*cases: dict[str, Any], **more: Any) -> dict[str, Any]:
    outcomes = [case["outcome"] for case in cases]
    return {
        "about": "So many calls.",
        "passed": "failed" not in outcomes,
        "outcomes": {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)},
        "date": "2026-11-16T03:09:25+00:00",
        "seconds": 90.0,
        "seed": 7,
        "versions": {"Python": "3.11.7", "mcp": "2.3.0"},
        "machine": {"system": "Linux on x86_64", "cores": "2", "memory": "8 GiB"},
        "cases": list(cases),
        **more,
    }


def case(outcome: str = "passed", **figures: Any) -> dict[str, Any]:
    return {"proof": "calls_end", "outcome": outcome, "figures": figures}


def test_the_page_shows_ranges_words_seeds_and_versions() -> None:
    text = page(
        {"chaos": record(case(calls=1000, worst=0.1234, kind="a"), case(calls=30000, worst=2, kind="b|c"))}
    )
    assert "| [chaos](#chaos) | passed | 2 | 90 | 2026-11-16 |" in text
    assert "- Passed: 2 passed, in 90 s, 2026-11-16 03:09:25 UTC" in text
    assert "- again: `make prove ONLY=chaos SEED=7`" in text
    assert "| calls end | 2 passed | calls 1,000 to 30,000; worst 0.123 to 2; kind a, b\\|c |" in text
    assert "- Python 3.11.7, mcp 2.3.0\n- Linux on x86_64, 2 cores, 8 GiB" in text
    assert "Together 2 minutes." in text


def test_the_page_shows_what_failed() -> None:
    text = page({"chaos": record(case(), case("failed"), case("skipped"))})
    assert "| [chaos](#chaos) | **failed** | 3 | 90 | 2026-11-16 |" in text
    assert "- **Failed**: 1 passed, **1 failed**, 1 skipped" in text


def test_a_new_part_replaces_its_section_and_keeps_the_others() -> None:
    old = page(
        {"chaos": record(case(calls=1)), "soak": record(case(calls=2), date="2026-01-01T00:00:00+00:00")}
    )
    new = page({"chaos": record(case(calls=3), seed=None, date="2026-12-24T00:00:00+00:00")}, old)
    assert "calls 1 |" not in new
    assert "calls 3 |" in new
    assert "- again: `make prove ONLY=chaos`\n" in new
    assert old.partition("## soak")[2] == new.partition("## soak")[2]
    assert "| [soak](#soak) | passed | 1 | 90 | 2026-01-01 |" in new
    assert page({}, new) == new


def test_a_part_that_is_gone_leaves_the_page() -> None:
    old = page({"chaos": record(case()), "soak": record(case())})
    assert page({}, old, parts=["soak"]) == page({"soak": record(case())})


def test_a_part_that_was_never_run_is_named() -> None:
    text = page({"chaos": record(case())}, parts=["chaos", "soak"])
    assert "Together 2 minutes.\n\nNot run at full size yet: `soak`.\n\n## chaos" in text
    assert page({"soak": record(case())}, text, parts=["chaos", "soak"]) == page(
        {"chaos": record(case()), "soak": record(case())}
    )


def test_the_page_is_in_order() -> None:
    text = (ROOT / "docs" / "proof.md").read_text("utf-8")
    parts = sorted(path.stem.removeprefix("test_") for path in PROOFS.glob("test_*.py"))
    assert page({}, text, parts) == text
    told = re.findall(r"^## (.+)$", text, re.MULTILINE)
    waiting = re.search(r"^Not run at full size yet: (.+)\.$", text, re.MULTILINE)
    told += re.findall(r"`(\w+)`", waiting[1]) if waiting else []
    assert sorted(told) == parts, "every part has its section, or is named as not run"
