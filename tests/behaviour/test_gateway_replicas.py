"""Replicas of the gateway without sticky sessions, a dead server among others, and restarts of servers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.gateway.test_app import TOKEN, client_of, post
from tests.warm import server_command

from dragoman.events import StateChanged
from dragoman.gateway.app import asgi_app
from dragoman.gateway.auth import AccessToken
from dragoman.gateway.questions import Questions
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, ServerState, Stdio
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    import httpx2

FEATURES = Path(__file__).parents[1] / "servers" / "all_features.py"
KEY = "k" * 32
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
CAN_BE_ASKED: Any = {"elicitation": {"form": {}}}


class Names:
    """Everyone is who their token says."""

    async def verify(self, token: str) -> AccessToken:
        return AccessToken(client_id=token)


@asynccontextmanager
async def replica(protocol: Any, key: str = KEY) -> AsyncGenerator[httpx2.AsyncClient]:
    questions = Questions()
    command, *words = server_command(FEATURES)
    spec = ServerSpec("s", Stdio(command, words), protocol=protocol)
    mcp = McpManager([spec], cache=False, handlers=questions.handlers())
    app = asgi_app(mcp, verifier=Names(), questions=questions, state_keys=[key], stateless=True)
    async with client_of(app) as client:
        await mcp.wait_ready()
        yield client


async def form(client: httpx2.AsyncClient, **more: Any) -> dict[str, Any]:
    params = {"name": "mcp_s_form", "arguments": more.pop("arguments", {}), **more.pop("inputs", {})}
    return (await post(client, "tools/call", params, capabilities=CAN_BE_ASKED, **more)).json()


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    (key,) = asked["inputRequests"]
    response = {"action": "accept", "content": {"seats": 3}}
    return {"inputResponses": {key: response}, "requestState": asked["requestState"]}


async def test_a_question_is_asked_by_one_replica_and_its_answer_taken_by_another() -> None:
    async with AsyncExitStack() as stack:
        first, second, other = [
            await stack.enter_async_context(one)
            for one in (replica("auto"), replica("auto"), replica("auto", "o" * 32))
        ]
        asked = (await form(first))["result"]
        assert asked["resultType"] == "input_required"
        assert asked["inputRequests"]["q"]["method"] == "elicitation/create"
        assert "round-1" not in asked["requestState"]
        inputs = answer(asked)
        done = (await form(second, inputs=inputs))["result"]
        assert done["content"][0]["text"] == "accept {'seats': 3}"
        # The state is bound to the key, the principal and the request, and cannot be changed.
        changed = {**inputs, "requestState": inputs["requestState"][:-2] + "AA"}
        for refused in (
            await form(other, inputs=inputs),
            await form(second, inputs=inputs, headers={"Authorization": "Bearer another"}),
            await form(second, inputs=inputs, arguments={"said": "else"}),
            await form(second, inputs=changed),
        ):
            assert refused["error"]["code"] == -32602
            assert refused["error"]["message"] == "Invalid or expired requestState"


async def test_a_question_of_an_older_server_is_answered_at_the_replica_that_holds_it() -> None:
    async with replica("legacy") as first, replica("legacy") as second:
        asked = (await form(first))["result"]
        refused = (await form(second, inputs=answer(asked)))["error"]
        assert refused["data"] == {"reason": "not_held_here"}
        assert "another process" in refused["message"]
        done = (await form(first, inputs=answer(asked)))["result"]
        assert done["content"][0]["text"] == "accept {'seats': 3}"


@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_what_a_server_says_before_its_result_comes_before_the_result(protocol: str) -> None:
    async with replica(protocol) as client:
        for _ in range(10):
            params: Any = {"name": "mcp_s_log", "arguments": {}}
            response = await post(client, "tools/call", params, meta={LOG_LEVEL: "error"})
            # The stream ends with the result, so what comes later is lost.
            said = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
            assert [one.get("method", "result") for one in said] == ["notifications/message", "result"]
            assert said[0]["params"]["data"] == {"said": "wanted"}


async def test_a_client_that_cannot_be_asked_is_told_so() -> None:
    async with replica("auto") as client:
        params: Any = {"name": "mcp_s_form", "arguments": {}}
        refused = (await post(client, "tools/call", params)).json()["error"]
        assert refused["code"] == -32021
        assert refused["data"] == {"requiredCapabilities": {"elicitation": {}}}


async def test_older_clients_work_without_a_session_until_a_server_asks() -> None:
    async with replica("auto") as first, replica("auto") as second:

        async def send(client: httpx2.AsyncClient, method: str, params: Any) -> Any:
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            headers = {
                "Authorization": f"Bearer {TOKEN}",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2025-11-25",
            }
            response = await client.post("/mcp", json=body, headers=headers)
            assert "mcp-session-id" not in response.headers
            return response.text

        handshake = {
            "protocolVersion": "2025-11-25",
            "capabilities": CAN_BE_ASKED,
            "clientInfo": {"name": "old", "version": "1"},
        }
        assert '"protocolVersion":"2025-11-25"' in await send(first, "initialize", handshake)
        echo = {"name": "mcp_s_echo", "arguments": {"said": "hallo"}}
        assert "hallo" in await send(second, "tools/call", echo)
        refused = await send(first, "tools/call", {"name": "mcp_s_form", "arguments": {}})
        assert "keeps no session" in refused


async def test_one_dead_server_does_not_affect_nine_others() -> None:
    servers = [ScriptedServer(f"s{number}") for number in range(9)]
    for server in servers:
        server.add(ping)
    dead = ServerSpec("dead", Stdio(sys.executable, ["-c", "import time; time.sleep(600)"]))
    app = asgi_app(McpManager([dead, *(server.spec() for server in servers)], cache=False), token=TOKEN)
    async with client_of(app) as client:
        await app.gateway.mcp.wait_ready([server.name for server in servers])
        app.gateway.first_wait = 0.1
        tools = (await post(client, "tools/list")).json()["result"]["tools"]
        assert [tool["name"] for tool in tools] == [f"mcp_s{number}_ping" for number in range(9)]
        for number in range(9):
            params: Any = {"name": f"mcp_s{number}_ping", "arguments": {}}
            result = (await post(client, "tools/call", params)).json()["result"]
            assert result["content"][0]["text"] == "pong"
        for method in ("resources/list", "prompts/list"):
            assert "result" in (await post(client, method)).json()


async def test_a_call_waits_for_its_own_server_and_not_for_a_dead_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dragoman.gateway.view.STARTING_SECONDS", 600.0)
    dead = ServerSpec("dead", Stdio(sys.executable, ["-c", "import time; time.sleep(600)"]))
    # It starts when it may: the test says when, by a pipe.
    os.mkfifo(gate := tmp_path / "gate")
    script = (
        f"open({str(gate)!r}).read(); import runpy; runpy.run_path({str(FEATURES)!r}, run_name='__main__')"
    )
    late = ServerSpec("late", Stdio(sys.executable, ["-c", script]))
    app = asgi_app(McpManager([dead, late], cache=False), token=TOKEN)
    async with asyncio.timeout(40), client_of(app) as client:
        params: Any = {"name": "mcp_late_echo", "arguments": {"said": "hallo"}}
        call = asyncio.create_task(post(client, "tools/call", params))
        while not app.gateway.observer.in_progress:  # noqa: ASYNC110 -- the call is let in first
            await asyncio.sleep(0)
        await asyncio.to_thread(gate.write_text, "")
        assert (await call).json()["result"]["structuredContent"] == {"said": "hallo"}
        assert app.gateway.mcp.status()["dead"].state is ServerState.CONNECTING


def ping() -> str:
    """Answer."""
    return "pong"


@asynccontextmanager
async def pinged(server: ScriptedServer) -> AsyncGenerator[tuple[McpManager, Callable[[], Awaitable[str]]]]:
    """Serve a server with `ping`; give the manager, and what calls the tool through the gateway."""
    server.add(ping)
    app = asgi_app(McpManager([server.spec()], cache=False), token=TOKEN)
    async with client_of(app) as client:
        await app.gateway.mcp.wait_ready()

        async def call() -> str:
            params: Any = {"name": "mcp_s_ping", "arguments": {}}
            result = (await post(client, "tools/call", params)).json()["result"]
            return result["content"][0]["text"]

        yield app.gateway.mcp, call


async def test_restarts_of_a_server_are_not_noticed() -> None:
    async with pinged(ScriptedServer("s")) as (mcp, call):
        for _ in range(20):
            await mcp.restart("s")
            assert await call() == "pong"


async def test_a_call_waits_for_a_server_that_was_lost_a_moment_ago() -> None:
    server = ScriptedServer("s")
    async with pinged(server) as (mcp, call):
        lost = asyncio.create_task(_lost(mcp))
        await asyncio.sleep(0)
        server.crash()
        await lost
        assert await call() == "pong"


async def _lost(mcp: McpManager) -> None:
    async for event in mcp.events():
        if isinstance(event, StateChanged) and event.after is ServerState.BACKOFF:
            return


async def test_a_gateway_in_its_own_configuration_is_never_started() -> None:
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "dragoman", "serve"],
        env={"DRAGOMAN_CHILD": "x", "HOME": str(Path.home())},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert run.returncode != 0
    assert "started by dragoman itself" in run.stderr
