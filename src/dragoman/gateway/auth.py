"""Who may use the gateway over HTTP: a shared token, or access tokens of an authorization server.

The gateway is an OAuth resource server: it checks signature, issuer, audience and expiry of a JWT against the
issuer's keys. No token is passed on to a server.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import aiohttp
import jwt

from dragoman.errors import ConfigError
from dragoman.manager.users import MAX_ID_CHARS
from dragoman.trust.addresses import is_loopback, split_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger("dragoman")

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by private keys only: a key set is public, so a secret from it would be none."""
KEYS_SECONDS = 300.0
"""How long keys are used before they are fetched again."""
REFETCH_SECONDS = 15.0
"""The shortest time between two fetches for keys that are not known."""
FETCH_SECONDS = 10.0
MAX_KEYS_BYTES = 1_000_000
LEEWAY = 30.0
MAX_TOKEN_BYTES = 16 * 1024
"""The longest token: a longer one is refused before anything is done with it."""
SHARED = "token"
"""The principal of everyone who has the shared token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """Whom a token stands for, once it is checked."""

    client_id: str
    """The program."""
    subject: str | None = None
    """The person, if there is one."""
    issuer: str = ""
    scopes: Sequence[str] = ()

    @property
    def user(self) -> str:
        """The user: the person, or the program if the token stands for no person."""
        return self.client_id if self.subject is None else self.subject

    @property
    def principal(self) -> str:
        """What is equal for requests of the same program and person."""
        return "/".join(part for part in (self.client_id, self.issuer, self.subject or "") if part)


class Refused(Exception):  # noqa: N818 -- it is an outcome
    """A token is not accepted."""

    def __init__(self, reason: str, *, status: int = 401, scopes: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
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
    """A secret for each user."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """Let users in.

        Args:
            tokens: The users, by their tokens.
        """
        self._users = {hashlib.sha256(token.encode()).digest(): user for token, user in tokens.items()}

    async def verify(self, token: str) -> AccessToken:
        """Find the user by a hash of the token, which tells nothing about the tokens that it is not."""
        user = self._users.get(hashlib.sha256(token.encode()).digest())
        if user is None:
            reason = "wrong token"
            raise Refused(reason)
        return AccessToken(client_id=user, subject=user)


class SharedToken:
    """One secret that every client knows."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._access = AccessToken(client_id=SHARED)

    async def verify(self, token: str) -> AccessToken:
        """Compare in constant time."""
        if not hmac.compare_digest(token.encode(), self._token):
            reason = "wrong token"
            raise Refused(reason)
        return self._access


@dataclass
class _Keys:
    keys: dict[str, jwt.PyJWK] = field(default_factory=dict[str, jwt.PyJWK])
    at: float = -1e9


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
        self._known = _Keys()
        self._fetching = asyncio.Lock()

    async def verify(self, token: str) -> AccessToken:
        """Check signature, issuer, audience, expiry and scopes."""
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid") or ""))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as exc:
            raise Refused(f"invalid token: {exc}") from exc  # noqa: EM102 -- the reason is the message
        granted = str(claims.get("scope") or "").split()
        if missing := [scope for scope in self.scopes if scope not in granted]:
            raise Refused(f"missing scope {missing[0]}", status=403, scopes=self.scopes)  # noqa: EM102
        user = claims.get(self._user_claim)
        if not isinstance(user, str) or not 0 < len(user) <= MAX_ID_CHARS:
            # A client without a user must not pass for the user of that name.
            raise Refused(f"invalid token: no claim {self._user_claim} that names a user")  # noqa: EM102
        client = claims.get("client_id") or claims.get("azp") or user
        return AccessToken(client_id=str(client), subject=user, issuer=self.issuer, scopes=granted)

    async def _key(self, kid: str) -> jwt.PyJWK:
        now = time.monotonic()
        age = now - self._known.at
        if age > KEYS_SECONDS or (self._find(kid) is None and age > REFETCH_SECONDS):
            async with self._fetching:
                if self._known.at < now:
                    try:
                        self._known = _Keys(await self._fetch(), time.monotonic())
                    except (aiohttp.ClientError, TimeoutError, ValueError, jwt.PyJWTError) as exc:
                        logger.warning("could not fetch the keys of `%s`: %s", self.issuer, exc)
                        # Old keys stay in use; the next try is not at once.
                        self._known.at = max(
                            self._known.at, time.monotonic() - KEYS_SECONDS + REFETCH_SECONDS
                        )
        found = self._find(kid)
        if found is None:
            msg = "the key of the token is not known"
            raise jwt.PyJWTError(msg)
        return found

    def _find(self, kid: str) -> jwt.PyJWK | None:
        keys = self._known.keys
        return keys.get(kid) if kid or len(keys) != 1 else next(iter(keys.values()))

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            url = self._jwks_url or await self._discover(session)
            document = await _json(session, url)
        keys = jwt.PyJWKSet.from_dict(document).keys
        return {str(key.key_id or number): key for number, key in enumerate(keys)}

    async def _discover(self, session: aiohttp.ClientSession) -> str:
        base = self.issuer.rstrip("/")
        for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
            try:
                document = await _json(session, base + path)
            except (aiohttp.ClientError, ValueError):
                continue
            if document.get("issuer", "").rstrip("/") == base and isinstance(document.get("jwks_uri"), str):
                return cast("str", document["jwks_uri"])
        msg = f"`{self.issuer}` does not say where its keys are"
        raise ValueError(msg)


def _is_safe(address: str) -> bool:
    """Return whether keys from an address are those of its owner: https, or this machine."""
    parts = split_url(address)
    if parts is None or not parts.host:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.host))


async def _json(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    async with session.get(url, allow_redirects=False) as response:
        response.raise_for_status()
        body = await response.content.read(MAX_KEYS_BYTES)
    document: object = json.loads(body)
    if not isinstance(document, dict):
        msg = "not a JSON object"
        raise ValueError(msg)  # noqa: TRY004 -- the content is wrong, not a caller's type
    return cast("dict[str, Any]", document)
