"""The events of a manager for its pages: collected, numbered, kept for a while."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.unit.console.visiting import notes

from dragoman.console.feed import KEPT, MOST_CALLS, Feed
from dragoman.events import CallFinished, CallStarted, ResourcesChanged
from dragoman.manager.manager import McpManager, parts_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Reader:
    """A page that reads a feed."""

    def __init__(self, feed: Feed, last: str = "") -> None:
        self._stream = feed.read(last)
        self.last = last

    async def next(self) -> tuple[str, dict[str, Any]]:
        async with asyncio.timeout(10):
            message = await anext(self._stream)
        fields = dict(line.split(": ", 1) for line in message.decode().strip().splitlines())
        self.last = fields["id"]
        return fields["event"], json.loads(fields["data"])

    async def leave(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def feeding() -> AsyncGenerator[tuple[McpManager, Feed]]:
    async with McpManager([notes().spec()], cache=False) as mcp:
        await mcp.wait_ready()
        feed = Feed(mcp)
        try:
            yield mcp, feed
        finally:
            await feed.close()


def publish(mcp: McpManager, name: str) -> None:
    parts_of(mcp).bus.publish(ResourcesChanged(server=name))


async def test_a_new_page_reads_everything_and_then_what_happens() -> None:
    async with feeding() as (mcp, feed):
        page = Reader(feed)
        assert (await page.next())[0] == "resync"
        await mcp.call("mcp_notes_add", {"text": "milk"})
        found: list[dict[str, Any]] = []
        while not found or found[-1]["duration"] is None:
            kind, data = await page.next()
            assert kind == "news"
            found += data["calls"]
        assert {one["tool"] for one in found} == {"mcp_notes_add"}
        assert found[-1]["error_code"] == ""
        await page.leave()


async def test_a_burst_is_one_message() -> None:
    async with feeding() as (mcp, feed):
        page = Reader(feed)
        await page.next()
        bus = parts_of(mcp).bus
        for number in range(5 * MOST_CALLS):
            call = {"server": "notes", "tool": "t", "call_id": str(number)}
            bus.publish(CallStarted(**call))
            bus.publish(CallFinished(**call, success=True, duration=0.5))
        _, data = await page.next()
        assert len(data["calls"]) == MOST_CALLS
        assert data["calls"][-1]["call_id"] == str(5 * MOST_CALLS - 1)
        assert data["skipped"] == 4 * MOST_CALLS
        assert data["metered"] == ["notes"]
        await page.leave()


async def test_who_comes_back_gets_what_was_missed() -> None:
    async with feeding() as (mcp, feed):
        page, other = Reader(feed), Reader(feed)
        await page.next()
        await other.next()
        publish(mcp, "a")
        await page.next()
        await page.leave()
        for name in ("b", "c"):
            publish(mcp, name)
            while (await other.next())[1]["servers"] != [name]:
                pass
        back = Reader(feed, page.last)
        missed = [await back.next(), await back.next()]
        assert [(kind, data["servers"]) for kind, data in missed] == [("news", ["b"]), ("news", ["c"])]
        await back.leave()
        await other.leave()


async def test_who_was_away_for_too_long_reads_everything_again() -> None:
    async with feeding() as (mcp, feed):
        page = Reader(feed)
        await page.next()
        publish(mcp, "a")
        await page.next()
        # Older than what is kept, of another feed, from the future, and nonsense.
        first = page.last
        name, _, number = first.partition("-")
        feed._kept.clear()
        feed._number += KEPT
        for last in (first, f"other-{number}", f"{name}-99999999", f"{name}-x", "x" * 5000, f"{name}--1"):
            back = Reader(feed, last)
            assert (await back.next())[0] == "resync"
            await back.leave()
        await page.leave()


async def test_texts_of_servers_cannot_end_a_message() -> None:
    async with feeding() as (mcp, feed):
        page = Reader(feed)
        await page.next()
        publish(mcp, "a\n\nevent: resync\ndata: {}\n\n\u202e\x1b[2J")
        kind, data = await page.next()
        assert kind == "news"
        assert data["servers"] == ["a\n\nevent: resync\ndata: {}\n\n��[2J"]
        await page.leave()


async def test_a_feed_ends_with_its_manager_and_when_it_is_closed() -> None:
    async with feeding() as (mcp, feed):
        page = Reader(feed)
        await page.next()
        await mcp.shutdown()
        try:
            while True:
                await page.next()
        except StopAsyncIteration:
            pass
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("dragoman console")] == []
    async with feeding() as (_, feed):
        page = Reader(feed)
        await page.next()
        waiting = asyncio.create_task(page.next())
        await asyncio.sleep(0)
        await feed.close()
        assert isinstance(await asyncio.gather(waiting, return_exceptions=True), list)
        assert waiting.exception().__class__ in (StopAsyncIteration, RuntimeError)
