"""Who may use the gateway over HTTP: a shared token, or access tokens of an authorization server.

The gateway is an OAuth resource server: it checks signature, issuer, audience and expiry of a JWT against the
issuer's keys. No token is passed on to a server.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast
from urllib.parse import quote

import jwt

from dragoman.errors import ConfigError, DragomanError
from dragoman.model import MAX_USER_CHARS, json_object
from dragoman.server.oauth.safe_fetch import Fetcher, FetchError
from dragoman.trust.addresses import is_loopback, split_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger("dragoman")

LOOPBACK = ("127.0.0.1", "localhost", "::1")
FAMILIES = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""The signatures of each kind of public key, by its type and its curve.

Signatures by private keys only: a key set is public, so a secret in it (`oct`) would be none.
"""
PUBLIC_MEMBERS = ("kty", "kid", "n", "e", "crv", "x", "y")
"""What is read of a key: a set may hold more than it should, such as private parts."""
MAX_TOKEN_CHARS = 16 * 1024
"""A longer token is refused before any work."""
KEYS_SECONDS = 300.0
"""How long keys are used before they are fetched again."""
REFETCH_SECONDS = 15.0
"""The shortest time between two fetches for keys that are not known."""
FETCH_SECONDS = 10.0
LEEWAY = 30.0
SHARED = "token"
"""The principal of everyone who has the shared token."""


@dataclass(frozen=True, kw_only=True)
class AccessToken:
    """Whom a token stands for, once it is checked."""

    client_id: str
    """The program."""
    subject: str | None = None
    """The person, if there is one."""
    issuer: str = ""
    scopes: Sequence[str] = ()
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)
    """What the token says, if it says anything."""

    @property
    def user(self) -> str:
        """The user: the person, or the program if the token stands for no person."""
        return self.client_id if self.subject is None else self.subject

    @cached_property
    def principal(self) -> str:
        """What is equal for requests of the same program and person, and for no others."""
        parts = (self.client_id, self.issuer, self.subject or "")
        return "/".join(quote(part, safe="", errors="surrogatepass") for part in parts).rstrip("/")


