"""The gateway over HTTP: who is let in, what is refused, and what it shows of itself."""

from __future__ import annotations

import json
import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from dragoman.errors import ConfigError, ProtocolError
from dragoman.gateway.app import asgi_app
from dragoman.gateway.auth import JwtVerifier
from dragoman.gateway.questions import Questions
from dragoman.gateway.view import answer_of
from dragoman.manager.manager import McpManager
from dragoman.model import ServerSpec, Stdio, ToolResult
from dragoman.server.protocol.envelope import MCPError
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from dragoman.gateway.app import GatewayApp

TOKEN = "the-token"
VERSION = "2026-07-28"
AUDIENCE = "http://127.0.0.1/mcp"


def notes() -> ScriptedServer:
    server = ScriptedServer("notes")

    @server.tool
    def add(text: str, password: str = "") -> str:
        """Add a note."""
        return f"added {text} {len(password)}"

    @server.tool
    def remove(number: int) -> str:
        """Remove a note by its number."""
        return f"removed {number}"

    return server


@asynccontextmanager
async def client_of(app: GatewayApp) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run a gateway; give a client that reaches it without a network."""
    await app.start()
    try:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client
    finally:
        await app.close()


@asynccontextmanager
async def running(
    server: ScriptedServer, **options: Any
) -> AsyncGenerator[tuple[GatewayApp, httpx2.AsyncClient]]:
    policy = options.pop("policy", None)
    options.setdefault("token", TOKEN)
    app = asgi_app(McpManager([server.spec()], cache=False, policy=policy), **options)
    async with client_of(app) as client:
        await app.gateway.mcp.wait_ready()
        yield app, client


async def post(
    client: httpx2.AsyncClient,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    path: str = "/mcp",
    **more: Any,
) -> httpx2.Response:
    """Send a request of the modern protocol."""
    params = dict(params or {})
    params["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": more.pop("capabilities", {}),
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        **more.pop("meta", {}),
    }
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": method,
        **more.pop("headers", {}),
    }
    if "name" in params:
        headers.setdefault("Mcp-Name", params["name"])
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    content = more.pop("content", json.dumps(body))
    headers = {name: value for name, value in headers.items() if value}
    return await client.post(path, content=content, headers={"Content-Type": "application/json", **headers})


async def add(client: httpx2.AsyncClient, **more: Any) -> httpx2.Response:
    params = {"name": "mcp_notes_add", "arguments": {"text": "milk"}}
    return await post(client, "tools/call", params, **more)


async def test_all_servers_have_prefixed_names_and_one_has_its_own() -> None:
    async with running(notes()) as (_, client):
        everything = (await post(client, "tools/list")).json()["result"]["tools"]
        assert [tool["name"] for tool in everything] == ["mcp_notes_add", "mcp_notes_remove"]
        own = (await post(client, "tools/list", path="/mcp/notes")).json()["result"]["tools"]
        assert [tool["name"] for tool in own] == ["add", "remove"]
        params = {"name": "add", "arguments": {"text": "tea"}}
        result = (await post(client, "tools/call", params, path="/mcp/notes")).json()["result"]
        assert result["content"][0]["text"] == "added tea 0"
        assert (await post(client, "tools/list", path="/mcp/%6eotes")).status_code == 200
        # A proxy in front decodes an address once: what it does not let through must not be reached by two.
        for path in ("/mcp/nobody", "/mcp/%256eotes", "/mcp/%2e%2e/status", "/MCP"):
            assert (await post(client, "tools/list", path=path)).status_code == 404
        assert (await client.get("/", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 404


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"Authorization": ""}, 401, "no token"),
        ({"Authorization": "Bearer another"}, 401, "wrong token"),
        ({"Authorization": f"Basic {TOKEN}"}, 401, "no token"),
        ({"Host": "attacker.example"}, 421, "wrong host"),
        ({"Host": "127.0.0.1.attacker.example:80"}, 421, "wrong host"),
        ({"Host": "127.0.0.1#.attacker.example"}, 400, "malformed host"),
        ({"Origin": "https://attacker.example"}, 403, "wrong origin"),
        ({"Origin": "null"}, 403, "wrong origin"),
        ({"Origin": "http://localhost.attacker.example"}, 403, "wrong origin"),
    ],
)
async def test_strangers_are_refused_and_counted(headers: dict[str, str], status: int, reason: str) -> None:
    server = notes()
    async with running(server) as (app, client):
        response = await add(client, headers=headers)
        assert response.status_code == status
        assert ("WWW-Authenticate" in response.headers) == (status == 401)
        assert app.gateway.observer.refused == {reason: 1}
    assert not server.calls


async def test_a_page_and_a_name_that_are_allowed_are_let_in() -> None:
    options = {"hosts": ["gate.example"], "origins": ["https://app.example"]}
    async with running(notes(), **options) as (_, client):
        headers = {"Host": "gate.example:8443", "Origin": "https://app.example"}
        assert (await add(client, headers=headers)).status_code == 200
        assert (await add(client, headers={"Origin": "http://localhost:6274"})).status_code == 200


async def test_a_token_is_generated_unless_it_is_given_or_turned_off() -> None:
    async with running(notes(), token="generate") as (app, client):
        assert len(app.token) >= 32
        assert (await add(client)).status_code == 401
        assert (await add(client, headers={"Authorization": f"Bearer {app.token}"})).status_code == 200
    async with running(notes(), token=None) as (_, client):
        assert (await add(client, headers={"Authorization": ""})).status_code == 200


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"{", 400), (b"[]", 400), (b'{"jsonrpc": "2.0"}', 400), (b'{"x": "' + b"y" * 5000 + b'"}', 413)],
)
async def test_malformed_and_oversized_requests_are_refused(content: bytes, status: int) -> None:
    server = notes()
    async with running(server, max_body_bytes=4000) as (_, client):
        response = await add(client, content=content)
        assert response.status_code == status
    assert not server.calls


async def test_a_header_that_names_another_tool_is_refused() -> None:
    server = notes()
    async with running(server) as (_, client):
        response = await add(client, headers={"Mcp-Name": "mcp_notes_remove"})
        assert response.status_code == 400
        assert response.json()["error"]["code"] == -32020
    assert not server.calls


async def test_the_policy_applies() -> None:
    server = notes()
    async with running(server, policy={"rules": [{"action": "deny", "server": "notes", "tool": "add"}]}) as (
        _,
        client,
    ):
        result = (await add(client)).json()["result"]
        assert result["isError"] is True
        assert "deny" in result["content"][0]["text"]
    assert not server.calls


async def test_a_denial_names_the_rule_and_no_path(tmp_path: Path) -> None:
    config = tmp_path / "dragoman.toml"
    config.write_text('[mcp.policy]\nrules = [{ action = "deny", server = "notes", reason = "no notes" }]\n')
    from dragoman.config.load import load

    server = notes()
    settings = load("dragoman", config=config).replace(servers=[server.spec()])
    app = asgi_app(McpManager(settings, cache=False), token=TOKEN)
    async with client_of(app) as client:
        await app.gateway.mcp.wait_ready()
        assert str(tmp_path) in (await app.gateway.mcp.call("mcp_notes_add", {"text": "milk"})).text
        text = (await add(client)).text
        assert "no notes" in text
        assert str(tmp_path) not in text
    assert not server.calls


async def test_a_question_for_approval_is_not_a_failed_call(caplog: pytest.LogCaptureFixture) -> None:
    server = notes()
    questions = Questions()
    rules = {"rules": [{"action": "ask", "server": "notes"}]}
    mcp = McpManager([server.spec()], cache=False, policy=rules, handlers=questions.handlers())
    app = asgi_app(mcp, token=TOKEN, questions=questions)
    async with client_of(app) as client:
        await mcp.wait_ready()
        can: Any = {"capabilities": {"elicitation": {"form": {}}}}
        asked = (await add(client, **can)).json()["result"]
        assert asked["resultType"] == "input_required"
        assert not server.calls
        assert "notes" not in mcp.metrics() or mcp.metrics()["notes"].calls == 0
        (key,) = asked["inputRequests"]
        for allows in (True, False):
            answer = {"action": "accept", "content": {"allow": allows}}
            params = {"name": "mcp_notes_add", "arguments": {"text": "milk"}}
            inputs = {"inputResponses": {key: answer}, "requestState": asked["requestState"]}
            result = (await post(client, "tools/call", {**params, **inputs}, **dict(can))).json()["result"]
            assert bool(result.get("isError")) is not allows
            asked = (await add(client, **can)).json()["result"]
        assert len(server.calls) == 1
        assert (mcp.metrics()["notes"].calls, mcp.metrics()["notes"].failed) == (2, 1)
    failures = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(failures) == 1
    assert "the user declined" in failures[0]


async def test_health_and_metrics() -> None:
    async with running(notes()) as (app, client):
        await add(client)
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/metrics")).status_code == 401
        metrics = (await client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).text
        assert 'dragoman_gateway_requests_total{method="tools/call",outcome="ok"} 1' in metrics
        await post(client, 'x",a="b\n1')
        metrics = (await client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})).text
        assert 'dragoman_gateway_requests_total{method="other",outcome="refused"} 1' in metrics
        assert 'a="b' not in metrics
        assert 'dragoman_server_up{server="notes"} 1' in metrics
        assert 'dragoman_server_calls_total{server="notes"} 1' in metrics
        await app.drain(1)
        assert (await client.get("/healthz")).status_code == 503
        assert (await add(client)).status_code == 503


async def test_the_access_log_masks_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.access")
    async with running(notes()) as (_, client):
        arguments = {"text": "milk", "password": "hunter2-hunter2"}
        await post(client, "tools/call", {"name": "mcp_notes_add", "arguments": arguments})
    (line,) = [record.getMessage() for record in caplog.records if "tools/call" in record.getMessage()]
    assert line.startswith("tools/call mcp_notes_add")
    assert line.endswith("ms by token")
    assert "milk" in line
    assert "hunter2" not in line


async def test_two_tools_find_and_call_the_others() -> None:
    async with running(notes(), tools="search") as (_, client):
        listed = (await post(client, "tools/list")).json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["call_tool", "search_tools"]
        search = {"name": "search_tools", "arguments": {"query": "remove a note"}}
        found = (await post(client, "tools/call", search)).json()["result"]["structuredContent"]["tools"]
        assert found[0]["name"] == "mcp_notes_remove"
        assert found[0]["inputSchema"]["required"] == ["number"]
        chosen = {"name": "call_tool", "arguments": {"name": found[0]["name"], "arguments": {"number": 3}}}
        result = (await post(client, "tools/call", chosen)).json()["result"]
        assert result["content"][0]["text"] == "removed 3"


@pytest.mark.usefixtures("interpreter")
async def test_programs_call_the_tools_and_share_nothing() -> None:
    async with running(notes(), tools="code") as (_, client):
        listed = (await post(client, "tools/list")).json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["call_tool", "run_code", "search_tools"]
        search = {"name": "search_tools", "arguments": {"query": "remove a note"}}
        found = (await post(client, "tools/call", search)).json()["result"]["content"]
        assert "notes.remove(number: int) -> str" in found[-1]["text"]

        async def run(code: str) -> tuple[str, bool]:
            params = {"name": "run_code", "arguments": {"code": code}}
            result = (await post(client, "tools/call", params)).json()["result"]
            return result["content"][0]["text"], result["isError"]

        assert await run("x = [notes.remove(number=n) for n in range(3)]\nx[-1]") == ("removed 2", False)
        said, is_error = await run("notes.remove(number='x')")
        assert is_error
        assert "Expected `int`" in said
        assert "Name `x` used when not defined" in (await run("x"))[0]


# ── Access tokens of an authorization server


class Issuer:
    """A real authorization server's metadata and keys, and tokens by its private key."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.url = ""
        self.fetches = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        app = web.Application()
        app.router.add_get("/.well-known/oauth-authorization-server", self._metadata)
        app.router.add_get("/jwks", self._keys)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    async def _metadata(self, _request: web.Request) -> web.Response:
        return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks"})

    async def _keys(self, _request: web.Request) -> web.Response:
        self.fetches += 1
        public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response({"keys": [{**public, "kid": "k1", "alg": "RS256"}]})

    def token(self, *, key: Any = None, kid: str = "k1", **claims: Any) -> str:
        given = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ann",
            "exp": time.time() + 300,
            "scope": "mcp",
            **claims,
        }
        given = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(given, key or self.key, algorithm="RS256", headers={"kid": kid})


