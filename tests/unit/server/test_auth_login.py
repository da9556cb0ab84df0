"""`Authorizer.login` as a session uses it: a user asks for a login by name, and may give up."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.servers.authorization import Authorization
from tests.servers.http_peer import GUARD, Peer

from dragoman.errors import AuthRequiredError
from dragoman.model import Auth, Http, LoginUI, Sse
from dragoman.server.oauth.authorizer import Authorizer, authorizer_for
from dragoman.server.oauth.token_store import TokenStore, canonical
from dragoman.server.transports.http import open_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def authorized(server: Authorization, *, handler: Any = None) -> AsyncIterator[Authorizer]:
    made = Authorizer("srv", server.url, Auth(), handler=handler)
    try:
        yield made
    finally:
        await made.close()


class Shown:
    """Takes the address, and does nothing about it."""

    def __init__(self) -> None:
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def __call__(self, url: str) -> None:
        self.url.set_result(url)


async def test_handler_is_not_told_of_a_login_that_its_caller_shows() -> None:
    told: list[str] = []
    async with (
        Authorization() as server,
        authorized(server, handler=lambda name, _: told.append(name)) as authorizer,
    ):
        await authorizer.login(LoginUI(open_url=server.open))
        assert told == []


async def test_handler_is_told_where_no_caller_shows_the_login() -> None:
    async with Authorization() as server:

        async def handler(_: str, request: dict[str, Any]) -> None:
            await server.open(request["url"])

        async with authorized(server, handler=handler) as authorizer:
            await authorizer.login(LoginUI())
            assert await TokenStore("srv", server.url).load() is not None


async def test_who_is_cancelled_is_asked_no_more_and_the_login_ends() -> None:
    async with Authorization() as server, authorized(server) as authorizer:
        shown, asked, left = Shown(), asyncio.Event(), asyncio.Event()

        async def paste() -> str:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
            raise AssertionError

        login = asyncio.create_task(authorizer.login(LoginUI(open_url=shown, paste=paste)))
        async with asyncio.timeout(GUARD):
            await asked.wait()
        login.cancel()
        async with asyncio.timeout(GUARD):
            await asyncio.wait({login})
            await left.wait()
        assert login.cancelled()
        assert not authorizer.login_url
        # The page is closed: the address leads nowhere.
        with pytest.raises(OSError, match=r"."):
            await server.open(await shown.url)


async def test_login_that_a_request_wants_outlives_who_gave_it_up() -> None:
    async with Authorization() as server, authorized(server) as authorizer:
        granted = asyncio.Event()
        authorizer.on_granted = granted.set
        async with Peer(open_http, Http(server.url), auth=authorizer) as client:
            error = await client.ask(name="read")
            assert isinstance(error, AuthRequiredError)
            shown = Shown()
            login = asyncio.create_task(authorizer.login(LoginUI(open_url=shown)))
            async with asyncio.timeout(GUARD):
                assert await shown.url == error.url
            login.cancel()
            await asyncio.wait({login})
            await server.open(error.url)
            async with asyncio.timeout(GUARD):
                await granted.wait()
            assert await client.text(name="read") == "done"


class GaveUpError(Exception):
    """What an application raises where its person does not want to paste."""


async def test_what_paste_raises_ends_the_login_and_is_raised() -> None:
    async with Authorization() as server, authorized(server) as authorizer:

        async def paste() -> str:
            raise GaveUpError

        with pytest.raises(GaveUpError):
            await authorizer.login(LoginUI(open_url=lambda _: None, paste=paste))
        assert not authorizer.login_url
        await authorizer.login(LoginUI(open_url=server.open))


async def test_reason_is_told_before_it_is_asked_again_and_the_last_one_is_the_error() -> None:
    async with Authorization() as server, authorized(server) as authorizer:
        refused: list[str] = []
        tries = ["nonsense", "http://127.0.0.1:1/callback?code=x&state=wrong", "?state=wrong&code=y"]

        async def paste() -> str:
            return tries.pop(0)

        with pytest.raises(AuthRequiredError) as caught:
            await authorizer.login(LoginUI(open_url=lambda _: None, paste=paste, on_refused=refused.append))
        assert refused == [
            "it is not the address at the end of a login",
            "its `state` belongs to another login",
        ]
        assert refused[1] in caught.value.message
        assert "dragoman login" not in caught.value.hint


async def test_login_that_is_ended_from_elsewhere_is_an_error_and_no_cancellation() -> None:
    async with Authorization() as server, authorized(server) as authorizer:
        shown = Shown()
        login = asyncio.create_task(authorizer.login(LoginUI(open_url=shown)))
        async with asyncio.timeout(GUARD):
            await shown.url
            await authorizer.close()
            with pytest.raises(AuthRequiredError, match="was cancelled"):
                await login


async def test_two_who_ask_for_one_login_are_both_done_with_it() -> None:
    async with Authorization() as server, authorized(server) as authorizer:
        shown = Shown()
        first = asyncio.create_task(authorizer.login(LoginUI(open_url=shown)))
        async with asyncio.timeout(GUARD):
            await shown.url
            await asyncio.gather(first, authorizer.login(LoginUI(open_url=server.open)))
        assert server.seen["/authorize"] == server.seen["/register"] == 1


async def test_server_that_wants_ever_more_rights_is_given_up() -> None:
    opened: list[str] = []
    async with Authorization(demands=[f"right-{number}" for number in range(50)], grants="read") as server:

        async def handler(_: str, request: dict[str, Any]) -> None:
            opened.append(request["url"])
            await server.open(request["url"])

        async with (
            authorized(server, handler=handler) as authorizer,
            Peer(open_http, Http(server.url), auth=authorizer) as client,
        ):
            for _ in range(10):
                assert isinstance(await client.ask(name="write"), Exception)
            assert await client.text(name="read") == "done"
    assert len(opened) == 3


async def test_credentials_that_are_taken_back_make_the_server_need_a_login() -> None:
    async with Authorization(methods=None, pkce=None, refreshes=False, expires_in=0) as server:
        config = Auth(
            grant="client_credentials",
            client_id="mine",
            client_secret="s3cret",
            issuer=server.base,
            scopes=("read",),
        )
        authorizer = Authorizer("srv", server.url, config)
        needed: list[AuthRequiredError] = []
        authorizer.on_needed = needed.append
        async with Peer(open_http, Http(server.url), auth=authorizer) as client:
            assert await client.text(name="read") == "done"
            server.token_status = 401
            assert isinstance(await client.ask(name="read"), AuthRequiredError)
        await authorizer.close()
    assert len(needed) == 1
    assert "auth.client_id" in needed[0].hint


async def test_legacy_server_is_asked_by_a_get_and_its_stream_is_not_read() -> None:
    async with Authorization(legacy=True) as server:
        authorizer = authorizer_for("srv", Sse(server.url), None)
        assert authorizer is not None
        try:
            await authorizer.login(LoginUI(open_url=server.open))
            # It answers with a stream that has no end once the address needs no token.
            server.scopes = ""
            await authorizer.login(LoginUI(open_url=server.open))
        finally:
            await authorizer.close()
        assert server.seen["/sse"] == 2


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://[::1]:8080/mcp?x=1", "http://[::1]:8080/mcp"),
        ("https://u:p@[2001:DB8::1]/mcp#f", "https://[2001:db8::1]/mcp"),
        ("http://host:99999/mcp", ""),
        ("http://[", ""),
    ],
)
def test_address_that_a_login_belongs_to_stays_an_address(url: str, kept: str) -> None:
    assert canonical(url) == kept


async def test_login_works_at_an_address_of_the_new_kind() -> None:
    async with Authorization(host="::1") as server:
        assert "[::1]" in server.url
        async with authorized(server) as authorizer:
            await authorizer.login(LoginUI(open_url=server.open))
        assert await TokenStore("srv", server.url).load() is not None
