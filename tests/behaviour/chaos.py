"""Many calls while servers are killed: the small test and the proof share it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.behaviour.faults import faulty

from dragoman import CallTimeoutError, McpManager, ServerState, ToolUnavailableError
from dragoman.events import StateChanged

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman import ToolResult


@dataclass
class Outcome:
    """What came of a storm."""

    answered: int = 0
    refused: int = 0
    lost: int = 0
    timed_out: int = 0
    strange: list[str] = field(default_factory=list[str])
    most_at_once: int = 0
    """The most calls that were under way at the same time."""
    longest: float = 0.0
    """The most seconds that a call took, deadline or not."""
    latest_loss: float = 0.0
    """The most seconds between the death of a server and the end of a call that it carried."""
    recovery: float = 0.0
    """Seconds from the last kill until every server was ready."""


class Storm:
    """Servers that are killed, each once, while they are called."""

    def __init__(self, servers: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.outcome = Outcome()
        self.names = [f"s{number}" for number in range(servers)]
        self.victims = self.chance.sample(self.names, servers)
        """In the order in which they are killed."""
        self.under_way = 0
        self._killed: dict[str, float] = {}
        self._back: dict[str, float] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[McpManager]:
        """Start the servers; leaving waits until each is back, and calls it once more."""
        async with McpManager([faulty(name) for name in self.names]) as mcp:
            assert await mcp.wait_ready()
            watching = asyncio.ensure_future(self._watch(mcp))
            yield mcp
            await watching
            self.outcome.recovery = max(self._back.values()) - max(self._killed.values())
            for name in self.names:
                assert (await mcp.call(f"mcp_{name}_echo", {"text": name})).text == name

    def kill(self, mcp: McpManager, name: str) -> None:
        """Kill a server without a warning."""
        pid = mcp.status()[name].pid
        assert pid is not None
        self._killed[name] = time.monotonic()
        os.kill(pid, signal.SIGKILL)

    async def call(self, mcp: McpManager, name: str, tool: str, timeout: float, **arguments: object) -> None:
        """Make one call, and note what came of it and when."""
        outcome, token = self.outcome, uuid.uuid4().hex
        began = time.monotonic()
        self.under_way += 1
        outcome.most_at_once = max(outcome.most_at_once, self.under_way)
        result = await mcp.call(f"mcp_{name}_{tool}", {"text": token, **arguments}, timeout=timeout)
        ended = time.monotonic()
        self.under_way -= 1
        outcome.longest = max(outcome.longest, ended - began)
        note(outcome, result, token)
        death = self._killed.get(name)
        lost = isinstance(result.exception, ToolUnavailableError) and result.exception.may_have_run
        if lost and death is not None:
            outcome.latest_loss = max(outcome.latest_loss, ended - max(death, began))

    async def _watch(self, mcp: McpManager) -> None:
        async for event in mcp.events():
            if isinstance(event, StateChanged) and event.after is ServerState.READY:
                self._back[event.server] = time.monotonic()
                if len(self._back) == len(self.names):
                    return


async def storm(*, servers: int, calls: int, timeout: float, seed: int, at_once: int = 200) -> Outcome:
    """Kill each server once, spread over so many calls, of which so many are under way at once."""
    scene, chance, done = Storm(servers, seed), random.Random(seed), 0
    async with scene.running() as mcp:
        # Spread over the storm by its own progress: no clock is needed.
        due = {calls * number // (servers + 1): name for number, name in enumerate(scene.victims, 1)}
        queue = iter(range(calls))

        async def caller() -> None:
            """Make one call after the other, as an agent does."""
            nonlocal done
            for _ in queue:
                pause = 0.02 if chance.random() < 0.05 else 0
                await scene.call(mcp, chance.choice(scene.names), "echo", timeout, pause=pause)
                done += 1
                if (victim := due.get(done)) is not None:
                    scene.kill(mcp, victim)

        await asyncio.gather(*(caller() for _ in range(min(calls, at_once))))
    return scene.outcome


async def cull(*, servers: int, calls: int, seed: int) -> Outcome:
    """Kill all servers at once while so many calls wait for answers that never come."""
    scene = Storm(servers, seed)
    async with scene.running() as mcp:
        calling = [
            asyncio.ensure_future(scene.call(mcp, scene.names[number % servers], "fault", 600, kind="never"))
            for number in range(calls)
        ]
        # The servers answer in order: an answer to this one means that they have read all the others.
        await _until_all_begun(scene, calls)
        for name in scene.names:
            assert (await mcp.call(f"mcp_{name}_echo", {"text": name}, timeout=60)).success
        for name in scene.victims:
            scene.kill(mcp, name)
        await asyncio.gather(*calling)
    return scene.outcome


async def _until_all_begun(scene: Storm, calls: int) -> None:
    while scene.under_way < calls:  # noqa: ASYNC110 -- a number, and the tasks begin in this very turn
        await asyncio.sleep(0)


def note(outcome: Outcome, result: ToolResult, token: str) -> None:
    """Sort one result in; an answer for another call is strange, and so is any untyped error."""
    match result.exception:
        case None if result.text == token:
            outcome.answered += 1
        case ToolUnavailableError(may_have_run=True):
            outcome.lost += 1
        case ToolUnavailableError():
            outcome.refused += 1
        case CallTimeoutError():
            outcome.timed_out += 1
        case _:
            outcome.strange.append(f"{result}")
