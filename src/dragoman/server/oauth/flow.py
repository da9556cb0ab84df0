"""Gets and refreshes tokens with the SDK's OAuth provider, and turns them into a `Login`.

The provider is a generator of requests (discovery, registration, authorization, token exchange). This module
sends each request through `Fetcher` and feeds the response back. It is stricter than the provider: PKCE must
be advertised, endpoints of a named authorization server are never guessed, and a configured client is used
with its own issuer only. It adds DPoP, and it keeps responses of token endpoints out of logs and errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import parse_qsl, urlencode

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import ValidationError

from dragoman.server.oauth.authorizer import NO_OAUTH
from dragoman.server.oauth.credentials import ALGORITHM, DpopKey, SentSecrets
from dragoman.server.oauth.provider import (
    ANY_REDIRECT,
    LoginError,
    NoLoginError,
    TokenMemory,
    assertions,
    client_of,
    method_among,
    provider_for,
    signed_token,
)
from dragoman.server.oauth.safe_fetch import (
    Fetched,
    FetchError,
    ForbiddenTargetError,
    challenge_fields,
    version_in,
)
from dragoman.server.oauth.token_store import Login
from dragoman.server.protocol.sdk import IS_BEFORE_2_2
from dragoman.server.transports.http_response import excerpt
from dragoman.struct import HIDDEN, MutableStruct, field
from dragoman.trust.addresses import split_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dragoman.model import Auth
    from dragoman.server.oauth.login_prompt import LoginPrompt
    from dragoman.server.oauth.safe_fetch import Fetcher
    from dragoman.server.transports.http_client import HttpAnswer


FINAL = frozenset(
    {"invalid_grant", "invalid_client", "unauthorized_client", "invalid_scope", "invalid_request"}
)
"""Error codes of RFC 6749 after which a refresh token cannot be used again."""
_KEPT_HEADERS = ("content-type", "location", "www-authenticate")
_NOT_SENT = frozenset({"host", "content-length", "accept-encoding", "connection", "user-agent", "accept"})


def sent_headers(request: httpx2.Request) -> dict[str, str]:
    """Return the headers that the provider set; the HTTP client adds the others itself."""
    return {name: value for name, value in request.headers.items() if name not in _NOT_SENT}


def as_response(fetched: Fetched, request: httpx2.Request, *, content: bytes, body: bytes) -> httpx2.Response:
    """Return a response for the provider; `body` was sent and is needed again to follow a redirect."""
    kept = [(name, value) for name, value in fetched.headers.items() if name.lower() in _KEPT_HEADERS]
    response = httpx2.Response(fetched.status, headers=kept, content=content, request=request)
    response.next_request = _redirected(response, request, body)
    return response


def _redirected(response: httpx2.Response, request: httpx2.Request, body: bytes) -> httpx2.Request | None:
    """Return the request that follows a redirect; only redirects within the same origin are followed."""
    location = response.headers.get("location", "")
    if not response.is_redirect or not location:
        return None
    try:
        url = request.url.join(location)
    except (httpx2.InvalidURL, ValueError):
        return None
    here = request.url
    if (url.scheme, url.host, url.port, url.userinfo) != (here.scheme, here.host, here.port, here.userinfo):
        return None  # an upgrade to https is another origin too
    keeps = request.method == "GET" or response.status_code in (307, 308)
    if not keeps:
        return httpx2.Request("GET", url)
    return httpx2.Request(request.method, url, headers=sent_headers(request), content=body)


def as_object(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object; return an empty one if it is anything else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if type(found) is dict else {}


def error_of(body: bytes) -> str:
    """Return the error code of an RFC 6749 response."""
    return str(as_object(body).get("error", ""))


def describes_issuer(url: str) -> bool:
    """Return whether this is the address of an authorization server's metadata."""
    parts = split_url(url)
    path = parts.path if parts is not None else ""
    return "/.well-known/oauth-authorization-server" in path or "/.well-known/openid-configuration" in path


def issuers_match(one: str, other: str) -> bool:
    """Return whether two issuers are the same; only the slash at the end of a bare origin may differ."""
    if one == other:
        return True
    shorter, longer = sorted((one, other), key=len)
    parts = split_url(shorter)
    is_origin = parts is not None and shorter == f"{parts.scheme}://{parts.netloc}"
    return is_origin and longer == f"{shorter}/"


