"""Bulk work at full size: kills of the process, memory, and a Ray cluster that loses a worker.

The server writes down every call that it runs, so that a row that ran twice is seen there too.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from scripts.environment import create, fingerprint, install_lock, is_current, python_in, write_stamp
from tests.unit.cli.program import configure, dragoman, dragoman_command, entry

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

ROWS, KILLS, AT_ONCE = 100_000, 10, 32
RAY_ROWS = 3_000
ROOT = Path(__file__).resolve().parents[2]
SERVER = ROOT / "tests/servers/rowwise.py"

pytestmark = pytest.mark.timeout(1800)


def write_rows(path: Path, count: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("number,text\n")
        file.writelines(f"{number},row {number}\n" for number in range(1, count + 1))


def ran(notes: Path) -> Counter[int]:
    """Return how often the server ran each row."""
    return Counter(int(line.split()[1]) for line in notes.read_text("utf-8").splitlines())


def outcomes(path: Path) -> dict[int, str]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {int(row["number"]): row["outcome"] for row in csv.DictReader(file)}


def test_every_row_has_one_outcome_after_ten_kills(proof: Proof, tmp_path: Path) -> None:
    numbers = random.Random(proof.seed)
    notes, out = tmp_path / "notes", tmp_path / "out.csv"
    notes.touch()
    configure(rows=entry("rowwise.py", str(notes)))
    write_rows(tmp_path / "rows.csv", ROWS)
    command = ["map", "rows.note", "rows.csv", "-a", "text={text}", "-o", "out.csv", "-c", str(AT_ONCE)]
    size = len(f"row {ROWS // 2}\n")
    began = time.monotonic()
    for kill in range(1, KILLS + 1):
        # Somewhere in its share of the rows: in the middle of a call, or between two.
        until = (kill - numbers.random()) / (KILLS + 1) * ROWS * size
        child = subprocess.Popen(
            [*dragoman_command(), *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while notes.stat().st_size < until:
            assert child.poll() is None, "the run ended before it was killed"
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    done = dragoman(*command, "--json")
    seconds = time.monotonic() - began
    report = json.loads(done.stdout)
    found, calls = outcomes(out), ran(notes)
    assert set(found) == set(range(1, ROWS + 1))
    assert Counter(found.values()) == Counter(ok=report["ok"], unknown=report["unknown"])
    assert report["ok"] + report["unknown"] == ROWS
    assert report["unknown"] <= KILLS * AT_ONCE
    assert max(calls.values()) == 1
    assert {row for row, outcome in found.items() if outcome == "ok"} <= set(calls)
    assert set(found) - set(calls) <= set(report["unknown_rows"])
    lines = re.findall(r'^\{"row":(\d+),', Path("out.csv.journal").read_text("utf-8"), re.MULTILINE)
    assert Counter(Counter(lines).values()) == {1: ROWS}
    repeated = json.loads(dragoman(*command, "--json", "--repeat-unknown").stdout)
    assert (repeated["ok"], repeated["unknown"]) == (ROWS, 0)
    twice = {row for row, count in ran(notes).items() if count > 1}
    assert twice <= set(report["unknown_rows"])
    proof.record(
        rows=ROWS,
        kills=KILLS,
        outcomes=len(set(lines)),
        unknown=report["unknown"],
        unknown_that_ran=len(set(report["unknown_rows"]) & set(calls)),
        rows_run_twice=sum(count > 1 for count in calls.values()),
        seconds=round(seconds, 1),
    )


@pytest.fixture(scope="module")
def with_ray() -> Path:
    """The interpreter of an environment that has Ray and what dragoman needs, from the lock."""
    lock, environment = ROOT / "requirements/adapters/ray.txt", ROOT / ".cache" / "ray"
    stamp = fingerprint(lock)
    if not is_current(environment, "lock", stamp):
        create(environment)
        install_lock(environment, lock)
        write_stamp(environment, "lock", stamp)
    return python_in(environment)


def test_a_ray_cluster_that_loses_a_worker_sends_no_row_twice(
    proof: Proof, tmp_path: Path, with_ray: Path
) -> None:
    notes, rows = tmp_path / "notes", tmp_path / "rows.csv"
    notes.touch()
    write_rows(rows, RAY_ROWS)
    program = Path(__file__).with_name("map_on_ray.py")
    done = subprocess.run(
        [with_ray, program, SERVER, notes, rows, tmp_path / "journal", tmp_path / "reports"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "RAY_DISABLE_IMPORT_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    first, second, cluster = json.loads((tmp_path / "reports").read_text("utf-8"))
    assert (first["ok"] + first["unknown"], first["failed"]) == (RAY_ROWS, 0)
    assert (second["ok"], second["unknown"]) == (RAY_ROWS, 0)
    assert first["unknown"] <= 2 * 8, "one batch of the worker that was killed"
    assert cluster["nodes"] == 3
    assert cluster["counted"] == RAY_ROWS
    # The second run repeats what the first left unknown, and nothing else.
    twice = {row for row, count in ran(notes).items() if count > 1} - set(first["unknown_rows"])
    assert not twice
    assert len(ran(notes)) == RAY_ROWS
    lines = re.findall(
        r'^\{"row":(\d+),"status":"ok"', (tmp_path / "journal").read_text("utf-8"), re.MULTILINE
    )
    assert Counter(Counter(lines).values()) == {1: RAY_ROWS}
    proof.record(
        rows=RAY_ROWS, nodes=3, workers_killed=1, unknown=first["unknown"], rows_run_twice=len(twice)
    )


MEMORY = """
import asyncio, sys
from pathlib import Path
from dragoman import McpManager, ServerSpec, Stdio

def high():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

async def main(server, notes, journal, count):
    spec = ServerSpec("rows", Stdio(sys.executable, [server, notes]))
    rows = ({"text": f"row {number} {'x' * 200}"} for number in range(1, count + 1))
    async with McpManager([spec]) as mcp:
        await mcp.map("mcp_rows_note", ({"text": f"row {n}"} for n in range(2000))).wait()
        before = high()
        report = await mcp.map("mcp_rows_note", rows, journal=journal, concurrency=32).wait()
        assert report.ok == count, report
    print(before, high())

asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_does_not_grow_with_the_table(proof: Proof, tmp_path: Path) -> None:
    grown: dict[int, float] = {}
    for count in (ROWS // 10, ROWS):
        command = [
            sys.executable,
            "-c",
            MEMORY,
            SERVER,
            tmp_path / "notes",
            tmp_path / f"j{count}",
            str(count),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        before, after = map(float, done.stdout.split())
        grown[count] = after - before
    # Ten times the rows: the journal's states take nine bytes a row, and its map a megabyte.
    assert grown[ROWS] - grown[ROWS // 10] < 4
    proof.record(rows=ROWS, megabytes_more_than_before=round(grown[ROWS], 1))
