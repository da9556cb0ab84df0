"""`mcp-use`: its `MCPClient` with the sessions of all servers."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

# Disable its telemetry, which uses the network.
os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"

from driver import main
from mcp_use import MCPClient

if TYPE_CHECKING:
    from driver import Ready, Server


def entry(server: Server) -> dict[str, Any]:
    if "url" in server:
        return {"url": server["url"]}
    command, *args = server["command"]
    return {"command": command, "args": args}


class Sessions:
    def __init__(self) -> None:
        self._client = MCPClient()
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        self._client = MCPClient({"mcpServers": {server["name"]: entry(server) for server in servers}})
        sessions = await self._client.create_all_sessions()
        for name, session in sessions.items():
            tools = await session.list_tools()
            self._tools += tools
            ready(name, len(tools))
        return {}

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        limit = None if timeout is None else timedelta(seconds=timeout)
        result = await self._client.sessions[server].call_tool("echo", {"text": text}, limit)
        return result.content[0].text

    async def stop(self) -> None:
        await self._client.close_all_sessions()


if __name__ == "__main__":
    main(Sessions)
