"""Logins in numbers: many servers, many calls, other processes; and yet one browser at a time."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from tests.servers.authorization import Authorization
from tests.unit.cli.program import configure, dragoman_command

from dragoman import Handlers, Http, McpManager, ServerSpec
from dragoman.events import StateChanged

pytestmark = pytest.mark.anyio
SERVERS = 10
CALLS = 100


class Browser:
    """Opens what it is told to on command, and counts how many are open at once."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.open = 0
        self.most = 0
        self.may = asyncio.Event()

    async def __call__(self, name: str, request: dict[str, Any]) -> None:
        self.opened.append(name)
        self.open += 1
        self.most = max(self.most, self.open)
        await self.may.wait()
        # From here on the login is over.
        self.open -= 1
        await Authorization.open(None, request["url"])  # type: ignore[arg-type]


async def reach(mcp: McpManager, state: str) -> None:
    """Wait until every server is in a state."""
    events = mcp.events()
    with anyio.fail_after(50):
        while {one.state for one in mcp.status().values()} != {state}:
            async for event in events:
                if isinstance(event, StateChanged):
                    break


async def test_ten_servers_that_want_a_login_at_once_open_one_browser_at_a_time() -> None:
    browser = Browser()
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(Authorization()) for _ in range(SERVERS)]
        specs = [ServerSpec(f"s{number}", Http(server.url)) for number, server in enumerate(servers)]
        mcp = await stack.enter_async_context(McpManager(specs, handlers=Handlers(login=browser)))
        assert not await mcp.wait_ready(timeout=50)
        await reach(mcp, "needs_auth")
        assert len(browser.opened) == browser.most == 1
        # No login waits for the browser: every address is known.
        urls = {name: status.login_url for name, status in mcp.status().items()}
        assert all(urls.values())
        last = next(name for name in reversed(urls) if name not in browser.opened)
        await servers[int(last[1:])].open(urls[last])
        browser.may.set()
        await reach(mcp, "ready")
        results = await asyncio.gather(*(mcp.call(f"mcp_s{number}_read", {}) for number in range(SERVERS)))
    assert [result.text for result in results] == ["done"] * SERVERS
    assert browser.most == 1
    assert sorted(browser.opened) == sorted({f"s{number}" for number in range(SERVERS)} - {last})


async def test_a_hundred_calls_that_want_a_login_at_once_open_one_browser() -> None:
    browser = Browser()
    browser.may.set()
    async with (
        Authorization(refreshes=False) as server,
        McpManager([ServerSpec("law", Http(server.url))], handlers=Handlers(login=browser)) as mcp,
    ):
        assert await mcp.wait_ready(timeout=50)
        server.expire_all()
        results = await asyncio.gather(*(mcp.call("mcp_law_read", {}) for _ in range(CALLS)))
        assert [result.text for result in results] == ["done"] * CALLS
        assert browser.opened == ["law", "law"]
        assert server.seen["/authorize"] == 2


async def test_a_hundred_calls_renew_a_token_once() -> None:
    async with (
        Authorization() as server,
        McpManager([ServerSpec("law", Http(server.url))]) as mcp,
    ):
        await mcp.auth.login("law", open_url=server.open)
        server.expire_all()
        results = await asyncio.gather(*(mcp.call("mcp_law_read", {}) for _ in range(CALLS)))
        assert [result.text for result in results] == ["done"] * CALLS
        assert server.seen["/token"] == 2
        assert (server.burnt, server.seen["/authorize"]) == (0, 1)


async def test_login_in_another_process_is_picked_up_live() -> None:
    async with Authorization() as server:
        configure(law={"type": "http", "url": server.url})
        async with McpManager([ServerSpec("law", Http(server.url))]) as mcp:
            assert not await mcp.wait_ready(timeout=50)
            assert mcp.status()["law"].state == "needs_auth"
            await log_in_elsewhere(server)
            await reach(mcp, "ready")
            assert (await mcp.call("mcp_law_read", {})).text == "done"
            # A token that the other process renews afterwards is found as well.
            server.expire_all()
            assert await call_elsewhere() == (0, "done\n")
            assert (await mcp.call("mcp_law_read", {})).text == "done"
        assert server.seen["/authorize"] == 1
        assert server.burnt == 0


async def log_in_elsewhere(server: Authorization) -> None:
    """Run `dragoman login` in a process of its own, and be its person."""
    process = await asyncio.create_subprocess_exec(
        *dragoman_command(),
        "login",
        "law",
        "--no-browser",
        env=dict(os.environ),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = ""
    while line := (await process.stderr.readline()).decode():
        said += line
        if url := re.search(r"http://\S+/authorize\?\S+", line):
            await server.open(url[0])
    assert await process.wait() == 0, said


async def call_elsewhere() -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *dragoman_command(), "call", "law", "read", env=dict(os.environ), stdout=asyncio.subprocess.PIPE
    )
    shown, _ = await process.communicate()
    return process.returncode, shown.decode()
