"""A complete run: install the peers, measure each row, record the result, write the page."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import speed
from bench.peers.conduct import conduct
from bench.peers.field import BY_NAME, PEERS, ROOT, Peer
from bench.peers.page import page
from bench.peers.plot import plot
from bench.peers.result import Result, Row, from_json, shown
from bench.peers.speed import QUICK, Effort

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

RECORD = ROOT / ".cache" / "peers" / "result.json"
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "performance.svg"
SPEEDS = {
    "imports": speed.imports,
    "starts": speed.starts,
    "cold": speed.cold_starts,
    "mixed": speed.mixed_starts,
    "calls": speed.calls,
    "memory": speed.memory,
}
USAGE = """\
python -m bench peers [--quick] [--only PEER,…] [--rows KIND,…] [--record FILE] [--page FILE]
  peers: {}
  kinds: {}"""


def main(arguments: list[str]) -> int:
    """Read the arguments and run."""
    kinds = [*SPEEDS, "conduct"]
    options = {"--only": "", "--rows": "", "--record": "", "--page": ""}
    quick = "--quick" in arguments
    rest = [argument for argument in arguments if argument != "--quick"]
    while rest:
        name = rest.pop(0)
        if name not in options or not rest:
            print(USAGE.format(", ".join(BY_NAME), ", ".join(kinds)))
            return 2
        options[name] = rest.pop(0)
    if options["--page"]:
        write(from_json(Path(options["--page"]).read_text("utf-8")))
        return 0
    names, rows = (
        _listed(options[key], known) for key, known in (("--only", list(BY_NAME)), ("--rows", kinds))
    )
    if names is None or rows is None:
        print(USAGE.format(", ".join(BY_NAME), ", ".join(kinds)))
        return 2
    peers = [peer for peer in PEERS if peer.name in names]
    if not install(peers):
        return 1
    result = asyncio.run(measure(peers, QUICK if quick else Effort(), rows))
    whole = not quick and len(peers) == len(PEERS) and rows == kinds
    record = Path(options["--record"]) if options["--record"] else RECORD if whole else None
    if record is not None:
        record.write_text(result.to_json(), "utf-8")
    if whole:
        write(result)
    _summary(result)
    return 0


def install(peers: Sequence[Peer]) -> bool:
    """Install the environments if needed; return whether that succeeded."""
    names = sorted({peer.environment for peer in peers if peer.environment})
    if not names:
        return True
    script = ROOT / "scripts" / "install_peers.py"
    base = getattr(sys, "_base_executable", sys.executable)
    return subprocess.run([base, str(script), *names], check=False).returncode == 0


async def measure(peers: Sequence[Peer], effort: Effort, kinds: Sequence[str]) -> Result:
    """Measure the requested kinds, and print each row as soon as it is measured."""
    result = Result(facts(), {peer.name: peer.versions() for peer in peers})
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for kind in kinds:
            rows = conduct(peers, folder) if kind == "conduct" else SPEEDS[kind](peers, effort, folder)
            await _take(rows, result)
            print(f"   ({kind}: {time.monotonic() - began:.0f} s so far)", flush=True)
    minutes = (time.monotonic() - began) / 60
    result.facts["duration"] = f"{minutes:.1f} minutes"
    return result


async def _take(rows: AsyncGenerator[Row], result: Result) -> None:
    async for row in rows:
        result.rows.append(row)
        figures = "  ".join(f"{peer} {shown(figure, row.unit)}" for peer, figure in row.figures.items())
        print(f"{row.section}, {row.title}: {figures}", flush=True)


def facts() -> dict[str, str]:
    """Return what matters of the machine, without a name or a path."""
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
    }


def write(result: Result) -> None:
    """Write the page and its picture."""
    PAGE.write_text(page(result), "utf-8")
    PICTURE.write_text(plot(result), "utf-8")


def _summary(result: Result) -> None:
    for goal in result.goals():
        if goal.ratio is not None:
            print(
                f"{goal.title}: {goal.ratio:.2f} × (goal {goal.bound:g}: {'met' if goal.met else 'MISSED'})"
            )
    behind = {row.name: row.ahead() for row in result.rows if row.ahead()}
    print(f"ahead of every peer, or level: {len(result.rows) - len(behind)} of {len(result.rows)} rows")
    for name, peers in behind.items():
        words = ", ".join(
            f"{peer} {'better' if ratio is None else f'{ratio:.2f} ×'}" for peer, ratio in peers.items()
        )
        print(f"  {name}: {words}")


def _listed(text: str, known: list[str]) -> list[str] | None:
    names = text.split(",") if text else known
    return [name for name in known if name in names] if set(names) <= set(known) else None
