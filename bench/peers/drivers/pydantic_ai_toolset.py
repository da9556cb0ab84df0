"""`pydantic-ai`: an `MCPToolset` for each server, as `load_mcp_toolsets` makes them, gathered by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driver import Held, each, main
from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

if TYPE_CHECKING:
    from driver import Ready, Server


def made(server: Server) -> MCPToolset[Any]:
    limit = {"read_timeout": server["limit"]} if "limit" in server else {}
    if "url" in server:
        return MCPToolset(server["url"], id=server["name"], **limit)
    command, *args = server["command"]
    # Otherwise the process would be kept for the next toolset.
    transport = StdioTransport(command, args, keep_alive=False)
    return MCPToolset(transport, id=server["name"], **limit)


class Toolsets:
    def __init__(self) -> None:
        self._held = Held()
        self._toolsets: dict[str, MCPToolset[Any]] = {}
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        return await each(servers, self._connect, ready)

    async def _connect(self, server: Server) -> int:
        toolset = self._toolsets[server["name"]] = made(server)
        await self._held.enter(toolset)
        tools = await toolset.list_tools()
        self._tools += tools
        return len(tools)

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        del timeout  # It belongs to the toolset.
        return await self._toolsets[server].direct_call_tool("echo", {"text": text})

    async def stop(self) -> None:
        await self._held.leave()


if __name__ == "__main__":
    main(Toolsets)