class Refused(Exception):  # noqa: N818 -- it is an outcome
    """A request is not let in."""

    def __init__(self, status: int, reason: str, *, scopes: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.scopes = scopes


class Verifier(Protocol):
    """Checks the token of a request."""

    async def verify(self, token: str) -> AccessToken:
        """Return whom a token stands for.

        Raises:
            Refused: It is not valid.
        """
        ...


class UserTokens:
    """A secret for each user, or one for all."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Let users in.

        Args:
            tokens: The users, by their tokens.
        """
        self._users = {
            hashlib.sha256(token.encode()).digest(): AccessToken(client_id=user)
            for token, user in tokens.items()
        }

    async def verify(self, token: str) -> AccessToken:
        """Find the user by a hash of the token, which tells nothing about the tokens that it is not."""
        user = self._users.get(hashlib.sha256(token.encode()).digest())
        if user is None:
            raise Refused(401, "wrong token")
        return user


class _Key(NamedTuple):
    """A public key, and the signatures that it is for."""

    key: Any
    algorithms: tuple[str, ...]


class JwtVerifier:
    """Access tokens of one authorization server, as JWTs."""

    def __init__(
        self,
        issuer: str,
        *,
        audience: str,
        jwks_url: str | None = None,
        scopes: Sequence[str] = (),
        user_claim: str = "sub",
    ) -> None:
        """Trust one issuer.

        Args:
            issuer: The `iss` of its tokens.
            audience: The `aud` that tokens must have: the public URL of this gateway.
            jwks_url: Where its keys are; by default its metadata says so.
            scopes: What every token must allow.
            user_claim: The claim that says who the user is.

        Raises:
            ConfigError: An address is neither https nor local.
        """
        for address in filter(None, (issuer, jwks_url)):
            if not _is_safe(address):
                msg = f"`{address}` is not an https address"
                raise ConfigError(msg, hint="keys from plain http could be anyone's")
        self.issuer = issuer
        self.audience = audience
        self.scopes = tuple(scopes)
        self._user_claim = user_claim
        self._jwks_url = jwks_url
        self._keys: dict[str, _Key] = {}
        self._fetched = -math.inf
        """When the keys were fetched."""
        self._fetching = asyncio.Lock()

    async def verify(self, token: str) -> AccessToken:
        """Check signature, issuer, audience, expiry and scopes."""
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid") or ""))
            claims: dict[str, Any] = jwt.decode(
                token,
                # Not the `PyJWK`: some releases take the algorithm from it instead of from the token.
                key.key,
                algorithms=list(key.algorithms),
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as exc:
            raise Refused(401, f"invalid token: {exc}") from exc
        except (ValueError, TypeError, OverflowError, RecursionError) as exc:
            raise Refused(401, "invalid token: it cannot be read") from exc
        granted = str(claims.get("scope") or "").split()
        if missing := [scope for scope in self.scopes if scope not in granted]:
            raise Refused(403, f"missing scope {missing[0]}", scopes=self.scopes)
        user = claims.get(self._user_claim)
        if not isinstance(user, str) or not 0 < len(user) <= MAX_USER_CHARS:
            # A client without a user must not pass for the user of that name.
            raise Refused(401, f"invalid token: no claim {self._user_claim} that names a user")
        client = claims.get("client_id") or claims.get("azp") or user
        return AccessToken(
            client_id=str(client), subject=user, issuer=self.issuer, scopes=granted, claims=claims
        )

    async def _key(self, kid: str) -> _Key:
        now = time.monotonic()
        age = now - self._fetched
        if age > KEYS_SECONDS or (self._find(kid) is None and age > REFETCH_SECONDS):
            async with self._fetching:
                if self._fetched < now:
                    try:
                        self._keys = await self._fetch()
                        self._fetched = time.monotonic()
                    except (FetchError, DragomanError, TimeoutError, ValueError) as exc:
                        logger.warning("could not fetch the keys of `%s`: %s", self.issuer, exc)
                        # Old keys stay in use; the next try is not at once.
                        retry = time.monotonic() - KEYS_SECONDS + REFETCH_SECONDS
                        self._fetched = max(self._fetched, retry)
        found = self._find(kid)
        if found is None:
            msg = "the key of the token is not known"
            raise jwt.PyJWTError(msg)
        return found

    def _find(self, kid: str) -> _Key | None:
        keys = self._keys
        return keys.get(kid) if kid or len(keys) != 1 else next(iter(keys.values()))

    async def _fetch(self) -> dict[str, _Key]:
        async with asyncio.timeout(FETCH_SECONDS):
            return _public_keys(await self._document(self._jwks_url or await self._discover()))

    async def _document(self, url: str) -> dict[str, Any]:
        return (await Fetcher(self.issuer).fetch("GET", url, configured=True)).document()

    async def _discover(self) -> str:
        base = self.issuer.rstrip("/")
        for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
            try:
                document = await self._document(base + path)
            except (FetchError, DragomanError, ValueError):
                continue
            named, url = document.get("issuer"), document.get("jwks_uri")
            if isinstance(named, str) and named.rstrip("/") == base and isinstance(url, str):
                if _is_safe(url):
                    return url
                msg = f"`{self.issuer}` names an address of its keys that is not an https address"
                raise ValueError(msg)
        msg = f"`{self.issuer}` does not say where its keys are"
        raise ValueError(msg)


def _is_safe(address: str) -> bool:
    """Return whether keys from an address are those of its owner: https, or this machine."""
    parts = split_url(address)
    if parts is None or not parts.host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.host))


def _public_keys(document: Mapping[str, Any]) -> dict[str, _Key]:
    """Return the keys of a set that can check signatures, by their ids.

    Raises:
        ValueError: It has none.
    """
    found: dict[str, _Key] = {}
    listed: object = document.get("keys")
    for number, one in enumerate(cast("list[object]", listed) if isinstance(listed, list) else []):
        entry = json_object(one)
        kind, curve = entry.get("kty"), entry.get("crv")
        algorithms = FAMILIES.get((str(kind), str(curve or "")), ())
        if entry.get("alg") is not None:
            algorithms = tuple(name for name in algorithms if name == entry["alg"])
        if not algorithms or entry.get("use", "sig") != "sig":
            continue
        try:
            public = {name: entry[name] for name in PUBLIC_MEMBERS if name in entry}
            key = jwt.PyJWK(public, algorithms[0]).key
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        found[str(entry.get("kid") or number)] = _Key(key, algorithms)
    if not found:
        msg = "the key set has no public key that checks signatures"
        raise ValueError(msg)
    return found
