"""Measure the client's CPU per call with `McpManager`, compared with the SDK's `Client`.

Both use the same small server, over stdio and over Streamable HTTP; rounds alternate, and the best round of
each counts. Validation and events are included. The last rows are single results of 1 to 20 MB, compared with
`json.loads` of the same message.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters

from bench.pairs import compare, report
from dragoman import Http, McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SERVER = str(Path(__file__).with_name("echo_server.py"))
HTTP_SERVER = str(Path(__file__).with_name("echo_http_server.py"))
LARGE_BYTES = 20 * 1024 * 1024
SIZES = (1, 4, 20)
"""Megabytes of the results that are compared with `json.loads`."""
PARSE_GOAL = 2.5
GOALS = {"stdio": {1: 0.45, 32: 0.3}, "Streamable HTTP": {1: 0.35, 32: 0.3}}
LARGE_GOAL = 0.1


def main() -> None:
    """Measure and print."""
    asyncio.run(_run())


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
    best = {"ours": float("inf"), "json": float("inf")}
    for _ in range(5):
        start = time.process_time()
        json.loads(message)
        parsed = time.process_time()
        await mcp.call("mcp_echo_echo", {"text": "", "size": size}, timeout=60)
        best["json"] = min(best["json"], parsed - start)
        best["ours"] = min(best["ours"], time.process_time() - parsed)
    report(
        f"stdio, {size >> 20} MB beside `json.loads`", best["ours"], best["json"], PARSE_GOAL, "json.loads"
    )


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
