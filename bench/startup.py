"""Measure the start-up time of the program, compared with a Python that only imports click.

Goals: `dragoman --version` at most 1.6 times that, `dragoman config show` at most 2.5 times.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 25
REFERENCE = "import click"
GOALS = {"dragoman --version": 1.6, "dragoman config show": 2.5}


def main() -> None:
    """Measure alternately, so that noise of the machine affects all alike, and print the ratios."""
    program = str(Path(sys.executable).with_name("dragoman"))
    commands = {
        REFERENCE: [sys.executable, "-c", "import click"],
        "dragoman --version": [program, "--version"],
        "dragoman config show": [program, "config", "show"],
        "import dragoman": [sys.executable, "-c", "import dragoman"],
        "import mcp": [sys.executable, "-c", "import mcp"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        _write_configuration(Path(folder))
        env = {**os.environ, "HOME": folder}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                start = time.perf_counter()
                subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, check=True)
                times[name].append(time.perf_counter() - start)
    reference = min(times[REFERENCE])
    for name, taken in times.items():
        ratio = min(taken) / reference
        goal = (
            f"  (goal {GOALS[name]}: {'met' if ratio <= GOALS[name] else 'MISSED'})" if name in GOALS else ""
        )
        print(
            f"{name:<22} best {min(taken) * 1000:7.1f} ms, median {statistics.median(taken) * 1000:7.1f} ms, "
            f"{ratio:5.2f} × `{REFERENCE}`{goal}"
        )


def _write_configuration(folder: Path) -> None:
    servers = {
        f"server{number}": {
            "command": "npx",
            "args": ["-y", f"package-{number}"],
            "env": {"TOKEN": "${TOKEN}"},
        }
        for number in range(5)
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2), "utf-8")
