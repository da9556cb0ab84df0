"""The SDK's OAuth providers as the configuration wants them: which client, which grant, which proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.shared.auth import AuthorizationCodeResult, OAuthToken

    from dragoman.model import Auth
    from dragoman.server.auth_store import Login

ANY_REDIRECT = "http://127.0.0.1/callback"
"""Stands where the SDK wants an address although no browser comes back."""
_FILE_HINT = "give the key itself, or the path of its file"


class LoginError(Exception):
    """A login cannot be had in this way, now or later; the message says why and holds no secret."""


class Memory:
    """What a provider reads and writes."""

    def __init__(self, tokens: OAuthToken | None, client: OAuthClientInformationFull | None) -> None:
        self.tokens = tokens
        self.client = client
        self.on_client: Callable[[OAuthClientInformationFull], Awaitable[None]] | None = None
        """Told of a new registration."""

    async def get_tokens(self) -> OAuthToken | None:
        """Return the token."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep a new token."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep a new registration."""
        self.client = client_info
        if self.on_client is not None:
            await self.on_client(client_info)


def client_of(auth: Auth, known: Login | None, redirect_uri: str) -> OAuthClientInformationFull | None:
    """Return the client to be: the configured one, or the one that was registered earlier; else none yet."""
    earlier: Mapping[str, Any] = (known.client if known is not None else None) or {}
    if auth.client_id is None:
        if not earlier:
            return None
        client = OAuthClientInformationFull.model_validate(earlier)
        # Whatever was registered belongs to the issuer under which it is kept.
        client.issuer = client.issuer or (known.issuer if known is not None else None) or None
        uris = [str(uri) for uri in client.redirect_uris or ()]
        # An authorization server may compare addresses to the letter: another port is another client.
        return client if not uris or not redirect_uri or redirect_uri in uris else None
    bound, method = auth.issuer, _configured_method(auth)
    if known is not None and earlier.get("client_id") == auth.client_id:
        # Without a configured issuer, the first one that was met is insisted upon.
        bound = bound or known.issuer
        if auth.client_auth is None and auth.private_key is None:
            method = str(earlier.get("token_endpoint_auth_method", method))
    return OAuthClientInformationFull(
        client_id=auth.client_id,
        client_secret=auth.client_secret,
        redirect_uris=[AnyUrl(redirect_uri)] if redirect_uri else None,
        token_endpoint_auth_method=method,
        issuer=bound,
    )


def provider_for(
    url: str,
    auth: Auth,
    memory: Memory,
    *,
    redirect_uri: str,
    on_redirect: Callable[[str], Awaitable[None]],
    on_callback: Callable[[], Awaitable[AuthorizationCodeResult]],
    check_resource: Callable[[str, str | None], Awaitable[None]],
) -> OAuthClientProvider:
    """Return the provider for one attempt.

    Raises:
        LoginError: The configuration lacks something.
    """
    scope = " ".join(auth.scopes) or None
    if auth.grant == "client_credentials":
        return _by_itself(url, auth, memory, scope)
    metadata = OAuthClientMetadata(
        client_name="dragoman", redirect_uris=[AnyUrl(redirect_uri or ANY_REDIRECT)], scope=scope
    )
    return OAuthClientProvider(
        url,
        metadata,
        memory,
        redirect_handler=on_redirect,
        callback_handler=on_callback,
        client_metadata_url=auth.client_metadata_url,
        validate_resource_url=check_resource,
    )


def _by_itself(url: str, auth: Auth, memory: Memory, scope: str | None) -> OAuthClientProvider:
    client = memory.client
    if client is None or (client.client_secret is None and auth.private_key is None):
        msg = '`grant = "client_credentials"` needs `client_id`, and `client_secret` or `private_key`'
        raise LoginError(msg)
    if auth.issuer is None:
        msg = (
            '`grant = "client_credentials"` needs `issuer`, the authorization server that `client_id` is '
            "registered with: its secret is sent there and nowhere else"
        )
        raise LoginError(msg)
    if auth.private_key is not None:
        return PrivateKeyJWTOAuthProvider(
            url, memory, client.client_id, assertions(auth), scope, issuer=auth.issuer
        )
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    if client.token_endpoint_auth_method == "client_secret_post":  # noqa: S105 -- the name of a method
        method = "client_secret_post"
    secret = client.client_secret or ""
    return ClientCredentialsOAuthProvider(
        url, memory, client.client_id, secret, method, scope, issuer=auth.issuer
    )


def method_among(offered: list[str] | None) -> str:
    """Choose how a client with a secret proves who it is; the default is that of RFC 8414."""
    if offered is None or "client_secret_basic" in offered:
        return "client_secret_basic"
    return "client_secret_post" if "client_secret_post" in offered else "none"


def _configured_method(auth: Auth) -> str:
    if auth.client_auth is not None:
        return auth.client_auth
    if auth.private_key is not None:
        return "private_key_jwt"
    return "client_secret_basic" if auth.client_secret is not None else "none"


def assertions(auth: Auth) -> Callable[[str], Awaitable[str]]:
    """Return what signs for the client: given an issuer, it returns a fresh assertion (RFC 7523).

    Raises:
        LoginError: The key cannot be read.
    """
    key = auth.private_key or ""
    if "-----BEGIN" not in key:
        try:
            key = Path(key).expanduser().read_text("utf-8")
        except (OSError, ValueError):
            msg = f"`private_key` cannot be read; {_FILE_HINT}"
            raise LoginError(msg) from None
    name = auth.client_id or ""
    parameters = SignedJWTParameters(
        issuer=name, subject=name, signing_key=key, signing_algorithm=auth.signing_algorithm
    )
    return parameters.create_assertion_provider()
