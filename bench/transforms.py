"""Measure what changes of a tool cost a call: the whole call beside one without, and the change alone.

The servers are in this process, so that nothing else takes time. Rounds alternate; the best of each counts.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any

from dragoman.call.transforms import complete
from dragoman.manager.manager import McpManager, parts_of
from dragoman.model import ArgumentTransform, ToolTransform
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
CALLS = 2_000
GOAL = 5.0
"""Microseconds that a transform may take."""
FIXED = {
    "text": ArgumentTransform(name="words", description="What to say."),
    "root": ArgumentTransform(value="/srv"),
    "limit": ArgumentTransform(default=5),
}
VARIABLE = {**FIXED, "root": ArgumentTransform(value="${BENCH_ROOT}/notes")}


def main() -> int:
    """Measure and print."""
    os.environ["BENCH_ROOT"] = "/srv"
    return asyncio.run(_run())


def _server(name: str) -> ScriptedServer:
    server = ScriptedServer(name)

    @server.tool
    def echo(text: str, root: str = "", limit: int = 0) -> str:
        """Return the text."""
        del root, limit
        return text

    return server


async def _run() -> int:
    rules = {
        "plain": {},
        "beside": {"other": ToolTransform(hidden=True)},
        "changed": {"echo": ToolTransform(name="say", arguments=FIXED)},
        "variable": {"echo": ToolTransform(name="say", arguments=VARIABLE)},
    }
    servers = {name: _server(name) for name in rules}
    specs = [server.spec(tools=rules[name]) for name, server in servers.items()]
    async with McpManager(specs, cache=False) as mcp:
        await mcp.wait_ready()
        best = dict.fromkeys(rules, float("inf"))
        for _ in range(ROUNDS):
            for name, server in servers.items():
                changed = name in ("changed", "variable")
                tool = f"mcp_{name}_{'say' if changed else 'echo'}"
                # The server gets the same in each round.
                arguments = {"words": "hello"} if changed else {"text": "hello", "root": "/srv", "limit": 5}
                start = time.process_time()
                for _ in range(CALLS // 10):
                    await mcp.call(tool, arguments)
                best[name] = min(best[name], (time.process_time() - start) / (CALLS // 10) * 1e6)
                server.calls.clear()
        for name, taken in best.items():
            print(f"{f'a call, {name}':<34} {taken:7.1f} µs, {taken - best['plain']:+5.1f} µs")
        alone = {name: _alone(mcp, name) for name in ("changed", "variable")}
    missed = alone["changed"] > GOAL
    for name, taken in alone.items():
        verdict = "" if name != "changed" else f"  (goal {GOAL:g}: {'MISSED' if missed else 'met'})"
        print(f"{f'the change alone, {name}':<34} {taken:7.2f} µs{verdict}")
    return int(missed)


def _alone(mcp: McpManager, name: str) -> float:
    context = parts_of(mcp).call_context
    tool = mcp.registry.get(f"mcp_{name}_say")
    assert tool is not None
    arguments = {"words": "hello"}
    found = tool

    def once() -> dict[str, Any]:
        return complete(context, found, arguments)

    return min(_timed(once) for _ in range(ROUNDS))


def _timed(function: Callable[[], object]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        function()
    return (time.process_time() - start) / CALLS * 1e6