def with_issuer_only(body: bytes, issuer: str | None) -> bytes:
    """Return resource metadata that lists only the configured issuer, if it lists that issuer at all."""
    document = as_object(body)
    servers: object = document.get("authorization_servers")
    if not isinstance(servers, list) or issuer is None:
        return body
    advertised = [str(server) for server in cast("list[object]", servers)]
    matching = [server for server in advertised if issuers_match(server, issuer)]
    return json.dumps({**document, "authorization_servers": matching or advertised}).encode()


def with_issuer_forced(fetched: Fetched, url: str, issuer: str) -> Fetched:
    """Return resource metadata that names the issuer of the configured `metadata_url` instead."""
    document = as_object(fetched.body)
    if fetched.status != HTTPStatus.OK or "authorization_servers" not in document:
        document = {"resource": url}
    named = {**document, "authorization_servers": [issuer]}
    return Fetched(HTTPStatus.OK, {"content-type": "application/json"}, json.dumps(named).encode())


FORM = "application/x-www-form-urlencoded"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = {
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
    "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
}
"""Fixed fields of the request for an identity assertion (SEP-990)."""
TEMPORARY = frozenset({408, 425, 429})
MAX_REDIRECTS = 5
SCOPE_ONLY = "-"
"""A placeholder for the access token where only the scope of an earlier token is needed."""
_SERVER_ERROR = 500
_MAX_REASON = 160

_in_flow: ContextVar[bool] = ContextVar("in_flow", default=False)


class _SdkLogFilter(logging.Filter):
    """Drops the SDK's log records of our flows: they quote responses of token endpoints."""

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        return not _in_flow.get()


logging.getLogger("mcp.client.auth.oauth2").addFilter(_SdkLogFilter())


class OAuthServer(MutableStruct, kw_only=True):
    """The facts about one server that all its logins need."""

    url: str
    """Its address, without user and query."""
    auth: Auth
    """The `auth` settings of its entry, expanded."""
    fetcher: Fetcher
    save_client: Callable[[Mapping[str, Any], str], Awaitable[None]]
    """Called with a new registration and its issuer, before the login is done: the next can reuse it."""


async def refresh(server: OAuthServer, login: Login) -> Login | None:
    """Get a new token with the refresh token of a login; return `None` if the refresh token was refused.

    Raises:
        FetchError: The authorization server did not answer.
    """
    attempt = _Attempt(server, login, redirect_uri="")
    try:
        renewed = await attempt.refresh()
    except (OAuthFlowError, LoginError, ValidationError, ValueError):
        return None
    except ForbiddenTargetError as exc:
        # Perhaps only the network changed for now, so keep the login.
        raise FetchError(str(exc)) from exc
    if renewed is None and attempt.last is not None and error_of(attempt.last.body) not in FINAL:
        msg = f"the authorization server answered HTTP {attempt.last.status}"
        raise FetchError(msg)
    return renewed


async def obtain(
    server: OAuthServer,
    answer: HttpAnswer,
    login: Login | None,
    *,
    redirect_uri: str = ANY_REDIRECT,
    prompt: LoginPrompt | None = None,
) -> Login:
    """Get a token after the server has refused a request.

    Args:
        server: The server.
        answer: Its refusal (401 or 403).
        login: The stored login, if there is one.
        redirect_uri: Where the authorization server sends the browser back to.
        prompt: Gets a person to log in; not needed for `client_credentials`.

    Raises:
        LoginError: The login was refused, or is not safe.
        FetchError: The server or the authorization server did not answer.
    """
    attempt = _Attempt(server, login, redirect_uri=redirect_uri, prompt=prompt)
    kind: type[LoginError] = LoginError
    try:
        return await attempt.obtain(answer)
    except OAuthTokenError:
        msg = f"the authorization server refused the login{attempt.reason()}"
    except OAuthRegistrationError:
        is_found = attempt.checked is not None
        why = "the authorization server did not register this client" if is_found else NO_OAUTH
        msg, kind = f"{why}{attempt.reason()}", NoLoginError
    except OAuthFlowError as exc:
        msg = excerpt(attempt.sent.clean(str(exc)).encode("utf-8", "replace"), 300)
    except NoLoginError as exc:
        msg, kind = attempt.sent.clean(str(exc)), NoLoginError
    except (ForbiddenTargetError, LoginError) as exc:
        msg = attempt.sent.clean(str(exc))
    except FetchError as exc:
        raise FetchError(attempt.sent.clean(str(exc))) from None
    except (ValidationError, ValueError) as exc:
        msg = f"the response of the authorization server is not valid ({type(exc).__name__})"
    # Drop the cause: it may quote the response of a token endpoint.
    raise kind(msg) from None


