"""The official SDK's `ClientSession` over its transports, one for each server, gathered by hand."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from driver import Held, each, main
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from driver import Ready, Server


@asynccontextmanager
async def session_with(server: Server) -> AsyncGenerator[ClientSession]:
    if "url" in server:
        transport = streamable_http_client(server["url"])
    else:
        command, *args = server["command"]
        transport = stdio_client(StdioServerParameters(command=command, args=args))
    async with transport as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield session


class Sessions:
    def __init__(self) -> None:
        self._held = Held()
        self._sessions: dict[str, ClientSession] = {}
        self._tools: list[Any] = []

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        return await each(servers, self._connect, ready)

    async def _connect(self, server: Server) -> int:
        session = self._sessions[server["name"]] = await self._held.enter(session_with(server))
        tools = (await session.list_tools()).tools
        self._tools += tools
        return len(tools)

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        result = await self._sessions[server].call_tool("echo", {"text": text}, read_timeout_seconds=timeout)
        return result.content[0].text

    async def stop(self) -> None:
        await self._held.leave()


if __name__ == "__main__":
    main(Sessions)
