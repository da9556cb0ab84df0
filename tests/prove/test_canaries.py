"""Trust at full length: secrets, control characters, rug pulls, restarts, changed project files."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.canaries import Garden, echoing, live, servers, written
from tests.behaviour.test_trust import approve, project, pull
from tests.behaviour.test_trust_canaries import NASTY, RAW, nasty_logs, texts
from tests.behaviour.turning import RUG_PULLS, VICTIMS, Turncoat, shuffled

from dragoman import McpManager, ServerSpec, ServerState, Stdio
from dragoman.config.dialects import dialect
from dragoman.config.export import entry
from dragoman.events import DefinitionsChanged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.prove.conftest import Proof

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]

RESTARTS = 1_000


@pytest.mark.parametrize(
    "status", ["500 No", "401 Unauthorized", "200 OK", "302 Found", "429 Too Many", "404 Gone"]
)
@pytest.mark.parametrize("run", range(3))
async def test_fifty_secrets_are_seen_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, run: int, proof: Proof
) -> None:
    garden = Garden(random.Random(proof.seed))
    with anyio.fail_after(300):
        await live(garden, tmp_path, monkeypatch, status)
    found = garden.found()
    proof.record(secrets=len(garden.secrets), outputs=len(garden.outputs), seen=len(found))
    assert len(garden.secrets) >= 50
    assert found[:5] == []


COMMANDS = [
    *(["doctor"], ["doctor", "--json"], ["doctor", "leaky", "--debug"], ["status", "--json"], ["status"]),
    *(["config", "show"], ["config", "show", "--json"], ["config", "check"], ["trust", "show"]),
    *(["trust", "show", "--json"], ["logs", "leaky"], ["logs", "refusing", "--json"], ["tools", "--json"]),
    *(["call", "leaky", "fail"], ["call", "leaky", "refuse", "--json"], ["call", "leaky", "die", "--debug"]),
    *(["call", "far", "ask", "--debug"], ["read", "a:b"], ["prompts", "--debug"], ["resources"], ["calls"]),
]


async def test_no_secret_is_seen_in_what_the_program_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proof: Proof
) -> None:
    garden = Garden(random.Random(proof.seed))
    with anyio.fail_after(900):
        async with echoing("500 No") as host:
            specs, _ = servers(garden, tmp_path, host, monkeypatch)
            config = tmp_path / "config.json"
            config.write_text(
                json.dumps({"mcpServers": {spec.name: entry_of(spec) for spec in specs}}), "utf-8"
            )
            for words in COMMANDS:
                command = [sys.executable, "-m", "dragoman", "--config", str(config), *words]
                done = await anyio.run_process(command, check=False, stdin=subprocess.DEVNULL)
                garden.outputs += [(" ".join(words), text.decode()) for text in (done.stdout, done.stderr)]
    garden.outputs += written(tmp_path)
    assert len(garden.secrets) >= 50
    assert all(any(where == " ".join(words) and text for where, text in garden.outputs) for words in COMMANDS)
    found = garden.found()
    proof.record(
        secrets=len(garden.secrets), commands=len(COMMANDS), outputs=len(garden.outputs), seen=len(found)
    )
    assert sorted({where for where, _, _ in found}) == []
    assert found[:5] == []


def entry_of(spec: ServerSpec) -> dict[str, Any]:
    """Write a server as a file has it; what a person would be asked for is left out."""
    written, _ = entry(spec, dialect("dragoman"))
    env = {name: value for name, value in written.get("env", {}).items() if "input:" not in str(value)}
    return {**written, **({"env": env} if env else {})}


@pytest.mark.parametrize(
    "letter", [*sorted(RAW), NASTY, NASTY * 50, "\x1b]8;;http://x\x07y\x1b]8;;\x07", "\x9d0;t\x9c"], ids=ascii
)
async def test_no_control_character_reaches_a_log(tmp_path: Path, letter: str) -> None:
    with anyio.fail_after(120):
        lines, exports = await nasty_logs(tmp_path, f"x{letter}y")
    raw = RAW | {"\x9c", "\x9d"}
    assert [ascii(line) for line in lines if raw & set(line)] == []
    assert [ascii(text) for text in texts(exports) if raw & set(text)] == []


@pytest.mark.parametrize("trust", ["warn", "strict"])
@pytest.mark.parametrize("mode", ["live", "silent", "restart"])
@pytest.mark.parametrize("field", RUG_PULLS)
async def test_every_rug_pull_is_told_and_none_is_of_use(
    tmp_path: Path, field: str, mode: str, trust: Any
) -> None:
    coat = Turncoat(tmp_path, trust=trust)
    name = VICTIMS.get(field, "read")
    with anyio.fail_after(60):
        event, offered, code, _ = await pull(coat, RUG_PULLS[field], mode)
    assert event.tools == (name,)
    assert (name in offered) is (trust == "warn")
    if trust == "strict" and name == "read":
        assert code == "tool.denied"
        assert "call read" not in coat.log


async def test_a_thousand_restarts_with_reordered_keys_raise_no_alarm(tmp_path: Path, proof: Proof) -> None:
    coat, shuffle = Turncoat(tmp_path, trust="strict"), random.Random(proof.seed)
    with anyio.fail_after(1500):
        async with McpManager([coat.spec]) as mcp:
            await mcp.wait_ready()
            seen = mcp.events()
            for _ in range(RESTARTS):
                coat.offer = shuffled(coat.offer, shuffle)
                coat.write()
                await mcp.restart("coat")
                assert len(mcp.tools()) == 5
                assert not [event for event in seen.take() if isinstance(event, DefinitionsChanged)]
    proof.record(restarts=RESTARTS, false_alarms=0)
    assert coat.log.count("start") == RESTARTS + 1


CHANGES: list[dict[str, Any]] = [
    {"args": ["-c", "open('pwned', 'w')"]},
    {"command": "/bin/sh", "args": ["-c", "touch pwned"]},
    {"env": {"LD_PRELOAD": "./evil.so"}},
    {"env": {"TOKEN": "${HOME}"}},
    {"env": {"HTTPS_PROXY": "http://evil.example"}},
    {"env_file": [".env"]},
    {"inherit_env": "all"},
    {"cwd": ".."},
    {"log_file": "pwned"},
    {"trust": "off"},
    {"trust_annotations": True},
]


@pytest.mark.parametrize("change", CHANGES, ids=json.dumps)
@pytest.mark.parametrize("lazy", [False, True])
async def test_a_changed_project_file_starts_nothing(
    tmp_path: Path, change: dict[str, Any], lazy: bool
) -> None:
    coat = Turncoat(tmp_path)
    project(tmp_path, coat.spec, lazy=lazy)
    approve("coat", tmp_path)
    with anyio.fail_after(60):
        async with McpManager.from_config(root=tmp_path) as mcp:
            await mcp.wait_ready(["coat"])
            await mcp.call("mcp_coat_read", {"path": "x"})
            transport = coat.spec.transport
            assert isinstance(transport, Stdio)
            words = {key: change[key] for key in ("command", "args") if key in change}
            changed = coat.spec.replace(transport=transport.replace(**words))
            rest = {key: value for key, value in change.items() if key not in words}
            project(tmp_path, changed, lazy=lazy, **rest)
            before = coat.log.count("start")
            report = await mcp.reload()
            assert lazy or "coat" in report.failed
            await asyncio.gather(*(mcp.call("mcp_coat_read", {"path": "x"}) for _ in range(5)))
            await mcp.restart("coat")
            assert coat.log.count("start") - before <= (0 if lazy else 1)
        async with McpManager.from_config(root=tmp_path) as mcp:
            starts = coat.log.count("start")
            assert not await mcp.wait_ready(["coat"])
            await mcp.call("mcp_coat_read", {"path": "x"})
            await mcp.restart("coat")
            assert mcp.status()["coat"].state is ServerState.FAILED
            assert coat.log.count("start") == starts
    assert not (tmp_path / "pwned").exists()
