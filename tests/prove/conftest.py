"""What every proof stands on: one seed for the whole run, and a record of what was seen.

A proof asks for `proof`: `proof.seed` is its own, drawn from the run's (`SEED=…` repeats a run), and
`proof.record(kills=20)` keeps a figure. After the run each part, which is one file of this folder, has its
record in `.cache/proof/PART.json`; `scripts/write_proof.py` makes the page of them. A part of which only some
tests ran has no record.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

RECORDS = Path(__file__).resolve().parents[2] / ".cache" / "proof"
RUN_SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
FIGURES = pytest.StashKey[dict[str, int | float | str]]()


@dataclass
class Part:
    """What is known of one file of proofs."""

    about: str
    wanted: int = 0
    """How many tests it has."""
    partial: bool = False
    """Whether some of them were left out of this run."""
    seeded: bool = False
    began: float = 0.0
    ended: float = 0.0
    cases: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class Proof:
    """What a proof is given: a seed, and a place for its figures."""

    def __init__(self, item: pytest.Item, part: Part) -> None:
        self._name, self._part, self._figures = item.name, part, item.stash.setdefault(FIGURES, {})

    @property
    def seed(self) -> int:
        """A number of this proof's own, the same in every run with the same `SEED`."""
        self._part.seeded = True
        print(f"SEED={RUN_SEED}")
        return random.Random(f"{RUN_SEED} {self._name}").randrange(2**32)

    def record(self, **figures: float | str) -> None:
        """Keep figures for the page, and print them; a duration is in seconds and is named so."""
        self._figures |= figures
        print(", ".join(f"{name}: {value}" for name, value in figures.items()))


class Recorder:
    """Follows a run and writes the records."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.part_of(item).wanted += 1

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.part_of(item).partial = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        part = self.part_of(item)
        part.began = part.began or time.time()
        done = yield
        part.ended = time.time()
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        cases = self.part_of(item).cases
        if report.when == "setup":
            name = getattr(item, "originalname", "") or item.name
            cases.append({"proof": name.removeprefix("test_"), "outcome": "passed", "figures": {}})
        case = cases[-1]
        case["figures"] = item.stash.get(FIGURES, {})
        if report.skipped:
            case["outcome"] = "expected failure" if hasattr(report, "wasxfail") else "skipped"
        elif report.failed:
            case["outcome"] = "failed"
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.config.option.collectonly or any("::" in argument for argument in session.config.args):
            return
        if hasattr(session.config, "workerinput"):
            # A process of pytest-xdist has only its share of the cases.
            return
        for name, part in self._parts.items():
            if name and part.cases and not part.partial and part.wanted:
                RECORDS.mkdir(parents=True, exist_ok=True)
                text = json.dumps(_record(part), indent=2, ensure_ascii=False)
                (RECORDS / f"{name}.json").write_text(text + "\n", "utf-8")

    def part_of(self, item: pytest.Item) -> Part:
        # Only this folder has proofs, and another one may have a file of the same name.
        here = item.path.is_relative_to(Path(__file__).parent)
        name = item.path.stem.removeprefix("test_") if here else ""
        if name not in self._parts:
            about = (getattr(getattr(item, "module", None), "__doc__", "") or "").split("\n\n")[0]
            self._parts[name] = Part(" ".join(about.split()))
        return self._parts[name]


def _record(part: Part) -> dict[str, Any]:
    missing = part.wanted - len(part.cases)
    outcomes = Counter(case["outcome"] for case in part.cases)
    return {
        "about": part.about,
        "passed": not missing and not outcomes["failed"],
        "outcomes": outcomes | ({"not run": missing} if missing else {}),
        "date": datetime.fromtimestamp(part.began, UTC).isoformat(timespec="seconds"),
        "seconds": round(part.ended - part.began, 1),
        "seed": RUN_SEED if part.seeded else None,
        "versions": _versions(),
        "machine": _machine(),
        "cases": part.cases,
    }


@cache
def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    found |= {name: version(name) for name in ("dragoman", "mcp", "anyio", "pytest", "hypothesis")}
    try:
        node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return found
    return found | {"Node": node.stdout.strip().removeprefix("v")}


@cache
def _machine() -> dict[str, str]:
    """Say what the figures depend on; nothing in it tells whose machine it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": f"{platform.system()} on {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
    }


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(), "dragoman-proof")


@pytest.fixture
def heap_of_the_program_alone() -> Generator[None]:
    """Keep the test framework's objects out of the garbage collector, as no program has them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def proof(request: pytest.FixtureRequest) -> Proof:
    """A seed of this proof's own, and a place for its figures."""
    recorder = request.config.pluginmanager.get_plugin("dragoman-proof")
    assert isinstance(recorder, Recorder)
    return Proof(request.node, recorder.part_of(request.node))
