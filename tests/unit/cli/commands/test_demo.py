"""`dragoman demo` without a terminal: the whole way once, then the end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from rich.cells import cell_len
from tests.warm import interpreter

from dragoman.demo import launch


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [interpreter(), "-m", "dragoman", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.requirement("legal-law.attribution")
def test_without_a_terminal_every_kind_of_result_is_shown_and_it_ends_with_0() -> None:
    done = run_demo()
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout
    for text in (
        "● ready  stdio",
        "● ready  http",
        "11 tools",
        "mcp_legal_lookup_statute(",
        "Hello, traveller!",
        '{"characters": 20, "words": 4,',
        "[image: image/png, 96x32,",
        "✗ Cannot divide 1 by zero.",
    ):
        assert text in shown, text
    source = " ".join(shown[shown.index("  Source: ") :].split())
    assert source.startswith("Source: Sample Residential Tenancy Act (SAMPLE, not real law), Art. 4, ")
    assert shown.count("Sample Residential Tenancy Act (SAMPLE, not real law)") == 1
    assert shown.count("2026-01-30") == 1
    assert "dragoman>" not in shown
    assert "\x1b" not in shown
    assert max(cell_len(line) for line in shown.splitlines()) <= 80


def test_json_has_servers_tools_and_calls_and_nothing_else() -> None:
    done = run_demo("--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["servers"] == [
        {"name": "legal", "state": "ready", "tools": 5},
        {"name": "studio", "state": "ready", "tools": 6},
    ]
    assert len(document["tools"]) == 11
    calls = {call["tool"]: call for call in document["calls"]}
    assert [call["success"] for call in calls.values()] == [True, True, True, False, True]
    assert calls["mcp_studio_divide"]["error"].startswith("Cannot divide")
    assert "updated 2026-01-30" in calls["mcp_legal_search_statutes"]["text"]


def test_a_server_that_does_not_start_is_one_line_and_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    # The child sees a `uvicorn` that cannot be imported, as in a damaged installation.
    script = "import sys, runpy; sys.argv = ['dragoman', 'demo']; runpy.run_module('dragoman', run_name='__main__')"
    broken = "raise ImportError('damaged')"
    monkeypatch.setenv("PYTHONPATH", ".")
    with open("uvicorn.py", "w", encoding="utf-8") as file:  # noqa: PTH123 -- the shortest way to a module
        file.write(broken)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("error: the demo's HTTP server did not start")
    assert "damaged" in done.stderr
    assert done.stderr.count("\n") == 1


async def test_the_demo_servers_are_gone_after_use() -> None:
    async with launch.demo_servers() as specs:
        assert [(spec.name, spec.kind) for spec in specs] == [("legal", "stdio"), ("studio", "http")]
