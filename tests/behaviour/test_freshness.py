"""How long a listing is used, and for whom: `ttlMs` and `cacheScope`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.behaviour.conftest import listening

from dragoman import Http, McpManager, ServerSpec, Stdio
from dragoman.events import ToolsChanged

if TYPE_CHECKING:
    from dragoman.events import Event

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).resolve().parents[1] / "servers"


def fresh(ttl: int, log: Path) -> ServerSpec:
    return ServerSpec("f", Stdio(sys.executable, [str(SERVERS / "fresh.py"), str(ttl), str(log)]))


async def changed(mcp: McpManager) -> Event:
    async for event in mcp.events():
        if isinstance(event, ToolsChanged):
            return event
    raise AssertionError


@pytest.mark.parametrize("need", ["tools", "call"])
async def test_should_fetch_a_stale_listing_again_at_the_next_need(need: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with McpManager([fresh(1_000, log)], cache=False) as mcp:
        await mcp.wait_ready()
        assert [tool.original_name for tool in mcp.tools()] == ["t0"]
        waiting = asyncio.ensure_future(changed(mcp))
        await asyncio.sleep(1.1)  # its time to live
        assert len(log.read_text().splitlines()) == 1, "nothing polls"
        if need == "call":
            assert (await mcp.call("mcp_f_t0")).text == "t0"
        else:
            mcp.tools()
        await waiting
        assert [tool.original_name for tool in mcp.tools()] == ["t0", "t1"]
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.parametrize("ttl", [0, 60_000])
async def test_a_fresh_listing_is_not_fetched_again(ttl: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with McpManager([fresh(ttl, log)], cache=False) as mcp:
        await mcp.wait_ready()
        for _ in range(20):
            mcp.tools()
            assert (await mcp.call("mcp_f_t0")).success
    assert len(log.read_text().splitlines()) == 1


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
