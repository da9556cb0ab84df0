from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
import logging
import resource
import ssl
from contextvars import Context, ContextVar
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from tests.servers.http_faults import SESSION, FaultServer
from tests.servers.http_peer import GUARD, LEGACY, MODERN, Peer

from dragoman.errors import (
    ConnectError,
    ConnectionLostError,
    DragomanError,
    HttpStatusError,
    ProtocolError,
    ServerError,
    SessionGoneError,
)
from dragoman.model import Http, Tls
from dragoman.server.protocol.context import with_headers
from dragoman.server.protocol.wire import SendInfo
from dragoman.server.transports import http as http_wire
from dragoman.server.transports.http import open_http
from dragoman.server.transports.http_client import tls_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from dragoman.server.transports.http_client import HttpAnswer, HttpRequest

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("rrclaw-transport.http", "kode-config.sse", "otter-p1.sse"),
]

MEBIBYTE = 1 << 20


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


def peer(server: FaultServer, mode: str, **options: Any) -> Peer:
    return Peer(open_http, Http(server.url(mode)), **options)


# Answers


@pytest.mark.parametrize("mode", ["healthy", "gzip", "text-id", "307", "sse", "sse-chunked", "sse-open"])
@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_every_proper_kind_of_answer_reaches_its_call(
    server: FaultServer, mode: str, version: str
) -> None:
    async with peer(server, mode, version=version) as client:
        assert await client.text() in ("ok", "packed", "streamed")
        assert client.attempt.http_status == 200
        assert client.ends == []


async def test_answers_of_many_calls_at_once_never_cross(server: FaultServer) -> None:
    async with peer(server, "echo") as client:
        texts = [f"call {number}" for number in range(100)]
        calls = [client.text(arguments={"text": text}) for text in texts]
        assert await asyncio.gather(*calls) == texts


async def test_connection_is_used_again_for_json_and_for_streams_that_end(server: FaultServer) -> None:
    for mode in ("healthy", "sse-chunked"):
        before = server.connections
        async with peer(server, mode) as client:
            for _ in range(5):
                await client.text()
            assert server.connections - before == 1


async def test_server_that_hangs_up_after_each_answer_is_called_again_without_loss(
    server: FaultServer,
) -> None:
    async with peer(server, "closing") as client:
        await client.text()
        await server.until(lambda: not server._tasks)
        assert await client.text() == "ok"
        assert server.connections == 2


async def test_call_after_a_blocked_loop_does_not_use_a_connection_that_the_server_has_closed(
    server: FaultServer,
) -> None:
    async with peer(server, "healthy") as client:
        for _ in range(5):
            await client.text()
            # The server hangs up, and our loop gets no chance to notice before the next call begins.
            server.hang_up()
            client.wire._client._last_used -= 1  # type: ignore[attr-defined]
            assert await client.text() == "ok"


async def test_messages_before_and_after_the_answer_on_its_stream_are_passed_on(server: FaultServer) -> None:
    async with peer(server, "sse") as client:
        await client.text()
        assert [method for method, _ in client.notes] == ["notifications/progress"]
    async with peer(server, "sse-open") as client:
        await client.text()
        assert client.notes == [("notifications/message", {"level": "info", "data": "after the answer"})]


async def test_large_arguments_are_sent_without_a_warning(server: FaultServer) -> None:
    async with peer(server, "size") as client:
        assert int(await client.text(arguments={"text": "x" * 3 * MEBIBYTE})) > 3 * MEBIBYTE


# Things that are no answer

FAULTS = {
    "html": "text/html",
    "text": "text/plain",
    "untyped": "no content type",
    "accepted": "HTTP 202",
    "none": "HTTP 204",
    "empty": "the body is empty",
    "bad-json": "another id, or none",
    "bad-utf8": "cannot be read",
    "half-json": "cannot be read",
    "list": "another id, or none",
    "wrong-id": "another id, or none",
    "sse-bad-json": "cannot be read",
}


@pytest.mark.parametrize(("mode", "said"), FAULTS.items(), ids=FAULTS)
@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_what_is_no_answer_fails_that_call_at_once_and_says_what_came(
    server: FaultServer, mode: str, said: str, version: str
) -> None:
    async with peer(server, mode, version=version) as client:
        error = await client.ask()
        assert isinstance(error, ProtocolError)
        assert said in error.message
        assert error.rpc_code is not None
        assert isinstance(await client.ask("ping"), dict)
        assert client.ends == []


