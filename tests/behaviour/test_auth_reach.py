"""Where a server can send us about a login: nowhere that it does not lie itself, by any address it can write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.servers.authorization import Authorization
from tests.servers.certificates import server_context
from tests.servers.forward_proxy import ForwardProxy
from tests.servers.http_peer import Peer
from tests.unit.server.oauth.test_safe_fetch import ADDRESSES, canary, lookup

from dragoman.errors import AuthRequiredError, ConnectionLostError
from dragoman.model import Auth, Http, LoginUI, Tls
from dragoman.server.oauth.authorizer import Authorizer
from dragoman.server.transports.http import open_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio
ELSEWHERE = [one for one in ADDRESSES if "{port}" not in one and one.startswith("https://")]
"""Addresses of private networks, of links, and of what is neither."""
SERVER = "https://law.example/mcp"
"""A server whose address says nothing about where it lies, and that is reached through a proxy."""


class Law:
    """That server: it refuses, and names an address."""

    def __init__(self, ca: str) -> None:
        self.ca = ca
        self.named = ""
        self.asked = 0
        self.proxy = ForwardProxy({})

    async def answer(self, _: web.BaseRequest) -> web.Response:
        self.asked += 1
        challenge = f'Bearer resource_metadata="{self.named}"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})


@pytest.fixture
async def law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Law]:
    context, ca = server_context(tmp_path, "law.example")
    made = Law(ca)
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    async with ForwardProxy({"law.example:443": runner.addresses[0][1]}) as made.proxy:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, made.proxy.url())
        yield made
    await runner.cleanup()


async def refusal(url: str, *, resolve: Any = None, tls: Tls | None = None) -> BaseException:
    """Ask a server that wants a login; return how that ends."""
    authorizer = Authorizer("law", url, Auth())
    if resolve is not None:
        authorizer._fetcher.resolve = resolve
    try:
        async with Peer(open_http, Http(url, tls=tls), auth=authorizer) as client:
            outcome = await client.ask(name="read")
            assert isinstance(outcome, BaseException), outcome
            return outcome
    finally:
        await authorizer.close()


def sendable(address: str) -> bool:
    """Return whether a header can hold an address."""
    return address.isascii() and address.isprintable() and '"' not in address and "\\" not in address


@pytest.mark.timeout(120)
async def test_no_address_in_a_challenge_leads_to_this_machine(law: Law) -> None:
    asked = 0
    async with canary() as (port, hits):
        for address in filter(sendable, ADDRESSES):
            law.named = address.format(port=port)
            outcome = await refusal(SERVER, resolve=lookup, tls=Tls(ca=law.ca))
            assert isinstance(outcome, AuthRequiredError | ConnectionLostError), (address, outcome)
            asked += 1
        assert not hits
    assert asked >= 60
    assert len(ELSEWHERE) >= 15
    assert law.asked >= asked
    assert {one.target for one in law.proxy.passed} == {"law.example:443"}


@pytest.mark.parametrize(
    "place", ["authorization_servers", "authorization_endpoint", "registration_endpoint"]
)
async def test_server_on_this_machine_leads_to_no_other_network(place: str) -> None:
    for address in ELSEWHERE:
        async with Authorization() as server:
            if place == "authorization_servers":
                server.resource = {place: [address]}
            else:
                server.metadata = {place: address}
            outcome = await refusal(server.url)
            assert isinstance(outcome, AuthRequiredError), (address, outcome)
            assert not outcome.url, (address, outcome.url)
            assert server.seen["/register"] == 0 or place == "authorization_endpoint"


async def test_code_of_a_login_goes_to_no_other_network() -> None:
    for address in ELSEWHERE:
        async with Authorization(metadata={"token_endpoint": address}) as server:
            authorizer = Authorizer("law", server.url, Auth())
            with pytest.raises(AuthRequiredError):
                await authorizer.login(LoginUI(open_url=server.open))
            assert server.seen["/authorize"] == 1


async def test_name_that_is_rebound_after_the_check_is_not_followed() -> None:
    answers = iter([["127.0.0.1"]])

    async def once(host: str, port: int) -> list[str]:
        return next(answers, ["169.254.169.254"])

    async with Authorization() as server:
        named = f"http://as.example:{server.base.rpartition(':')[2]}"
        server.resource = {"authorization_servers": [named]}
        server.metadata = {"issuer": named, "registration_endpoint": f"{named}/register"}
        outcome = await refusal(server.url, resolve=once)
        assert isinstance(outcome, AuthRequiredError)
        assert "as.example" in outcome.message
        assert server.seen["/.well-known/oauth-authorization-server"] == 1
        assert server.seen["/register"] == 0