async def test_access_tokens_are_checked_against_the_issuers_keys() -> None:
    issuer = Issuer()
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    async with issuer.running():
        verifier = JwtVerifier(issuer.url, audience=AUDIENCE, scopes=["mcp"])
        async with running(notes(), verifier=verifier) as (_, client):

            async def status(token: str) -> int:
                return (await add(client, headers={"Authorization": f"Bearer {token}"})).status_code

            assert await status(issuer.token()) == 200
            assert await status(issuer.token(aud=[AUDIENCE, "other"])) == 200
            assert await status(issuer.token(aud="https://other.example/mcp")) == 401
            assert await status(issuer.token(aud=None)) == 401
            assert await status(issuer.token(iss="https://other.example")) == 401
            assert await status(issuer.token(exp=time.time() - 300)) == 401
            assert await status(issuer.token(exp=None)) == 401
            assert await status(issuer.token(key=stranger)) == 401
            assert await status(issuer.token(kid="k2")) == 401
            assert await status(issuer.token(scope="read")) == 403
            assert await status("junk") == 401
            unsigned = jwt.encode({"iss": issuer.url, "aud": AUDIENCE}, "", algorithm="none")
            assert await status(unsigned) == 401
            # Unknown keys do not make the gateway ask the issuer each time.
            assert issuer.fetches == 1
            refused = await add(client, headers={"Authorization": ""})
            where = "http://127.0.0.1/.well-known/oauth-protected-resource/mcp"
            assert f'resource_metadata="{where}"' in refused.headers["WWW-Authenticate"]
            metadata = (await client.get(where)).json()
            assert metadata["resource"] == AUDIENCE
            assert metadata["authorization_servers"] == [issuer.url]