class _Attempt(MutableStruct):
    """One run of the provider."""

    server: OAuthServer
    login: Login | None
    redirect_uri: str
    prompt: LoginPrompt | None = None
    last: Fetched | None = None
    metadata: Mapping[str, Any] | None = None
    resource: Mapping[str, Any] | None = None
    scheme: str = "Bearer"
    checked: OAuthMetadata | None = None
    provider: OAuthClientProvider | None = None
    named: str = ""
    """The issuer that the configured `metadata_url` describes."""
    key: DpopKey | None = None
    nonce: Annotated[str, HIDDEN] = ""
    sent: Annotated[SentSecrets, HIDDEN] = field(default_factory=SentSecrets)

    # The two entry points

    async def obtain(self, answer: HttpAnswer) -> Login:
        known = self.login
        scope = known.scope if known is not None else ""
        tokens = OAuthToken(access_token=SCOPE_ONLY, scope=scope or None) if scope else None
        memory = TokenMemory(tokens, client_of(self.server.auth, self.login, self.redirect_uri))
        provider = self._provider(memory)

        async def keep(client: OAuthClientInformationFull) -> None:
            metadata = provider.context.oauth_metadata
            if client.client_secret is not None and client.token_endpoint_auth_method is None:
                offered = metadata.token_endpoint_auth_methods_supported if metadata is not None else ["none"]
                client.token_endpoint_auth_method = method_among(offered)
            await self.server.save_client(
                client.model_dump(mode="json", exclude_none=True), _issuer(provider)
            )

        memory.on_client = keep
        request = httpx2.Request("POST", self.server.url, headers=version_in(answer.request.headers))
        status, challenge = answer.status, self._challenge(answer, known.scope if known is not None else "")
        if IS_BEFORE_2_2:
            # Before mcp 2.2 the provider looks for the authorization server after a 401 only.
            status = HTTPStatus.UNAUTHORIZED
        refusal = httpx2.Response(status, headers=challenge, request=request)
        if self.server.auth.metadata_url is not None:
            described = await self._fetch("GET", self.server.auth.metadata_url, {}, b"", is_form=False)
            self.named = str(as_object(described.body).get("issuer", ""))
        await self._run(provider, request, refusal)
        if memory.tokens is None or memory.tokens is tokens:
            msg = "the authorization server gave no token"
            raise LoginError(msg)
        return self._result(provider, memory, memory.tokens)

    async def refresh(self) -> Login | None:
        login, auth = self.login, self.server.auth
        assert login is not None  # noqa: S101 -- the caller has one
        if auth.issuer is not None and not issuers_match(login.issuer, auth.issuer):
            return None  # another issuer was configured after this login
        if auth.client_id is not None and (login.client or {}).get("client_id") != auth.client_id:
            return None  # only the client that got a token can refresh it
        tokens = OAuthToken(
            access_token=login.access_token or SCOPE_ONLY,
            refresh_token=login.refresh_token,
            scope=login.scope or None,
        )
        memory = TokenMemory(tokens, client_of(self.server.auth, self.login, self.redirect_uri))
        provider = self._provider(memory)
        context = provider.context
        context.token_expiry_time = 1.0
        if login.metadata is not None:
            context.oauth_metadata = self.checked = OAuthMetadata.model_validate(login.metadata)
            self.metadata = login.metadata
        if login.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(login.resource)
            self.resource = login.resource
        if login.scheme == "DPoP":
            self.key = DpopKey.from_pem(login.key)
        await self._run(provider, httpx2.Request("POST", self.server.url), None)
        if memory.tokens is None or memory.tokens is tokens:
            return None
        return self._result(provider, memory, memory.tokens).replace(issuer=login.issuer)

    async def _run(
        self, provider: OAuthClientProvider, request: httpx2.Request, refusal: httpx2.Response | None
    ) -> None:
        """Send the provider's requests until it repeats the original request, or ends."""
        token = _in_flow.set(True)
        flow = provider.async_auth_flow(request)
        try:
            outgoing = await flow.__anext__()
            while True:
                if outgoing is not request:
                    response = await self._exchange(provider, outgoing)
                    response = await self._follow(provider, response)
                elif refusal is not None:
                    response, refusal = refusal, None
                else:
                    return
                outgoing = await flow.asend(response)
                self._check_metadata(provider)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()
            _in_flow.reset(token)

    # Sending the provider's requests

    async def _follow(self, provider: OAuthClientProvider, response: httpx2.Response) -> httpx2.Response:
        """Follow redirects within the origin for providers that do not: those before mcp 2.2."""
        if not IS_BEFORE_2_2:
            return response
        for _ in range(MAX_REDIRECTS):
            following = response.next_request
            if following is None or following.method != response.request.method:
                break
            response = await self._exchange(provider, following)
        return response

    async def _exchange(self, provider: OAuthClientProvider, request: httpx2.Request) -> httpx2.Response:
        context = provider.context
        body = request.read()
        headers = sent_headers(request)
        url = str(request.url)
        is_form = headers.get("content-type", "").startswith(FORM)
        if request.method != "GET":
            if context.auth_server_url is not None and context.oauth_metadata is None:
                msg = "the authorization server publishes no metadata, and its endpoints are not guessed"
                raise NoLoginError(msg)
            if context.client_info is None and self.server.auth.client_id is not None:
                msg = "`client_id` belongs to another authorization server than the one the server uses"
                raise LoginError(msg)
        if is_form:
            body = await self._form(provider, body)
        fetched = await self._fetch(request.method, url, headers, body, is_form=is_form)
        if self.named and request.method == "GET" and not describes_issuer(url):
            fetched = with_issuer_forced(fetched, self.server.url, self.named)
        self.last = fetched
        if "token_endpoint" in (document := as_object(fetched.body)) and request.method == "GET":
            self._choose_method(provider, document)
        if request.method != "GET" and (fetched.status >= _SERVER_ERROR or fetched.status in TEMPORARY):
            msg = f"the authorization server answered HTTP {fetched.status}"
            raise FetchError(msg)
        content = self._token(fetched) if is_form else with_issuer_only(fetched.body, self.server.auth.issuer)
        return as_response(fetched, request, content=content, body=body)

    async def _fetch(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, is_form: bool
    ) -> Fetched:
        own = self.server.auth.metadata_url
        if own is not None and method == "GET" and describes_issuer(url):
            url = own
        sent = {**headers, **self._proof(method, url, is_form=is_form)}
        self.sent.add_request(sent, body, is_form=is_form)
        fetched = await self.server.fetcher.fetch(method, url, headers=sent, body=body)
        nonce = fetched.headers.get("DPoP-Nonce", "")
        if is_form and self.key is not None and nonce and nonce != self.nonce:
            self.nonce = nonce
            if error_of(fetched.body) == "use_dpop_nonce":
                proof = self._proof(method, url, is_form=is_form)
                fetched = await self.server.fetcher.fetch(
                    method, url, headers={**headers, **proof}, body=body
                )
        return fetched

    def _proof(self, method: str, url: str, *, is_form: bool) -> dict[str, str]:
        if not is_form or self.key is None:
            return {}
        unique = secrets.token_urlsafe(24)
        return {"DPoP": self.key.proof(method, url, now=time.time(), unique=unique, nonce=self.nonce)}

    async def _form(self, provider: OAuthClientProvider, body: bytes) -> bytes:
        """Add `resource` and the client assertion to a token request; the provider does not."""
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        auth = self.server.auth
        if auth.resource is not None:
            form["resource"] = auth.resource
        metadata = provider.context.oauth_metadata
        audience = str(metadata.issuer) if metadata is not None else _issuer(provider)
        if auth.private_key is not None and "client_assertion" not in form:
            form["client_assertion"] = await assertions(auth)(audience)
            form["client_assertion_type"] = ASSERTION
        if auth.grant == "jwt_bearer" and form.get("grant_type") == "client_credentials":
            form["grant_type"] = JWT_BEARER
            form["client_id"] = auth.client_id or ""
            resource = form.get("resource") or resource_url_from_server_url(self.server.url)
            form["assertion"] = await self._assertion(audience, resource)
        return urlencode(form).encode()

    async def _assertion(self, audience: str, resource: str) -> str:
        """Return the configured assertion, or the identity provider's in exchange for the user's token."""
        auth = self.server.auth
        if auth.assertion is not None:
            return await asyncio.to_thread(signed_token, "assertion", auth.assertion)
        form = {
            **TOKEN_EXCHANGE,
            "subject_token": await asyncio.to_thread(signed_token, "id_token", auth.id_token or ""),
            "audience": audience,
            "resource": resource,
        }
        if auth.scopes:
            form["scope"] = " ".join(auth.scopes)
        if auth.idp_client_id is not None:
            form["client_id"] = auth.idp_client_id
        if auth.idp_client_secret is not None:
            form["client_secret"] = auth.idp_client_secret
        body, headers = urlencode(form).encode(), {"Content-Type": FORM, "Accept": "application/json"}
        self.sent.add_request(headers, body, is_form=True)
        self.last = await self.server.fetcher.fetch(
            "POST", auth.idp_token_url or "", headers=headers, body=body
        )
        if self.last.status >= _SERVER_ERROR or self.last.status in TEMPORARY:
            msg = f"the identity provider answered HTTP {self.last.status}"
            raise FetchError(msg)
        given = as_object(self.last.body).get("access_token")
        if self.last.status != HTTPStatus.OK or not isinstance(given, str) or not given:
            msg = f"the identity provider gave no assertion{self.reason()}"
            raise LoginError(msg)
        return given

    def _token(self, fetched: Fetched) -> bytes:
        """Remember the token's type; the provider accepts only `Bearer`, so DPoP is replaced by that."""
        document = as_object(fetched.body)
        scheme = str(document.get("token_type", "Bearer"))
        if "access_token" not in document or scheme.lower() != "dpop":
            self.scheme = "Bearer"
            return fetched.body
        if self.key is None:
            msg = "the authorization server returned a DPoP token without having received a key"
            raise LoginError(msg)
        self.scheme = "DPoP"
        return json.dumps({**document, "token_type": "Bearer"}).encode()

    # Checking what the provider discovered

    def _check_metadata(self, provider: OAuthClientProvider) -> None:
        """Check new metadata before the provider acts on it."""
        context, auth = provider.context, self.server.auth
        if context.protected_resource_metadata and self.resource is None and self.last is not None:
            self.resource = as_object(self.last.body)
        metadata = context.oauth_metadata
        if metadata is None or metadata is self.checked:
            return
        self.checked = metadata
        self.metadata = as_object(self.last.body) if self.last is not None else None
        if auth.issuer is not None and not issuers_match(str(metadata.issuer), auth.issuer):
            named = excerpt(str(metadata.issuer).encode())
            msg = f"the server uses the authorization server `{named}`, not the configured `issuer`"
            raise LoginError(msg)
        if auth.grant == "authorization_code" and "S256" not in (
            metadata.code_challenge_methods_supported or ()
        ):
            msg = "the authorization server does not advertise PKCE (S256), so a login is not safe"
            raise LoginError(msg)
        self._choose_key()

    def _choose_method(self, provider: OAuthClientProvider, document: Mapping[str, Any]) -> None:
        """Choose a client authentication method that the authorization server supports."""
        context, auth = provider.context, self.server.auth
        offered: object = document.get("token_endpoint_auth_methods_supported")
        methods = [str(one) for one in cast("list[object]", offered)] if isinstance(offered, list) else None
        if context.client_info is None:
            if methods is not None and "none" in methods:
                context.client_metadata.token_endpoint_auth_method = "none"  # noqa: S105 -- a method's name
        elif auth.client_id is not None and auth.client_auth is None and auth.client_secret is not None:
            context.client_info.token_endpoint_auth_method = method_among(methods)

    def _choose_key(self) -> None:
        algorithms: object = (self.metadata or {}).get("dpop_signing_alg_values_supported")
        offered = isinstance(algorithms, list) and ALGORITHM in cast("list[object]", algorithms)
        wanted = bool((self.resource or {}).get("dpop_bound_access_tokens_required"))
        if not offered and not wanted:
            return
        known = self.login
        issuer = str(self.checked.issuer) if self.checked is not None else ""
        if known is not None and known.key and issuers_match(known.issuer, issuer):
            self.key = DpopKey.from_pem(known.key)
        else:
            self.key = DpopKey.generate()

    def _result(self, provider: OAuthClientProvider, memory: TokenMemory, tokens: OAuthToken) -> Login:
        bound = self.scheme == "DPoP"
        if (self.resource or {}).get("dpop_bound_access_tokens_required") and not bound:
            msg = "the server requires a DPoP token, but the authorization server returned a plain one"
            raise LoginError(msg)
        client = provider.context.client_info or memory.client
        seconds = tokens.expires_in
        return Login(
            issuer=_issuer(provider),
            client=None if client is None else client.model_dump(mode="json", exclude_none=True),
            access_token=tokens.access_token,
            scheme="DPoP" if bound else "Bearer",
            refresh_token=tokens.refresh_token or "",
            expires_at=None if seconds is None else time.time() + seconds,
            lifetime=seconds,
            scope=tokens.scope or "",
            key=self.key.to_pem() if bound and self.key is not None else "",
            metadata=self.metadata,
            resource=self.resource,
            reaches=tuple(sorted(self.server.fetcher.reaches)),
        )

    def reason(self) -> str:
        """Return status and error of the last response, for messages; never its whole body."""
        if self.last is None:
            return ""
        document = as_object(self.last.body)
        words = [str(document[name]) for name in ("error", "error_description") if document.get(name)]
        shown = excerpt(self.sent.clean_foreign(": ".join(words)).encode("utf-8", "replace"), _MAX_REASON)
        return f" (HTTP {self.last.status}{f', {shown}' if shown else ''})"

    # Callbacks of the provider

    def _provider(self, memory: TokenMemory) -> OAuthClientProvider:
        self.provider = provider_for(
            self.server.url,
            self.server.auth,
            memory,
            redirect_uri=self.redirect_uri,
            on_redirect=self._redirect,
            on_callback=self._callback,
            check_resource=self._check_resource,
        )
        return self.provider

    async def _check_resource(self, server_url: str, resource: str | None) -> None:
        own = self.server.auth.resource
        if resource is None or resource == own:
            return
        expected = resource_url_from_server_url(server_url)
        if not check_resource_allowed(requested_resource=expected, configured_resource=resource):
            msg = f"the server's metadata is for another resource: `{excerpt(resource.encode())}`"
            raise LoginError(msg)

    async def _redirect(self, url: str) -> None:
        if self.prompt is None:
            msg = "a person has to log in"
            raise LoginError(msg)
        if self.provider is not None:
            # With a registered client, this comes directly after the metadata: check it now.
            self._check_metadata(self.provider)
        parts = split_url(url)
        if parts is None:
            msg = "the address of the login page is not valid"
            raise LoginError(msg)
        # If the endpoint has its own query, the provider appends ours after a second question mark.
        query = dict(parse_qsl(parts.query.replace("?", "&"), keep_blank_values=True))
        if self.server.auth.resource is not None:
            query["resource"] = self.server.auth.resource
        self.sent.add(query.get(name) for name in ("state", "code_challenge"))
        shown = self.server.fetcher.check_shown(parts.unsplit(urlencode(query)))
        await self.prompt.show(shown, query["state"])

    async def _callback(self) -> AuthorizationCodeResult:
        assert self.prompt is not None  # noqa: S101 -- the provider shows the address first
        redirect = await self.prompt.wait()
        self.sent.add([redirect.code, redirect.state])
        if redirect.error:
            said = self.sent.clean_foreign(redirect.error).encode("utf-8", "replace")
            msg = f"the login was refused: {excerpt(said, _MAX_REASON)}"
            raise LoginError(msg)
        return AuthorizationCodeResult(code=redirect.code, state=redirect.state, iss=redirect.issuer)

    def _challenge(self, answer: HttpAnswer, granted: str) -> dict[str, str]:
        """Return the server's challenge as we have parsed it, with the configured scopes.

        A server that asks for more rights names the missing ones only, so those of the login are added.
        """
        fields = challenge_fields(answer)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            if self.server.auth.scopes:
                fields["scope"] = " ".join(self.server.auth.scopes)
        elif fields.get("scope"):
            asked = [*self.server.auth.scopes, *granted.split(), *fields["scope"].split()]
            fields["scope"] = " ".join(dict.fromkeys(asked))
        wanted = {name: fields[name] for name in ("error", "scope", "resource_metadata") if fields.get(name)}
        pairs = ", ".join(f'{name}="{value}"' for name, value in wanted.items())
        return {"WWW-Authenticate": f"Bearer {pairs}"} if pairs else {}


def _issuer(provider: OAuthClientProvider) -> str:
    context = provider.context
    if context.oauth_metadata is not None:
        return str(context.oauth_metadata.issuer)
    return context.auth_server_url or context.get_authorization_base_url(context.server_url)
