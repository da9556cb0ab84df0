"""What a call costs the client: CPU per stdio call through `McpManager`, against the bare SDK's `Client`.

Both talk to the same small server; rounds alternate, and the best round of each counts. Goals: at most
0.45 times the SDK one at a time, 0.3 times with 32 at once.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters

from dragoman import McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SERVER = str(Path(__file__).with_name("echo_server.py"))
ROUNDS, CALLS = 7, 600


def main() -> None:
    """Measure and print."""
    asyncio.run(_run())


async def _run() -> None:
    spec = ServerSpec("echo", Stdio(sys.executable, ["-S", SERVER]))
    async with (
        Client(StdioServerParameters(command=sys.executable, args=["-S", SERVER]), mode="legacy") as client,
        McpManager([spec]) as mcp,
    ):
        await mcp.wait_ready()
        await client.list_tools()
        arguments = {"text": "hello"}

        async def ours() -> Any:
            result = await mcp.call("mcp_echo_echo", arguments)
            assert result.success

        async def theirs() -> Any:
            await client.call_tool("echo", arguments)

        for at_once, goal in ((1, 0.45), (32, 0.3)):
            best = {"ours": float("inf"), "theirs": float("inf")}
            for _ in range(ROUNDS):
                for name, call in (("theirs", theirs), ("ours", ours)):
                    best[name] = min(best[name], await _cpu(call, at_once))
            ratio = best["ours"] / best["theirs"]
            verdict = "met" if ratio <= goal else "MISSED"
            print(
                f"{at_once:>3} at once: dragoman {best['ours'] * 1e6:6.0f} µs, "
                f"SDK {best['theirs'] * 1e6:6.0f} µs, {ratio:5.2f} ×  (goal {goal}: {verdict})"
            )


async def _cpu(call: Callable[[], Awaitable[Any]], at_once: int) -> float:
    start = time.process_time()
    for _ in range(CALLS // at_once):
        if at_once == 1:
            await call()
        else:
            await asyncio.gather(*(call() for _ in range(at_once)))
    return (time.process_time() - start) / (CALLS // at_once * at_once)