def test_keys_over_plain_http_are_not_trusted() -> None:
    with pytest.raises(ConfigError, match="not an https address"):
        JwtVerifier("http://issuer.example", audience=AUDIENCE)
    with pytest.raises(ConfigError, match="not an https address"):
        JwtVerifier("http://127.0.0.1.attacker.example", audience=AUDIENCE)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/gone"])
async def test_a_client_does_not_learn_the_folders_of_the_machine(path: str) -> None:
    gone = ServerSpec("gone", Stdio("/opt/private-place/bin/nothing"))
    app = asgi_app(McpManager([gone], cache=False), token=TOKEN, tools="search", for_model=True)
    async with client_of(app) as client:
        await app.gateway.mcp.wait_ready(timeout=20)
        seen = [(await client.get("/status", headers={"Authorization": f"Bearer {TOKEN}"})).text]
        for method, params in (
            ("resources/list", {}),
            ("resources/read", {"uri": "dragoman://gone/x"}),
            ("prompts/get", {"name": "gone.x"}),
            ("tools/call", {"name": "search_tools", "arguments": {"query": "x"}}),
            ("tools/call", {"name": "mcp_status", "arguments": {}}),
            ("tools/call", {"name": "nothing", "arguments": {}}),
        ):
            seen.append((await post(client, method, params, path=path)).text)
        assert "nothing` cannot be started" in seen[0]
        assert not [text for text in seen if "private-place" in text]


def test_an_error_of_a_server_has_no_hidden_text() -> None:
    refused = ProtocolError("no", rpc_code=-32000)
    refused.__cause__ = MCPError(code=-32000, message="no\u200b way\U000e0041\x1b[31m")
    failed = ToolResult(success=False, text="", error="", exception=refused)
    with pytest.raises(MCPError) as raised:
        answer_of(failed)
    assert raised.value.message == "no way"
