"""dragoman's `McpManager`, used as in the README."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from driver import main

from dragoman import Http, McpManager, ServerSpec, Stdio

if TYPE_CHECKING:
    from driver import Ready, Server


def spec(server: Server) -> ServerSpec:
    if "url" in server:
        return ServerSpec(server["name"], Http(server["url"]))
    command, *args = server["command"]
    return ServerSpec(server["name"], Stdio(command, args))


class Manager:
    def __init__(self) -> None:
        self._mcp: McpManager | None = None

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        mcp = self._mcp = McpManager([spec(server) for server in servers])
        await mcp.__aenter__()
        _report(mcp, ready, runs=False)
        if any(server.get("odd") for server in servers):
            await asyncio.gather(*(self._follow(mcp, server["name"], ready) for server in servers))
        elif await mcp.wait_ready():
            _report(mcp, ready, runs=True)
        return {name: status.last_error or "" for name, status in mcp.status().items() if status.last_error}

    async def _follow(self, mcp: McpManager, name: str, ready: Ready) -> None:
        """Report when the tools of one server can be used, independently of the others."""
        if await mcp.wait_ready([name]):
            ready(name, mcp.status()[name].tools)

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        assert self._mcp is not None
        result = await self._mcp.call(f"mcp_{server}_echo", {"text": text}, timeout=timeout)
        if not result.success:
            raise RuntimeError(result.error)
        return result.text

    async def stop(self) -> None:
        if self._mcp is not None:
            await self._mcp.shutdown()


def _report(mcp: McpManager, ready: Ready, *, runs: bool) -> None:
    """Report the tools of all servers; before the servers run, those of the last listing."""
    for name, tools in Counter(tool.server for tool in mcp.tools()).items():
        ready(name, tools, runs=runs)


if __name__ == "__main__":
    main(Manager)
