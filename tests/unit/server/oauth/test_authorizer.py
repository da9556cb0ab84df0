from __future__ import annotations

import asyncio
import base64
import codecs
import json
import logging
import os
import stat
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jwt
import pytest
from tests.servers.authorization import Authorization
from tests.servers.http_peer import GUARD, Peer
from tests.warm import interpreter

from dragoman.errors import AuthRequiredError, ConfigError, ConnectionLostError, HttpStatusError
from dragoman.model import Auth, Http, LoginUI, Stdio
from dragoman.server.oauth import authorizer as auth_module
from dragoman.server.oauth.authorizer import Authorizer, authorizer_for, login, logout
from dragoman.server.oauth.credentials import DpopKey
from dragoman.server.oauth.token_store import TokenStore
from dragoman.server.transports.http import open_http
from dragoman.server.transports.http_client import HttpAnswer, HttpRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from dragoman.server.oauth.token_store import Login

pytestmark = pytest.mark.anyio


class Person:
    """Opens what it is told to, once it may."""

    def __init__(self, server: Authorization, *, comes: bool = True) -> None:
        self.server = server
        self.opened: list[str] = []
        self.told = asyncio.Event()
        self.may = asyncio.Event()
        if comes:
            self.may.set()

    async def __call__(self, name: str, request: dict[str, Any]) -> None:
        self.opened.append(request["url"])
        self.told.set()
        await self.may.wait()
        await self.server.open(request["url"])


def by_itself(server: Authorization, **fields: Any) -> Auth:
    """A program's own credentials."""
    known: dict[str, Any] = {"client_id": "mine", "client_secret": "s3cret", "issuer": server.base, **fields}
    return Auth(grant="client_credentials", scopes=("read",), **known)


@asynccontextmanager
async def authorized(
    server: Authorization, auth: Auth | None = None, *, handler: Any = None, name: str = "srv"
) -> AsyncIterator[Authorizer]:
    made = Authorizer(name, server.url, auth or Auth(), handler=handler)
    try:
        yield made
    finally:
        await made.close()


def peer(server: Authorization, authorizer: Authorizer) -> Peer:
    return Peer(open_http, Http(server.url), auth=authorizer)


@asynccontextmanager
async def talking(
    server: Authorization, auth: Auth | None = None, *, handler: Any = None
) -> AsyncIterator[tuple[Authorizer, Peer]]:
    async with authorized(server, auth, handler=handler) as authorizer, peer(server, authorizer) as client:
        yield authorizer, client


async def stored(server: Authorization, name: str = "srv") -> Login:
    found = await TokenStore(name, server.url).load()
    assert found is not None
    return found


async def change_stored(server: Authorization, **changes: Any) -> None:
    store = TokenStore("srv", server.url)
    async with store.locked():
        await store.save((await stored(server)).replace(**changes))


async def test_refused_request_logs_in_and_is_sent_again() -> None:
    async with Authorization() as server:
        person = Person(server)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            assert await client.text(name="read") == "done"
            assert await client.text(name="read") == "done"
        assert len(person.opened) == 1
        assert server.seen["/register"] == 1
        asked = next(query for what, query in server.requests if what == "authorize")
        assert asked["resource"] == server.url
        assert asked["code_challenge_method"] == "S256"
        assert asked["redirect_uri"].startswith("http://127.0.0.1:")
        assert (await stored(server)).issuer == server.base


async def test_stored_login_needs_no_person_in_the_next_process() -> None:
    async with Authorization() as server:
        async with authorized(server, handler=Person(server)) as first, peer(server, first) as client:
            await client.text(name="read")
        async with authorized(server) as second, peer(server, second) as client:
            assert await client.text(name="read") == "done"
        assert server.seen["/authorize"] == 1


