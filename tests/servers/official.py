"""A server on the official SDK: `official.py stdio`, or `http` and `sse` on a port that it prints.

Over HTTP it stops when its standard input ends, so that it never outlives the test.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent

server = MCPServer("official", version="2.0", log_level="ERROR")
SECRET = os.environ.get("EXPECTED_TOKEN")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool()
async def fail() -> CallToolResult:
    """Fail, as tools do."""
    return CallToolResult(content=[TextContent(text="the disk is full")], is_error=True)


@server.tool()
async def slow(context: Context) -> str:
    """Report that it has begun, and never come to an end."""
    await context.report_progress(0)
    await anyio.sleep_forever()
    return "never"


@server.tool()
async def exit() -> str:  # noqa: A001
    """Take the whole process down."""
    os._exit(9)


class Guard:
    """Refuses requests without the token."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        headers = dict(scope.get("headers") or ())
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {SECRET}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await self.app(scope, receive, send)


def main(transport: str) -> None:
    if transport == "stdio":
        anyio.run(server.run_stdio_async)
        return
    app = server.sse_app() if transport == "sse" else server.streamable_http_app()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(Guard(app) if SECRET else app, log_config=None, timeout_graceful_shutdown=1)
        http = uvicorn.Server(config)

        def until_eof() -> None:
            while os.read(0, 4096):
                pass
            os._exit(0)

        threading.Thread(target=until_eof, daemon=True).start()
        path = "sse" if transport == "sse" else "mcp"
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/{path}", flush=True)
        asyncio.run(http.serve(sockets=[listener]))


main(sys.argv[1])
