"""Answers about logins as the SDK's provider wants to have them, and what is read from them."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth.utils import issuers_match

from dragoman.server.auth_fetch import Fetched

FINAL = frozenset(
    {"invalid_grant", "invalid_client", "unauthorized_client", "invalid_scope", "invalid_request"}
)
"""Refusals of RFC 6749 after which a refresh token is of no use."""
_KEPT_HEADERS = ("content-type", "location", "www-authenticate")
_NOT_SENT = frozenset({"host", "content-length", "accept-encoding", "connection", "user-agent", "accept"})


def sent_headers(request: httpx2.Request) -> dict[str, str]:
    """Return the headers that the provider wants; the rest is for whoever sends them."""
    return {name: value for name, value in request.headers.items() if name not in _NOT_SENT}


def as_response(fetched: Fetched, request: httpx2.Request, *, content: bytes, body: bytes) -> httpx2.Response:
    """Return an answer in the provider's terms; what was sent is needed to follow a redirect."""
    kept = [(name, value) for name, value in fetched.headers.items() if name.lower() in _KEPT_HEADERS]
    response = httpx2.Response(fetched.status, headers=kept, content=content, request=request)
    response.next_request = _redirected(response, request, body)
    return response


def _redirected(response: httpx2.Response, request: httpx2.Request, body: bytes) -> httpx2.Request | None:
    """Say where an answer leads; the provider follows within the origin only, and through us."""
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
    """Read a body as a JSON object; an empty one if it is none."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if type(found) is dict else {}


def error_of(body: bytes) -> str:
    """Return the error's name in an answer of RFC 6749."""
    return str(as_object(body).get("error", ""))


def describes_issuer(url: str) -> bool:
    """Tell whether an authorization server describes itself at that address."""
    path = urlsplit(url).path
    return "/.well-known/oauth-authorization-server" in path or "/.well-known/openid-configuration" in path


def is_final(fetched: Fetched) -> bool:
    """Tell whether a refusal is the authorization server's own, and not that of something on the way."""
    return error_of(fetched.body) in FINAL


def preferring(body: bytes, issuer: str | None) -> bytes:
    """Return a server's description of itself, in which the wanted issuer is the only one if it is named."""
    document = as_object(body)
    servers: object = document.get("authorization_servers")
    if not isinstance(servers, list) or issuer is None:
        return body
    advertised = [str(server) for server in cast("list[object]", servers)]
    matching = [server for server in advertised if issuers_match(server, issuer)]
    return json.dumps({**document, "authorization_servers": matching or advertised}).encode()


def naming(fetched: Fetched, url: str, issuer: str) -> Fetched:
    """Let a server name the issuer that the configuration describes, whatever it says itself."""
    document = as_object(fetched.body)
    if fetched.status != HTTPStatus.OK or "authorization_servers" not in document:
        document = {"resource": url}
    named = {**document, "authorization_servers": [issuer]}
    return Fetched(HTTPStatus.OK, {"content-type": "application/json"}, json.dumps(named).encode())
