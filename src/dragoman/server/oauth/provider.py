"""Chooses the SDK's OAuth provider for a configuration: client, grant and client authentication."""

from __future__ import annotations

import inspect
import re
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
    from dragoman.server.oauth.token_store import Login

ANY_REDIRECT = "http://127.0.0.1/callback"
"""A placeholder: the SDK requires an address even if no browser is involved."""
_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*")


class LoginError(Exception):
    """The login failed, and trying again does not help; the message says why and holds no secret."""


class NoLoginError(LoginError):
    """The server offers no login by OAuth that is open to this client; a token may do."""


class TokenMemory:
    """The token storage of a provider."""

    def __init__(self, tokens: OAuthToken | None, client: OAuthClientInformationFull | None) -> None:
        self.tokens = tokens
        self.client = client
        self.on_client: Callable[[OAuthClientInformationFull], Awaitable[None]] | None = None
        """Called with a new registration."""

    async def get_tokens(self) -> OAuthToken | None:
        """Return the token."""
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store a new token."""
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the client."""
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store a new registration."""
        self.client = client_info
        if self.on_client is not None:
            await self.on_client(client_info)


def client_of(auth: Auth, known: Login | None, redirect_uri: str) -> OAuthClientInformationFull | None:
    """Return the configured client, or the one that was registered earlier, or `None`."""
    earlier: Mapping[str, Any] = (known.client if known is not None else None) or {}
    if auth.client_id is None:
        if not earlier:
            return None
        client = OAuthClientInformationFull.model_validate(earlier)
        # A registration belongs to the issuer under which it is stored.
        client.issuer = client.issuer or (known.issuer if known is not None else None) or None
        uris = [str(uri) for uri in client.redirect_uris or ()]
        # Authorization servers may compare redirect addresses exactly: another port, another registration.
        return client if not uris or not redirect_uri or redirect_uri in uris else None
    bound, method = auth.issuer, _configured_method(auth)
    if known is not None and earlier.get("client_id") == auth.client_id:
        # Without a configured issuer, the client stays bound to the first issuer that it was used with.
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
    memory: TokenMemory,
    *,
    redirect_uri: str,
    on_redirect: Callable[[str], Awaitable[None]],
    on_callback: Callable[[], Awaitable[AuthorizationCodeResult]],
    check_resource: Callable[[str, str | None], Awaitable[None]],
) -> OAuthClientProvider:
    """Return the provider for one attempt.

    Raises:
        LoginError: A setting is missing.
    """
    scope = " ".join(auth.scopes) or None
    if auth.grant != "authorization_code":
        return _unattended_provider(url, auth, memory, scope)
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


def _unattended_provider(url: str, auth: Auth, memory: TokenMemory, scope: str | None) -> OAuthClientProvider:
    """Return a provider for client credentials; `_Attempt` sends those of `jwt_bearer` in their place."""
    client = memory.client
    needs = ""
    if auth.grant == "jwt_bearer":
        if auth.assertion is None and (auth.id_token is None or auth.idp_token_url is None):
            needs = "`assertion`, or `id_token` and `idp_token_url`"
        elif client is None:
            needs = "`client_id`"
    elif client is None or (client.client_secret is None and auth.private_key is None):
        needs = "`client_id`, and `client_secret` or `private_key`"
    if client is None or needs:
        msg = f'`grant = "{auth.grant}"` needs {needs}'
        raise LoginError(msg)
    if auth.issuer is None:
        msg = (
            f'`grant = "{auth.grant}"` needs `issuer`, the authorization server that `client_id` is '
            "registered with: its credentials are sent there and nowhere else"
        )
        raise LoginError(msg)
    if auth.private_key is not None:
        return PrivateKeyJWTOAuthProvider(
            url, memory, client.client_id, assertions(auth), scope, **_issuer_of(auth)
        )
    method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    if client.token_endpoint_auth_method == "client_secret_post":  # noqa: S105 -- the name of a method
        method = "client_secret_post"
    secret = client.client_secret or ""
    return ClientCredentialsOAuthProvider(
        url, memory, client.client_id, secret, method, scope, **_issuer_of(auth)
    )


def _issuer_of(auth: Auth) -> dict[str, Any]:
    """Return the provider's `issuer` argument. Before mcp 2.2 it has none: `_Attempt` checks the issuer."""
    parameters = inspect.signature(ClientCredentialsOAuthProvider).parameters
    return {"issuer": auth.issuer} if "issuer" in parameters else {}


def method_among(offered: list[str] | None) -> str:
    """Choose how a client with a secret authenticates; the default is that of RFC 8414."""
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
    """Return a function that makes a new signed assertion (RFC 7523) for an issuer.

    Raises:
        LoginError: The key cannot be read.
    """
    key = auth.private_key or ""
    if "-----BEGIN" not in key:
        key = _file("private_key", key)
    name = auth.client_id or ""
    parameters = SignedJWTParameters(
        issuer=name, subject=name, signing_key=key, signing_algorithm=auth.signing_algorithm
    )
    return parameters.create_assertion_provider()


def signed_token(name: str, value: str) -> str:
    """Return a JWT that is configured by itself or by the path of a file, which is read each time.

    Raises:
        LoginError: The file cannot be read.
    """
    return value if _JWT.fullmatch(value) else _file(name, value).strip()


def _file(name: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, ValueError):
        what = "key" if name == "private_key" else "token"
        msg = f"`{name}` cannot be read; give the {what} itself, or the path of its file"
        raise LoginError(msg) from None
