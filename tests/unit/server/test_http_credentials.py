"""Where credentials go: the proxy's to the proxy, the server's to its own origin, and none over plain http."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from multidict import CIMultiDict
from tests.servers.authorization import Authorization
from tests.servers.certificates import server_context
from tests.servers.forward_proxy import ForwardProxy
from tests.servers.http_faults import FaultServer
from tests.servers.http_peer import GUARD, Peer
from tests.stopwatch import STOPWATCH
from yarl import URL

from dragoman import McpManager, ServerSpec
from dragoman.errors import AuthRequiredError, ConnectError, HttpStatusError, ServerError
from dragoman.model import Auth, Http, LoginUI, Sse, Tls
from dragoman.server.oauth.authorizer import Authorizer
from dragoman.server.oauth.safe_fetch import Fetcher, challenge_fields
from dragoman.server.protocol.context import with_headers
from dragoman.server.transports.http import open_http
from dragoman.server.transports.http_client import (
    HttpAnswer,
    HttpRequest,
    check_exposed,
    proxy_for,
    same_origin,
)
from dragoman.server.transports.http_response import retry_after
from dragoman.server.transports.sse import open_sse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

PASSWORD = "Basic bWU6cHJveHktY2FuYXJ5"
USER = "me:proxy-canary"
PLAIN = "http://mcp.example/healthy"


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as server:
        yield server


def port_of(server: FaultServer) -> int:
    port = URL(server.url("")).port
    assert port is not None
    return port


def use_proxy(monkeypatch: pytest.MonkeyPatch, proxy: ForwardProxy) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy.url(USER))
    monkeypatch.delenv("NO_PROXY", raising=False)


# The proxy's password


@pytest.mark.parametrize("secure", [False, True])
async def test_password_of_a_proxy_reaches_the_proxy_with_every_request_and_never_the_server(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, ca = server_context(tmp_path, "mcp.example")
    async with FaultServer(context if secure else None) as server:
        ports = {"mcp.example:443" if secure else "mcp.example:80": port_of(server)}
        async with ForwardProxy(ports, password=PASSWORD) as proxy:
            use_proxy(monkeypatch, proxy)
            http = Http(f"{'https' if secure else 'http'}://mcp.example/healthy", tls=Tls(ca=ca))
            async with Peer(open_http, http) as client:
                for _ in range(3):
                    assert await client.text() == "ok"
            assert {one.headers["proxy-authorization"] for one in proxy.passed} == {PASSWORD}
            assert all((one.method == "CONNECT") == secure for one in proxy.passed)
    assert len(server.requests) == 3
    assert not [one for one in server.requests if "proxy-authorization" in one.headers]


async def test_server_behind_a_proxy_that_sends_us_to_https_learns_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _ = server_context(tmp_path, "mcp.example")
    async with FaultServer() as server, FaultServer(context) as secure:
        ports = {"mcp.example:80": port_of(server), "mcp.example:443": port_of(secure)}
        async with ForwardProxy(ports, password=PASSWORD) as proxy:
            use_proxy(monkeypatch, proxy)
            server.elsewhere = "https://mcp.example/healthy"
            http = Http("http://mcp.example/off-origin", tls=Tls(verify=False))
            async with Peer(open_http, http) as client:
                error = await client.ask()
            assert isinstance(error, HttpStatusError)
            assert "configuration" in error.hint
            assert [one.method for one in proxy.passed] == ["POST"]
    assert secure.connections == 0


async def test_configured_header_for_proxies_reaches_no_server(server: FaultServer) -> None:
    headers = {"Proxy-Authorization": "Basic canary", "X-Team": "blue"}
    http = Http(server.url("healthy"), headers=headers)
    async with Peer(open_http, http, header_provider=lambda _: headers) as client:
        await client.shake_hands()
        with with_headers({"proxy-authorization": "Basic canary"}):
            await client.text()
    assert server.requests
    assert not [one for one in server.requests if "proxy-authorization" in one.headers]


async def test_probe_of_a_login_brings_the_proxy_its_password(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ForwardProxy({"mcp.example:80": port_of(server)}, password=PASSWORD) as proxy:
        use_proxy(monkeypatch, proxy)
        fetched = await Fetcher("srv").fetch("POST", PLAIN, body=b"{}", configured=True)
    assert fetched.status != 407
    assert "proxy-authorization" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("url", "no_proxy", "used"),
    [
        ("http://a.example/", "", True),
        ("http://a.example/", "a.example", False),
        ("http://a.example:8080/", "a.example:8080", False),
        ("http://a.example:8081/", "a.example:8080", True),
        ("http://b.a.example/", ".a.example", False),
        ("http://localhost:1/", "", False),
        ("http://x.localhost:1/", "", False),
        ("http://127.9.9.9/", "", False),
        ("http://localhost.example/", "", True),
    ],
)
def test_proxy_is_used_for_what_the_environment_says(
    url: str, no_proxy: str, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://me:pw@proxy.example:1")
    monkeypatch.setenv("no_proxy", no_proxy)
    proxy, told = proxy_for(URL(url), "srv")
    assert (proxy is not None, told is not None) == (used, used)
    assert proxy is None or proxy.user is None


# One origin


@pytest.mark.parametrize(
    "other",
    [
        "https://a.example/x",
        "http://a.example:8080/x",
        "http://b.example/x",
        "http://a.example.evil.example/x",
        "https://a.example:80/x",
    ],
)
def test_another_scheme_host_or_port_is_another_server(other: str) -> None:
    here = URL("http://a.example/x")
    assert same_origin(here, URL("http://A.example:80/y"))
    assert not same_origin(here, URL(other))


async def test_redirect_to_another_port_of_the_host_takes_nothing_along(server: FaultServer) -> None:
    async with FaultServer() as other:
        server.elsewhere = other.url("healthy")
        http = Http(server.url("off-origin"), headers={"Authorization": "Bearer canary"})
        async with Peer(open_http, http) as client:
            assert isinstance(await client.ask(), HttpStatusError)
        assert other.connections == 0


# Plain http

CREDENTIALS: list[tuple[str, dict[str, str]]] = [
    (PLAIN, {"Authorization": "Bearer abc"}),
    (PLAIN, {"authorization": "x"}),
    (PLAIN, {"Cookie": "a=b"}),
    (PLAIN, {"X-Api-Key": "1"}),
    (PLAIN, {"X-Auth": "1234"}),
    (PLAIN, {"PRIVATE-TOKEN": "abcd"}),
    (PLAIN, {"Ocp-Apim-Subscription-Key": "abcd"}),
    (PLAIN, {"X-Something": "Bearer abcdef"}),
    (PLAIN, {"X-Team": "correct-horse-battery"}),
    (PLAIN, {"User-Agent": "sk-abcdefghijklmnopqrstuv"}),
    ("http://user:pw@mcp.example/healthy", {}),
    ("http://mcp.example/healthy?api_key=abc", {}),
    ("http://mcp.example/healthy?access_token=abc", {}),
    ("http://mcp.example/ghp_abcdefghijklmnopqrstuvwxyz/mcp", {}),
    ("http://localhost.evil.example/", {"Authorization": "Bearer abc"}),
    ("http://0.0.0.0/", {"Authorization": "Bearer abc"}),
    ("http://2130706433/", {"Authorization": "Bearer abc"}),
    ("http://0x7f.1/", {"Authorization": "Bearer abc"}),
    ("http://127.1/", {"Authorization": "Bearer abc"}),
    ("http://10.0.0.1/", {"Authorization": "Bearer abc"}),
    ("http://[fe80::1]/", {"Authorization": "Bearer abc"}),
]


@pytest.mark.parametrize(("url", "headers"), CREDENTIALS)
@pytest.mark.parametrize("opener", [open_http, open_sse])
async def test_credential_of_an_entry_is_not_sent_over_plain_http(
    opener: Any, url: str, headers: dict[str, str]
) -> None:
    kind = Http if opener is open_http else Sse
    with pytest.raises(ConnectError, match="plain http") as caught:
        async with Peer(opener, kind(url, headers=headers)):
            pass
    assert "`allow_http = true`" in caught.value.hint
    for value in headers.values():
        assert value not in str(caught.value) or len(value) < 3


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://127.0.0.1/", {"Authorization": "Bearer abc"}),
        ("http://[::1]/", {"Authorization": "Bearer abc"}),
        ("http://localhost:8080/?token=abc", {"Cookie": "a=b"}),
        ("http://api.localhost/", {"X-Api-Key": "abc"}),
        ("https://mcp.example/?token=abc", {"Authorization": "Bearer abc"}),
        (PLAIN, {"Accept-Language": "en", "User-Agent": "test/1", "X-Team": "blue"}),
        ("http://mcp.example/mcp?version=2&lang=en", {}),
    ],
)
def test_what_others_cannot_read_or_holds_no_credential_may_go(url: str, headers: dict[str, str]) -> None:
    check_exposed(URL(url), headers, "srv")


async def test_credential_goes_over_plain_http_where_the_entry_allows_it(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ForwardProxy({"mcp.example:80": port_of(server)}, password=PASSWORD) as proxy:
        use_proxy(monkeypatch, proxy)
        http = Http(PLAIN, headers={"Authorization": "Bearer canary"}, allow_http=True)
        async with Peer(open_http, http) as client:
            assert await client.text() == "ok"
    assert server.requests[0].headers["authorization"] == "Bearer canary"


async def test_credentials_of_the_application_and_of_a_call_follow_the_same_rule(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = {"Authorization": "Bearer canary"}
    async with ForwardProxy({"mcp.example:80": port_of(server)}, password=PASSWORD) as proxy:
        use_proxy(monkeypatch, proxy)
        async with Peer(open_http, Http(PLAIN), header_provider=lambda _: token) as client:
            error = await client.ask()
            assert isinstance(error, ServerError)
            assert "allow_http" in error.hint
        async with Peer(open_http, Http(PLAIN)) as client:
            with with_headers(token):
                error = await client.ask()
            assert isinstance(error, ServerError)
            assert await client.text() == "ok"
        assert len(proxy.passed) == 1
    assert len(server.requests) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_credential_for_this_machine_goes_through_no_proxy(
    host: str, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ForwardProxy({}) as proxy:
        use_proxy(monkeypatch, proxy)
        monkeypatch.setenv("ALL_PROXY", proxy.url(USER))
        http = Http(f"http://{host}:{port_of(server)}/healthy", headers={"Authorization": "Bearer canary-1"})
        async with McpManager([ServerSpec("srv", http)], cache=False) as mcp:
            await mcp.wait_ready(timeout=GUARD)
        assert proxy.passed == []


async def test_name_for_this_machine_that_leads_elsewhere_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import asyncio
    import socket

    loop = asyncio.get_running_loop()

    async def elsewhere(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]

    monkeypatch.setattr(loop, "getaddrinfo", elsewhere)
    http = Http("http://api.localhost:1/", headers={"Authorization": "Bearer canary"})
    async with Peer(open_http, http) as client:
        error = await client.ask()
    assert isinstance(error, ServerError)
    assert "cannot connect" in error.message


async def test_token_of_a_login_never_goes_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Authorization() as server:
        port = URL(server.base).port or 0
        async with ForwardProxy({"law.example:80": port}, password=PASSWORD) as proxy:
            use_proxy(monkeypatch, proxy)
            url = "http://law.example/mcp"
            for auth in (Auth(), Auth(mode="oauth")):
                authorizer = Authorizer("law", url, auth)
                async with Peer(open_http, Http(url, allow_http=True), auth=authorizer) as client:
                    error = await client.ask(name="read")
                assert isinstance(error, AuthRequiredError)
                assert "plain http" in error.message
                with pytest.raises(AuthRequiredError, match="plain http"):
                    await authorizer.login(LoginUI(open_url=server.open))
                await authorizer.close()
        assert set(server.seen) == {"/mcp"}


async def test_token_that_was_kept_is_not_sent_over_plain_http_either() -> None:
    from dragoman.server.oauth.token_store import Login, TokenStore

    url = "http://law.example/mcp"
    store = TokenStore("law", url)
    async with store.locked():
        await store.save(Login(issuer="https://as.example", access_token="canary-token"))
    authorizer = Authorizer("law", url, Auth())
    assert await authorizer.headers(HttpRequest("POST", url, {}, b"")) == {}
    await authorizer.close()


# What a refusal says

ADVERSARIAL = [
    "a" * 8000,
    "a " * 4000,
    'a="' * 2600,
    '"' * 8000,
    "=" * 8000,
    " " * 8000,
    "a" + " " * 7990 + "=",
    'a="\\' * 2000,
    "a = " * 2000,
    "a_" * 4000 + "\\",
    ",a=b" * 2000,
]


@pytest.mark.parametrize("value", ADVERSARIAL, ids=range(len(ADVERSARIAL)))
def test_sixty_long_challenges_are_read_at_once(value: str) -> None:
    headers = CIMultiDict([("WWW-Authenticate", value)] * 60)
    answer = HttpAnswer(401, headers, b"", HttpRequest("POST", "", {}, b""))
    assert STOPWATCH.excess(lambda: (challenge_fields(answer), retry_after(value)), most=32)[1] == ""
    found = challenge_fields(answer)
    assert all(len(text) <= 4096 for text in found.values())


def test_parameters_of_challenges_are_read_in_every_form() -> None:
    headers = CIMultiDict(
        [
            ("WWW-Authenticate", 'Basic realm="a, scope=no", charset="UTF-8"'),
            (
                "www-authenticate",
                'Bearer error = invalid_token,scope="read write", resource_metadata=https://a/?b=c',
            ),
            ("WWW-Authenticate", 'DPoP error="use_dpop_nonce", odd="a\\"b", last="never ends'),
        ]
    )
    answer = HttpAnswer(401, headers, b"", HttpRequest("POST", "", {}, b""))
    assert challenge_fields(answer) == {
        "realm": "a, scope=no",
        "charset": "UTF-8",
        "error": "invalid_token",
        "scope": "read write",
        "resource_metadata": "https://a/?b=c",
    }


async def test_refusal_with_sixty_long_challenges_does_not_stop_the_loop() -> None:
    async def refuse(_: web.BaseRequest) -> web.Response:
        headers = CIMultiDict([("WWW-Authenticate", f"Bearer {'a' * 8000}")] * 60)
        return web.Response(status=401, headers=headers)

    runner = web.ServerRunner(web.Server(refuse))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    authorizer = Authorizer("law", url, Auth())
    try:
        async with Peer(open_http, Http(url), auth=authorizer) as client:
            error = await client.ask()
        assert isinstance(error, ServerError)
    finally:
        await authorizer.close()
        await runner.cleanup()
