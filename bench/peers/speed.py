"""Measure imports, starts, calls and memory, alternately; the best round of each counts."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.peers import scene
from bench.peers.field import OURS
from bench.peers.result import Figure, Row
from bench.peers.talk import Driver, PeerGoneError, environment

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from bench.peers.field import Peer

DEADLINE = 20.0
LONG = 1000
"""Tools of the server with a long listing."""
STARTED = ("all", "known", "cpu", "whole_cpu", "close")
"""The keys of a start's figures, as `started` returns them."""
IMPORTED = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


@dataclass(frozen=True)
class Effort:
    """The number of rounds and calls."""

    rounds: int = 5
    mixed_rounds: int = 2
    cold_rounds: int = 3
    memory_rounds: int = 2
    calls: int = 400
    sizes: tuple[int, ...] = (1, 5, 20)
    mixed_sizes: tuple[int, ...] = (5, 20)
    tools: int = 50


QUICK = Effort(rounds=1, mixed_rounds=1, cold_rounds=1, memory_rounds=1, calls=64, mixed_sizes=(5,))


class Best:
    """The best figure of each peer and row, or the reason why it has none."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], float] = {}
        self._reasons: dict[tuple[str, str], str] = {}

    def take(self, row: str, peer: str, value: float | None) -> None:
        """Record a figure if it is the best so far."""
        if value is not None:
            self._values[row, peer] = min(value, self._values.get((row, peer), value))

    def fail(self, row: str, peer: str, reason: str) -> None:
        """Record why a peer has no figure."""
        self._reasons.setdefault((row, peer), reason)

    def row(self, name: str, peers: Sequence[Peer], *, section: str, title: str, unit: str) -> Row:
        """Return the row."""
        figures: dict[str, Figure] = {}
        for peer in peers:
            key = (name, peer.name)
            # A peer that failed in one round has failed, even if other rounds succeeded.
            if key in self._reasons:
                figures[peer.name] = Figure(text=f"— ({self._reasons[key]})", good=False)
            elif key in self._values:
                figures[peer.name] = Figure(self._values[key])
        return Row(name, section, title, unit, figures)


def turns(peers: Sequence[Peer], rounds: int) -> list[Peer]:
    """Return the peers for each round; every round starts with another peer."""
    order: list[Peer] = []
    for number in range(rounds):
        at = number % len(peers)
        order += [*peers[at:], *peers[:at]]
    return order


async def imports(peers: Sequence[Peer], effort: Effort, folder: str) -> AsyncGenerator[Row]:
    """Measure the CPU of the imports."""
    best = Best()
    for peer in turns(peers, effort.rounds):
        best.take("import", peer.name, await _imported(peer.python, peer.statement, folder))
        names = {OURS: "import dragoman", "sdk-client": "import mcp"}
        if peer.name in names:
            # Both in dragoman's environment, so that the same packages are installed.
            best.take("import-name", peer.name, await _imported(sys.executable, names[peer.name], folder))
    yield best.row("import", peers, section="import", title="what a program imports", unit="ms")
    yield best.row("import-name", peers, section="import", title="`import dragoman`, `import mcp`", unit="ms")


async def _imported(python: str, statement: str, folder: str) -> float:
    process = await asyncio.create_subprocess_exec(
        *(python, "-c", IMPORTED.format(statement)),
        stdout=asyncio.subprocess.PIPE,
        env=environment(folder),
        cwd=folder,
    )
    output, _ = await process.communicate()
    return float(json.loads(output))


async def starts(peers: Sequence[Peer], effort: Effort, folder: str) -> AsyncGenerator[Row]:
    """Measure from the start to all tools, after the libraries are imported.

    dragoman remembers servers: it starts them for the first time, and again. For the others each start is as
    the first, and one figure of theirs stands beside both of ours.
    """
    best = Best()
    drivers = {peer.name: Driver(peer, folder=folder) for peer in peers}
    try:
        for peer in peers:
            await drivers[peer.name].__aenter__()
            # Late imports and one-time initialization belong to the cold start.
            await started(drivers[peer.name], scene.fleet(1), {"s0"})
        for size, tools in (*((size, 1) for size in effort.sizes), (1, LONG)):
            label = "list" if tools > 1 else str(size)
            for number, peer in enumerate(turns(peers, effort.rounds)):
                servers = scene.fleet(size, tools=tools, name=f"{label}-{number}-")
                wanted = {server["name"] for server in servers}
                first = again = await started(drivers[peer.name], servers, wanted)
                if peer.name == OURS:
                    again = await started(drivers[peer.name], servers, wanted)
                for prefix, outcome in (("first", first), ("start", again)):
                    for key in STARTED:
                        _note(best, f"{prefix}-{label}-{key}", peer.name, outcome, key)
    finally:
        for driver in drivers.values():
            await driver.close()
    largest = max(effort.sizes)
    many = f"{largest} servers"
    rows = [
        (f"{prefix}-{size}-all", f"{size} server{'s' if size > 1 else ''}{when}")
        for prefix, when in (("start", ""), ("first", ", the first time"))
        for size in effort.sizes
    ]
    rows += [
        (f"start-{largest}-known", f"{many}: until their tools can be offered to a model"),
        (f"start-{largest}-cpu", f"{many}, the client's own CPU"),
        (f"first-{largest}-cpu", f"{many}, the client's own CPU, the first time"),
        (
            "start-list-whole_cpu",
            f"a server with {LONG:,} tools: the client's own CPU from its start to its end",
        ),
        ("first-list-whole_cpu", "the same, the first time"),
        (f"start-{largest}-close", f"closing {many}"),
    ]
    for name, title in rows:
        yield best.row(name, peers, section="start", title=title, unit="ms")


async def cold_starts(peers: Sequence[Peer], effort: Effort, folder: str) -> AsyncGenerator[Row]:
    """Measure from the start of a program to all tools of five servers."""
    best = Best()
    servers = scene.fleet(5)
    for peer in turns(peers, effort.cold_rounds):
        began = time.perf_counter()
        async with Driver(peer, folder=folder) as driver:
            outcome = await started(driver, servers, {server["name"] for server in servers}, began=began)
        _note(best, "cold-5", peer.name, outcome, "wall")
    yield best.row("cold-5", peers, section="start", title="5 servers, from a new process", unit="ms")


async def mixed_starts(peers: Sequence[Peer], effort: Effort, folder: str) -> AsyncGenerator[Row]:
    """Measure when the tools of working servers can be used while one is slow and one is dead."""
    best = Best()
    for size in effort.mixed_sizes:
        servers = scene.mixed(size)
        good = {server["name"] for server in servers if not server.get("odd")}
        for peer in turns(peers, effort.mixed_rounds):
            async with Driver(peer, folder=folder) as driver:
                try:
                    await started(driver, scene.fleet(1), {"s0"})
                    outcome = await started(driver, servers, good)
                except PeerGoneError as exc:
                    outcome = {"reason": str(exc)[:80]}
            _note(best, f"mixed-{size}", peer.name, outcome, "all")
    for size in effort.mixed_sizes:
        title = f"{size} servers, one slow, one dead: tools of the others"
        yield best.row(f"mixed-{size}", peers, section="start", title=title, unit="ms")


async def started(
    driver: Driver, servers: list[dict[str, Any]], wanted: set[str], *, began: float | None = None
) -> dict[str, Any]:
    """Start and stop; return the seconds until the required servers were ready, or why they were not."""
    answer = await driver.ask("start", servers=servers, deadline=DEADLINE)
    wall = time.perf_counter() - began if began is not None else None
    stopped = await driver.ask("stop", deadline=DEADLINE)
    ready: dict[str, tuple[float, int]] = answer["ready"]
    if missing := wanted - ready.keys():
        how = "hangs" if answer["outcome"] == "hangs" else "fails as a whole"
        return {"reason": f"{how}: {len(wanted) - len(missing)} of {len(wanted)}"}
    if stopped["outcome"] == "hangs":
        return {"reason": "does not stop"}
    return {
        "all": max(ready[name][0] for name in wanted),
        "known": max(answer["known"][name] for name in wanted),
        "cpu": answer["cpu"],
        "wall": wall,
        "close": stopped["seconds"],
        "whole_cpu": answer["cpu"] + stopped["cpu"],
    }


def _note(best: Best, row: str, peer: str, outcome: dict[str, Any], key: str) -> None:
    if "reason" in outcome:
        best.fail(row, peer, outcome["reason"])
    else:
        best.take(row, peer, outcome[key])


async def calls(peers: Sequence[Peer], effort: Effort, folder: str) -> AsyncGenerator[Row]:
    """Measure calls over stdio and over HTTP, one at a time and 32 at once."""
    best = Best()
    async with scene.http() as url:
        for wire, server in (("stdio", scene.stdio("s0")), ("http", {"name": "s0", "url": url})):
            drivers = {peer.name: Driver(peer, folder=folder) for peer in peers}
            try:
                for peer in peers:
                    await drivers[peer.name].__aenter__()
                    await drivers[peer.name].ask("start", servers=[server], deadline=DEADLINE)
                    await drivers[peer.name].ask("calls", server="s0", count=64, at_once=32)
                for at_once in (1, 32):
                    for peer in turns(peers, effort.rounds):
                        count = effort.calls if at_once == 1 else effort.calls * 2
                        answer = await drivers[peer.name].ask(
                            "calls", server="s0", count=count, at_once=at_once
                        )
                        best.take(f"{wire}-{at_once}-cpu", peer.name, answer["cpu"])
                        taken = answer["median"] if at_once == 1 else answer["seconds"]
                        best.take(f"{wire}-{at_once}-time", peer.name, taken)
                for driver in drivers.values():
                    await driver.ask("stop", deadline=DEADLINE)
            finally:
                for driver in drivers.values():
                    await driver.close()
    for wire, shown in (("stdio", "stdio"), ("http", "HTTP")):
        for at_once, how in ((1, "alone"), (32, "32 at once")):
            took = "latency" if at_once == 1 else "time for each"
            for kind, what in (("cpu", "CPU"), ("time", took)):
                name, title = f"{wire}-{at_once}-{kind}", f"{shown}, {how}: {what}"
                yield best.row(name, peers, section=f"calls-{wire}", title=title, unit="µs")


async def memory(peers: Sequence[Peer], effort: Effort, folder: str) -> AsyncGenerator[Row]:
    """Measure the memory of a new process that is connected to twenty servers and has called one."""
    best = Best()
    async with scene.http(effort.tools) as url:
        web = [{"name": f"s{number}", "url": f"{url}/{number}"} for number in range(20)]
        for wire, servers in (("stdio", scene.fleet(20, tools=effort.tools)), ("http", web)):
            for peer in turns(peers, effort.memory_rounds):
                async with Driver(peer, folder=folder) as driver:
                    answer = await driver.ask("start", servers=servers, deadline=2 * DEADLINE)
                    have = sum(tools for _, tools in answer["ready"].values())
                    if have != 20 * effort.tools:
                        best.fail(f"memory-{wire}", peer.name, f"{have} of {20 * effort.tools} tools")
                    await driver.ask("call", server="s0", text="hello", deadline=DEADLINE, timeout=None)
                    state = await driver.ask("state")
                    best.take(f"memory-{wire}", peer.name, state["rss"])
                    best.take(f"memory-{wire}-pss", peer.name, state["pss"])
                    await driver.ask("stop", deadline=DEADLINE)
    for wire, shown in (("stdio", "stdio"), ("http", "HTTP")):
        for end, kind in (("", "RSS"), ("-pss", "PSS")):
            row = best.row(
                f"memory-{wire}{end}", peers, section="memory", title=f"{shown}: {kind}", unit="MiB"
            )
            if row.figures:
                yield row
