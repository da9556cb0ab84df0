"""Measure the client's CPU per call with `McpManager`, compared with the SDK's `Client`.

Both use the same small server, over stdio and over Streamable HTTP; rounds alternate, and the best round of
each counts. Validation and events are included. One row is a single result of 20 MB.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters

from bench.pairs import compare
from dragoman import Http, McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SERVER = str(Path(__file__).with_name("echo_server.py"))
HTTP_SERVER = str(Path(__file__).with_name("echo_http_server.py"))
LARGE_BYTES = 20 * 1024 * 1024
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
