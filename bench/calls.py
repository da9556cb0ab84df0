"""Measure the client's CPU per call with `McpManager`, compared with the SDK's `Client` and with the floor.

All use the same small server, over stdio and over Streamable HTTP; rounds alternate, and the best round of
each counts. Validation and events are included. The floor is that of the peers' benchmark: JSON-RPC by hand,
nothing checked. Then come single results of 1 to 20 MB, compared with `json.loads` of the same message: the
CPU, and the longest turn of the event loop. The last rows repeat the floor on uvloop, if it is installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters

from bench.pairs import compare, report
from dragoman import Http, McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

SERVER = str(Path(__file__).with_name("echo_server.py"))
HTTP_SERVER = str(Path(__file__).with_name("echo_http_server.py"))
FLOOR = Path(__file__).parent / "peers" / "drivers"
LARGE_BYTES = 20 * 1024 * 1024
SIZES = (1, 4, 20)
"""Megabytes of the results that are compared with `json.loads`."""
PARSE_GOAL = 2.5
STALL_GOAL = 1.0
FLOOR_GOALS = {"stdio": {1: 3.0, 32: 3.0}, "Streamable HTTP": {1: 2.5, 32: 3.0}}
FLOOR_ROUNDS = 15
GOALS = {"stdio": {1: 0.45, 32: 0.3}, "Streamable HTTP": {1: 0.35, 32: 0.3}}
LARGE_GOAL = 0.1


def main() -> None:
    """Measure and print."""
    asyncio.run(_run())
    if find_spec("uvloop") is not None:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run_floors("on uvloop"))


async def _run() -> None:
    command = StdioServerParameters(command=sys.executable, args=["-S", SERVER])
    stdio = ServerSpec("echo", Stdio(sys.executable, ["-S", SERVER]), max_message_bytes=2 * LARGE_BYTES)
    async with Client(command, mode="legacy") as client, McpManager([stdio], cache=False) as mcp:
        await _small("stdio", client, mcp)
        await _large(client, mcp)
    async with _http_server() as url:
        spec = ServerSpec("echo", Http(url))
        async with Client(url, mode="legacy") as client, McpManager([spec], cache=False) as mcp:
            await _small("Streamable HTTP", client, mcp)
    await _run_floors("on asyncio")


async def _run_floors(loop: str) -> None:
    """Compare both wires with the floor."""
    sys.path.insert(0, str(FLOOR))
    floor: Any = import_module("floor").Floor()
    async with _http_server() as url:
        servers = {
            "stdio": {"name": "stdio", "command": [sys.executable, "-S", SERVER]},
            "Streamable HTTP": {"name": "http", "url": url},
        }
        await floor.start(list(servers.values()), lambda *_: None)
        specs = [ServerSpec("stdio", Stdio(sys.executable, ["-S", SERVER])), ServerSpec("http", Http(url))]
        async with McpManager(specs, cache=False) as mcp:
            assert await mcp.wait_ready()
            for wire, server in servers.items():
                for at_once, goal in FLOOR_GOALS[wire].items():
                    await compare(
                        f"{wire}, {at_once} at once, {loop}",
                        ours=partial(mcp.call, f"mcp_{server['name']}_echo", {"text": "hello"}),
                        theirs=partial(floor.call, server["name"], "hello"),
                        goal=goal,
                        at_once=at_once,
                        rounds=FLOOR_ROUNDS,
                        other="floor",
                    )
        await floor.stop()


async def _small(wire: str, client: Client, mcp: McpManager) -> None:
    assert await mcp.wait_ready()
    await client.list_tools()
    arguments = {"text": "hello"}

    async def ours() -> None:
        assert (await mcp.call("mcp_echo_echo", arguments)).text == "hello"

    async def theirs() -> None:
        await client.call_tool("echo", arguments)

    for at_once, goal in GOALS[wire].items():
        label = f"{wire}, {at_once} at once"
        await compare(label, ours=ours, theirs=theirs, goal=goal, at_once=at_once)


async def _large(client: Client, mcp: McpManager) -> None:
    arguments: dict[str, Any] = {"text": "", "size": LARGE_BYTES}

    async def ours() -> None:
        assert len((await mcp.call("mcp_echo_echo", arguments, timeout=60)).text) == LARGE_BYTES

    async def theirs() -> None:
        await client.call_tool("echo", arguments)

    label = "stdio, a result of 20 MB"
    await compare(label, ours=ours, theirs=theirs, goal=LARGE_GOAL, calls=1, rounds=2)
    for size in SIZES:
        await _parsed(mcp, size * 1024 * 1024)


async def _parsed(mcp: McpManager, size: int) -> None:
    """Compare the CPU of a large result with that of parsing it, the best of several rounds."""
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"text": "x" * size}]}}).encode()
    best = {"ours": float("inf"), "json": float("inf"), "turn": float("inf")}
    for _ in range(7):
        start = time.process_time()
        json.loads(message)
        parsed = time.process_time()
        await mcp.call("mcp_echo_echo", {"text": "", "size": size}, timeout=60)
        ended = time.process_time()
        with _turns() as turns:
            await mcp.call("mcp_echo_echo", {"text": "", "size": size}, timeout=60)
        best["json"] = min(best["json"], parsed - start)
        best["ours"] = min(best["ours"], ended - parsed)
        best["turn"] = min(best["turn"], max(turns))
    label = f"stdio, {size >> 20} MB"
    report(f"{label} beside `json.loads`", best["ours"], best["json"], PARSE_GOAL, "json.loads")
    report(f"{label}, longest turn of the loop", best["turn"], best["json"], STALL_GOAL, "json.loads")


@contextmanager
def _turns() -> Generator[list[float]]:
    """Measure the CPU of this thread in each turn of the event loop."""
    loop, turns, last = asyncio.get_running_loop(), [0.0], time.thread_time()

    def turn() -> None:
        nonlocal last, handle
        now = time.thread_time()
        turns.append(now - last)
        last, handle = now, loop.call_soon(turn)

    handle = loop.call_soon(turn)
    try:
        yield turns
    finally:
        handle.cancel()


@asynccontextmanager
async def _http_server() -> AsyncGenerator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-S", HTTP_SERVER, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()
