"""A server with thousands of tools is read and registered in slices: the event loop runs in between."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from dragoman import McpManager, ToolDef, ToolRegistry
from dragoman.events import ToolsChanged
from dragoman.testing import ScriptedServer
from dragoman.tools.registry import SLICE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from pathlib import Path

    from dragoman.events import Event

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("excel-4.1", "legal-discovery.cache")]

MANY = 10 * SLICE


def big(count: int = MANY) -> ScriptedServer:
    """Return a server with this number of tools."""
    server = ScriptedServer("big")
    for number in range(count):
        name, schema = f"tool{number}", {"type": "object"}
        server.add(ToolDef(name=name, description="A tool.", input_schema=schema, func=echo))
    return server


def echo(**fields: Any) -> str:
    return str(fields)


async def changes(events: AsyncIterator[Event]) -> ToolsChanged:
    """Wait for a change of the tools."""
    async with asyncio.timeout(20):
        async for event in events:
            if isinstance(event, ToolsChanged):
                return event
    raise AssertionError


@asynccontextmanager
async def steps(registry: ToolRegistry) -> AsyncGenerator[list[int]]:
    """Note how much the registry grows or shrinks in each turn of the event loop."""
    found: list[int] = []

    async def watch() -> None:
        before = len(registry)
        while True:
            await asyncio.sleep(0)
            if (now := len(registry)) != before:
                found.append(abs(now - before))
                before = now

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield found
    finally:
        task.cancel()


async def test_long_listing_is_registered_in_slices() -> None:
    registry = ToolRegistry()
    async with steps(registry) as grown, McpManager([big().spec()], registry=registry, cache=False) as mcp:
        events = mcp.events()
        assert await mcp.wait_ready()
        assert len(registry) == MANY
        assert mcp.status()["big"].tools == MANY
        assert len((await changes(events)).added) == MANY, "one event for the whole listing"
        assert len(grown) >= MANY // SLICE
        assert max(grown) <= SLICE
        assert (await mcp.call("mcp_big_tool7", {})).text == "{}"


async def test_cached_tools_are_registered_in_slices(tmp_path: Path) -> None:
    spec = big().spec(lazy=True)
    async with McpManager([spec], cache=tmp_path) as mcp:
        await mcp.restart("big")
        assert await mcp.wait_ready(["big"])
    registry = ToolRegistry()
    async with steps(registry) as grown, McpManager([spec], registry=registry, cache=tmp_path) as mcp:
        assert len(mcp.tools()) == MANY, "they are known at once"
        await asyncio.sleep(0)
        assert max(grown) <= SLICE


async def test_changed_listing_replaces_the_old_one_whole() -> None:
    server = big()
    async with McpManager([server.spec()], cache=False) as mcp:
        assert await mcp.wait_ready()
        events = mcp.events()
        kept = mcp.registry.get("mcp_big_tool8")
        server.remove("tool7")
        change = await changes(events)
        assert (change.added, change.removed, change.changed) == ((), ("mcp_big_tool7",), ())
        assert mcp.registry.get("mcp_big_tool7") is None
        assert mcp.registry.get("mcp_big_tool8") is kept
        assert len(mcp.registry) == MANY - 1


@pytest.mark.parametrize("turns", [1, 5, 20, 40, 60])
async def test_server_that_is_removed_while_its_tools_are_registered_leaves_none(turns: int) -> None:
    registry = ToolRegistry()
    async with McpManager([big().spec()], registry=registry, cache=False) as mcp:
        while not len(registry):  # noqa: ASYNC110 -- the turn after the first slice is meant
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        await mcp.remove("big")
        assert len(registry) == 0
        for _ in range(2 * MANY // SLICE):
            await asyncio.sleep(0)
        assert len(registry) == 0


async def test_unknown_name_among_many_gets_the_nearest_names() -> None:
    async with McpManager([big().spec()], cache=False) as mcp:
        assert await mcp.wait_ready()
        result = await mcp.call("mcp_big_tol1234", {})
        assert "mcp_big_tool1234" in str(result.error)


@pytest.mark.requirement("excel-3.4", "otter-schema")
async def test_every_unusable_tool_of_a_long_listing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    server = big(3 * SLICE)
    bad: Any = {"type": "nonsense"}
    for number in (1, SLICE + 1, 3 * SLICE - 1):
        server.add(ToolDef(name=f"tool{number}", description="", input_schema=bad, func=echo))
    async with McpManager([server.spec()], cache=False) as mcp:
        await mcp.wait_ready()
        assert len(mcp.tools()) == 3 * SLICE - 3
    for number in (1, SLICE + 1, 3 * SLICE - 1):
        assert f"big: tool `tool{number}` is skipped" in caplog.text
