"""A small authorization server and the MCP server that it guards, on one port of this machine.

The MCP server speaks Streamable HTTP at `/mcp`, or, with `legacy=True`, the older transport at `/sse`.

Everything that a test wants otherwise is a field; everything that it wants to know was counted. Its consent
page is none: the authorization address redirects back with a code at once.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, urlencode

import jwt
from aiohttp import ClientSession, web

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = [
    {"name": "read", "description": "Needs `read`", "inputSchema": {"type": "object"}},
    {"name": "write", "description": "Needs `write`", "inputSchema": {"type": "object"}},
]


class Authorization:
    """Both servers; `async with Authorization() as server` runs them."""

    def __init__(self, **changes: Any) -> None:
        self.pkce: list[str] | None = ["S256"]
        self.methods: list[str] | None = ["none"]
        self.expires_in: int | None = 3600
        self.refreshes = True
        self.scopes = "read"
        self.demands: list[str] = []
        """What `write` needs, time after time; afterwards it needs `write`."""
        self.grants: str | None = None
        """What a token is good for, whatever was asked."""
        self.dpop = False
        self.nonce = ""
        self.metadata: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}
        self.redirects: dict[str, str] = {}
        """Paths that answer with a redirect."""
        self.token_status = 200
        self.echo: Callable[[dict[str, str]], dict[str, Any]] | None = None
        """Makes the refusal of a token request of what it had sent."""
        self.issued: dict[str, dict[str, Any]] = {}
        self.persons: dict[str, str] = {}
        """Who logged in, by token; the answers to their calls say it."""
        self.refresh_tokens: dict[str, str] = {}
        self.spent: set[str] = set()
        self.burnt = 0
        """How often a refresh token was used that had been used before."""
        self.revoked: list[str] = []
        self.seen: Counter[str] = Counter()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.proofs: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.assertions = {"e30.assertion.of-the-idp"}
        self.refuses_all = False
        self.legacy = False
        self.host = "127.0.0.1"
        self.base = ""
        for name, value in changes.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self._runner: web.AppRunner | None = None
        self._streams: dict[str, web.StreamResponse] = {}
        self._closing = asyncio.Event()

    @property
    def path(self) -> str:
        return "/sse" if self.legacy else "/mcp"

    @property
    def url(self) -> str:
        return f"{self.base}{self.path}"

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._count])
        app.router.add_get(f"/.well-known/oauth-protected-resource{self.path}", self._describe_resource)
        app.router.add_get("/.well-known/oauth-authorization-server", self._describe)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/register", self._register)
        app.router.add_post("/revoke", self._revoke)
        app.router.add_post("/mcp", self._mcp)
        app.router.add_get("/sse", self._stream)
        app.router.add_post("/messages", self._message)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, 0)
        await site.start()
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.base = f"http://{shown}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._closing.set()
        await self._runner.cleanup()

    async def open(self, url: str) -> str:
        """Be the person: open the address, and go where it leads; gives the page's text."""
        async with ClientSession() as browser, browser.get(url) as page:
            return await page.text()

    async def where(self, url: str) -> str:
        """Be the person without a page on this machine: open the address, and give where it leads."""
        async with ClientSession() as browser, browser.get(url, allow_redirects=False) as page:
            return page.headers["Location"]

    def expire_all(self) -> None:
        """Take every access token back."""
        self.issued.clear()

    @web.middleware
    async def _count(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.seen[request.path] += 1
        if request.path in self.redirects:
            return web.Response(status=307, headers={"Location": self.redirects[request.path]})
        return await handler(request)

    async def _describe_resource(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"resource": self.url, "authorization_servers": [self.base], **self.resource}
        )

    async def _describe(self, request: web.Request) -> web.Response:
        found: dict[str, Any] = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "registration_endpoint": f"{self.base}/register",
            "revocation_endpoint": f"{self.base}/revoke",
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
        }
        if self.pkce is not None:
            found["code_challenge_methods_supported"] = self.pkce
        if self.methods is not None:
            found["token_endpoint_auth_methods_supported"] = self.methods
        if self.dpop:
            found["dpop_signing_alg_values_supported"] = ["ES256"]
        return web.json_response({**found, **self.metadata})

    async def _register(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.requests.append(("register", asked))
        answer = {"client_id": f"client-{secrets.token_hex(4)}", "redirect_uris": asked["redirect_uris"]}
        return web.json_response(answer, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.requests.append(("authorize", query))
        code = secrets.token_hex(8)
        self.codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.base}
        return web.Response(status=302, headers={"Location": f"{query['redirect_uri']}?{urlencode(back)}"})

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(parse_qsl((await request.read()).decode()))
        self.requests.append(("token", {**form, "authorization": request.headers.get("Authorization", "")}))
        if self.echo is not None:
            return web.json_response(self.echo(self.requests[-1][1]), status=400)
        if self.token_status != 200:
            return web.json_response({"error": "server_error"}, status=self.token_status)
        bound = request.headers.get("DPoP", "") if self.dpop else ""
        if bound:
            claims = self._proof(bound, request, "")
            if self.nonce and claims.get("nonce") != self.nonce:
                headers = {"DPoP-Nonce": self.nonce}
                return web.json_response({"error": "use_dpop_nonce"}, status=400, headers=headers)
        person = ""
        match form["grant_type"]:
            case "authorization_code":
                asked = self.codes.pop(form["code"])
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
                scope, person = asked.get("scope", ""), asked.get("person", "")
            case "refresh_token":
                token = form["refresh_token"]
                if token in self.spent:
                    self.burnt += 1
                if token not in self.refresh_tokens:
                    return web.json_response({"error": "invalid_grant"}, status=400)
                scope = self.refresh_tokens.pop(token)
                self.spent.add(token)
            case "client_credentials":
                scope = form.get("scope", "")
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                given = {"access_token": "e30.assertion.of-the-idp", "token_type": "N_A"}
                return web.json_response(given)
            case "urn:ietf:params:oauth:grant-type:jwt-bearer":
                if form["assertion"] not in self.assertions:
                    return web.json_response({"error": "invalid_grant"}, status=400)
                scope = form.get("scope", "")
            case _:
                return web.json_response({"error": "unsupported_grant_type"}, status=400)
        given = self.grant(scope if self.grants is None else self.grants, bound=bound)
        self.persons[given["access_token"]] = person
        return web.json_response(given)

    def grant(self, scope: str, *, bound: str = "") -> dict[str, Any]:
        """Give a token."""
        token = f"at-{secrets.token_hex(16)}"
        key = jwt.get_unverified_header(bound)["jwk"] if bound else None
        self.issued[token] = {"scope": scope, "key": key}
        answer: dict[str, Any] = {
            "access_token": token,
            "token_type": "DPoP" if bound else "Bearer",
            "scope": scope,
        }
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if self.refreshes:
            answer["refresh_token"] = f"rt-{secrets.token_hex(16)}"
            self.refresh_tokens[answer["refresh_token"]] = scope
        return answer

    async def _revoke(self, request: web.Request) -> web.Response:
        self.revoked.append(dict(parse_qsl((await request.read()).decode()))["token"])
        return web.Response()

    def _proof(self, proof: str, request: web.Request, token: str) -> dict[str, Any]:
        jwk = jwt.get_unverified_header(proof)["jwk"]
        assert "d" not in jwk
        claims = jwt.decode(proof, jwt.PyJWK(jwk).key, algorithms=["ES256"])
        assert claims["htm"] == request.method
        assert claims["htu"] == f"{self.base}{request.path}"
        assert claims["jti"] not in self.proofs
        self.proofs.append(claims["jti"])
        if token:
            digest = hashlib.sha256(token.encode()).digest()
            assert claims["ath"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        return claims

    def _refusal(self, status: int, **fields: str) -> web.Response:
        described = f"{self.base}/.well-known/oauth-protected-resource{self.path}"
        fields = {"resource_metadata": described, **fields}
        challenge = ", ".join(f'{name}="{value}"' for name, value in fields.items())
        headers = {"WWW-Authenticate": f"{'DPoP' if self.dpop else 'Bearer'} {challenge}"}
        if fields.get("error") == "use_dpop_nonce":
            headers["DPoP-Nonce"] = self.nonce
        return web.Response(status=status, headers=headers)

    async def _mcp(self, request: web.Request) -> web.Response:
        refusal = await self._refuse(request)
        if refusal is not None:
            return refusal
        message = json.loads(await request.read())
        if "id" not in message:
            return web.Response(status=202)
        token = request.headers["Authorization"].partition(" ")[2]
        answer = self._answer(message, self.persons.get(token, ""))
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **answer})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        refusal = await self._refuse(request)
        if refusal is not None:
            return refusal
        name = secrets.token_hex(4)
        stream = self._streams[name] = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(f"event: endpoint\ndata: /messages?session={name}\n\n".encode())
        try:
            await self._closing.wait()
        finally:
            del self._streams[name]
        return stream

    async def _message(self, request: web.Request) -> web.Response:
        refusal = await self._refuse(request)
        if refusal is not None:
            return refusal
        message = json.loads(await request.read())
        if "id" in message:
            answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **self._answer(message)})
            stream = self._streams[request.query["session"]]
            await stream.write(f"event: message\ndata: {answer}\n\n".encode())
        return web.Response(status=202)

    async def _refuse(self, request: web.Request) -> web.Response | None:
        """Say what a request lacks, if it lacks something."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        found = self.issued.get(token)
        if found is None or self.refuses_all or (scheme == "DPoP") != (found["key"] is not None):
            return self._refusal(401, scope=self.scopes)
        if found["key"] is not None:
            claims = self._proof(request.headers["DPoP"], request, token)
            if self.nonce and claims.get("nonce") != self.nonce:
                return self._refusal(401, error="use_dpop_nonce")
        message = json.loads(await request.read() or b'{"method": ""}')
        name = message.get("params", {}).get("name", "")
        if message["method"] != "tools/call" or name != "write":
            return None
        wanted = self.demands.pop(0) if self.demands else "write"
        if wanted in found["scope"].split():
            return None
        return self._refusal(403, error="insufficient_scope", scope=wanted)

    def _answer(self, message: dict[str, Any], person: str = "") -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                info = {"name": "guarded", "version": "1"}
                return {
                    "result": {
                        "protocolVersion": "2025-11-25",
                        "capabilities": {"tools": {}},
                        "serverInfo": info,
                    }
                }
            case "tools/list":
                return {"result": {"tools": TOOLS}}
            case "tools/call":
                return {
                    "result": {
                        "content": [{"type": "text", "text": f"done for {person}" if person else "done"}]
                    }
                }
            case "ping":
                return {"result": {}}
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}
