"""A server on the official SDK that asks its client: for a form, for a completion, for roots; and that logs."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("asking", log_level="ERROR")


class Table(BaseModel):
    """What a guest wants."""

    seats: int = 2
    name: str = "nobody"


@server.tool()
async def book(context: Context) -> str:
    """Ask for a form, and say what came."""
    outcome = await context.elicit("A table for how many?", schema=Table)
    return f"{outcome.action}: {outcome.data.model_dump() if outcome.action == 'accept' else None}"


@server.tool()
async def summarise(text: str, context: Context) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(text=text))
    answer = await context.session.create_message(messages=[message], max_tokens=10)
    return f"the model said: {answer.content.text}"


@server.tool()
async def steps(count: int, context: Context) -> str:
    """Report progress."""
    for number in range(count):
        await context.report_progress(number + 1, count, f"step {number + 1}")
    return "done"


server.run(sys.argv[1] if len(sys.argv) > 1 else "stdio")