async def test_refusal_that_bears_no_id_is_the_answer_to_the_call_it_came_for(server: FaultServer) -> None:
    for mode, code in (
        ("null-error", -32603),
        ("400-own", -32602),
        ("400-null", -32600),
        ("404-own", -32601),
    ):
        async with peer(server, mode) as client:
            error = await client.ask()
            assert isinstance(error, ProtocolError)
            assert error.rpc_code == code
            assert "it went wrong" in error.message or "no such" in error.message


LOST = ["reset-head", "hang-up", "truncated", "garbage", "bad-gzip", "sse-cut", "sse-reset", "sse-wrong-id"]


@pytest.mark.parametrize("mode", LOST)
@pytest.mark.parametrize("version", [LEGACY, MODERN])
async def test_broken_exchange_ends_its_call_as_lost_and_nothing_else(
    server: FaultServer, mode: str, version: str
) -> None:
    async with peer(server, mode, version=version) as client:
        error = await client.ask()
        assert isinstance(error, ConnectionLostError)
        assert error.may_have_run
        assert "127.0.0.1" not in str(error)
        assert isinstance(await client.ask("ping"), dict)
        assert client.ends == []


async def test_reset_in_the_middle_of_a_body_does_not_touch_the_calls_beside_it(server: FaultServer) -> None:
    async with peer(server, "reset-body") as client:
        broken = client.begin()[0]
        await server.until(lambda: server.sent("tools/call"))
        beside = client.begin("ping")[0]
        assert isinstance(await beside, dict)
        assert not broken.done()
        server.release.set()
        async with asyncio.timeout(GUARD):
            assert isinstance(await broken, ConnectionLostError)


async def test_server_that_cannot_be_reached_is_said_to_be_so_and_the_call_surely_did_not_run() -> None:
    async with FaultServer() as server:
        url = server.url("healthy")
    async with Peer(open_http, Http(url)) as client:
        for method in ("server/discover", "tools/call"):
            error = await client.ask(method)
            assert isinstance(error, ConnectionLostError)
            assert not error.may_have_run
            assert "cannot connect: Connection refused" in error.message
            assert "127.0.0.1" not in str(error)


async def test_server_that_dies_ends_the_calls_it_was_working_on() -> None:
    async with FaultServer() as server, peer(server, "mute") as client:
        calls = [client.begin()[0] for _ in range(5)]
        await server.until(lambda: len(server.sent("tools/call")) == 5)
        await server.__aexit__()
        for call in calls:
            assert isinstance(await call, ConnectionLostError)


# Limits


