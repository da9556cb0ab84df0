"""A modern server on the official SDK that tells of changes, and logs: `changing.py stdio`."""

from __future__ import annotations

import os

import anyio
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("changing", log_level="ERROR")


@server.resource("sample://day")
async def day() -> str:
    """Say what day it is."""
    return "Monday"


@server.tool()
async def touch(uri: str, context: Context, times: int = 1) -> str:
    """Say that a resource has changed."""
    for _ in range(times):
        await context.notify_resource_updated(uri)
    return "done"


@server.tool()
async def rearrange(context: Context) -> str:
    """Say that there are other resources and prompts."""
    await context.notify_resources_changed()
    await context.notify_prompts_changed()
    return "done"


@server.tool()
async def log(level: str, text: str, context: Context) -> str:
    """Log something."""
    await context.session.send_log_message(level=level, data={"said": text}, logger="changing")
    return "done"


@server.tool()
async def exit() -> str:  # noqa: A001
    """Take the whole process down."""
    os._exit(3)


anyio.run(server.run_stdio_async)
