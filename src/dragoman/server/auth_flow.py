"""The SDK's OAuth provider, driven by us: its requests pass our checks, and its tokens become a `Login`.

The provider decides what the specification wants next (discovery, registration, authorization, exchange); it
is a generator of requests, and this feeds it answers. What it leaves open is closed here: PKCE has to be
advertised, endpoints are never guessed for a named authorization server, a configured client goes to its own
issuer only, tokens may be bound to a key (DPoP), and no answer of a token endpoint gets into a log or error.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import httpx2
from mcp.client.auth import (
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
    OAuthTokenError,
)
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import ValidationError

from dragoman.server.auth_answer import (
    as_object,
    as_response,
    describes_issuer,
    error_of,
    is_final,
    naming,
    preferring,
    sent_headers,
)
from dragoman.server.auth_challenge import challenge_fields, version_in
from dragoman.server.auth_dpop import ALGORITHM, DpopKey
from dragoman.server.auth_fetch import Fetched, FetchError, ForbiddenTargetError
from dragoman.server.auth_provider import (
    ANY_REDIRECT,
    LoginError,
    Memory,
    assertions,
    client_of,
    method_among,
    provider_for,
)
from dragoman.server.auth_secrets import SentSecrets
from dragoman.server.auth_store import Login
from dragoman.server.http_answer import excerpt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dragoman.model import Auth
    from dragoman.server.auth_callback import Redirect
    from dragoman.server.auth_fetch import Fetcher
    from dragoman.server.http_client import HttpAnswer

FORM = "application/x-www-form-urlencoded"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
PASSING = frozenset({408, 425, 429})
SCOPE_ONLY = "-"
"""Stands where only the scope of an earlier token counts."""
_SERVER_ERROR = 500
_MAX_SAID = 160

_driving: ContextVar[bool] = ContextVar("driving", default=False)


class _Silence(logging.Filter):
    """Keeps quiet what the SDK logs of our flows: its messages hold answers of token endpoints."""

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        return not _driving.get()


logging.getLogger("mcp.client.auth.oauth2").addFilter(_Silence())


class Ask(Protocol):
    """Whoever gets a person to log in."""

    async def show(self, url: str, state: str) -> None:
        """Make the address known."""
        ...

    async def wait(self) -> Redirect:
        """Wait for what comes back."""
        ...


@dataclass(slots=True, kw_only=True)
class Job:
    """What one server's logins have in common."""

    server: str
    url: str
    """Its address, without user and query."""
    auth: Auth
    """As configured, expanded."""
    fetcher: Fetcher
    keep_client: Callable[[Mapping[str, Any], str], Awaitable[None]]
    """Told of a new registration, and of its issuer, at once: a login that nobody ends must not repeat it."""


async def refresh(job: Job, login: Login) -> Login | None:
    """Get a new token for an old login; nothing if it is refused for good.

    Raises:
        FetchError: The authorization server did not answer.
    """
    attempt = _Attempt(job, login, redirect_uri="")
    try:
        renewed = await attempt.refresh()
    except (OAuthFlowError, LoginError, ValidationError, ValueError):
        return None
    except ForbiddenTargetError as exc:
        # The network may be another one for the moment; the login stays.
        raise FetchError(str(exc)) from exc
    if renewed is None and attempt.last is not None and not is_final(attempt.last):
        msg = f"the authorization server answered HTTP {attempt.last.status}"
        raise FetchError(msg)
    return renewed


async def obtain(
    job: Job,
    answer: HttpAnswer,
    login: Login | None,
    *,
    redirect_uri: str = ANY_REDIRECT,
    ask: Ask | None = None,
) -> Login:
    """Get a token, from the server's refusal on.

    Args:
        job: The server.
        answer: Its refusal.
        login: What is known from earlier.
        redirect_uri: Where a browser is sent back to.
        ask: Gets a person to log in; a program that logs in by itself needs none.

    Raises:
        LoginError: It is refused, or not safe.
        FetchError: Somebody did not answer.
    """
    attempt = _Attempt(job, login, redirect_uri=redirect_uri, ask=ask)
    try:
        return await attempt.obtain(answer)
    except OAuthTokenError:
        msg = f"the authorization server gave no token{attempt.said()}"
    except OAuthRegistrationError:
        msg = f"the authorization server did not register this client{attempt.said()}"
    except OAuthFlowError as exc:
        msg = excerpt(attempt.sent.clean(str(exc)).encode("utf-8", "replace"), 300)
    except (ForbiddenTargetError, LoginError) as exc:
        msg = attempt.sent.clean(str(exc))
    except FetchError as exc:
        raise FetchError(attempt.sent.clean(str(exc))) from None
    except (ValidationError, ValueError) as exc:
        msg = f"what the authorization server says cannot be used ({type(exc).__name__})"
    # The cause is not kept: it may quote what a token endpoint answered.
    raise LoginError(msg) from None


