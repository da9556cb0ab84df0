from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.http_faults import FaultServer
from tests.servers.http_peer import GUARD, Peer

from dragoman.errors import ConnectError, ConnectionLostError, HttpStatusError, ProtocolError
from dragoman.model import Sse
from dragoman.server.protocol.context import with_headers
from dragoman.server.transports.sse import open_sse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement(
        "kode-connect.sse",
        "excel-2.3",
        "otter-p1.sse",
        "legal-client.sse",
    ),
]


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


def peer(server: FaultServer, mode: str, **options: Any) -> Peer:
    return Peer(open_sse, Sse(server.url(mode), headers={"Authorization": "Bearer token"}), **options)


@pytest.mark.parametrize("mode", ["legacy", "legacy-greets"])
async def test_messages_are_posted_to_the_named_address_and_answers_come_on_the_stream(
    server: FaultServer, mode: str
) -> None:
    async with peer(server, mode) as client:
        texts = await asyncio.gather(*(client.text() for _ in range(20)))
        assert texts == ["legacy"] * 20
        assert client.attempt.http_status == 202
    assert {request.path for request in server.sent("POST")} == {"/legacy-post?sessionId=1"}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer token"}
    assert client.ends == []


@pytest.mark.requirement("legal-client.sse")
async def test_relative_address_is_resolved_against_that_of_the_stream(server: FaultServer) -> None:
    async with peer(server, "deep/legacy") as client:
        assert await client.text() == "legacy"
    assert {request.path for request in server.sent("POST")} == {"/deep/legacy-post?sessionId=1"}


@pytest.mark.parametrize("mode", ["legacy-ends", "legacy-elsewhere", "legacy-nonsense"])
async def test_stream_without_a_usable_address_is_an_error_and_not_a_hang(
    server: FaultServer, mode: str
) -> None:
    async with FaultServer() as canary:
        server.elsewhere = canary.url("stolen?secret=1")
        with pytest.raises(ConnectError) as caught:
            async with peer(server, mode):
                pass
        assert "secret" not in str(caught.value)
        assert canary.connections == 0


async def test_stream_that_never_names_an_address_is_left_when_its_time_is_over(server: FaultServer) -> None:
    async def open_and_wait() -> None:
        async with peer(server, "legacy-absent"):
            pass

    task = asyncio.create_task(open_and_wait())
    await server.until(lambda: server.streams)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.until(lambda: server.closed)


@pytest.mark.parametrize(("mode", "status"), [("all-401", 401), ("all-404", 404), ("all-500", 500)])
async def test_refused_stream_says_with_which_status(server: FaultServer, mode: str, status: int) -> None:
    client = peer(server, mode)
    with pytest.raises(HttpStatusError) as caught:
        await client.__aenter__()
    assert caught.value.status == client.attempt.http_status == status


async def test_what_is_no_stream_is_said_to_be_none(server: FaultServer) -> None:
    with pytest.raises(ProtocolError, match="not an SSE stream"):
        await peer(server, "all-html").__aenter__()


async def test_server_that_cannot_be_reached_is_said_to_be_so() -> None:
    async with FaultServer() as server:
        pass_url = server.url("legacy")
    with pytest.raises(ConnectionLostError, match="cannot connect"):
        await Peer(open_sse, Sse(pass_url)).__aenter__()


@pytest.mark.parametrize(("mode", "status"), [("legacy-broken", 500), ("legacy-refused", 410)])
async def test_post_that_fails_fails_its_call_only(server: FaultServer, mode: str, status: int) -> None:
    async with peer(server, mode) as client:
        for _ in range(2):
            error = await client.ask()
            assert isinstance(error, HttpStatusError)
            assert error.status == status
        client.tell("notifications/initialized")
        await server.until(lambda: server.sent("notifications/initialized"))
        assert isinstance(await client.ask(), HttpStatusError)
        assert client.ends == []


async def test_end_of_the_stream_is_the_end_of_the_wire(server: FaultServer) -> None:
    async with peer(server, "legacy") as client:
        client.begin(arguments={"cut": True})
        async with asyncio.timeout(GUARD):
            await client.ended.wait()
        assert client.ends == ["the event stream ended"] or client.ends == [
            "the event stream was interrupted"
        ]
        error = await client.ask()
        assert isinstance(error, ConnectionLostError)
        assert not error.may_have_run


async def test_answer_beyond_the_limit_fails_its_call(server: FaultServer) -> None:
    async with peer(server, "legacy", limit=1 << 16) as client:
        error = await client.ask(arguments={"size": 1 << 17})
        assert isinstance(error, ProtocolError)
        assert "`max_message_bytes` is 65536" in error.message
        assert await client.text() == "legacy"


async def test_call_given_up_is_cancelled_at_the_server(server: FaultServer) -> None:
    async with peer(server, "legacy") as client:
        _, message, envelope = client.begin(arguments={"silent": True})
        await server.until(lambda: server.sent("tools/call"))
        client.rpc.forget(envelope.request_id or 0)
        assert not client.wire.abandon(message, envelope, "too slow")
    told = server.sent("notifications/cancelled")[0]
    assert told.message["params"] == {"requestId": envelope.request_id, "reason": "too slow"}


async def test_call_given_up_before_it_began_never_goes_out(server: FaultServer) -> None:
    async with peer(server, "legacy") as client:
        _, message, envelope = client.begin()
        client.rpc.forget(envelope.request_id or 0)
        assert client.wire.abandon(message, envelope, "never mind")
    assert not server.sent("POST")


async def test_requests_wait_until_initialized_was_taken(server: FaultServer) -> None:
    async with peer(server, "legacy") as client:
        client.tell("notifications/initialized")
        assert await client.text() == "legacy"
    assert [request.rpc_method for request in server.sent("POST")] == [
        "notifications/initialized",
        "tools/call",
    ]


async def test_closing_wakes_calls_whose_post_hangs(server: FaultServer) -> None:
    async with peer(server, "legacy-muted") as client:
        call = client.begin()[0]
        await server.until(lambda: server.sent("tools/call"))
    assert isinstance(call.result(), ConnectionLostError)
    assert client.ends == []


async def test_headers_of_concurrent_callers_stay_with_their_own_posts(server: FaultServer) -> None:
    def provide(name: str) -> dict[str, str]:
        return {"X-Server": name}

    async def call(client: Peer, number: int) -> None:
        with with_headers({"X-Call": f"call {number}"}):
            await client.text(number=number)
            client.tell("notifications/progress", number=number)

    async with peer(server, "legacy", header_provider=provide) as client:
        await asyncio.gather(*(call(client, number) for number in range(20)))
        await server.until(lambda: len(server.sent("notifications/progress")) == 20)
    assert {request.headers["x-server"] for request in server.requests} == {"srv"}
    posts = server.sent("POST")
    assert len(posts) == 40
    for request in posts:
        assert request.headers["x-call"] == f"call {request.message['params']['number']}"
    assert all("x-call" not in request.headers for request in server.sent("GET"))


async def test_message_beyond_the_limit_fails_its_call_and_names_the_setting(server: FaultServer) -> None:
    async with peer(server, "legacy", limit=60) as client:
        error = await client.ask()
        assert isinstance(error, ProtocolError)
        assert "`max_message_bytes` is 60" in error.message
