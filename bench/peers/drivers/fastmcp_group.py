"""FastMCP's `ClientGroup`: one independent client for each server, from one configuration."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from driver import main
from fastmcp.client.group import ClientGroup
from fastmcp_client import entry

if TYPE_CHECKING:
    from driver import Ready, Server


class Group:
    def __init__(self) -> None:
        self._group: ClientGroup | None = None
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        entries = {server["name"]: entry(server) for server in servers}
        group = ClientGroup.from_config({"mcpServers": entries})
        await group.__aenter__()
        self._group = group
        self._tools = await group.list_tools()
        counts = Counter(tool.name.rpartition("_")[0] for tool in self._tools)
        for name, count in counts.items():
            ready(name, count)
        return {}

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        assert self._group is not None
        result = await self._group.call_tool(f"{server}_echo", {"text": text}, timeout=timeout)
        return result.content[0].text

    async def stop(self) -> None:
        if self._group is not None:
            await self._group.__aexit__(None, None, None)


if __name__ == "__main__":
    main(Group)
