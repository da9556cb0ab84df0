"""How long a listing is used, and for whom: `ttlMs` and `cacheScope`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.conftest import listening

from dragoman import Http, McpManager, ServerSpec
from dragoman.events import ToolsChanged
from dragoman.testing import InstantClock, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dragoman.events import Event

pytestmark = pytest.mark.requirement("legal-discovery.cache")


class GrowingServer(ScriptedServer):
    """A server of 2026-07-28 that announces no changes: its listing grows each time, and has a time to live."""

    def __init__(self, ttl: int) -> None:
        super().__init__("f")
        self.listings = 0
        self._kept = {"resultType": "complete", "ttlMs": ttl, "cacheScope": "public"}

    async def answer(self, wire: Any, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        match method:
            case "server/discover":
                offer = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
                return {**self._kept, **offer}
            case "tools/list":
                self.listings += 1
                schema = {"type": "object"}
                tools = [{"name": f"t{number}", "inputSchema": schema} for number in range(self.listings)]
                return {**self._kept, "tools": tools}
            case "tools/call":
                return {"resultType": "complete", "content": [{"type": "text", "text": params["name"]}]}
            case _:
                return await super().answer(wire, method, params)


async def changed(mcp: McpManager) -> Event:
    async for event in mcp.events():
        if isinstance(event, ToolsChanged):
            return event
    raise AssertionError


@pytest.mark.parametrize("need", ["tools", "call"])
def test_should_fetch_a_stale_listing_again_at_the_next_need(need: str) -> None:
    server = GrowingServer(60_000)

    async def main() -> None:
        async with McpManager([server.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            assert mcp.status()["f"].protocol_version == "2026-07-28"
            assert [tool.original_name for tool in mcp.tools()] == ["t0"]
            waiting = asyncio.ensure_future(changed(mcp))
            await asyncio.sleep(3_600)  # much longer than its time to live
            assert server.listings == 1, "nothing polls"
            if need == "call":
                assert (await mcp.call("mcp_f_t0")).text == "t0"
            else:
                mcp.tools()
            await waiting
            assert [tool.original_name for tool in mcp.tools()] == ["t0", "t1"]
        assert server.listings == 2

    InstantClock().run(main())


@pytest.mark.parametrize(("ttl", "pause"), [(0, 3_600), (60_000, 2)])
def test_a_fresh_listing_is_not_fetched_again(ttl: int, pause: float) -> None:
    server = GrowingServer(ttl)

    async def main() -> None:
        async with McpManager([server.spec()], cache=False) as mcp:
            await mcp.wait_ready()
            for _ in range(20):
                mcp.tools()
                assert (await mcp.call("mcp_f_t0")).success
                await asyncio.sleep(pause)
        assert server.listings == 1

    InstantClock().run(main())


@pytest.mark.anyio
@pytest.mark.parametrize("header", ["", "X-User"])
async def test_must_not_keep_a_private_listing_for_other_credentials(header: str, tmp_path: Path) -> None:
    async with listening("http") as url:
        spec = ServerSpec("o", Http(url, headers={header: "ada"} if header else {}))
        async with McpManager([spec], cache=tmp_path) as mcp:
            await mcp.wait_ready()
            assert mcp.tools()
    kept = [name for name in os.listdir(tmp_path) if name.endswith(".manifest")]  # noqa: PTH208 -- no await
    # The SDK's server says `private`. Without credentials there is only one who asks.
    assert bool(kept) is not bool(header)
