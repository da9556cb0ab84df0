"""Access tokens against the key set of a real HTTP server: which keys count, and what is refused at once."""

from __future__ import annotations

import base64
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

from dragoman.gateway.app import Guard
from dragoman.gateway.auth import MAX_TOKEN_CHARS, AccessToken, JwtVerifier, Refused, UserTokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dragoman.gateway.auth import Verifier

AUDIENCE = "http://127.0.0.1/mcp"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
SECRET = b"everyone can read this in the key set"


def public(key: Any, **more: Any) -> dict[str, Any]:
    """Return a key of a set."""
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: RSAAlgorithm,
        ec.EllipticCurvePrivateKey: ECAlgorithm,
        ed25519.Ed25519PrivateKey: OKPAlgorithm,
    }
    algorithm = next(found for kind, found in kinds.items() if isinstance(key, kind))
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


class Issuer:
    """An authorization server."""

    def __init__(self, *keys: Any, **document: Any) -> None:
        self.document: Any = {"keys": list(keys), **document}
        self.metadata: dict[str, Any] = {}
        self.url = ""
        self.fetched: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[JwtVerifier]:
        async def answer(request: web.Request) -> web.Response:
            self.fetched.append(request.path)
            if request.path == "/jwks":
                return web.json_response(self.document)
            return web.json_response({"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.metadata})

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield JwtVerifier(self.url, audience=AUDIENCE)
        finally:
            await runner.cleanup()

    def token(self, key: Any, algorithm: str, **header: Any) -> str:
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 300}
        return jwt.encode(claims, key, algorithm=algorithm, headers=header)


async def test_a_key_set_that_arrives_in_several_parts_is_read_to_its_end() -> None:
    issuer = Issuer(public(RSA, kid="k"), padding="x" * 700_000)
    async with issuer.running() as verifier:
        assert (await verifier.verify(issuer.token(RSA, "RS256", kid="k"))).subject == "ann"


async def test_a_key_set_without_end_is_not_read() -> None:
    issuer = Issuer(public(RSA, kid="k"), padding="x" * 1_100_000)
    async with issuer.running() as verifier:
        with pytest.raises(Refused, match="is not known"):
            await verifier.verify(issuer.token(RSA, "RS256", kid="k"))


@pytest.mark.parametrize(
    "address", ["http://issuer.example/jwks", "http://[", "ftp://127.0.0.1/jwks", "/jwks"]
)
async def test_keys_are_not_fetched_from_where_anyone_can_answer(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer(public(RSA, kid="k"))
    issuer.metadata = {"jwks_uri": address}
    async with issuer.running() as verifier:
        with pytest.raises(Refused, match="is not known"):
            await verifier.verify(issuer.token(RSA, "RS256", kid="k"))
        assert "/jwks" not in issuer.fetched
    assert "not an https address" in caplog.text


def oct_token(issuer: Issuer, algorithm: str) -> str:
    """Return a token that everyone who reads the key set can make, which says that it is signed otherwise."""
    honest = issuer.token(SECRET, "HS256", kid="k")
    header = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "k"}).encode()).rstrip(b"=")
    signed = header + b"." + honest.split(".")[1].encode()
    signature = HMACAlgorithm(HMACAlgorithm.SHA256).sign(signed, SECRET)
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256", "EdDSA", "none"])
@pytest.mark.parametrize("declared", [{}, {"alg": "HS256"}, {"alg": "RS256"}])
async def test_a_secret_in_a_key_set_signs_nothing(algorithm: str, declared: dict[str, str]) -> None:
    secret = {"kty": "oct", "kid": "k", "k": base64.urlsafe_b64encode(SECRET).decode(), **declared}
    issuer = Issuer(secret, public(RSA, kid="other"))
    async with issuer.running() as verifier:
        with pytest.raises(Refused):
            await verifier.verify(oct_token(issuer, algorithm))
        # The other keys of the set still count.
        assert await verifier.verify(issuer.token(RSA, "RS256", kid="other"))


