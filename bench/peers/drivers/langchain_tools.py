"""`langchain-mcp-adapters`: tools of sessions that stay open, the fast one of its two documented ways.

The other way, `get_tools()`, starts a new server for each call.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from driver import Held, each, main
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

if TYPE_CHECKING:
    from driver import Ready, Server


def entry(server: Server) -> dict[str, Any]:
    if "url" in server:
        return {"transport": "streamable_http", "url": server["url"]}
    command, *args = server["command"]
    limit = server.get("limit")
    kwargs = {"read_timeout_seconds": timedelta(seconds=limit)} if limit else {}
    return {"transport": "stdio", "command": command, "args": args, "session_kwargs": kwargs}


class Tools:
    def __init__(self) -> None:
        self._held = Held()
        self._client = MultiServerMCPClient()
        self._tools: dict[tuple[str, str], Any] = {}

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        self._client = MultiServerMCPClient({server["name"]: entry(server) for server in servers})
        return await each(servers, self._connect, ready)

    async def _connect(self, server: Server) -> int:
        name = server["name"]
        session = await self._held.enter(self._client.session(name))
        tools = await load_mcp_tools(session)
        self._tools |= {(name, tool.name): tool for tool in tools}
        return len(tools)

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        del timeout  # It belongs to the session.
        answer = await self._tools[server, "echo"].ainvoke({"text": text})
        return answer if isinstance(answer, str) else answer[0]["text"]

    async def stop(self) -> None:
        await self._held.leave()


if __name__ == "__main__":
    main(Tools)