async def test_without_a_handler_nothing_is_opened_and_the_error_has_the_address() -> None:
    async with Authorization() as server, authorized(server) as authorizer:
        needed: list[AuthRequiredError] = []
        granted = asyncio.Event()
        authorizer.on_needed = needed.append
        authorizer.on_granted = granted.set
        async with peer(server, authorizer) as client:
            first, second = await asyncio.gather(client.ask(name="read"), client.ask(name="read"))
            assert isinstance(first, AuthRequiredError)
            assert isinstance(second, AuthRequiredError)
            assert first.url == second.url == authorizer.login_url
            assert needed[0].url == first.url
            assert server.seen["/authorize"] == 0
            assert "logged in" in await server.open(first.url)
            async with asyncio.timeout(GUARD):
                await granted.wait()
            assert await client.text(name="read") == "done"


async def test_person_who_takes_long_is_waited_for_outside_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth_module, "LOGIN_WAIT_SECONDS", 0.05)
    async with Authorization() as server:
        person = Person(server, comes=False)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            granted = asyncio.Event()
            authorizer.on_granted = granted.set
            for _ in range(3):
                assert isinstance(await client.ask(name="read"), AuthRequiredError)
            assert len(person.opened) == 1
            person.may.set()
            async with asyncio.timeout(GUARD):
                await granted.wait()
            assert await client.text(name="read") == "done"


async def test_cancelled_call_does_not_end_the_login() -> None:
    async with Authorization() as server:
        person = Person(server, comes=False)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            _, message, envelope = client.begin(name="read")
            async with asyncio.timeout(GUARD):
                await person.told.wait()
            client.wire.abandon(message, envelope, "given up")
            person.may.set()
            assert await client.text(name="read") == "done"
        assert len(person.opened) == 1


async def test_token_is_renewed_before_it_expires() -> None:
    async with Authorization() as server:
        async with authorized(server, handler=Person(server)) as first, peer(server, first) as client:
            await client.text(name="read")
        before = await stored(server)
        await change_stored(server, expires_at=time.time() + 5)
        async with authorized(server) as second, peer(server, second) as client:
            texts = await asyncio.gather(*(client.text(name="read") for _ in range(8)))
        after = await stored(server)
        assert texts == ["done"] * 8
        assert after.access_token != before.access_token
        assert after.refresh_token != before.refresh_token
        assert server.seen["/token"] == 2
        assert server.burnt == 0


async def test_token_that_was_taken_back_is_renewed() -> None:
    async with Authorization() as server:
        async with talking(server, handler=Person(server)) as (_, client):
            await client.text(name="read")
            server.expire_all()
            assert await client.text(name="read") == "done"
        assert server.seen["/authorize"] == 1


async def test_refresh_token_that_is_refused_leads_to_a_person() -> None:
    async with Authorization() as server:
        person = Person(server)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            await client.text(name="read")
            server.expire_all()
            server.refresh_tokens.clear()
            assert await client.text(name="read") == "done"
        assert len(person.opened) == 2


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_authorization_server_in_trouble_costs_no_login(status: int) -> None:
    async with Authorization() as server:
        async with talking(server, handler=Person(server)) as (_, client):
            await client.text(name="read")
            kept = await stored(server)
            server.expire_all()
            server.token_status = status
            error = await client.ask(name="read")
            assert isinstance(error, ConnectionLostError)
            assert not error.may_have_run
            assert (await stored(server)).refresh_token == kept.refresh_token
            server.token_status = 200
            assert await client.text(name="read") == "done"
        assert server.seen["/authorize"] == 1


async def test_token_of_another_process_is_picked_up() -> None:
    async with Authorization() as server:
        async with talking(server, handler=Person(server)) as (_, first), talking(server) as (_, second):
            await first.text(name="read")
            await second.text(name="read")
            server.expire_all()
            await asyncio.gather(first.text(name="read"), second.text(name="read"))
        assert server.seen["/token"] == 2
        assert server.burnt == 0


