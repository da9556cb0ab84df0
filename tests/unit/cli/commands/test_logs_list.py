"""`dragoman logs` without a name lists what can be shown."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.program import configure, dragoman, entry, misfits

from dragoman.cli.commands.logs import KeptLogsReport


def test_logs_without_a_name_lists_those_that_can_be_shown() -> None:
    own = Path("own.log")
    own.write_text("a line\n", "utf-8")
    noisy = entry("noisy.py", env={"TOKEN": "t"})
    configure(
        noisy=noisy, own={**entry("plain.py"), "log_file": str(own.absolute())}, quiet=entry("plain.py")
    )
    assert dragoman("tools", "noisy").returncode == 0
    done = dragoman("logs")
    assert done.returncode == 0
    assert {line.split()[0] for line in done.stdout.splitlines()} == {"noisy", "own"}
    assert "Show one: dragoman logs " in done.stderr
    report = json.loads(dragoman("logs", "--json").stdout)
    assert misfits(report, KeptLogsReport) == []
    assert {one["server"] for one in report["servers"]} == {"noisy", "own"}


def test_logs_without_any_says_how_to_get_one() -> None:
    configure(quiet=entry("plain.py"))
    assert "dragoman doctor -v" in dragoman("logs").stdout