@pytest.mark.parametrize("mode", ["huge", "huge-chunked", "gzip-bomb"])
async def test_body_beyond_the_limit_is_refused_before_it_is_all_there(
    server: FaultServer, mode: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with peer(server, mode, limit=MEBIBYTE) as client:
        error = await client.ask()
        assert isinstance(error, ProtocolError)
        assert "`max_message_bytes` is 1048576" in error.message
        assert isinstance(await client.ask("ping"), dict)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024, f"{grown} KiB"


@pytest.mark.parametrize("mode", ["sse-too-long", "sse-endless-event"])
async def test_event_beyond_the_limit_fails_its_call(server: FaultServer, mode: str) -> None:
    async with peer(server, mode, limit=MEBIBYTE) as client:
        error = await client.ask()
        assert isinstance(error, ProtocolError)
        assert "`max_message_bytes` is 1048576" in error.message
        assert isinstance(await client.ask("ping"), dict)


# Refusals

STATUSES = {"401": 401, "403": 403, "404": 404, "429": 429, "500": 500, "503": 503}


@pytest.mark.parametrize(("mode", "status"), STATUSES.items(), ids=STATUSES)
async def test_status_of_a_refusal_is_kept(server: FaultServer, mode: str, status: int) -> None:
    async with peer(server, mode) as client:
        error = await client.ask()
        assert isinstance(error, HttpStatusError)
        assert error.status == client.attempt.http_status == status
        assert error.refused_unrun == (status != 500)
        assert f"HTTP {status}" in error.message
        assert "<" not in error.message
        assert isinstance(await client.ask("ping"), dict)
        assert client.attempt.http_status == 200
        assert client.attempt.challenge == ""


async def test_refusal_whose_body_never_comes_is_a_refusal_all_the_same(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.server.transports.http_response.REFUSAL_SECONDS", 0.05)
    async with peer(server, "hanging-refusal") as client:
        error = await client.ask()
        assert isinstance(error, HttpStatusError)
        assert error.status == 500


async def test_challenge_and_time_to_wait_of_a_refusal_are_kept(server: FaultServer) -> None:
    challenge = 'Bearer resource_metadata="https://auth.example/meta"'
    async with peer(server, "401") as client:
        error = await client.ask()
        assert (error.challenge, client.attempt.challenge) == (challenge, challenge)
    for mode, seconds in {"429": 7.0, "429-date": 0.0, "429-error": 3.0, "503": None}.items():
        async with peer(server, mode) as client:
            error = await client.ask()
            assert isinstance(error, HttpStatusError)
            assert error.retry_after == seconds


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_refused_handshake_looks_like_an_older_server_only_where_it_may_be_one(
    server: FaultServer, method: str
) -> None:
    for mode, code in {"all-400": -32603, "all-404": -32601, "all-html": -32600}.items():
        async with peer(server, mode) as client:
            error = await client.ask(method)
            assert isinstance(error, ProtocolError)
            assert error.rpc_code == code
    async with peer(server, "all-401") as client:
        assert isinstance(await client.ask(method), HttpStatusError)
    async with peer(server, "all-500") as client:
        # An older server may break at a question that it has never heard of.
        error = await client.ask(method)
        assert isinstance(error, ProtocolError if method == "server/discover" else HttpStatusError)


# Redirects


@pytest.mark.parametrize("mode", ["302", "redirect-loop", "redirect-nowhere", "not-http-url"])
async def test_redirect_that_cannot_be_followed_is_a_refusal(server: FaultServer, mode: str) -> None:
    async with peer(server, mode) as client:
        error = await client.ask()
        assert isinstance(error, HttpStatusError)
        assert error.status in (302, 307, 308)
        assert error.refused_unrun
        assert len(server.requests) <= 6


async def test_redirect_to_another_server_is_not_followed_and_nothing_leaks(server: FaultServer) -> None:
    async with FaultServer() as canary:
        server.elsewhere = canary.url("stolen?secret=1")
        http = Http(server.url("off-origin"), headers={"Authorization": "Bearer secret"})
        async with Peer(open_http, http) as client:
            error = await client.ask()
            assert isinstance(error, HttpStatusError)
            assert "secret" not in str(error)
        assert canary.connections == 0


# Sessions


async def test_session_id_is_kept_sent_cleared_by_a_new_handshake_and_deleted_at_the_end(
    server: FaultServer,
) -> None:
    async with peer(server, "healthy") as client:
        await client.shake_hands()
        await client.text()
        await client.ask("initialize")
    first, *_, second = server.sent("initialize")
    for request in (first, second):
        assert "mcp-session-id" not in request.headers
        assert "mcp-protocol-version" not in request.headers
    for request in server.sent("tools/call") + server.sent("DELETE") + server.sent("GET"):
        assert request.headers["mcp-session-id"] == SESSION
    assert server.sent("tools/call")[0].headers["mcp-protocol-version"] == LEGACY
    assert len(server.sent("DELETE")) == 1


async def test_session_id_that_no_header_may_have_is_refused_at_once(server: FaultServer) -> None:
    async with peer(server, "bad-session") as client:
        error = await client.ask("initialize")
        assert isinstance(error, ProtocolError)
        assert "session id" in error.message
        assert isinstance(await client.ask("ping"), dict)
    assert not server.sent("DELETE")


async def test_lost_session_refuses_calls_unrun_and_ends_the_wire(server: FaultServer) -> None:
    async with peer(server, "session-wait") as client:
        await client.shake_hands()
        calls = [client.begin()[0] for _ in range(8)]
        await server.until(lambda: len(server.sent("tools/call")) == 8)
        server.release.set()
        async with asyncio.timeout(GUARD):
            for error in await asyncio.gather(*calls):
                assert isinstance(error, SessionGoneError)
                assert not error.may_have_run
            await client.ended.wait()
        assert client.ends == ["the session ended (HTTP 404)"]
        assert isinstance(await client.ask("ping"), SessionGoneError)
    assert not server.sent("DELETE")


@pytest.mark.parametrize("mode", ["400-session", "get-gone", "session-lost"])
async def test_session_is_also_lost_by_other_signs(server: FaultServer, mode: str) -> None:
    async with peer(server, mode) as client:
        await client.shake_hands()
        server.release.set()
        if mode != "get-gone":
            assert isinstance(await client.ask(), SessionGoneError)
        async with asyncio.timeout(GUARD):
            await client.ended.wait()
        assert len(client.ends) == 1


async def test_refusal_that_speaks_of_the_method_does_not_end_the_session(server: FaultServer) -> None:
    async with peer(server, "404-own") as client:
        await client.shake_hands()
        error = await client.ask()
        assert isinstance(error, ProtocolError)
        assert error.rpc_code == -32601
        assert isinstance(await client.ask("ping"), dict)
        assert client.ends == []


# The GET stream


async def test_first_request_waits_for_initialized_and_for_the_stream(server: FaultServer) -> None:
    async with peer(server, "get-slow") as client:
        await client.shake_hands()
        call = client.begin()[0]
        await server.until(lambda: server.sent("GET"))
        assert not server.sent("tools/call")
        server.release.set()
        async with asyncio.timeout(GUARD):
            assert isinstance(await call, dict)
    order = [request.rpc_method or request.method for request in server.requests]
    assert order == ["initialize", "notifications/initialized", "GET", "tools/call", "DELETE"]


@pytest.mark.parametrize("mode", ["get-slow", "slow-initialized"])
async def test_request_is_not_kept_for_ever_by_a_stream_that_does_not_open(
    server: FaultServer, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_wire, "INITIALIZED_SECONDS", 0.05)
    monkeypatch.setattr(http_wire, "STREAM_SECONDS", 0.05)
    async with peer(server, mode) as client:
        await client.shake_hands()
        assert isinstance(await client.ask(), dict)


async def test_request_given_up_while_it_is_kept_back_never_goes_out(server: FaultServer) -> None:
    async with peer(server, "get-slow") as client:
        await client.shake_hands()
        _, message, envelope = client.begin()
        await server.until(lambda: server.sent("GET"))
        client.rpc.forget(envelope.request_id or 0)
        assert client.wire.abandon(message, envelope, "enough")
        server.release.set()
        assert isinstance(await client.ask("ping"), dict)
    assert not server.sent("tools/call")
    assert not server.sent("notifications/cancelled")


async def test_server_speaks_on_the_stream_by_itself(server: FaultServer) -> None:
    async with peer(server, "get") as client:
        await client.shake_hands()
        async with asyncio.timeout(GUARD):
            await client.noted.wait()
        assert client.notes == [("notifications/message", {"level": "info", "data": "hello"})]
    await server.until(lambda: server.closed)


async def test_dropped_stream_is_opened_again_where_it_broke_off(server: FaultServer) -> None:
    async with peer(server, "get-drops") as client:
        await client.shake_hands()
        async with asyncio.timeout(GUARD):
            await server.until(lambda: len(server.sent("GET")) == 4)
    ids = [request.headers.get("last-event-id") for request in server.sent("GET")]
    assert ids[:4] == [None, "g1", "g2", "g3"]


async def test_server_without_a_stream_is_asked_for_it_once(server: FaultServer) -> None:
    async with peer(server, "healthy") as client:
        await client.shake_hands()
        for _ in range(3):
            await client.text()
        assert len(server.sent("GET")) == 1


async def test_later_era_has_neither_stream_nor_session(server: FaultServer) -> None:
    async with peer(server, "healthy", version=MODERN) as client:
        await client.text()
        client.tell("notifications/initialized")
        await client.text()
    assert {request.method for request in server.requests} == {"POST"}


# Streams that break off


async def test_stream_that_broke_off_is_gone_on_with(server: FaultServer) -> None:
    async with peer(server, "resume") as client:
        assert await client.text() == "resumed"
    ids = [request.headers.get("last-event-id") for request in server.sent("GET")]
    assert ids == ["e1", "e2", "e2"]


async def test_stream_that_never_comes_to_an_answer_is_given_up(server: FaultServer) -> None:
    async with peer(server, "resume-endless") as client:
        error = await client.ask()
        assert isinstance(error, ConnectionLostError)
        assert "30 attempts" in error.message
        assert len(server.sent("GET")) == 30


async def test_stream_that_cannot_be_gone_on_with_fails_at_once(server: FaultServer) -> None:
    async with peer(server, "resume-refused") as client:
        assert isinstance(await client.ask(), ConnectionLostError)
        assert len(server.sent("GET")) == 1


async def test_stream_of_the_later_era_is_never_gone_on_with(server: FaultServer) -> None:
    async with peer(server, "resume", version=MODERN) as client:
        assert isinstance(await client.ask(), ConnectionLostError)
    assert not server.sent("GET")


def test_time_to_wait_is_the_servers_within_reason() -> None:
    assert http_wire._delay(None) == 1.0
    assert http_wire._delay(0) == 0.05
    assert http_wire._delay(500) == 0.5
    assert http_wire._delay(86_400_000) == 30.0


async def test_call_that_waits_a_day_for_its_stream_ends_with_the_wire(server: FaultServer) -> None:
    async with peer(server, "resume-day") as client:
        call = client.begin()[0]
        await server.until(lambda: server.sent("tools/call"))
    assert isinstance(call.result(), ConnectionLostError)


# Giving up


@pytest.mark.parametrize("mode", ["mute", "sse-wait"])
async def test_call_given_up_in_the_earlier_era_is_cancelled_then_closed(
    server: FaultServer, mode: str
) -> None:
    async with peer(server, mode) as client:
        _, message, envelope = client.begin()
        await server.until(lambda: server.sent("tools/call"))
        client.rpc.forget(envelope.request_id or 0)
        assert not client.wire.abandon(message, envelope, "too slow")
        async with asyncio.timeout(GUARD):
            await server.until(lambda: server.closed)
        told = server.sent("notifications/cancelled")[0]
        assert told.message["params"] == {"requestId": envelope.request_id, "reason": "too slow"}
        assert told.headers["mcp-protocol-version"] == LEGACY


async def test_call_given_up_in_the_later_era_is_only_closed(server: FaultServer) -> None:
    async with peer(server, "sse-wait", version=MODERN) as client:
        _, message, envelope = client.begin()
        async with asyncio.timeout(GUARD):
            await client.noted.wait()
        client.rpc.forget(envelope.request_id or 0)
        assert not client.wire.abandon(message, envelope, "too slow")
        async with asyncio.timeout(GUARD):
            await server.until(lambda: server.closed)
    assert not server.sent("notifications/cancelled")


async def test_call_given_up_just_before_closing_is_still_cancelled(server: FaultServer) -> None:
    async with peer(server, "mute") as client:
        _, message, envelope = client.begin()
        await server.until(lambda: server.sent("tools/call"))
        client.rpc.forget(envelope.request_id or 0)
        client.wire.abandon(message, envelope, "closing")
    assert server.sent("notifications/cancelled")


async def test_call_given_up_before_it_began_never_goes_out(server: FaultServer) -> None:
    async with peer(server, "mute") as client:
        _, message, envelope = client.begin()
        client.rpc.forget(envelope.request_id or 0)
        assert client.wire.abandon(message, envelope, "never mind")
        assert not client.wire.abandon(message, envelope, "twice")
    assert server.requests == []


# Closing


async def test_closing_wakes_every_call_and_later_ones_fail(server: FaultServer) -> None:
    async with peer(server, "mute") as client:
        calls = [client.begin()[0] for _ in range(3)]
        await server.until(lambda: len(server.sent("tools/call")) == 3)
        calls.append(client.begin()[0])
    outcomes = [call.result() for call in calls]
    assert [outcome.may_have_run for outcome in outcomes] == [True, True, True, False]
    error = await client.ask()
    assert isinstance(error, ConnectionLostError)
    assert client.ends == []


async def test_closing_does_not_wait_for_a_server_that_keeps_the_session(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.server.transports.http.GOODBYE_SECONDS", 0.05)
    async with peer(server, "mute-delete") as client:
        await client.shake_hands()
    assert server.sent("DELETE")


async def test_closing_under_a_cancelled_scope_still_ends_the_session(server: FaultServer) -> None:
    with anyio.CancelScope() as scope:
        async with peer(server, "healthy") as client:
            await client.shake_hands()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert server.sent("DELETE")


async def test_closing_cancelled_twice_leaves_nothing_behind(server: FaultServer) -> None:
    started = asyncio.Event()

    async def run() -> None:
        async with peer(server, "mute-delete") as client:
            await client.shake_hands()
            await client.ask("ping")
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await started.wait()
    task.cancel()
    await server.until(lambda: server.sent("DELETE"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# Headers, logging in, addresses


async def test_configured_and_provided_headers_go_with_every_request_but_never_replace_the_protocols(
    server: FaultServer,
) -> None:
    count = 0

    def provide(name: str) -> Mapping[str, str]:
        nonlocal count
        count += 1
        assert name == "srv"
        return {"X-User": f"user {count}", "accept": "text/plain"}

    async def provide_later(name: str) -> Mapping[str, str]:
        return provide(name)

    headers = {"x-team": "blue", "x-user": "nobody", "Content-Type": "text/plain", "Mcp-Session-Id": "forged"}
    for provider in (provide, provide_later):
        server.requests.clear()
        http = Http(server.url("healthy"), headers=headers)
        async with Peer(open_http, http, header_provider=provider) as client:
            await client.shake_hands()
            await client.text()
        assert {request.method for request in server.requests} == {"POST", "GET", "DELETE"}
        for request in server.requests:
            assert request.headers["x-team"] == "blue"
            assert request.headers["x-user"].startswith("user ")
            assert request.headers.get("mcp-session-id") in (None, SESSION)
            assert request.headers["user-agent"].startswith("dragoman/")
        assert server.requests[0].headers["content-type"] == "application/json"
        assert server.requests[0].headers["accept"] == "application/json, text/event-stream"


async def test_headers_of_the_protocol_are_those_of_the_envelope(server: FaultServer) -> None:
    async with peer(server, "healthy", version=MODERN) as client:
        future = asyncio.get_running_loop().create_future()
        request_id, message = client.rpc.request("tools/call", {}, resolve=future.set_result)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "Mcp-Param-City": "Tabriz"}
        client.wire.send(message, SendInfo("tools/call", request_id, headers))
        assert isinstance(await future, dict)
        client.wire.send(client.rpc.result(1, {}), SendInfo())
        await server.until(lambda: len(server.requests) == 2)
    call, answer = server.requests
    assert call.headers["mcp-param-city"] == "Tabriz"
    assert call.headers["mcp-method"] == "tools/call"
    assert answer.headers["mcp-protocol-version"] == MODERN


@pytest.mark.parametrize("value", ["two\r\nlines", "nul\0"])
async def test_header_that_cannot_be_sent_fails_its_call_without_being_shown(
    server: FaultServer, value: str
) -> None:
    http = Http(server.url("healthy"), headers={"X-Secret": value})
    async with Peer(open_http, http) as client:
        error = await client.ask()
        assert isinstance(error, ConnectionLostError)
        assert not error.may_have_run
        assert "lines" not in str(error)
    assert server.requests == []


async def test_header_provider_that_fails_fails_its_call_only(server: FaultServer) -> None:
    broken = True

    def provide(_: str) -> Mapping[str, str]:
        if broken:
            raise KeyError("vault")
        return {}

    async with peer(server, "healthy", header_provider=provide) as client:
        error = await client.ask()
        assert isinstance(error, ServerError)
        assert "`header_provider` failed" in error.message
        assert "handshakes" in error.hint
        assert server.requests == []
        broken = False
        assert await client.text() == "ok"


_user: ContextVar[str] = ContextVar("user", default="nobody")


@pytest.mark.parametrize("later", [False, True])
async def test_headers_of_concurrent_callers_stay_with_their_own_requests(
    server: FaultServer, later: bool
) -> None:
    async def provide_later(_: str) -> Mapping[str, str]:
        await asyncio.sleep(0)
        return {"X-User": _user.get()}

    def provide(_: str) -> Mapping[str, str]:
        return {"X-User": _user.get()}

    async def call(client: Peer, number: int) -> None:
        _user.set(f"user {number}")
        with with_headers({"X-Call": f"call {number}"}):
            await client.text(number=number)
            client.tell("notifications/progress", number=number)

    async with peer(server, "healthy", header_provider=provide_later if later else provide) as client:
        await client.shake_hands()
        # In contexts of their own, as tasks of a web server have them; this one's is the connection's.
        tasks = [asyncio.create_task(call(client, number), context=Context()) for number in range(20)]
        await asyncio.gather(*tasks)
        await server.until(lambda: len(server.sent("notifications/progress")) == 20)
    seen = [request for request in server.requests if b'"number"' in request.body]
    assert len(seen) == 40
    for request in seen:
        number = json.loads(request.body)["params"]["number"]
        assert request.headers["x-user"] == f"user {number}"
        assert request.headers["x-call"] == f"call {number}"
    others = [request for request in server.requests if request not in seen]
    assert {request.headers["x-user"] for request in others} == {"nobody"}
    assert not any("x-call" in request.headers for request in others)


async def test_what_a_connection_sends_by_itself_carries_no_caller_even_if_a_call_has_opened_it(
    server: FaultServer,
) -> None:
    def provide(_: str) -> Mapping[str, str]:
        return {"X-User": _user.get()}

    async def call_that_opens() -> None:
        _user.set("Ada")
        with with_headers({"X-Call": "secret"}):
            async with peer(server, "healthy", header_provider=provide) as client:
                await client.shake_hands()
                await server.until(lambda: server.sent("GET"))

    await asyncio.create_task(call_that_opens())
    assert {request.method for request in server.requests} == {"POST", "GET", "DELETE"}
    assert {request.headers["x-user"] for request in server.requests} == {"nobody"}
    assert not any("x-call" in request.headers for request in server.requests)


@pytest.mark.parametrize(
    "headers",
    [{"X-User": "two\r\nlines"}, {"X-User": "nul\0"}, {"X User": "lines"}, {"": "lines"}, {"X-User": 5}],
)
async def test_header_of_a_caller_that_cannot_be_sent_fails_its_call_without_being_shown(
    server: FaultServer, headers: Any
) -> None:
    async with peer(server, "healthy") as client:
        with with_headers(headers):
            error = await client.ask()
        assert type(error) is ServerError
        assert "cannot be sent to server `srv`" in error.message
        assert "lines" not in error.message
        assert server.requests == []
        assert await client.text() == "ok"


class Login:
    """Has a token once it was asked for one."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.token = ""
        self.challenges: list[HttpAnswer] = []

    async def headers(self, request: HttpRequest) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    async def on_challenge(self, answer: HttpAnswer) -> bool:
        self.challenges.append(answer)
        if not self.tokens:
            return False
        self.token = self.tokens.pop(0)
        return True


async def test_challenge_is_answered_and_the_request_sent_again_within_bounds(server: FaultServer) -> None:
    login = Login(["right"])
    async with peer(server, "login", auth=login) as client:
        assert await client.text() == "ok"
        assert await client.text() == "ok"
    assert [answer.status for answer in login.challenges] == [401]
    assert login.challenges[0].headers["WWW-Authenticate"] == "Bearer"
    for tokens, asked in ((["wrong"] * 9, 3), (list[str](), 1)):
        login = Login(tokens)
        async with peer(server, "login", auth=login) as client:
            assert isinstance(await client.ask(), HttpStatusError)
        assert len(login.challenges) == asked
        assert {answer.peer for answer in login.challenges} == {"127.0.0.1"}


async def test_credentials_in_the_address_become_a_header(server: FaultServer) -> None:
    url = server.url("healthy").replace("http://", "http://user:p%40ss@")
    async with Peer(open_http, Http(url)) as client:
        await client.text()
    assert server.requests[0].headers["authorization"] == "Basic dXNlcjpwQHNz"
    assert "@" not in server.requests[0].headers["host"]


@pytest.mark.parametrize("url", ["", "mcp", "ftp://host/x", "http://", "http://host:99999/", "http://[bad/"])
async def test_address_that_is_none_is_said_to_be_so(url: str) -> None:
    with pytest.raises(ConnectError, match="not an HTTP address"):
        async with Peer(open_http, Http(url)):
            pass


async def test_address_goes_out_as_it_is_written(server: FaultServer) -> None:
    for path, sent in {"a%2Fb?q=%41+b": "a%2Fb?q=%41+b", "ö?q=ü x": "%C3%B6?q=%C3%BC+x"}.items():
        async with Peer(open_http, Http(server.url(path))) as client:
            await client.text()
        assert server.requests[-1].path == f"/{sent}"


# Proxies and certificates


async def test_proxy_of_the_environment_is_used_but_not_for_this_machine(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url("").replace("http://", "http://me:pw@"))
    async with Peer(open_http, Http("http://mcp.invalid/healthy")) as client:
        await client.ask("ping")
    assert server.requests[0].path == "http://mcp.invalid/healthy"
    assert server.requests[0].headers["proxy-authorization"] == "Basic bWU6cHc="
    async with peer(server, "healthy") as client:
        await client.text()
    assert server.requests[1].path == "/healthy"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://[bad"])
async def test_proxy_that_cannot_be_used_is_said_to_be_so(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ConnectError, match="proxy"):
        async with Peer(open_http, Http("http://mcp.invalid/")):
            pass


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority of its own (`ca.pem`) and a certificate of it (`cert.pem`, `key.pem`)."""
    folder = tmp_path_factory.mktemp("certificates")
    since = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    until = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "cert")}
    for name, key in keys.items():
        subject = issuer if name == "ca" else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        local = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = (
            x509.CertificateBuilder(
                issuer, subject, key.public_key(), x509.random_serial_number(), since, until
            )
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .add_extension(local, critical=False)
            .sign(keys["ca"], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(made.public_bytes(Encoding.PEM))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / ("key.pem" if name == "cert" else "ca-key.pem")).write_bytes(secret)
    (folder / "pair.pem").write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())
    locked = BestAvailableEncryption(b"open sesame")
    (folder / "encrypted.pem").write_bytes(
        keys["cert"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
    )
    (folder / "authorities").mkdir()
    # OpenSSL finds an authority by a hash of its name without the outer header.
    digest = hashlib.sha1(issuer.public_bytes()[2:]).digest()[:4][::-1].hex()
    (folder / "authorities" / f"{digest}.0").write_bytes((folder / "ca.pem").read_bytes())
    return folder


async def test_own_authority_and_client_certificate_are_used(certificates: Path) -> None:
    ca, cert, key = (str(certificates / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    theirs.load_cert_chain(cert, key)
    async with FaultServer(theirs) as server:
        async with peer(server, "healthy") as client:
            error = await client.ask()
            assert isinstance(error, ConnectionLostError)
            assert not error.may_have_run
            assert "`tls`" in str(error)
        for tls in (Tls(ca=ca), Tls(verify=False)):
            async with secure_peer(server, tls) as client:
                assert await client.text() == "ok"
        theirs.verify_mode = ssl.CERT_REQUIRED
        async with secure_peer(server, Tls(ca=ca)) as client:
            assert isinstance(await client.ask(), ConnectionLostError)
        pair = str(certificates / "pair.pem")
        for tls in (Tls(ca=ca, cert=cert, key=key), Tls(ca=ca, cert=pair), Tls(verify=False, cert=pair)):
            async with secure_peer(server, tls) as client:
                assert await client.text() == "ok"


async def test_folder_of_authorities_is_used(certificates: Path) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(certificates / "pair.pem")
    tls = Tls(ca=str(certificates / "authorities"))
    async with FaultServer(theirs) as server, secure_peer(server, tls) as client:
        assert await client.text() == "ok"


def secure_peer(server: FaultServer, tls: Tls) -> Peer:
    return Peer(open_http, Http(server.url("healthy"), tls=tls))


async def test_certificates_that_cannot_be_used_are_named(certificates: Path) -> None:
    cert, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
    wrong = {
        Tls(ca="missing.pem"): r"`tls\.ca` \(missing\.pem\): No such file",
        Tls(ca=key): r"`tls\.ca` ",
        Tls(cert="missing.pem"): r"`tls\.cert` \(missing\.pem\): No such file",
        Tls(cert="missing.pem", key=key): r"`tls\.cert` \(missing\.pem\)",
        Tls(cert=cert, key="missing.pem"): r"`tls\.key` \(missing\.pem\): No such file",
        Tls(cert=cert, key=str(certificates / "ca-key.pem")): r"`tls\.key` .*key values mismatch",
        Tls(cert=cert, key=str(certificates / "encrypted.pem")): r"`tls\.key` .*encrypted",
    }
    for tls, message in wrong.items():
        with pytest.raises(ConnectError, match=message) as caught:
            async with Peer(open_http, Http("https://127.0.0.1:1/", tls=tls)):
                pass
        assert "`tls`" in caught.value.hint


async def test_server_that_is_not_verified_is_warned_about(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dragoman"):
        async with Peer(open_http, Http("https://127.0.0.1:1/", tls=Tls(ca=str(certificates / "ca.pem")))):
            assert caplog.messages == []
        async with Peer(open_http, Http("https://127.0.0.1:1/", tls=Tls(verify=False))):
            assert caplog.messages == ["srv: its certificate is not checked (`tls.verify` is off)"]


def test_verification_is_turned_off_only_on_request() -> None:
    assert tls_context(Tls(verify=False), "srv").verify_mode is ssl.CERT_NONE
    context = tls_context(Tls(), "srv")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_every_error_names_its_server(server: FaultServer) -> None:
    for mode in ("html", "500", "reset-head", "sse-cut", "302"):
        async with peer(server, mode) as client:
            error = await client.ask()
            assert isinstance(error, DragomanError)
            assert "`srv`" in error.message