async def test_login_of_another_process_ends_the_wait() -> None:
    async with Authorization() as server, authorized(server) as waiting, authorized(server) as other:
        granted = asyncio.Event()
        waiting.on_granted = granted.set
        async with peer(server, waiting) as client:
            assert isinstance(await client.ask(name="read"), AuthRequiredError)
            await other.login(LoginUI(open_url=server.open))
            async with asyncio.timeout(GUARD):
                await granted.wait()
            assert await client.text(name="read") == "done"


REFRESH = """
import asyncio, sys
from dragoman.model import Auth
from dragoman.server.oauth.authorizer import Authorizer
from dragoman.server.transports.http_client import HttpRequest

async def main():
    authorizer = Authorizer("srv", sys.argv[1], Auth())
    sys.stdin.readline()
    headers = await authorizer.headers(HttpRequest("POST", sys.argv[1], {}, b""))
    print(headers["Authorization"])
    await authorizer.close()

asyncio.run(main())
"""


async def test_two_processes_never_burn_one_refresh_token() -> None:
    async with Authorization() as server:
        async with talking(server, handler=Person(server)) as (_, client):
            await client.text(name="read")
        await change_stored(server, expires_at=time.time() - 1)
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        children = [
            await asyncio.create_subprocess_exec(interpreter(), "-c", REFRESH, server.url, env=env, **pipes)
            for _ in range(4)
        ]
        async with asyncio.timeout(50):
            answers = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
        tokens = {out.strip() for out, _ in answers}
        assert len(tokens) == 1
        assert tokens == {f"Bearer {(await stored(server)).access_token}".encode()}
        assert server.seen["/token"] == 2
        assert server.burnt == 0


async def test_more_rights_are_asked_for_once_and_together_with_the_old_ones() -> None:
    async with Authorization() as server:
        person = Person(server)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            assert await client.text(name="read") == "done"
            assert await client.text(name="write") == "done"
            assert await client.text(name="read") == "done"
        scopes = [query["scope"] for what, query in server.requests if what == "authorize"]
        assert scopes == ["read", "read write"]


async def test_rights_that_are_never_granted_are_asked_for_once() -> None:
    async with Authorization(grants="read") as server:
        person = Person(server)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            assert await client.text(name="read") == "done"
            for _ in range(4):
                error = await client.ask(name="write")
                assert isinstance(error, HttpStatusError)
                assert error.status == 403
            assert await client.text(name="read") == "done"
        assert len(person.opened) == 2


async def test_server_that_refuses_a_fresh_token_opens_no_second_browser() -> None:
    async with Authorization(refuses_all=True) as server:
        person = Person(server)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            error = await client.ask(name="read")
            assert isinstance(error, AuthRequiredError)
            assert "does not accept" in error.message
            assert not error.url
        assert len(person.opened) == 1


async def test_server_that_is_never_content_is_given_up() -> None:
    async with Authorization(refreshes=False) as server:
        person = Person(server)
        async with authorized(server, handler=person) as authorizer, peer(server, authorizer) as client:
            for _ in range(3):
                await client.text(name="read")
                server.expire_all()
            error = await client.ask(name="read")
            assert isinstance(error, AuthRequiredError)
            assert "after 3 logins" in error.message
        assert len(person.opened) == 3


async def test_token_is_bound_to_a_key_where_that_is_offered() -> None:
    async with Authorization(dpop=True, nonce="n1") as server:
        async with talking(server, handler=Person(server)) as (_, client):
            assert await client.text(name="read") == "done"
            server.nonce = "n2"
            assert await client.text(name="read") == "done"
            server.expire_all()
            assert await client.text(name="read") == "done"
        assert (await stored(server)).scheme == "DPoP"
        async with authorized(server) as later, peer(server, later) as client:
            assert await client.text(name="read") == "done"
        assert server.seen["/authorize"] == 1


