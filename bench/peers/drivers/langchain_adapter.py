"""LangChain's `MCPAdapter` over FastMCP's `ClientGroup`, as it takes several servers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from driver import main
from fastmcp.client.group import ClientGroup
from fastmcp_client import entry
from langchain.mcp import MCPAdapter

if TYPE_CHECKING:
    from driver import Ready, Server


class Adapter:
    def __init__(self) -> None:
        self._adapter: MCPAdapter | None = None
        self._tools: dict[str, Any] = {}

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        entries = {server["name"]: entry(server) for server in servers}
        adapter = MCPAdapter(ClientGroup.from_config({"mcpServers": entries}))
        await adapter.__aenter__()
        self._adapter = adapter
        self._tools = {tool.name: tool for tool in await adapter.list_tools()}
        counts = Counter(name.rpartition("_")[0] for name in self._tools)
        for name, count in counts.items():
            ready(name, count)
        return {}

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        del timeout  # It belongs to the client.
        answer = await self._tools[f"{server}_echo"].ainvoke({"text": text})
        return answer if isinstance(answer, str) else answer[0]["text"]

    async def stop(self) -> None:
        if self._adapter is not None:
            await self._adapter.__aexit__(None, None, None)


if __name__ == "__main__":
    main(Adapter)