@dataclass(slots=True)
class _Attempt:
    """One way through the provider."""

    job: Job
    login: Login | None
    redirect_uri: str
    ask: Ask | None = None
    last: Fetched | None = None
    metadata: Mapping[str, Any] | None = None
    resource: Mapping[str, Any] | None = None
    scheme: str = "Bearer"
    settled: OAuthMetadata | None = None
    provider: OAuthClientProvider | None = None
    named: str = ""
    """The issuer that the configured `metadata_url` describes."""
    key: DpopKey | None = None
    nonce: str = field(default="", repr=False)
    sent: SentSecrets = field(default_factory=SentSecrets, repr=False)

    # The two ways

    async def obtain(self, answer: HttpAnswer) -> Login:
        known = self.login
        scope = known.scope if known is not None else ""
        tokens = OAuthToken(access_token=SCOPE_ONLY, scope=scope or None) if scope else None
        memory = Memory(tokens, client_of(self.job.auth, self.login, self.redirect_uri))
        provider = self._provider(memory)

        async def keep(client: OAuthClientInformationFull) -> None:
            metadata = provider.context.oauth_metadata
            if client.client_secret is not None and client.token_endpoint_auth_method is None:
                offered = metadata.token_endpoint_auth_methods_supported if metadata is not None else ["none"]
                client.token_endpoint_auth_method = method_among(offered)
            await self.job.keep_client(client.model_dump(mode="json", exclude_none=True), _issuer(provider))

        memory.on_client = keep
        request = httpx2.Request("POST", self.job.url, headers=version_in(answer.request.headers))
        refusal = httpx2.Response(answer.status, headers=self._challenge(answer), request=request)
        if self.job.auth.metadata_url is not None:
            described = await self._fetch("GET", self.job.auth.metadata_url, {}, b"", is_form=False)
            self.named = str(as_object(described.body).get("issuer", ""))
        await self._drive(provider, request, refusal)
        if memory.tokens is None or memory.tokens is tokens:
            msg = "the authorization server gave no token"
            raise LoginError(msg)
        return self._result(provider, memory, memory.tokens)

    async def refresh(self) -> Login | None:
        login, auth = self.login, self.job.auth
        assert login is not None  # noqa: S101 -- there is something to refresh
        if auth.issuer is not None and not issuers_match(login.issuer, auth.issuer):
            return None  # the configuration names another authorization server since
        if auth.client_id is not None and (login.client or {}).get("client_id") != auth.client_id:
            return None  # a token is refreshed by the client that got it
        tokens = OAuthToken(
            access_token=login.access_token or SCOPE_ONLY,
            refresh_token=login.refresh_token,
            scope=login.scope or None,
        )
        memory = Memory(tokens, client_of(self.job.auth, self.login, self.redirect_uri))
        provider = self._provider(memory)
        context = provider.context
        context.token_expiry_time = 1.0
        if login.metadata is not None:
            context.oauth_metadata = self.settled = OAuthMetadata.model_validate(login.metadata)
            self.metadata = login.metadata
        if login.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(login.resource)
            self.resource = login.resource
        if login.scheme == "DPoP":
            self.key = DpopKey.from_pem(login.key)
        await self._drive(provider, httpx2.Request("POST", self.job.url), None)
        if memory.tokens is None or memory.tokens is tokens:
            return None
        return replace(self._result(provider, memory, memory.tokens), issuer=login.issuer)

    async def _drive(
        self, provider: OAuthClientProvider, request: httpx2.Request, refusal: httpx2.Response | None
    ) -> None:
        """Feed the provider until it has what it wants, or has nothing more to ask."""
        driving = _driving.set(True)
        flow = provider.async_auth_flow(request)
        try:
            outgoing = await flow.__anext__()
            while True:
                if outgoing is not request:
                    response = await self._exchange(provider, outgoing)
                elif refusal is not None:
                    response, refusal = refusal, None
                else:
                    return
                outgoing = await flow.asend(response)
                self._settle(provider)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()
            _driving.reset(driving)

    # What the provider asks for

    async def _exchange(self, provider: OAuthClientProvider, request: httpx2.Request) -> httpx2.Response:
        context = provider.context
        body = request.read()
        headers = sent_headers(request)
        url = str(request.url)
        is_form = headers.get("content-type", "").startswith(FORM)
        if request.method != "GET":
            if context.auth_server_url is not None and context.oauth_metadata is None:
                msg = "the authorization server does not describe itself, and its endpoints are not guessed"
                raise LoginError(msg)
            if context.client_info is None and self.job.auth.client_id is not None:
                msg = "`client_id` belongs to another authorization server than the one that the server names"
                raise LoginError(msg)
        if is_form:
            body = await self._form(provider, body)
        fetched = await self._fetch(request.method, url, headers, body, is_form=is_form)
        if self.named and request.method == "GET" and not describes_issuer(url):
            fetched = naming(fetched, self.job.url, self.named)
        self.last = fetched
        if "token_endpoint" in (document := as_object(fetched.body)) and request.method == "GET":
            self._choose_method(provider, document)
        if request.method != "GET" and (fetched.status >= _SERVER_ERROR or fetched.status in PASSING):
            msg = f"the authorization server answered HTTP {fetched.status}"
            raise FetchError(msg)
        content = self._token(fetched) if is_form else preferring(fetched.body, self.job.auth.issuer)
        return as_response(fetched, request, content=content, body=body)

    async def _fetch(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, is_form: bool
    ) -> Fetched:
        own = self.job.auth.metadata_url
        if own is not None and method == "GET" and describes_issuer(url):
            url = own
        sent = {**headers, **self._proof(method, url, is_form=is_form)}
        self.sent.add_request(sent, body, is_form=is_form)
        fetched = await self.job.fetcher.fetch(method, url, headers=sent, body=body)
        nonce = fetched.headers.get("DPoP-Nonce", "")
        if is_form and self.key is not None and nonce and nonce != self.nonce:
            self.nonce = nonce
            if error_of(fetched.body) == "use_dpop_nonce":
                proof = self._proof(method, url, is_form=is_form)
                fetched = await self.job.fetcher.fetch(method, url, headers={**headers, **proof}, body=body)
        return fetched

    def _proof(self, method: str, url: str, *, is_form: bool) -> dict[str, str]:
        if not is_form or self.key is None:
            return {}
        unique = secrets.token_urlsafe(24)
        return {"DPoP": self.key.proof(method, url, now=time.time(), unique=unique, nonce=self.nonce)}

    async def _form(self, provider: OAuthClientProvider, body: bytes) -> bytes:
        """Complete a token request with what the provider does not know of."""
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
        auth = self.job.auth
        if auth.resource is not None:
            form["resource"] = auth.resource
        if auth.private_key is not None and "client_assertion" not in form:
            metadata = provider.context.oauth_metadata
            audience = str(metadata.issuer) if metadata is not None else _issuer(provider)
            form["client_assertion"] = await assertions(auth)(audience)
            form["client_assertion_type"] = ASSERTION
        return urlencode(form).encode()

    def _token(self, fetched: Fetched) -> bytes:
        """Remember how a token is to be used; the provider knows one way only."""
        document = as_object(fetched.body)
        scheme = str(document.get("token_type", "Bearer"))
        if "access_token" not in document or scheme.lower() != "dpop":
            self.scheme = "Bearer"
            return fetched.body
        if self.key is None:
            msg = "the authorization server bound a token to a key that it was not given"
            raise LoginError(msg)
        self.scheme = "DPoP"
        return json.dumps({**document, "token_type": "Bearer"}).encode()

    # What follows from what it found

    def _settle(self, provider: OAuthClientProvider) -> None:
        """Judge what was discovered, as soon as it is known."""
        context, auth = provider.context, self.job.auth
        if context.protected_resource_metadata and self.resource is None and self.last is not None:
            self.resource = as_object(self.last.body)
        metadata = context.oauth_metadata
        if metadata is None or metadata is self.settled:
            return
        self.settled = metadata
        self.metadata = as_object(self.last.body) if self.last is not None else None
        if auth.issuer is not None and not issuers_match(str(metadata.issuer), auth.issuer):
            named = excerpt(str(metadata.issuer).encode())
            msg = f"the server names the authorization server `{named}`, not the configured `issuer`"
            raise LoginError(msg)
        if auth.grant == "authorization_code" and "S256" not in (
            metadata.code_challenge_methods_supported or ()
        ):
            msg = "the authorization server does not advertise PKCE (S256), so that a login is not safe"
            raise LoginError(msg)
        self._choose_key()

    def _choose_method(self, provider: OAuthClientProvider, document: Mapping[str, Any]) -> None:
        """Have the client prove who it is in a way that the authorization server takes, before it does."""
        context, auth = provider.context, self.job.auth
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
        issuer = str(self.settled.issuer) if self.settled is not None else ""
        if known is not None and known.key and issuers_match(known.issuer, issuer):
            self.key = DpopKey.from_pem(known.key)
        else:
            self.key = DpopKey.generate()

    def _result(self, provider: OAuthClientProvider, memory: Memory, tokens: OAuthToken) -> Login:
        bound = self.scheme == "DPoP"
        if (self.resource or {}).get("dpop_bound_access_tokens_required") and not bound:
            msg = "the server wants a token that is bound to a key, and the authorization server gave none"
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
            reaches=tuple(sorted(self.job.fetcher.reaches)),
        )

    def said(self) -> str:
        """Return why the last request was refused, in the words of RFC 6749; never a whole body."""
        if self.last is None:
            return ""
        document = as_object(self.last.body)
        words = [str(document[name]) for name in ("error", "error_description") if document.get(name)]
        shown = excerpt(self.sent.clean_foreign(": ".join(words)).encode("utf-8", "replace"), _MAX_SAID)
        return f" (HTTP {self.last.status}{f', {shown}' if shown else ''})"

    # What the provider calls

    def _provider(self, memory: Memory) -> OAuthClientProvider:
        self.provider = provider_for(
            self.job.url,
            self.job.auth,
            memory,
            redirect_uri=self.redirect_uri,
            on_redirect=self._redirect,
            on_callback=self._callback,
            check_resource=self._check_resource,
        )
        return self.provider

    async def _check_resource(self, server_url: str, resource: str | None) -> None:
        own = self.job.auth.resource
        if resource is None or resource == own:
            return
        expected = resource_url_from_server_url(server_url)
        if not check_resource_allowed(requested_resource=expected, configured_resource=resource):
            msg = f"the server says that it is the resource `{excerpt(resource.encode())}`, which it is not"
            raise LoginError(msg)

    async def _redirect(self, url: str) -> None:
        if self.ask is None:
            msg = "a person has to log in"
            raise LoginError(msg)
        if self.provider is not None:
            # A known client gets here straight from the metadata.
            self._settle(self.provider)
        parts = urlsplit(url)
        # An endpoint with a query of its own gets ours behind a second question mark.
        query = dict(parse_qsl(parts.query.replace("?", "&"), keep_blank_values=True))
        if self.job.auth.resource is not None:
            query["resource"] = self.job.auth.resource
        self.sent.add(query.get(name) for name in ("state", "code_challenge"))
        shown = self.job.fetcher.check_shown(urlunsplit(parts._replace(query=urlencode(query))))
        await self.ask.show(shown, query["state"])

    async def _callback(self) -> AuthorizationCodeResult:
        assert self.ask is not None  # noqa: S101 -- the provider shows the address first
        redirect = await self.ask.wait()
        self.sent.add([redirect.code, redirect.state])
        if redirect.error:
            said = self.sent.clean_foreign(redirect.error).encode("utf-8", "replace")
            msg = f"the login was refused: {excerpt(said, _MAX_SAID)}"
            raise LoginError(msg)
        return AuthorizationCodeResult(code=redirect.code, state=redirect.state, iss=redirect.issuer)

    def _challenge(self, answer: HttpAnswer) -> dict[str, str]:
        """Write the server's challenge anew: the provider reads what we have read, and scopes may be ours."""
        fields = challenge_fields(answer)
        if self.job.auth.scopes and answer.status == HTTPStatus.UNAUTHORIZED:
            fields["scope"] = " ".join(self.job.auth.scopes)
        wanted = {name: fields[name] for name in ("error", "scope", "resource_metadata") if fields.get(name)}
        pairs = ", ".join(f'{name}="{value}"' for name, value in wanted.items())
        return {"WWW-Authenticate": f"Bearer {pairs}"} if pairs else {}


def _issuer(provider: OAuthClientProvider) -> str:
    context = provider.context
    if context.oauth_metadata is not None:
        return str(context.oauth_metadata.issuer)
    return context.auth_server_url or context.get_authorization_base_url(context.server_url)
