"""Streamable HTTP: what is answered and how, for clients of both protocol generations."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.unit.gateway.test_app import TOKEN, add, client_of, notes, post, running

from dragoman.gateway import http
from dragoman.gateway.app import asgi_app
from dragoman.gateway.auth import AccessToken
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, Stdio, ToolDef
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

OLDER = "2025-11-25"
CALL = {"name": "mcp_notes_add", "arguments": {"text": "milk"}}


async def older(
    client: httpx2.AsyncClient,
    method: str,
    params: Any,
    *,
    session: str = "",
    number: Any = 7,
    who: str = TOKEN,
    path: str = "/mcp",
) -> httpx2.Response:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        body["id"] = number
    return await client.post(path, json=body, headers=headers_of(session, who))


def headers_of(session: str, who: str = TOKEN) -> dict[str, str]:
    headers = {
        "Authorization": f"Bearer {who}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": OLDER,
    }
    return {**headers, "Mcp-Session-Id": session} if session else headers


async def open_session(
    client: httpx2.AsyncClient, who: str = TOKEN, path: str = "/mcp", **capabilities: Any
) -> str:
    """Open a session of the older protocol, and leave it open."""
    hello = {
        "protocolVersion": OLDER,
        "capabilities": capabilities,
        "clientInfo": {"name": "c", "version": "1"},
    }
    session = (await older(client, "initialize", hello, who=who, path=path)).headers["mcp-session-id"]
    await older(client, "notifications/initialized", {}, session=session, number=None, who=who, path=path)
    return session


@asynccontextmanager
async def opened(
    client: httpx2.AsyncClient, who: str = TOKEN, path: str = "/mcp", **capabilities: Any
) -> AsyncGenerator[str]:
    """Open a session of the older protocol, and end it after its use."""
    session = await open_session(client, who, path, **capabilities)
    yield session
    await client.delete(path, headers=headers_of(session, who))


class ClientsOfAnn:
    """Two programs of one user."""

    async def verify(self, token: str) -> AccessToken:
        return AccessToken(client_id=token, subject="ann")


async def test_a_plain_call_is_answered_with_json() -> None:
    async with running(notes()) as (_, client):
        response = await add(client)
        assert response.headers["content-type"] == "application/json"
        assert response.json()["id"] == 1
        assert response.json()["result"]["resultType"] == "complete"
        async with opened(client) as session:
            response = await older(client, "tools/call", CALL, session=session)
            assert response.headers["content-type"] == "application/json"
            assert response.json()["result"]["content"][0]["text"] == "added milk 0"
            assert "resultType" not in response.json()["result"]


async def test_white_space_around_header_values_does_not_count() -> None:
    server = notes()
    async with running(server) as (app, _):

        async def spaced(scope: Any, receive: Any, send: Any) -> None:
            headers = [(name, b" " + value + b"\t ") for name, value in scope["headers"]]
            await app({**scope, "headers": headers}, receive, send)

        transport = httpx2.ASGITransport(app=spaced)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await add(client)).status_code == 200
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"headers": {"Mcp-Name": "mcp_notes_remove"}}, 400, -32020),
        ({"headers": {"Mcp-Name": ""}}, 400, -32020),
        ({"headers": {"Mcp-Method": "tools/list"}}, 400, -32020),
        ({"headers": {"MCP-Protocol-Version": "2099-01-01"}}, 400, -32020),
        ({"headers": {"Accept": "text/plain"}}, 406, -32600),
        ({"headers": {"Accept": "application/json"}}, 406, -32600),
        ({"headers": {"Content-Type": "text/plain"}}, 415, -32600),
        ({"meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}, 400, -32020),
        ({"meta": {"io.modelcontextprotocol/clientCapabilities": None}}, 400, -32602),
        ({"meta": {"io.modelcontextprotocol/clientCapabilities": []}}, 400, -32602),
        ({"meta": {"progressToken": []}}, 400, -32602),
        ({"headers": {"Mcp-Param-Text": "tea"}}, 200, None),
    ],
)
async def test_the_envelope_of_a_modern_request_is_checked(
    changes: dict[str, Any], status: int, code: int | None
) -> None:
    server = notes()
    async with running(server) as (_, client):
        response = await add(client, **changes)
        assert response.status_code == status
        assert response.json().get("error", {}).get("code") == code
    assert len(server.calls) == (status == 200)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b"\xff", 400, -32700),
        (b"[" * 100_000, 400, -32700),
        (b'{"a":' * 300 + b"1" + b"}" * 300, 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-Infinity}}', 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e999}}', 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 5000 + b"}}", 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b"5", 400, -32600),
        (b'{"jsonrpc":"2.0"}', 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32600),
    ],
)
@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_body_that_is_not_one_message_is_refused(
    body: bytes, status: int, code: int, is_modern: bool
) -> None:
    async with running(notes()) as (_, client):
        if is_modern:
            response = await post(client, "ping", content=body)
        else:
            async with opened(client) as session:
                headers = {**headers_of(session), "Content-Type": "application/json"}
                response = await client.post("/mcp", content=body, headers=headers)
        assert response.status_code == status
        assert response.json()["error"]["code"] == code
        assert response.json()["id"] is None


@pytest.mark.parametrize("params", [{"name": 5}, {"arguments": []}, {"arguments": "x"}, {"_meta": 1}])
async def test_parameters_of_the_wrong_type_are_refused(params: dict[str, Any]) -> None:
    server = notes()
    async with running(server) as (_, client), opened(client) as session:
        response = await older(client, "tools/call", {**CALL, **params}, session=session)
        assert response.json()["error"]["code"] == -32602
    assert not server.calls


@pytest.mark.parametrize(
    ("method", "status"),
    [("no/such", 404), ("ping", 404), ("initialize", 404), ("logging/setLevel", 404), ("tools/list", 200)],
)
async def test_methods_are_those_of_the_protocol(method: str, status: int) -> None:
    async with running(notes()) as (_, client):
        response = await post(client, method)
        assert response.status_code == status
        assert status == 200 or response.json()["error"]["code"] == -32601
        async with opened(client) as session:
            for gone in ("server/discover", "subscriptions/listen", "no/such"):
                answer = (await older(client, gone, {}, session=session)).json()
                assert answer["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("text", "header", "status"),
    [
        ("tea", "tea", 200),
        ("tea", "milk", 400),
        ("tea", "", 400),
        (None, "tea", 400),
        ("茶", "=?base64?6Iy2?=", 200),
    ],
)
async def test_headers_say_the_same_as_the_arguments_they_mirror(
    text: str | None, header: str, status: int
) -> None:
    def echo(**arguments: Any) -> str:
        return str(arguments.get("text"))

    schema = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    server = ScriptedServer("notes")
    server.add(ToolDef(name="add", description="", input_schema=schema, func=echo))
    async with running(server) as (_, client):
        params = {"name": "mcp_notes_add", "arguments": {} if text is None else {"text": text}}
        response = await post(client, "tools/call", params, headers={"Mcp-Param-Text": header})
        assert response.status_code == status
        assert status == 200 or response.json()["error"]["code"] == -32020
    assert len(server.calls) == (status == 200)


async def test_a_session_is_used_only_by_the_one_who_opened_it_and_where() -> None:
    server = notes()
    app = asgi_app(McpManager([server.spec()], cache=False), verifier=ClientsOfAnn())
    async with client_of(app) as client, opened(client, "ann") as session:
        response = await older(client, "tools/call", CALL, session=session, who="bob")
        assert response.status_code == 404
        elsewhere = await older(client, "ping", {}, session=session, who="ann", path="/mcp/notes")
        assert elsewhere.status_code == 404
        stream = await client.get("/mcp", headers=headers_of(session, "bob"))
        assert stream.status_code == 404
        assert (await client.delete("/mcp", headers=headers_of(session, "bob"))).status_code == 404
        assert not server.calls
        response = await older(client, "tools/call", CALL, session=session, who="ann")
        assert response.json()["result"]["content"][0]["text"] == "added milk 0"


async def test_a_request_needs_its_session() -> None:
    async with running(notes()) as (_, client):
        assert (await older(client, "ping", {})).status_code == 400
        assert (await older(client, "ping", {}, session="gone")).status_code == 404
        async with opened(client) as session:
            assert (await older(client, "ping", {}, session=session)).json()["result"] == {}
        assert (await older(client, "ping", {}, session=session)).status_code == 404


async def test_a_handshake_that_fails_leaves_no_session() -> None:
    async with running(notes()) as (app, client):
        response = await older(client, "initialize", {"protocolVersion": 5})
        assert response.json()["error"]["code"] == -32602
        assert "mcp-session-id" not in response.headers
        assert len(app.gateway.sessions) == 0


async def test_the_oldest_idle_session_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_SESSIONS", 3)
    async with running(notes()) as (app, client):
        sessions = [await open_session(client) for _ in range(3)]
        await older(client, "ping", {}, session=sessions[0])
        sessions.append(await open_session(client))
        pings = [await older(client, "ping", {}, session=session) for session in sessions]
        assert [ping.status_code for ping in pings] == [200, 404, 200, 200]
        assert len(app.gateway.sessions) == 3


async def test_a_subscription_ends_with_its_session_however_it_was_made() -> None:
    script = Path(__file__).parents[2] / "servers" / "telling.py"
    spec = ServerSpec("s", Stdio(sys.executable, [str(script)]))
    app = asgi_app(McpManager([spec], cache=False), token=TOKEN)
    async with client_of(app) as client:
        assert await app.gateway.mcp.wait_ready()
        hello = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        # Twice at once, and without the notification that ends the handshake.
        session = (await older(client, "initialize", hello)).headers["mcp-session-id"]
        uri = {"uri": "dragoman://s/sample://day"}
        asked = [
            older(client, "resources/subscribe", uri, session=session, number=number) for number in (1, 2)
        ]
        assert [one.json()["result"] for one in await asyncio.gather(*asked)] == [{}, {}]
        await client.delete("/mcp", headers=headers_of(session))
        while (await app.gateway.mcp.call("mcp_s_subscribed")).text != "[]":
            pass
