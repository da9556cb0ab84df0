"""Logins as an application sees them: states, errors and events of the manager."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.servers.authorization import Authorization
from tests.waiting import until_status

from dragoman import Handlers, Http, McpManager, ServerSpec
from dragoman.blocking import McpManager as BlockingManager
from dragoman.errors import AuthRequiredError, ServerNotReadyError
from dragoman.model import Auth

if TYPE_CHECKING:
    from pathlib import Path

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

pytestmark = pytest.mark.anyio


def spec(server: Authorization, **changes: Any) -> ServerSpec:
    return ServerSpec("law", Http(server.url), **changes)


async def test_server_waits_for_a_person_and_goes_on_when_they_have_logged_in() -> None:
    async with Authorization() as server, McpManager([spec(server)]) as mcp:
        assert not await mcp.wait_ready(timeout=30)
        status = mcp.status()["law"]
        assert status.state == "needs_auth"
        assert status.error_code == "server.auth_required"
        assert status.retry_in is not None
        assert status.retry_in > 30
        assert status.login_url.startswith(f"{server.base}/authorize?")
        assert status.login_url not in repr(status)
        result = await mcp.call("mcp_law_read", {})
        assert not result.success
        asked = server.seen.copy()
        await server.open(status.login_url)
        await until_status(mcp, lambda: mcp.status()["law"].state == "ready")
        assert (await mcp.call("mcp_law_read", {})).text == "done"
        assert mcp.status()["law"].login_url == ""
        assert asked["/authorize"] == 0


async def test_call_in_need_of_a_login_fails_fast_with_the_address() -> None:
    async with Authorization() as server, McpManager([spec(server)], cache=None) as mcp:
        await mcp.wait_ready(timeout=30)
        seen = server.seen.copy()
        with pytest.raises(ServerNotReadyError) as caught:
            await mcp.resources("law")
        assert isinstance(caught.value.__cause__, AuthRequiredError)
        assert caught.value.__cause__.url == mcp.status()["law"].login_url
        assert server.seen == seen


async def test_application_opens_the_browser_once() -> None:
    opened: list[tuple[str, str]] = []
    async with Authorization() as server:

        async def open_browser(name: str, request: dict[str, Any]) -> None:
            opened.append((name, request["url"]))
            await server.open(request["url"])

        async with McpManager([spec(server)], handlers=Handlers(login=open_browser)) as mcp:
            assert await mcp.wait_ready(timeout=30)
            results = await asyncio.gather(*(mcp.call("mcp_law_read", {}) for _ in range(5)))
            assert [result.text for result in results] == ["done"] * 5
            assert (await mcp.call("mcp_law_write", {})).text == "done"
    assert [name for name, _ in opened] == ["law", "law"]


async def test_more_rights_without_a_handler_leave_the_server_usable() -> None:
    async with Authorization() as server, McpManager([spec(server)]) as mcp:
        await mcp.auth.login("law", open_url=server.open)
        result = await mcp.call("mcp_law_write", {})
        assert isinstance(result.exception, Exception)
        assert isinstance(result.exception.__cause__, AuthRequiredError)
        assert mcp.status()["law"].state == "ready"
        assert (await mcp.call("mcp_law_read", {})).text == "done"
        await server.open(result.exception.__cause__.url)
        with anyio.fail_after(30):
            while not (await mcp.call("mcp_law_write", {})).success:
                await anyio.lowlevel.checkpoint()


async def test_login_and_logout_through_the_manager() -> None:
    async with Authorization() as server, McpManager([spec(server)]) as mcp:
        await mcp.auth.login("law", open_url=server.open)
        assert mcp.status()["law"].state == "ready"
        assert await mcp.auth.logout("law")
        await until_status(mcp, lambda: mcp.status()["law"].state == "needs_auth")
        assert len(server.revoked) == 1
        assert not await mcp.auth.logout("law")


async def test_login_without_await_may_ask_from_a_plain_function() -> None:
    async with Authorization() as server:
        loop = asyncio.get_running_loop()

        def open_browser(url: str) -> None:
            asyncio.run_coroutine_threadsafe(server.open(url), loop).result(30)

        def use() -> None:
            with BlockingManager([spec(server)]) as mcp:
                mcp.auth.login("law", open_url=open_browser)
                assert mcp.status()["law"].state == "ready"
                assert mcp.auth.logout("law")

        await asyncio.to_thread(use)


async def test_lost_login_is_no_retry_loop() -> None:
    async with Authorization() as server, McpManager([spec(server)]) as mcp:
        await mcp.auth.login("law", open_url=server.open)
        server.expire_all()
        server.refresh_tokens.clear()
        assert not (await mcp.call("mcp_law_read", {})).success
        await until_status(mcp, lambda: mcp.status()["law"].state == "needs_auth")
        requests = server.seen["/mcp"]
        for _ in range(5):
            await mcp.call("mcp_law_read", {})
        assert server.seen["/mcp"] == requests


async def test_server_that_wants_no_oauth_says_so() -> None:
    async with Authorization() as server:
        async with McpManager([spec(server, auth=Auth(mode="none"))]) as mcp:
            await mcp.wait_ready(timeout=30)
            status = mcp.status()["law"]
            assert (status.state, status.login_url) == ("needs_auth", "")
        assert server.seen["/register"] == 0


async def test_login_is_configured_with_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_PASSWORD", "s3cret")
    async with Authorization(methods=["client_secret_post"], pkce=None) as server:
        config = tmp_path / "mcp.json"
        login = {"grant": "client_credentials", "client_id": "me", "client_secret": "${CLIENT_PASSWORD}"}
        login |= {"issuer": server.base}
        entry = {"type": "http", "url": server.url, "auth": {**login, "scopes": ["read"]}}
        config.write_text(json.dumps({"mcpServers": {"law": entry}}), "utf-8")
        async with McpManager.from_config(config=config, root=tmp_path, trust_project=True) as mcp:
            assert await mcp.wait_ready(timeout=30)
        form = next(form for what, form in server.requests if what == "token")
        assert form["client_secret"] == "s3cret"


WORKLOAD = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ3b3JrbG9hZCJ9.c2lnbmF0dXJl"


def forms(server: Authorization) -> list[dict[str, str]]:
    return [form for what, form in server.requests if what == "token"]


@pytest.mark.parametrize("form", ["value", "file"])
async def test_a_workload_logs_in_with_its_own_token(form: str, tmp_path: Path) -> None:
    async with Authorization(pkce=None, methods=["none"], assertions={WORKLOAD}) as server:
        file = tmp_path / "token"
        file.write_text(f"{WORKLOAD}\n", "utf-8")
        given = WORKLOAD if form == "value" else str(file)
        auth = Auth(grant="jwt_bearer", issuer=server.base, client_id="me", assertion=given, scopes=["read"])
        async with McpManager([spec(server, auth=auth)]) as mcp:
            assert await mcp.wait_ready(timeout=30)
        (sent,) = forms(server)
        assert (sent["grant_type"], sent["assertion"]) == (JWT_BEARER, WORKLOAD)
        assert (sent["client_id"], sent["scope"], sent["resource"]) == ("me", "read", server.url)
        assert (server.seen["/register"], server.seen["/authorize"]) == (0, 0)


async def test_the_identity_provider_of_a_company_vouches_for_the_user() -> None:
    async with Authorization() as provider, Authorization(methods=["client_secret_basic"]) as server:
        auth = Auth(
            grant="jwt_bearer",
            issuer=server.base,
            client_id="me",
            client_secret="s3cret-of-me",
            id_token=WORKLOAD,
            idp_token_url=f"{provider.base}/token",
            idp_client_id="me-there",
        )
        async with McpManager([spec(server, auth=auth)]) as mcp:
            assert await mcp.wait_ready(timeout=30)
        (exchanged,), (sent,) = forms(provider), forms(server)
        assert (exchanged["subject_token"], exchanged["client_id"]) == (WORKLOAD, "me-there")
        assert (exchanged["audience"], exchanged["resource"]) == (server.base, server.url)
        assert sent["assertion"] == "e30.assertion.of-the-idp"
        assert sent["authorization"].startswith("Basic ")
        assert "client_secret" not in exchanged, "the secret belongs to another server"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"assertion": None}, "needs `assertion`, or `id_token` and `idp_token_url`"),
        ({"assertion": None, "id_token": WORKLOAD}, "needs `assertion`, or `id_token` and `idp_token_url`"),
        ({"issuer": None}, "needs `issuer`"),
        ({"client_id": None}, "needs `client_id`"),
        ({"assertion": "/no/such/file"}, "`assertion` cannot be read"),
        # The SDK says it since 2.2; with older releases, we do.
        ({"issuer": "https://other.example"}, r"issuer mismatch|not the configured `issuer`"),
        ({}, r"refused the login \(HTTP 400, invalid_grant\)"),
    ],
)
async def test_a_login_with_a_token_says_what_is_missing(changes: dict[str, Any], words: str) -> None:
    async with Authorization(pkce=None, methods=["none"], assertions=set()) as server:
        known: dict[str, Any] = {"issuer": server.base, "client_id": "me", "assertion": WORKLOAD}
        auth = Auth(grant="jwt_bearer", **(known | changes))
        async with McpManager([spec(server, auth=auth)]) as mcp:
            await mcp.wait_ready(timeout=30)
            status = mcp.status()["law"]
            assert re.search(words, str(status.last_error))
            assert WORKLOAD not in str(status.last_error)
        assert len(forms(server)) == (not changes), "one attempt, and nothing sent elsewhere"
