"""The official suite for servers: a server behind the gateway does as well as the same server reached directly."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from typing import TYPE_CHECKING

from tests.behaviour.test_gateway import SERVERS, served
from tests.real.test_conformance import SUITE, node
from tests.warm import interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SERVER = SERVERS / "conformance.py"
RUNNER = SUITE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
QUICK = (
    "json-schema-2020-12",
    "input-required-result-capability-check",
    "input-required-result-tampered-state",
)
"""Scenarios for each change; `make prove` runs them all."""

Checks = dict[tuple[str, str], list[str]]
"""Outcomes, by scenario and check."""


async def checks(url: str, version: str, folder: Path, *, scenarios: Sequence[str] = ()) -> Checks:
    """Run scenarios of one protocol version, by default all, and return the outcome of each check."""
    parts = [["--scenario", scenario] for scenario in scenarios] or [["--suite", "all"]]
    for part in parts:
        said = await asyncio.to_thread(
            subprocess.run,
            [
                *(node(), str(RUNNER), "server", "--url", url, *part),
                *("--spec-version", version, "--output-dir", str(folder)),
            ],
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=200,
        )
        assert "Results saved" in said.stdout, said.stdout + said.stderr
    return _outcomes(folder)


def _outcomes(folder: Path) -> Checks:
    found: Checks = {}
    for path in folder.glob("*/checks.json"):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", path.parent.name.removeprefix("server-"))
        for check in json.loads(path.read_text("utf-8")):
            if check["status"] != "INFO":
                found.setdefault((scenario, check["id"]), []).append(check["status"])
    return found


async def both(
    version: str, folder: Path, *, protocol: str = "auto", scenarios: Sequence[str] = ()
) -> Checks:
    """Return the outcomes of the server, which are the same directly and through the gateway."""
    entry = {"command": interpreter(), "args": [str(SERVER)], "protocol": protocol}
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"s": entry}}))
    async with served([str(SERVER), "http"], ends=-15) as url:
        direct = await checks(url, version, folder / "direct", scenarios=scenarios)
    gateway = ["-m", "dragoman", "serve", "--config", str(config), "--http", "0", "--no-token"]
    async with served(gateway) as url:
        behind = await checks(f"{url}/s", version, folder / "behind", scenarios=scenarios)
    # About event streams that end in the middle of a call: the gateway answers with JSON where none is needed.
    streams = {"server-sse-polling", "server-sse-multiple-streams"}
    compared = {key for key in direct.keys() | behind.keys() if key[0] not in streams}
    differing = {key: (direct.get(key), behind.get(key)) for key in compared}
    assert {key: pair for key, pair in differing.items() if pair[0] != pair[1]} == {}
    return direct


async def test_a_few_scenarios_end_as_they_do_without_the_gateway(tmp_path: Path) -> None:
    outcomes = await both("2026-07-28", tmp_path, scenarios=QUICK)
    assert {scenario for scenario, _ in outcomes} == set(QUICK)
    assert {status for found in outcomes.values() for status in found} == {"SUCCESS"}
