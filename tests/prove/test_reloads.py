"""500 reloads under load, of every kind: servers that did not change keep their process and lose no call."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.test_reload import Site, who

from dragoman import McpManager

if TYPE_CHECKING:
    from pathlib import Path

    from tests.prove.conftest import Proof

pytestmark = pytest.mark.anyio

RELOADS = 500
KEPT = ("kept0", "kept1", "kept2")
CHANGING = ("a", "b", "c")
KINDS = ("replace", "replace", "stop-first", "fails", "remove", "add", "off", "shuffle", "broken file")


class Load:
    """Calls the servers that never change, all the time."""

    def __init__(self, mcp: McpManager) -> None:
        self._mcp, self._over = mcp, False
        self.answered = 0
        self.failed: list[str] = []

    async def run(self, name: str) -> None:
        while not self._over:
            result = await self._mcp.call(f"mcp_{name}_who")
            self.answered += result.success
            if not result.success:
                self.failed.append(f"{result.error}")

    def stop(self) -> None:
        self._over = True


async def change(mcp: McpManager, site: Site, now: dict[str, dict[str, Any]], kind: str, number: int) -> None:
    """Write another configuration and read it; `now` has the entries that are in effect."""
    changing = [name for name in now if name not in KEPT]
    name = changing[number % len(changing)] if changing else ""
    wanted = dict(now)
    match kind:
        case "replace" | "stop-first" if name:
            how = "stop-first" if kind == "stop-first" else "start-first"
            wanted[name] = site.server(name, f".{number}", replace=how)
        case "fails" if name:
            wanted[name] = site.server(name, f".{number}", "broken=yes")
        case "remove" if name:
            del wanted[name]
        case "off" if name:
            wanted[name] = site.server(name, f".{number}", enabled=False)
        case "add":
            missing = [one for one in CHANGING if one not in now]
            wanted |= {one: site.server(one, f".{number}") for one in missing}
        case "shuffle":
            wanted = dict(sorted(now.items(), reverse=bool(number % 2)))
        case "broken file":
            site.put('{"mcp": ')
            broken = await mcp.reload()
            assert broken.problems
            assert not broken.stopped
        case _:
            pass
    site.write(*wanted.values())
    report = await mcp.reload()
    if kind == "fails" and name:
        assert name in report.failed
        site.write(*now.values())
        await mcp.reload()
        return
    assert not report.failed, report
    now.clear()
    now.update(wanted)


async def test_reloads_under_load_lose_no_call_of_an_unchanged_server(tmp_path: Path, proof: Proof) -> None:
    site, chance = Site(tmp_path), random.Random(proof.seed)
    now = {name: site.server(name) for name in (*KEPT, *CHANGING)}
    counts = dict.fromkeys(KINDS, 0)
    site.write(*now.values())
    with anyio.fail_after(1500):
        async with McpManager.from_config(config=site.file, trust_project=True) as mcp:
            assert await mcp.wait_ready()
            pids = [mcp.status()[name].pid for name in KEPT]
            load = Load(mcp)
            async with asyncio.TaskGroup() as group:
                for name in KEPT:
                    group.create_task(load.run(name))
                try:
                    for number in range(RELOADS):
                        kind = chance.choice(KINDS)
                        counts[kind] += 1
                        await change(mcp, site, now, kind, number)
                        for name, entry in now.items():
                            if entry.get("enabled", True):
                                assert f"as={await who(mcp, name)}" in entry["args"]
                        assert set(mcp.status()) == set(now)
                finally:
                    load.stop()
            assert [mcp.status()[name].pid for name in KEPT] == pids
    proof.record(
        reloads=RELOADS,
        **{kind.replace(" ", "_").replace("-", "_"): count for kind, count in counts.items()},
        calls_of_unchanged_servers=load.answered,
        lost=len(load.failed),
    )
    assert load.failed == []
