"""An SDK server over HTTP that answers by itself, to measure a gateway against. It prints its address."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel.server import Server

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="echo", description="Echoes.", input_schema=SCHEMA)])


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str((params.arguments or {})["text"]))])


async def main() -> None:
    server: Any = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    # With its protocol named: asyncio then sends small packets at once.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    print(f"serving at http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", access_log=False)
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main())
