"""A server with the tasks of FastMCP (`fastmcp-tasks`), in the environment of that package; prints its URL.

Usage: foreign_tasks.py LOG. Each line of the log is a run of a tool.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from datetime import timedelta
from pathlib import Path

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

LOG = Path(sys.argv[1])
TASK = TaskConfig(mode="required", poll_interval=timedelta(seconds=0.3))
mcp = FastMCP("foreign")
mcp.add_extension(TasksExtension())


def log(*words: object) -> None:
    with LOG.open("a") as file:
        print(*words, file=file)


@mcp.tool(task=TASK)
async def add(a: int, b: int) -> int:
    log("add", a, b)
    await asyncio.sleep(0.2)
    return a + b


@mcp.tool(task=TASK)
async def wait_for(path: str) -> str:
    """Wait for a file."""
    log("wait_for")
    try:
        while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 -- another process makes it
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        log("cancelled")
        raise
    return "found"


@mcp.tool(task=TASK)
async def order(ctx: Context) -> str | InputRequiredResult:
    """Ask for a size, then for a colour."""
    answers = ctx.input_responses or {}
    if "colour" in answers:
        log("ordered")
        return f"{ctx.request_state} {answers['colour'].content['colour']}"
    # A run has only the latest answers; the state carries the earlier ones.
    asked, state = ("colour", answers["size"].content["size"]) if "size" in answers else ("size", None)
    form = {"type": "object", "properties": {asked: {"type": "string"}}, "required": [asked]}
    question = ElicitRequest(params=ElicitRequestFormParams(message=f"Which {asked}?", requested_schema=form))
    return InputRequiredResult(input_requests={asked: question}, request_state=state)


@mcp.tool(task=TASK)
async def fail() -> str:
    msg = "out of paper"
    raise ValueError(msg)


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    server = uvicorn.Server(uvicorn.Config(mcp.http_app(), log_level="warning"))
    await server.serve(sockets=[listener])


asyncio.run(main())
