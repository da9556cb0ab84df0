"""LangChain's MCP adapters against the gateway: `langchain_client.py KIND URL TOKEN` or `… stdio COMMAND ARG…`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient


async def main(kind: str, *rest: str) -> None:
    """List the tools, call one, read a resource and a prompt; print what came back."""
    server: Any = (
        {"transport": "stdio", "command": rest[0], "args": list(rest[1:]), "env": dict(os.environ)}
        if kind == "stdio"
        else {"transport": kind, "url": rest[0], "headers": {"Authorization": f"Bearer {rest[1]}"}}
    )
    client = MultiServerMCPClient({"gateway": server})
    tools = {tool.name: tool for tool in await client.get_tools()}
    answer = await tools["mcp_old_echo"].ainvoke({"said": "hallo"})
    memo = await client.get_resources("gateway", uris=["dragoman://new/memo://one"])
    prompt = await client.get_prompt("gateway", "old.greet", arguments={"city": "Rom"})
    report = {
        "tools": sorted(tools),
        "echo": str(answer),
        "memo": memo[0].as_string(),
        "prompt": prompt[0].content,
    }
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
