"""Tool calls over HTTP that do not pass through the SDK's server: what is answered, and what is left to the SDK."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.unit.gateway.test_app import TOKEN, add, client_of, notes, post, running

from dragoman.gateway import direct
from dragoman.gateway.app import asgi_app
from dragoman.gateway.auth import AccessToken
from dragoman.manager.manager import McpManager
from dragoman.model import ToolDef
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.gateway.app import GatewayApp
    from dragoman.gateway.endpoints import Endpoints

OLDER = "2025-11-25"
CALL = {"name": "mcp_notes_add", "arguments": {"text": "milk"}}


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of the requests that were left to the SDK."""
    seen: list[str] = []
    handle = direct.DirectCalls.handle

    async def watched(self: Any, scope: Any, receive: Any, send: Any) -> Any:
        again = await handle(self, scope, receive, send)
        if again is not None:
            message = await again()
            body = message.get("body", b"")
            seen.append(json.loads(body).get("method", "answer") if body[:1] == b"{" else "-")
            messages = iter([message])

            async def once_more() -> Any:
                return next(messages, None) or await again()

            return once_more
        return None

    monkeypatch.setattr(direct.DirectCalls, "handle", watched)
    return seen


async def older(
    client: httpx2.AsyncClient,
    method: str,
    params: Any,
    *,
    session: str = "",
    number: Any = 7,
    who: str = TOKEN,
) -> httpx2.Response:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        body["id"] = number
    headers = {
        "Authorization": f"Bearer {who}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": OLDER,
    }
    if session:
        headers["Mcp-Session-Id"] = session
    return await client.post("/mcp", json=body, headers=headers)


@asynccontextmanager
async def opened(client: httpx2.AsyncClient, who: str = TOKEN, **capabilities: Any) -> AsyncGenerator[str]:
    """Open a session of the older protocol."""
    hello = {
        "protocolVersion": OLDER,
        "capabilities": capabilities,
        "clientInfo": {"name": "c", "version": "1"},
    }
    session = (await older(client, "initialize", hello, who=who)).headers["mcp-session-id"]
    await older(client, "notifications/initialized", {}, session=session, number=None, who=who)
    yield session
    headers = {"Authorization": f"Bearer {who}", "Mcp-Session-Id": session, "MCP-Protocol-Version": OLDER}
    await client.delete("/mcp", headers=headers)
    # The library that streams to older clients watches for uvicorn's end, once per event loop.
    left = [task for task in asyncio.all_tasks() if "_shutdown_watcher" in repr(task.get_coro())]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


class ClientsOfAnn:
    """Two programs of one user."""

    async def verify(self, token: str) -> AccessToken:
        return AccessToken(token="", client_id=token, scopes=[], subject="ann")


async def registered(app: GatewayApp | Endpoints, session: str) -> None:
    """Wait until the gateway has taken note of a session, which it does after its answer."""
    async with asyncio.timeout(10):
        while session not in app.gateway.view().sessions:  # noqa: ASYNC110 -- it is noted by another task
            await asyncio.sleep(0)


async def test_a_plain_call_is_answered_directly_with_json(sdk: list[str]) -> None:
    async with running(notes()) as (app, client):
        response = await add(client)
        assert response.headers["content-type"] == "application/json"
        assert response.json()["id"] == 1
        assert response.json()["result"]["resultType"] == "complete"
        async with opened(client) as session:
            await registered(app, session)
            sdk.clear()
            response = await older(client, "tools/call", CALL, session=session)
            assert response.headers["content-type"] == "application/json"
            assert response.json()["result"]["content"][0]["text"] == "added milk 0"
            assert "resultType" not in response.json()["result"]
            assert sdk == []


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
        ({"headers": {"Mcp-Method": "tools/list"}}, 400, -32020),
        ({"headers": {"MCP-Protocol-Version": "2099-01-01"}}, 400, -32020),
        ({"headers": {"Accept": "text/plain"}}, 406, None),
        ({"meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}, 400, -32020),
        ({"meta": {"io.modelcontextprotocol/clientCapabilities": None}}, 400, None),
        ({"meta": {"progressToken": []}}, 400, None),
        ({"headers": {"Mcp-Param-Text": "tea"}}, 200, None),
    ],
)
async def test_what_is_not_a_plain_call_is_left_to_the_sdk(
    changes: dict[str, Any], status: int, code: int | None, sdk: list[str]
) -> None:
    server = notes()
    async with running(server) as (_, client):
        response = await add(client, **changes)
        assert response.status_code == status
        assert code is None or response.json()["error"]["code"] == code
        assert sdk == ["tools/call"]
    assert len(server.calls) == (status == 200)


