"""Observe how peers behave when servers fail, with a deadline for each step."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from typing import TYPE_CHECKING, Any

from bench.peers import scene
from bench.peers.result import Figure, Row
from bench.peers.speed import DEADLINE
from bench.peers.talk import Driver, PeerGoneError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from bench.peers.field import Peer

HANG = 10.0
"""Seconds after which a step counts as hanging."""
RECOVERY = 6.0
"""Seconds of further attempts after a server was killed."""
LIMIT = 2.0
"""The time-out of a call that is never answered."""
ROUNDS = 3
TITLES = {
    "killed": "the call after `kill -9` of the server",
    "recovers": "works again after `kill -9`",
    "timeout": f"a call that is never answered, limited to {LIMIT:g} s",
    "after-timeout": "the next call after that",
    "failing": "one dead server among five: the other four",
    "descriptors": f"descriptors left after {ROUNDS} more starts and stops",
    "left-close": "processes left after a proper end, of 5 servers with a helper each",
    "left-crash": "processes left after `kill -9` of the client, of the same",
}
Seen = dict[str, Figure]


async def conduct(peers: Sequence[Peer], folder: str) -> AsyncGenerator[Row]:
    """Observe each peer, one after the other."""
    seen: dict[str, Seen] = {}
    looks: list[Callable[[Driver], Awaitable[Seen]]] = [
        _killed,
        _timed_out,
        _failing,
        _descriptors,
        _closed,
        _crashed,
    ]
    for peer in peers:
        seen[peer.name] = {}
        for look in looks:
            async with Driver(peer, folder=folder) as driver:
                try:
                    seen[peer.name] |= await look(driver)
                except PeerGoneError as exc:
                    words = str(exc).split("\n", maxsplit=1)[0][:80]
                    seen[peer.name] |= {name: Figure(text=words, good=False) for name in LOOKS[look]}
    for name, title in TITLES.items():
        figures = {peer: found[name] for peer, found in seen.items() if name in found}
        yield Row(name, "conduct", title, "", figures)


async def _killed(driver: Driver) -> Seen:
    await _start(driver, [scene.stdio("s0")])
    pid = int((await _call(driver, "!pid"))["value"])
    os.kill(pid, signal.SIGKILL)
    await scene.gone(pid)
    began = time.monotonic()
    first = await _call(driver)
    answered = first["outcome"] == "done"
    # A result and an error are both acceptable, a hanging call is not.
    seen = {"killed": Figure(text=_told(first), good=first["outcome"] != "hangs")}
    while not answered and time.monotonic() - began < RECOVERY + first["seconds"]:
        await asyncio.sleep(0.25)
        answered = (await _call(driver))["outcome"] == "done"
    taken = time.monotonic() - began
    text = f"after {taken:.1f} s" if answered else f"no (tried for {taken:.0f} s)"
    return seen | {"recovers": Figure(text=text, good=answered)}


async def _timed_out(driver: Driver) -> Seen:
    await _start(driver, [scene.stdio("s0", limit=LIMIT)])
    muted = await _call(driver, "!mute", timeout=LIMIT)
    after = await _call(driver)
    works = after["outcome"] == "done"
    return {
        "timeout": Figure(text=_told(muted), good=muted["outcome"] == "fails"),
        "after-timeout": Figure(text=_told(after), good=works),
    }


async def _failing(driver: Driver) -> Seen:
    servers = scene.fleet(5)
    servers[2] = scene.dead()
    answer = await driver.ask("start", servers=servers, deadline=DEADLINE)
    good = [server["name"] for server in servers if not server.get("odd")]
    outcomes = [await _call(driver, server=name) for name in good]
    works = sum(outcome["outcome"] == "done" for outcome in outcomes)
    text = f"{works} of {len(good)} work"
    if answer["outcome"] != "done":
        text += f"; the start {answer['outcome']}"
    return {"failing": Figure(text=text, good=works == len(good))}


async def _descriptors(driver: Driver) -> Seen:
    counts: list[int] = []
    for _ in range(1 + ROUNDS):
        await _start(driver, scene.fleet(3))
        await driver.ask("stop", deadline=HANG)
        counts.append((await driver.ask("state"))["descriptors"])
    more = counts[-1] - counts[0]
    return {"descriptors": Figure(text=str(more), good=more <= 0)}


async def _closed(driver: Driver) -> Seen:
    mark = secrets.token_hex(8)
    await _start(driver, _family(mark))
    await driver.ask("stop", deadline=HANG)
    await driver.close()
    return {"left-close": await _left(mark)}


async def _crashed(driver: Driver) -> Seen:
    mark = secrets.token_hex(8)
    await _start(driver, _family(mark))
    driver.kill()
    return {"left-crash": await _left(mark)}


LOOKS: dict[Callable[[Driver], Awaitable[Seen]], tuple[str, ...]] = {
    _killed: ("killed", "recovers"),
    _timed_out: ("timeout", "after-timeout"),
    _failing: ("failing",),
    _descriptors: ("descriptors",),
    _closed: ("left-close",),
    _crashed: ("left-crash",),
}
"""The rows that each observation fills."""


def _family(mark: str) -> list[dict[str, Any]]:
    return [scene.stdio(f"s{number}", "--helper", "--mark", mark) for number in range(5)]


async def _left(mark: str) -> Figure:
    left = await scene.settled(mark, 3.0)
    scene.end(left)
    servers, helpers = (list(left.values()).count(kind) for kind in ("server", "helper"))
    parts = [f"{count} {kind}" for count, kind in ((servers, "servers"), (helpers, "helpers")) if count]
    return Figure(text=", ".join(parts) or "none", good=not left)


async def _start(driver: Driver, servers: list[dict[str, Any]]) -> None:
    answer = await driver.ask("start", servers=servers, deadline=DEADLINE)
    if len(answer["ready"]) != len(servers):
        msg = f"it did not start: {answer['error'] or answer['value']}"
        raise PeerGoneError(msg)


async def _call(
    driver: Driver, text: str = "hello", *, server: str = "s0", timeout: float | None = None
) -> dict[str, Any]:
    return await driver.ask("call", server=server, text=text, deadline=HANG, timeout=timeout)


def _told(outcome: dict[str, Any]) -> str:
    match outcome["outcome"]:
        case "done":
            return f"answer after {outcome['seconds']:.2f} s"
        case "hangs":
            return f"hangs (> {HANG:g} s)"
        case _:
            return f"error after {outcome['seconds']:.2f} s"
