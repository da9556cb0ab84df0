"""The table of protocol rules names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_a_rule_names_exists() -> None:
    page = (ROOT / "docs/protocol.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`test_" in line]
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    found = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    assert len(rows) > 40
    assert sorted(named - found) == []
    files = {name for row in rows for name in re.findall(r"`(?:tests/[\w/]+/)?(test_\w+\.py)`", row)}
    assert files <= {file.name for file in (ROOT / "tests").rglob("test_*.py")}
