"""Trust at full length: secrets, control characters, rug pulls, restarts, changed project files."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.canaries import Garden, live
from tests.behaviour.test_trust import approve, project, pull, shuffled
from tests.behaviour.test_trust_canaries import NASTY, RAW, nasty_logs, texts
from tests.behaviour.turning import RUG_PULLS, Turncoat

from dragoman import McpManager, ServerState, Stdio
from dragoman.events import DefinitionsChanged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(1800)]

RESTARTS = 1_000


@pytest.mark.parametrize(
    "status", ["500 No", "401 Unauthorized", "200 OK", "302 Found", "429 Too Many", "404 Gone"]
)
@pytest.mark.parametrize("run", range(3))
async def test_fifty_secrets_are_seen_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, run: int
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    garden = Garden(random.Random(seed))
    with anyio.fail_after(300):
        await live(garden, tmp_path, monkeypatch, status)
    assert len(garden.secrets) >= 50
    assert garden.found()[:5] == []


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
    name = "send" if field == "a new tool" else "read"
    with anyio.fail_after(60):
        event, offered, code, _ = await pull(coat, RUG_PULLS[field], mode)
    assert event.tools == (name,)
    assert (name in offered) is (trust == "warn")
    if trust == "strict" and name == "read":
        assert code == "tool.denied"
        assert "call read" not in coat.log


async def test_a_thousand_restarts_with_reordered_keys_raise_no_alarm(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed: {seed}")
    coat, shuffle = Turncoat(tmp_path, trust="strict"), random.Random(seed)
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
            changed = replace(coat.spec, transport=replace(transport, **words))
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
