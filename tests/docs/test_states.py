"""The page about states says what the table says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dragoman.server.lifecycle import TABLE, Signal

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "draw_states.py"


def test_the_page_is_what_the_table_says() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_has_every_entry() -> None:
    lines = (ROOT / "docs" / "states.md").read_text("utf-8").splitlines()
    for state, row in TABLE.items():
        for signal, one in row.items():
            assert f"| {state} | {signal} | {one.state} | {', '.join(one.orders)} |" in lines
    assert all(any(line.startswith(f"| {signal} | ") for line in lines) for signal in Signal)
