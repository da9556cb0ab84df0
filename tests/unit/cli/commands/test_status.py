"""The words of `dragoman status`; real runs are in `behaviour/test_cli_listing.py`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.cli.commands.status import _duration
from dragoman.cli.main import run
from dragoman.server.supervisor import Supervisor

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0.0004, "<1 ms"),
        (0.024, "24 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (8.004, "8.0 s"),
    ],
)
def test_a_time_is_written_in_the_unit_that_fits(seconds: float | None, shown: str) -> None:
    assert _duration(seconds) == shown


def test_a_server_costs_the_same_beside_many_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {f"s{number}": {"command": "npx", "args": [f"mcp-{number}"]} for number in range(40)}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    readings: list[str] = []
    status = Supervisor.status

    def noted(self: Supervisor) -> Any:
        readings.append(self.spec.name)
        return status(self)

    monkeypatch.setattr(Supervisor, "status", noted)
    assert run(["status", "--json"]) == 8
    assert len(json.loads(capsys.readouterr().out)["servers"]) == len(entries)
    assert len(readings) <= 10 * len(entries)