@pytest.mark.parametrize("pkce", [None, [], ["plain"]])
@pytest.mark.parametrize("client_id", [None, "mine"])
async def test_authorization_server_without_pkce_is_refused_before_it_learns_anything(
    pkce: Any, client_id: str | None
) -> None:
    async with Authorization(pkce=pkce) as server:
        async with talking(server, Auth(client_id=client_id), handler=Person(server)) as (_, client):
            error = await client.ask(name="read")
        assert isinstance(error, AuthRequiredError)
        assert "PKCE" in error.message
        assert server.seen["/register"] == server.seen["/authorize"] == 0


@pytest.mark.parametrize(
    ("metadata", "resource", "word"),
    [
        ({"issuer": "https://other.example"}, {}, "issuer"),
        ({}, {"resource": "https://other.example/mcp"}, "resource"),
        ({"authorization_endpoint": "http://10.0.0.1/authorize"}, {}, "not https"),
        ({"authorization_endpoint": "https://u:p@as.example/authorize"}, {}, "user name"),
        ({"authorization_endpoint": "https://169.254.169.254/authorize"}, {}, "link address"),
        ({"token_endpoint": "https://169.254.169.254/token"}, {}, "link address"),
        ({"registration_endpoint": "https://[fd00::1]/register"}, {}, "private address"),
        ({}, {"authorization_servers": ["https://169.254.169.254"]}, "link address"),
        ({}, {"dpop_bound_access_tokens_required": True}, "requires a DPoP token"),
    ],
)
async def test_unsafe_authorization_servers_are_refused(
    metadata: dict[str, Any], resource: dict[str, Any], word: str
) -> None:
    async with (
        Authorization(metadata=metadata, resource=resource) as server,
        talking(server, handler=Person(server)) as (_, client),
    ):
        error = await client.ask(name="read")
    assert isinstance(error, AuthRequiredError)
    assert word in error.message, error.message


async def test_named_authorization_server_that_does_not_describe_itself_is_not_guessed_at() -> None:
    async with Authorization() as server:
        server.resource = {"authorization_servers": [f"{server.base}/tenant"]}
        async with talking(server, handler=Person(server)) as (_, client):
            error = await client.ask(name="read")
        assert isinstance(error, AuthRequiredError)
        assert "not guessed" in error.message
        assert server.seen["/register"] == 0


async def test_what_shells_read_is_encoded_in_the_address() -> None:
    async with Authorization() as server:
        server.metadata = {"authorization_endpoint": f"{server.base}/authorize?a=$(id);'x'"}
        async with authorized(server) as authorizer, peer(server, authorizer) as client:
            error = await client.ask(name="read")
    assert isinstance(error, AuthRequiredError)
    assert not set(error.url) & set("$();'`\" ")
    assert error.url.count("?") == 1


async def test_configured_client_is_used_and_never_registered() -> None:
    config = Auth(mode="oauth", client_id="mine", client_secret="s3cret", scopes=("write",))
    async with Authorization(methods=["client_secret_basic"]) as server:
        async with talking(server, config, handler=Person(server)) as (_, client):
            assert await client.text(name="write") == "done"
            server.expire_all()
            assert await client.text(name="write") == "done"
        asked = next(query for what, query in server.requests if what == "authorize")
        sent = [form["authorization"] for what, form in server.requests if what == "token"]
        assert asked["scope"] == "write"
        assert sent == ["Basic bWluZTpzM2NyZXQ="] * 2
        assert server.seen["/register"] == 0


