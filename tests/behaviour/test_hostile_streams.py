"""Servers over HTTP that flood, pack, redirect and number wrongly: calls end, nothing runs twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.behaviour.faults import faulty
from tests.servers.hostile_streams import ABSURD_DATES, FLOOD, NOTES
from tests.servers.http_faults import FaultServer
from tests.servers.http_peer import Peer

from dragoman import Http, McpManager, ServerSpec, ServerState, Sse, ToolUnavailableError
from dragoman.server.transports import http_response
from dragoman.server.transports.http import MAX_ANSWERING, open_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

GUARD = 40.0


@pytest.fixture
async def faults() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


def spec(faults: FaultServer, mode: str, *, protocol: Any = "legacy", **more: Any) -> ServerSpec:
    at = Sse if mode.startswith("legacy") else Http
    return ServerSpec("bad", at(faults.url(mode)), protocol=protocol, **more)


async def neighbours(mcp: McpManager) -> None:
    for number in range(5):
        assert (await mcp.call("mcp_good_echo", {"text": f"{number}"})).text == f"{number}"


@pytest.mark.parametrize("mode", ["ping-flood", "legacy-flood"])
async def test_flood_of_the_servers_requests_takes_few_connections(faults: FaultServer, mode: str) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, mode), faulty("good", "good")]) as mcp:
            assert await mcp.wait_ready()
            before = faults.connections
            call = asyncio.ensure_future(mcp.call("mcp_bad_fault", timeout=GUARD))
            await neighbours(mcp)
            assert (await call).success
            # As many answers as may be under way are: none of them is ever taken.
            await faults.until(lambda: faults.connections >= MAX_ANSWERING)
            assert (await mcp.call("mcp_bad_fault", timeout=GUARD)).success
            assert faults.connections - before < 3 * MAX_ANSWERING < FLOOD
            await neighbours(mcp)


async def test_packed_flood_leaves_others_their_turn(faults: FaultServer) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    class Listening(Peer):
        heard_in: dict[int, int]

        def on_notification(self, method: str, params: dict[str, Any] | None) -> None:
            self.heard_in[turns] = self.heard_in.get(turns, 0) + 1

    async with Listening(open_http, Http(faults.url("packed-notes"))) as client:
        client.heard_in = {}
        taker = asyncio.create_task(take_turns())
        assert await client.text() == "ok"
        taker.cancel()
    assert sum(client.heard_in.values()) == NOTES
    assert max(client.heard_in.values()) * 80 < 2 * http_response.PIECE_BYTES


async def test_comments_never_add_up_to_an_event_that_is_too_long(faults: FaultServer) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, "comments", limits={"message_bytes": 64 * 1024})]) as mcp:
            assert await mcp.wait_ready()
            assert (await mcp.call("mcp_bad_fault")).text == "ok"


@pytest.mark.parametrize("mode", ["resume-control", "resume-long", "resume-elsewhere"])
async def test_call_whose_stream_broke_off_is_never_sent_again(faults: FaultServer, mode: str) -> None:
    async with FaultServer() as elsewhere:
        faults.elsewhere = elsewhere.url("stolen")
        with anyio.fail_after(GUARD):
            async with McpManager([spec(faults, mode)]) as mcp:
                assert await mcp.wait_ready()
                result = await mcp.call("mcp_bad_fault")
        assert isinstance(result.exception, ToolUnavailableError)
        assert result.exception.may_have_run
        assert "the stream ended before the response to `tools/call`" in str(result.exception)
        assert len(faults.sent("tools/call")) == 1
        assert elsewhere.connections == 0


async def test_stream_goes_on_after_an_id_that_no_header_can_bear(faults: FaultServer) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, "get-control")]) as mcp:
            assert await mcp.wait_ready()
            await faults.until(lambda: len(faults.sent("GET")) >= 3)
    assert not any("last-event-id" in request.headers for request in faults.sent("GET"))


async def test_server_that_has_no_stream_and_says_404_is_of_use(faults: FaultServer) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, "get-404", reconnect=False)]) as mcp:
            assert await mcp.wait_ready()
            for _ in range(3):
                assert (await mcp.call("mcp_bad_fault")).text == "ok"
            assert mcp.status()["bad"].state is ServerState.READY
    assert len(faults.sent("initialize")) == 1


@pytest.mark.parametrize("number", range(len(ABSURD_DATES)))
async def test_absurd_date_to_retry_after_is_none(
    faults: FaultServer, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, f"429-absurd-{number}")]) as mcp:
            assert await mcp.wait_ready()
            result = await mcp.call("mcp_bad_fault", timeout=0.5)
    assert isinstance(result.exception, ToolUnavailableError)
    assert not result.exception.may_have_run
    assert "HTTP 429 (Too Many Requests)" in str(result.exception)
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("mode", ["redirect-empty", "redirect-missing", "redirect-control"])
async def test_redirect_to_no_address_is_refused_at_once(faults: FaultServer, mode: str) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, mode)]) as mcp:
            assert await mcp.wait_ready()
            result = await mcp.call("mcp_bad_fault")
    assert "it redirects to an invalid address" in str(result.exception)
    assert len(faults.sent("tools/call")) == 1


async def test_server_that_asks_before_our_first_message_is_connected_and_answered(
    faults: FaultServer,
) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, "legacy-eager", reconnect=False)]) as mcp:
            assert await mcp.wait_ready()
            assert (await mcp.call("mcp_bad_fault")).text == "legacy"
            await faults.until(
                lambda: any(request.message.get("id") == "early" for request in faults.requests)
            )


@pytest.mark.parametrize("mode", ["legacy-control", "legacy-long"])
async def test_endpoint_that_no_request_can_bear_is_refused(faults: FaultServer, mode: str) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, mode, reconnect=False)]) as mcp:
            assert not await mcp.wait_ready()
            said = str(mcp.status()["bad"].last_error)
    assert "wants its messages posted to an address that cannot be used" in said
    assert not faults.sent("POST")


@pytest.mark.parametrize(
    "mode",
    ["probe-500", "probe-501", "probe-reset", "probe-ends", "legacy-probe-400", "legacy-probe-500"],
)
async def test_older_server_that_breaks_at_the_question_for_its_era_is_of_use(
    faults: FaultServer, mode: str
) -> None:
    with anyio.fail_after(GUARD):
        async with McpManager([spec(faults, mode, protocol="auto", reconnect=False)]) as mcp:
            assert await mcp.wait_ready()
            assert (await mcp.call("mcp_bad_fault")).success
    assert len(faults.sent("server/discover")) == 1
