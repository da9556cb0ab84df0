"""Eighteen broken servers: `status`, `call`, `doctor`, the session and the dashboard name the same cause."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.behaviour.broken import CAUSES, SCRIPT, broken_servers
from tests.unit.cli.program import configure
from tests.warm import interpreter

from dragoman import DragomanError, Http, McpManager, diagnose
from dragoman.cli.connect import Connected, Progress
from dragoman.cli.dashboard.lists import note_of
from dragoman.cli.tables import in_session, servers_view
from dragoman.config.load import load
from dragoman.diagnosis.explain import explain, explain_status
from dragoman.diagnosis.fleet import broken_entries, broken_row, read_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dragoman import Settings


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[Settings]:
    """The configuration of all broken servers, while what they need runs."""
    async with broken_servers(tmp_path) as servers:
        configure(**servers)
        yield load(log_problems=False)


async def program(*words: str) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        interpreter(),
        "-m",
        "dragoman",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    child._transport.close()  # type: ignore[attr-defined]
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


def matches(cause: str, name: str) -> bool:
    """Whether a cause is the one that the table names for a server."""
    return len(cause) <= 100 and re.fullmatch(CAUSES[name][0], cause) is not None


async def test_status_doctor_session_and_dashboard_name_the_same_cause(settings: Settings) -> None:
    # Both at once: most of the time is spent waiting for servers that never answer.
    diagnoses = asyncio.gather(*(diagnose(spec, settings) for spec in settings.servers))
    async with McpManager(settings) as mcp:
        await mcp.wait_ready()
        statuses = mcp.status()
        # What `call` raises, for all servers in one process.
        live = Connected(mcp, list(statuses), until=None, limit=None, show=Progress(), refused={})
        for name, status in statuses.items():
            found = explain_status(status, mcp.settings.server(name))
            assert found is not None, name
            with pytest.raises(DragomanError) as raised:
                live.raise_unless_ready(name, needs_listing=True)
            assert raised.value.message == found.cause
            assert raised.value.hint == f"run `{found.next_step}`"
            assert matches(found.cause, name), (name, found.cause)
            assert found.next_step == CAUSES[name][1], name
        screen = StringIO()
        Console(file=screen, width=400).print(servers_view(statuses.values(), {}, mcp.settings))
        session = screen.getvalue()
        for name, status in statuses.items():
            found = explain_status(status, mcp.settings.server(name))
            assert found is not None
            note = note_of(read_server(status, spec=mcp.settings.server(name))).plain
            assert found.cause in session, name
            assert found.cause in note, name
            # A login and a diagnosis work inside both, so they name their own key and commands.
            assert in_session(found.next_step) in session, name
            assert (in_session(found.next_step) in note) or "press l" in note, name
    broken = broken_entries(mcp.settings)
    assert list(broken) == ["misspelt"]
    cause = explain(broken["misspelt"]).cause
    assert matches(cause, "misspelt"), cause
    assert cause in session
    row = broken_row(mcp.settings, "misspelt")
    assert row is not None
    assert cause in note_of(row).plain
    for found in await diagnoses:
        name = found.spec.name
        assert found.explanation is not None, name
        assert matches(found.explanation.cause, name), (name, found.explanation.cause)
        assert found.explanation.next_step == CAUSES[name][1]
        assert found.hints, name


async def test_the_commands_name_the_same_cause_and_a_next_step(settings: Settings) -> None:
    code, out, _ = await program("status", "--json")
    report = json.loads(out)
    rows: list[dict[str, Any]] = [*report["servers"], *report["broken"]]
    assert code == 1
    assert {row["name"] for row in rows} == set(CAUSES)
    for row in rows:
        assert matches(row["cause"], row["name"]), (row["name"], row["cause"])
        assert row["next_step"] == CAUSES[row["name"]][1]
    for name in ("wrong-token", "misspelt"):
        code, _, said = await program("call", name, "look")
        # Lines about progress may come before.
        told = re.search(r"^error: (.*) \(run `(.*)`\)$", said, re.MULTILINE)
        assert told is not None, said
        assert matches(told[1], name), said
        assert told[2] == CAUSES[name][1]
        assert code == {"wrong-token": 5, "misspelt": 3}[name]


@pytest.mark.requirement("otter-later.visual", "otter-p1.status")
async def test_the_status_of_people_names_failures_last_and_the_total(settings: Settings) -> None:
    fine = {"command": sys.executable, "args": [SCRIPT, "fine"]}
    chosen = {spec.name: spec.transport for spec in settings.servers}
    refused = chosen["refused"]
    assert isinstance(refused, Http)
    configure(
        dns={"type": "http", "url": "http://no-such-host.invalid/mcp"},
        misspelt={"comand": "x"},
        refused={"type": "http", "url": refused.url},
        good=fine,
    )
    code, out, err = await program("status")
    lines = out.splitlines()
    assert lines[1].split()[:3] == ["good", "ready", "stdio"]
    assert lines[3].startswith("dns")
    assert lines[3].endswith("DNS: no such host `no-such-host.invalid` → dragoman doctor dns")
    assert lines[-1] == "1 of 4 servers ready"
    assert code == 1
    assert "error" not in err
