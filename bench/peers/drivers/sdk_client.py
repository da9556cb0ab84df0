"""The official SDK's `Client`, one for each server, gathered by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driver import Held, each, main
from mcp import Client, StdioServerParameters

if TYPE_CHECKING:
    from driver import Ready, Server


class Clients:
    def __init__(self) -> None:
        self._held = Held()
        self._clients: dict[str, Client] = {}
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        return await each(servers, self._connect, ready)

    async def _connect(self, server: Server) -> int:
        if "url" in server:
            client = Client(server["url"])
        else:
            command, *args = server["command"]
            client = Client(StdioServerParameters(command=command, args=args))
        self._clients[server["name"]] = await self._held.enter(client)
        tools = (await client.list_tools()).tools
        self._tools += tools
        return len(tools)

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        result = await self._clients[server].call_tool("echo", {"text": text}, read_timeout_seconds=timeout)
        return result.content[0].text

    async def stop(self) -> None:
        await self._held.leave()


if __name__ == "__main__":
    main(Clients)
