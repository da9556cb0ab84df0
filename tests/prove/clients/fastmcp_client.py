"""FastMCP's client against the gateway: `fastmcp_client.py URL TOKEN` or `fastmcp_client.py stdio COMMAND ARG…`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport


async def main(where: str, *rest: str) -> None:
    """Use every kind of request, and print what came back."""
    transport: Any = (
        StdioTransport(command=rest[0], args=list(rest[1:]))
        if where == "stdio"
        else StreamableHttpTransport(where, headers={"Authorization": f"Bearer {rest[0]}"})
    )
    steps: list[float] = []

    async def elicit(*_: Any) -> dict[str, int]:
        return {"seats": 5}

    async def progress(done: float, *_: Any) -> None:
        steps.append(done)

    async with Client(transport, elicitation_handler=elicit) as client:
        report: dict[str, Any] = {
            "tools": [tool.name for tool in await client.list_tools()],
            "echo": (await client.call_tool("mcp_old_echo", {"said": "hallo"})).structured_content,
        }
        await client.call_tool("mcp_new_progress", {}, progress_handler=progress)
        report["steps"] = steps
        for key, server in (("form", "old"), ("formOfNew", "new")):
            report[key] = (await client.call_tool(f"mcp_{server}_form", {})).content[0].text
        report["resources"] = [str(resource.uri) for resource in await client.list_resources()]
        report["memo"] = (await client.read_resource("dragoman://new/memo://one"))[0].text
        prompt = await client.get_prompt("old.greet", {"city": "Rom"})
        report["prompt"] = prompt.messages[0].content.text
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