@pytest.mark.parametrize("params", [{"name": 5}, {"arguments": []}, {"arguments": "x"}, {"_meta": 1}])
async def test_parameters_of_the_wrong_type_are_refused(params: dict[str, Any], sdk: list[str]) -> None:
    server = notes()
    async with running(server) as (app, client), opened(client) as session:
        await registered(app, session)
        sdk.clear()
        response = await older(client, "tools/call", {**CALL, **params}, session=session)
        assert '"error"' in response.text
        assert sdk == ["tools/call"]
    assert not server.calls


async def test_a_tool_whose_arguments_are_mirrored_by_headers_is_left_to_the_sdk(sdk: list[str]) -> None:
    def echo(**arguments: Any) -> str:
        return arguments["text"]

    schema = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    server = ScriptedServer("notes")
    server.add(ToolDef(name="add", description="", input_schema=schema, func=echo))
    async with running(server) as (_, client):
        await add(client)
        assert sdk == ["tools/call"]


async def test_a_session_is_used_only_by_the_one_who_opened_it() -> None:
    server = notes()
    app = asgi_app(McpManager([server.spec()], cache=False), verifier=ClientsOfAnn())
    async with client_of(app) as client, opened(client, "ann") as session:
        endpoints = app._users._open["ann"].endpoints
        await registered(endpoints, session)
        response = await older(client, "tools/call", CALL, session=session, who="bob")
        assert response.status_code == 404
        assert not server.calls
        # Nor may another cancel its calls or answer its questions.
        calls = endpoints.get(None)._direct
        waiting = asyncio.get_running_loop().create_future()
        calls._asks[session] = {"q": waiting}
        body = {"jsonrpc": "2.0", "id": "q", "result": {}}
        headers = {
            "Authorization": "Bearer bob",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": OLDER,
            "Mcp-Session-Id": session,
        }
        assert (await client.post("/mcp", json=body, headers=headers)).status_code == 404
        assert not waiting.done()
        headers["Authorization"] = "Bearer ann"
        assert (await client.post("/mcp", json=body, headers=headers)).status_code == 202
        assert waiting.result() == {}
        response = await older(client, "tools/call", CALL, session=session, who="ann")
        assert response.json()["result"]["content"][0]["text"] == "added milk 0"


async def test_a_session_that_only_calls_is_shown_to_the_sdk_now_and_then(
    sdk: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(notes()) as (app, client), opened(client) as session:
        await registered(app, session)
        sdk.clear()
        await older(client, "tools/call", CALL, session=session)
        assert sdk == []
        monkeypatch.setattr(direct, "SDK_SECONDS", -1.0)
        response = await older(client, "tools/call", CALL, session=session)
        assert "added milk" in response.text
        assert sdk == ["tools/call"]


async def test_a_silent_call_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "PING_SECONDS", 0.01)
    go_on = asyncio.Event()
    server = ScriptedServer("notes")

    @server.tool
    async def wait() -> str:
        """Wait."""
        await go_on.wait()
        return "done"

    ping = direct.Exchange.ping

    async def then_go_on(self: direct.Exchange) -> None:
        await ping(self)
        go_on.set()

    monkeypatch.setattr(direct.Exchange, "ping", then_go_on)
    async with running(server) as (_, client):
        response = await post(client, "tools/call", {"name": "mcp_notes_wait", "arguments": {}})
        assert response.headers["content-type"] == "text/event-stream"
        assert response.text.startswith(": ping\r\n\r\n")
        last = json.loads(response.text.splitlines()[-2].removeprefix("data: "))
        assert last["result"]["content"][0]["text"] == "done"
