"""`openai-agents`: its `MCPServerManager`, connecting in parallel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from agents.mcp import MCPServerManager, MCPServerStdio, MCPServerStreamableHttp
from driver import main

if TYPE_CHECKING:
    from driver import Ready, Server


def made(server: Server) -> Any:
    limit = {"client_session_timeout_seconds": server["limit"]} if "limit" in server else {}
    common: dict[str, Any] = {"name": server["name"], "cache_tools_list": True, **limit}
    if "url" in server:
        return MCPServerStreamableHttp({"url": server["url"]}, **common)
    command, *args = server["command"]
    return MCPServerStdio({"command": command, "args": args}, **common)


class Servers:
    def __init__(self) -> None:
        self._manager: MCPServerManager | None = None
        self._servers: dict[str, Any] = {}
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        manager = self._manager = MCPServerManager(map(made, servers), connect_in_parallel=True)
        active = await manager.connect_all()
        self._servers = {server.name: server for server in active}
        for server, tools in zip(
            active, await asyncio.gather(*(one.list_tools() for one in active)), strict=True
        ):
            self._tools += tools
            ready(server.name, len(tools))
        return {server.name: repr(error)[:300] for server, error in manager.errors.items()}

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        del timeout  # It belongs to the server.
        result = await self._servers[server].call_tool("echo", {"text": text})
        return result.content[0].text

    async def stop(self) -> None:
        if self._manager is not None:
            await self._manager.cleanup_all()


if __name__ == "__main__":
    main(Servers)
