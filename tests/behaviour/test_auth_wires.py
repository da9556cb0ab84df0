"""Logins over both transports to a server behind a URL: Streamable HTTP and legacy SSE."""

from __future__ import annotations

from typing import Any

import pytest
from tests.servers.authorization import Authorization
from tests.waiting import until_status

from dragoman import Handlers, Http, McpManager, ServerSpec, Sse

pytestmark = pytest.mark.anyio

TRANSPORTS = pytest.mark.parametrize("legacy", [False, True], ids=["http", "sse"])


def spec(server: Authorization) -> ServerSpec:
    transport = Sse(server.url) if server.legacy else Http(server.url)
    return ServerSpec("law", transport)


@TRANSPORTS
async def test_person_logs_in_and_the_token_goes_with_every_request(legacy: bool) -> None:
    async with Authorization(legacy=legacy) as server, McpManager([spec(server)]) as mcp:
        assert not await mcp.wait_ready(timeout=40)
        status = mcp.status()["law"]
        assert status.state == "needs_auth"
        assert status.login_url.startswith(f"{server.base}/authorize?")
        await server.open(status.login_url)
        await until_status(mcp, lambda: mcp.status()["law"].state == "ready")
        assert (await mcp.call("mcp_law_read", {})).text == "done"
        asked = next(query for what, query in server.requests if what == "authorize")
        assert asked["resource"] == server.url


@TRANSPORTS
async def test_handler_is_told_once_and_the_call_goes_on(legacy: bool) -> None:
    opened: list[str] = []
    async with Authorization(legacy=legacy) as server:

        async def open_browser(name: str, request: dict[str, Any]) -> None:
            opened.append(name)
            await server.open(request["url"])

        async with McpManager([spec(server)], handlers=Handlers(login=open_browser)) as mcp:
            assert await mcp.wait_ready(timeout=40)
            assert (await mcp.call("mcp_law_read", {})).text == "done"
            assert (await mcp.call("mcp_law_write", {})).text == "done"
    assert opened == ["law", "law"]


@TRANSPORTS
async def test_token_that_was_taken_back_is_renewed_under_a_call(legacy: bool) -> None:
    async with Authorization(legacy=legacy) as server, McpManager([spec(server)]) as mcp:
        await mcp.auth.login("law", open_url=server.open)
        server.expire_all()
        assert (await mcp.call("mcp_law_read", {})).text == "done"
        assert server.seen["/authorize"] == 1
        assert server.burnt == 0


@TRANSPORTS
async def test_login_that_is_lost_ends_in_needs_auth_and_no_loop(legacy: bool) -> None:
    async with Authorization(legacy=legacy) as server, McpManager([spec(server)]) as mcp:
        await mcp.auth.login("law", open_url=server.open)
        server.expire_all()
        server.refresh_tokens.clear()
        assert not (await mcp.call("mcp_law_read", {})).success
        await until_status(mcp, lambda: mcp.status()["law"].state == "needs_auth")
        assert mcp.status()["law"].login_url
        seen = server.seen.copy()
        for _ in range(5):
            assert not (await mcp.call("mcp_law_read", {})).success
        assert server.seen == seen


@TRANSPORTS
async def test_token_is_bound_to_a_key_on_every_wire(legacy: bool) -> None:
    async with (
        Authorization(legacy=legacy, dpop=True, nonce="n1") as server,
        McpManager([spec(server)]) as mcp,
    ):
        await mcp.auth.login("law", open_url=server.open)
        assert (await mcp.call("mcp_law_read", {})).text == "done"
        server.nonce = "n2"
        assert (await mcp.call("mcp_law_read", {})).text == "done"


async def test_right_that_is_missing_leaves_the_connection_alone() -> None:
    async with Authorization() as server, McpManager([spec(server)]) as mcp:
        await mcp.auth.login("law", open_url=server.open)
        result = await mcp.call("mcp_law_write", {}, timeout=20)
        assert not result.success
        assert (await mcp.call("mcp_law_read", {})).text == "done"
        assert mcp.status()["law"].state == "ready"
