"""FastMCP's `Client`: directly for one server, with a configuration for several, as in its documentation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from driver import main
from fastmcp import Client

if TYPE_CHECKING:
    from driver import Ready, Server


def entry(server: Server) -> dict[str, Any]:
    if "url" in server:
        return {"url": server["url"], "transport": "http"}
    command, *args = server["command"]
    # Otherwise closing would leave the process for the next client.
    return {"command": command, "args": args, "keep_alive": False}


class One:
    def __init__(self) -> None:
        self._client: Client[Any] | None = None
        self._several = False
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        self._several = len(servers) > 1
        client = self._client = Client({"mcpServers": {server["name"]: entry(server) for server in servers}})
        await client.__aenter__()
        self._tools = await client.list_tools()
        if self._several:
            names = Counter(tool.name.rpartition("_")[0] for tool in self._tools)
        else:
            names = Counter({servers[0]["name"]: len(self._tools)})
        for name, count in names.items():
            ready(name, count)
        return {server["name"]: "no tools" for server in servers if server["name"] not in names}

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        assert self._client is not None
        name = f"{server}_echo" if self._several else "echo"
        result = await self._client.call_tool(name, {"text": text}, timeout=timeout)
        return result.content[0].text

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()


if __name__ == "__main__":
    main(One)
