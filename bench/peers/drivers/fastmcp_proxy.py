"""FastMCP's proxy of one stdio server, over HTTP: `fastmcp_proxy.py COMMAND ARG…`. It prints its address."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy


async def main(command: str, *arguments: str) -> None:
    proxy = create_proxy(StdioTransport(command=command, args=list(arguments)), name="proxy")
    # With its protocol named: asyncio then sends small packets at once.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    print(f"serving at http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(proxy.http_app(), log_level="error", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


asyncio.run(main(*sys.argv[1:]))