async def test_configured_client_goes_to_its_own_issuer_only() -> None:
    config = Auth(client_id="mine", client_secret="s3cret", issuer="https://mine.example")
    async with Authorization(methods=["client_secret_post"]) as server:
        async with talking(server, config, handler=Person(server)) as (_, client):
            error = await client.ask(name="read")
        assert isinstance(error, AuthRequiredError)
        assert server.seen["/token"] == server.seen["/register"] == 0


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_program_logs_in_by_itself(method: str) -> None:
    async with Authorization(methods=[method], pkce=None, refreshes=False) as server:
        config = by_itself(server)
        async with authorized(server, config) as authorizer, peer(server, authorizer) as client:
            assert await client.text(name="read") == "done"
            server.expire_all()
            assert await client.text(name="read") == "done"
        form = next(form for what, form in server.requests if what == "token")
        assert ("client_secret" in form) == (method == "client_secret_post")
        assert form["authorization"].startswith("Basic ") == (method == "client_secret_basic")
        assert server.seen["/authorize"] == 0


@pytest.mark.parametrize("signs", [False, True])
async def test_program_needs_an_issuer_and_sends_its_secret_nowhere_without_one(
    signs: bool, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.write_text(DpopKey.generate().to_pem(), "utf-8")
    proof = {"client_secret": None, "private_key": str(key), "signing_algorithm": "ES256"} if signs else {}
    async with Authorization(pkce=None, refreshes=False) as server:
        async with talking(server, by_itself(server, issuer=None, **proof)) as (authorizer, client):
            error = await client.ask(name="read")
            assert isinstance(error, AuthRequiredError)
            assert "`issuer`" in error.message
            with pytest.raises(AuthRequiredError, match="`issuer`"):
                await authorizer.login(LoginUI())
        assert server.seen["/token"] == 0


@pytest.mark.parametrize("described", [True, False])
async def test_program_gives_its_secret_to_no_other_issuer_than_its_own(described: bool) -> None:
    async with Authorization(pkce=None) as own, Authorization(pkce=None) as server:
        if described:
            # Another authorization server says that it is the configured one.
            server.metadata = {"issuer": own.base}
        else:
            # The server names none, and is asked as servers of the first version were.
            server.redirects = {"/.well-known/oauth-protected-resource/mcp": "/nowhere"}
        async with talking(server, by_itself(own)) as (_, client):
            error = await client.ask(name="read")
        assert isinstance(error, AuthRequiredError)
        assert own.seen["/token"] == server.seen["/token"] == 0


async def test_program_chooses_its_issuer_among_those_that_the_server_names() -> None:
    async with Authorization(pkce=None) as evil, Authorization(pkce=None, methods=None) as server:
        server.resource = {"authorization_servers": [evil.base, server.base]}
        async with talking(server, by_itself(server)) as (_, client):
            assert await client.text(name="read") == "done"
        assert not evil.seen


async def test_refresh_token_and_secret_stay_with_the_issuer_and_client_that_they_are_of() -> None:
    async with Authorization(methods=None) as server:
        async with talking(server, Auth(client_id="old"), handler=Person(server)) as (_, client):
            await client.text(name="read")
        server.expire_all()
        server.requests.clear()
        for changed in (
            Auth(client_id="new", client_secret="s3cret-canary"),
            Auth(client_id="old", client_secret="s3cret-canary", issuer="https://new.example"),
        ):
            await change_stored(server, refresh_token="canary-refresh")
            async with talking(server, changed) as (_, client):
                assert isinstance(await client.ask(name="read"), AuthRequiredError)
        assert not [form for what, form in server.requests if what == "token"]


def _spaced(text: str) -> str:
    return " ".join(text)


ECHOES: dict[str, Callable[[str], str]] = {
    "raw": str,
    "percent": lambda text: "".join(f"%{ord(letter):02x}" for letter in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 within": lambda text: base64.b64encode(f"x{text}y".encode()).decode(),
    "base64 url": lambda text: base64.urlsafe_b64encode(f"xy{text}".encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "spaced": _spaced,
    "upper": str.upper,
    "half": lambda text: text[: len(text) // 2 + 1],
    "end": lambda text: text[len(text) // 3 :],
    "reversed": lambda text: text[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "base32": lambda text: base64.b32encode(text.encode()).decode(),
    "HTML": lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    "JSON": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "full width": lambda text: "".join(chr(ord(letter) + 0xFEE0) for letter in text),
}


@pytest.mark.parametrize("how", ECHOES)
@pytest.mark.parametrize("field", ["error", "error_description", "error_uri"])
async def test_what_a_token_endpoint_repeats_of_a_request_is_not_shown(
    how: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    form = ECHOES[how]
    repeated: list[str] = []

    def echo(sent: dict[str, str]) -> dict[str, Any]:
        secrets = [sent[name] for name in ("code", "code_verifier", "client_secret")]
        repeated.extend(form(secret) for secret in secrets)
        text = " and ".join(form(secret) for secret in secrets)
        return {"error": "invalid_grant", field: f"these are wrong: {text}\x1b]52;c;aGk=\x07"}

    config = Auth(client_id="mine", client_secret="s3cret-cl13nt-canary")
    async with (
        Authorization(methods=["client_secret_post"], echo=echo) as server,
        talking(server, config, handler=Person(server)) as (_, client),
    ):
        error = await client.ask(name="read")
    assert isinstance(error, AuthRequiredError)
    assert len(repeated) == 3
    shown = caplog.text + repr(error) + str(error) + repr(error.__cause__)
    for text in repeated:
        assert text not in shown
    assert "\x1b" not in str(error)
    assert len(str(error)) < 500


async def test_reason_of_a_token_endpoint_that_repeats_nothing_is_shown() -> None:
    said = {
        "error": "invalid_grant",
        "error_description": "The redirect_uri differs from the registered one.",
    }
    async with (
        Authorization(methods=None, echo=lambda _: said) as server,
        talking(server, handler=Person(server)) as (_, client),
    ):
        error = await client.ask(name="read")
    assert "invalid_grant: The redirect_uri differs from the registered one." in str(error)


async def test_secret_of_a_basic_login_that_is_repeated_is_not_shown() -> None:
    def echo(sent: dict[str, str]) -> dict[str, Any]:
        return {
            "error": "invalid_client",
            "error_description": f"unknown: {sent['authorization']} (p4ssw0rd)",
        }

    async with (
        Authorization(methods=["client_secret_basic"], pkce=None, echo=echo) as server,
        talking(server, by_itself(server, client_secret="p4ssw0rd")) as (_, client),
    ):
        error = await client.ask(name="read")
    assert isinstance(error, AuthRequiredError)
    assert "p4ssw0rd" not in str(error)
    assert base64.b64encode(b"mine:p4ssw0rd").decode() not in str(error)


async def test_address_of_the_metadata_can_be_configured() -> None:
    async with Authorization() as server:
        server.resource = {"authorization_servers": ["https://nowhere.example"]}
        config = Auth(metadata_url=f"{server.base}/.well-known/oauth-authorization-server")
        async with talking(server, config, handler=Person(server)) as (_, client):
            assert await client.text(name="read") == "done"


async def test_login_can_be_pasted() -> None:
    async with Authorization() as server:
        shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        tries = ["nonsense", "http://127.0.0.1:1/callback?code=x&state=wrong"]

        async def paste() -> str:
            return tries.pop(0) if tries else await server.where(await shown)

        await login("srv", Http(server.url), None, LoginUI(open_url=shown.set_result, paste=paste))
        assert (await stored(server)).access_token


async def test_handler_may_return_what_was_pasted() -> None:
    async with Authorization() as server:

        async def handler(name: str, request: dict[str, Any]) -> str:
            return await server.where(request["url"])

        config = Auth(redirect_uri="https://app.example/callback")
        async with talking(server, config, handler=handler) as (_, client):
            assert await client.text(name="read") == "done"


async def test_login_and_logout_from_outside() -> None:
    async with Authorization() as server:
        await login("srv", Http(server.url), None, LoginUI(open_url=server.open))
        token = (await stored(server)).refresh_token
        assert await logout("srv")
        assert server.revoked == [token]
        assert await TokenStore("srv", server.url).load() is None
        assert not await logout("srv")


async def test_what_is_not_ours_to_log_in_to() -> None:
    url = "https://example.com/mcp"
    assert authorizer_for("s", Stdio("x"), None) is None
    assert authorizer_for("s", Http(url), Auth(mode="none")) is None
    assert authorizer_for("s", Http(url, headers={"authorization": "x"}), None) is None
    assert authorizer_for("s", Http("https://u:p@example.com/mcp"), None) is None
    assert authorizer_for("s", Http(url, headers={"authorization": "x"}), Auth(mode="oauth")) is not None
    with pytest.raises(ConfigError):
        await login("s", Stdio("x"), None, LoginUI())


async def test_logins_are_for_their_owner_alone(home: Path) -> None:
    async with Authorization() as server:
        await login("srv", Http(server.url), None, LoginUI(open_url=server.open))
        path = TokenStore("srv", server.url).path
        assert home in path.parents
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert {stat.S_IMODE(other.stat().st_mode) for other in path.parent.iterdir()} == {0o600}


async def test_secrets_are_in_no_repr_log_or_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    config = Auth(client_id="mine", client_secret="s3cret-canary")
    shown: list[str] = []
    async with (
        Authorization(methods=["client_secret_post"]) as server,
        talking(server, config, handler=Person(server)) as (authorizer, client),
    ):
        await client.text(name="read")
        shown += [repr(authorizer), repr(await stored(server)), repr(config)]
        secrets = [*server.issued, *server.refresh_tokens]
        server.expire_all()
        server.refresh_tokens.clear()
        server.methods = None
        server.metadata = {"token_endpoint": f"{server.base}/nowhere"}
        error = await client.ask(name="read")
        shown += [repr(error), str(error), repr(error.__cause__)]
    shown.append(caplog.text)
    for secret in ["s3cret-canary", *secrets]:
        assert not [text for text in shown if secret in text]


async def test_answer_of_the_token_endpoint_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Authorization() as server:
        server.grant = lambda scope, bound="": {"access_token": "canary-token", "token_type": 5}  # type: ignore[method-assign]
        async with talking(server, handler=Person(server)) as (_, client):
            error = await client.ask(name="read")
    assert isinstance(error, AuthRequiredError)
    assert "canary-token" not in caplog.text + repr(error) + str(error) + repr(error.__cause__)


async def test_kept_file_that_cannot_be_read_is_passed_over() -> None:
    async with Authorization() as server:
        path = TokenStore("srv", server.url).path
        path.parent.mkdir(parents=True)
        for content in ("", "[]", "{", json.dumps({"current": "x", "logins": {"x": {"issuer": 5}}})):
            path.write_text(content, "utf-8")
            assert await TokenStore("srv", server.url).load() is None
        await login("srv", Http(server.url), None, LoginUI(open_url=server.open))
        assert (await stored(server)).access_token


async def test_redirect_of_a_metadata_request_is_followed_within_its_origin_only() -> None:
    path = "/.well-known/oauth-authorization-server"
    async with Authorization() as server, Authorization() as canary:
        server.redirects = {path: f"{canary.base}{path}"}
        async with talking(server, handler=Person(server)) as (_, client):
            assert isinstance(await client.ask(name="read"), AuthRequiredError)
        assert not canary.seen
        server.redirects = {"/.well-known/oauth-protected-resource/mcp": "/mcp-metadata"}
        async with talking(server, handler=Person(server)) as (_, client):
            await client.ask(name="read")
        assert server.seen["/mcp-metadata"]


async def test_redirect_of_a_token_request_takes_no_code_to_another_origin() -> None:
    async with Authorization() as server, Authorization() as canary:
        server.redirects = {"/token": f"{canary.base}/token"}
        async with talking(server, handler=Person(server)) as (_, client):
            assert isinstance(await client.ask(name="read"), AuthRequiredError)
        assert not canary.seen


async def test_refusal_of_something_on_the_way_costs_no_login() -> None:
    async with Authorization() as server, talking(server, handler=Person(server)) as (_, client):
        await client.text(name="read")
        kept = (await stored(server)).refresh_token
        server.expire_all()
        server.token_status = 404
        assert isinstance(await client.ask(name="read"), ConnectionLostError)
        assert (await stored(server)).refresh_token == kept


async def test_address_of_the_client_is_its_id_where_the_server_takes_that() -> None:
    metadata = {"client_id_metadata_document_supported": True}
    config = Auth(client_metadata_url="https://app.example/client.json")
    async with Authorization(metadata=metadata) as server:
        async with talking(server, config, handler=Person(server)) as (_, client):
            assert await client.text(name="read") == "done"
        asked = next(query for what, query in server.requests if what == "authorize")
        assert asked["client_id"] == "https://app.example/client.json"
        assert server.seen["/register"] == 0


async def test_configured_client_may_sign_with_its_key(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text(DpopKey.generate().to_pem(), "utf-8")
    config = Auth(client_id="mine", private_key=str(key), signing_algorithm="ES256")
    async with Authorization(methods=["private_key_jwt"]) as server:
        async with talking(server, config, handler=Person(server)) as (_, client):
            assert await client.text(name="read") == "done"
            server.expire_all()
            assert await client.text(name="read") == "done"
        forms = [form for what, form in server.requests if what == "token"]
        claims = [jwt.decode(form["client_assertion"], options={"verify_signature": False}) for form in forms]
        assert [(claim["iss"], claim["aud"]) for claim in claims] == [("mine", server.base)] * 2
        assert claims[0]["jti"] != claims[1]["jti"]


async def test_first_issuer_of_a_configured_client_is_insisted_upon() -> None:
    config = Auth(client_id="mine", client_secret="s3cret")
    async with Authorization(methods=None) as server, Authorization(methods=None) as evil:
        async with talking(server, config, handler=Person(server)) as (_, client):
            await client.text(name="read")
            server.expire_all()
            server.refresh_tokens.clear()
            server.resource = {"authorization_servers": [evil.base]}
            error = await client.ask(name="read")
        assert isinstance(error, AuthRequiredError)
        assert "another authorization server" in error.message
        assert evil.seen["/token"] == evil.seen["/register"] == 0


@pytest.mark.parametrize("method", ["DELETE", "GET"])
async def test_refused_logout_or_optional_stream_asks_no_user(method: str) -> None:
    async with Authorization() as server, authorized(server, handler=Person(server)) as authorizer:
        request = HttpRequest(method, server.url, {}, b"")
        assert not await authorizer.on_challenge(HttpAnswer(401, {}, b"", request))
        assert not authorizer.login_url


async def test_headers_of_the_application_are_left_alone() -> None:
    async with Authorization() as server, authorized(server, handler=Person(server)) as authorizer:
        request = HttpRequest("POST", server.url, {"Authorization": "Bearer own"}, b"")
        assert await authorizer.headers(request) == {}
        assert not await authorizer.on_challenge(HttpAnswer(401, {}, b"", request))
        assert server.seen["/register"] == 0


async def test_port_of_the_registration_is_used_again_and_else_the_client_registers_anew() -> None:
    async with Authorization(refreshes=False) as server:
        for _ in range(2):
            async with talking(server, handler=Person(server)) as (_, client):
                await client.text(name="read")
                server.expire_all()
        assert server.seen["/register"] == 1
        kept = urlsplit((await stored(server)).client["redirect_uris"][0])  # type: ignore[index]
        async with (
            await asyncio.start_server(lambda *_: None, "127.0.0.1", kept.port),
            talking(server, handler=Person(server)) as (_, client),
        ):
            assert await client.text(name="read") == "done"
        assert server.seen["/register"] == 2
