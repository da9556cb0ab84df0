"""Many calls while servers are killed: the small test and the proof share it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.behaviour.faults import faulty

from dragoman import CallTimeoutError, McpManager, ServerState, ToolUnavailableError
from dragoman.events import StateChanged

if TYPE_CHECKING:
    from dragoman import ToolResult


@dataclass
class Outcome:
    """What came of a storm."""

    answered: int = 0
    refused: int = 0
    lost: int = 0
    timed_out: int = 0
    strange: list[str] = field(default_factory=list)
    longest: float = 0.0
    """The most seconds that a call took, deadline or not."""
    latest_loss: float = 0.0
    """The most seconds between the death of a server and the end of a call that it carried."""
    recovery: float = 0.0
    """Seconds from the last kill until every server was ready."""


async def storm(*, servers: int, calls: int, timeout: float, seed: int, at_once: int = 200) -> Outcome:
    """Kill each server once, in random order, while calls are under way."""
    chance, outcome = random.Random(seed), Outcome()
    names = [f"s{number}" for number in range(servers)]
    killed: dict[str, float] = {}
    done = 0
    async with McpManager([faulty(name) for name in names]) as mcp:
        assert await mcp.wait_ready()
        back: dict[str, float] = {}

        async def watch() -> None:
            async for event in mcp.events():
                if isinstance(event, StateChanged) and event.after is ServerState.READY:
                    back[event.server] = time.monotonic()
                    if len(back) == len(names):
                        return

        watching = asyncio.ensure_future(watch())

        async def call() -> None:
            nonlocal done
            name, token = chance.choice(names), uuid.uuid4().hex
            began = time.monotonic()
            arguments = {"text": token, "pause": 0.02 if chance.random() < 0.05 else 0}
            result = await mcp.call(f"mcp_{name}_echo", arguments, timeout=timeout)
            ended = time.monotonic()
            done += 1
            outcome.longest = max(outcome.longest, ended - began)
            note(outcome, result, token)
            death = killed.get(name)
            lost = isinstance(result.exception, ToolUnavailableError) and result.exception.may_have_run
            if lost and death is not None:
                outcome.latest_loss = max(outcome.latest_loss, ended - max(death, began))

        async def kill_all() -> None:
            order = chance.sample(names, len(names))
            for number, name in enumerate(order, 1):
                # Spread over the storm by its own progress: no clock is needed.
                while done < calls * number // (len(order) + 1):  # noqa: ASYNC110 -- a number, not an event
                    await asyncio.sleep(0)
                pid = mcp.status()[name].pid
                assert pid is not None
                killed[name] = time.monotonic()
                os.kill(pid, signal.SIGKILL)

        killing = asyncio.ensure_future(kill_all())
        # Callers as an agent has them: many at once, each with one call after the other.
        queue = iter(range(calls))

        async def caller() -> None:
            for _ in queue:
                await call()

        await asyncio.gather(*(caller() for _ in range(min(calls, at_once))))
        await killing
        await watching
        outcome.recovery = max(back.values()) - max(killed.values())
        for name in names:
            assert (await mcp.call(f"mcp_{name}_echo", {"text": name})).text == name
    return outcome


def note(outcome: Outcome, result: ToolResult, token: str) -> None:
    """Sort one result in; an answer for somebody else is strange, and so is any untyped error."""
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