@pytest.mark.parametrize(
    ("key", "declared", "algorithm", "accepted"),
    [
        (RSA, {}, "RS256", True),
        (RSA, {}, "PS512", True),
        (RSA, {"alg": "RS256"}, "RS256", True),
        (RSA, {"alg": "RS256"}, "RS512", False),
        (RSA, {"alg": "RS512"}, "RS256", False),
        (RSA, {"alg": "HS256"}, "RS256", False),
        (RSA, {"use": "enc"}, "RS256", False),
        (RSA, {"use": "sig"}, "RS256", True),
        (EC, {}, "ES256", True),
        (EC, {"alg": "ES384"}, "ES256", False),
        (ED, {}, "EdDSA", True),
        (ED, {"alg": "EdDSA"}, "EdDSA", True),
    ],
)
async def test_a_key_checks_only_the_signatures_that_it_is_for(
    key: Any, declared: dict[str, str], algorithm: str, accepted: bool
) -> None:
    issuer = Issuer(public(key, kid="k", **declared), {"kty": "RSA"}, "junk", {"kty": ["RSA"], "crv": {}})
    async with issuer.running() as verifier:
        token = issuer.token(key, algorithm, kid="k")
        if accepted:
            assert await verifier.verify(token)
        else:
            with pytest.raises(Refused):
                await verifier.verify(token)


async def test_a_key_set_with_private_parts_still_checks_signatures() -> None:
    leaked = json.loads(cast("str", RSAAlgorithm.to_jwk(RSA)))
    issuer = Issuer({**leaked, "kid": "k"})
    async with issuer.running() as verifier:
        assert await verifier.verify(issuer.token(RSA, "RS256", kid="k"))


@pytest.mark.parametrize(
    "document", [[], {"keys": 1}, {"keys": []}, {"keys": {"kty": "oct"}}, {}, {"keys": [None]}]
)
async def test_a_key_set_without_a_key_makes_no_token_valid(document: object) -> None:
    issuer = Issuer()
    issuer.document = document
    async with issuer.running() as verifier:
        with pytest.raises(Refused, match="is not known"):
            await verifier.verify(issuer.token(RSA, "RS256", kid="k"))


@pytest.mark.parametrize(
    "header", [b"[" * 9000, b'{"alg":"RS256","kid":1}', b"null", b'{"alg":["RS256"],"kid":"k"}', b"\xff"]
)
async def test_a_token_that_cannot_be_read_is_refused(header: bytes) -> None:
    issuer = Issuer(public(RSA, kid="k"))
    async with issuer.running() as verifier:
        with pytest.raises(Refused):
            await verifier.verify(f"{base64.urlsafe_b64encode(header).decode().rstrip('=')}.e30.e30")


async def test_a_token_of_more_than_16_kb_is_refused_before_any_work() -> None:
    issuer = Issuer(public(RSA, kid="k"))
    async with issuer.running() as verifier:
        long = "x" * (MAX_TOKEN_CHARS + 1)
        # Not even one that is known: the limit comes first.
        verifiers: list[Verifier] = [verifier, UserTokens({long: "ann"})]
        for one in verifiers:
            guard = Guard(one, hosts=(), origins=())
            with pytest.raises(Refused, match="too long"):
                await guard.user({"authorization": f"Bearer {long}"})
        assert issuer.fetched == []
    short = long[:-100]
    guard = Guard(UserTokens({short: "token"}), hosts=(), origins=())
    user = await guard.user({"authorization": f"Bearer {short}"})
    assert user is not None
    assert user.principal == "token"


def test_no_two_programs_or_persons_are_one_principal() -> None:
    tokens = [
        AccessToken(client_id="a"),
        AccessToken(client_id="a", subject="b/c"),
        AccessToken(client_id="a", issuer="b", subject="c"),
        AccessToken(client_id="a/b", subject="c"),
        AccessToken(client_id="a", issuer="b/c"),
        AccessToken(client_id="a/b/c"),
        AccessToken(client_id="a%2Fb", subject="c"),
        AccessToken(client_id="a", subject="\ud800"),
    ]
    assert len({token.principal for token in tokens}) == len(tokens)
