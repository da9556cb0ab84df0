"""An MCP server behind a URL for many users, which knows them by their token and tells them apart strictly.

A token is the user's name, and a dash and more if it is to be secret. It speaks the legacy protocol with sessions at `/legacy`, and 2026-07-28 with `cacheScope: private` at
`/modern`. Each user has a tool of their own. A session belongs to the token that opened it. Everything that
does not fit together is counted in `crossed`. `users_http.py` alone runs it until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections import Counter
from typing import Any, Self

from aiohttp import web

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
LEGACY = "2025-11-25"
MODERN = "2026-07-28"


class UsersServer:
    """Runs on a port of this machine inside `async with`."""

    def __init__(self) -> None:
        self.sessions: dict[str, str] = {}
        """The token that opened each session."""
        self.most = 0
        """How many sessions were open at once."""
        self.crossed: list[str] = []
        self.seen: Counter[str] = Counter()
        """Requests by method, and calls by token."""
        self.began = asyncio.Event()
        """Set when a call of `wait` has begun."""
        self.ended = asyncio.Event()
        """Set when a session was ended."""
        self.go = asyncio.Event()
        """Lets calls of `wait` end."""
        self.base = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/legacy", self._legacy)
        app.router.add_delete("/legacy", self._end)
        app.router.add_post("/modern", self._modern)
        app.router.add_get("/stats", self._stats)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self.go.set()
        await self._runner.cleanup()

    async def _stats(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"crossed": self.crossed, "open": len(self.sessions), "most": self.most, "seen": dict(self.seen)}
        )

    async def _end(self, request: web.Request) -> web.Response:
        session = request.headers.get("Mcp-Session-Id", "")
        if self.sessions.get(session) != token_of(request):
            self.crossed.append("a session was ended with another token")
        self.sessions.pop(session, None)
        self.ended.set()
        return web.Response(status=204)

    async def _legacy(self, request: web.Request) -> web.Response:
        message = await request.json()
        token, method = token_of(request), message.get("method", "")
        self.seen[method] += 1
        if method == "initialize":
            session = secrets.token_hex(8)
            self.sessions[session] = token
            self.most = max(self.most, len(self.sessions))
            result = {
                "protocolVersion": LEGACY,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "users", "version": "1"},
            }
            return answer(message, result, {"Mcp-Session-Id": session})
        session = request.headers.get("Mcp-Session-Id", "")
        if session not in self.sessions:
            return web.Response(status=404)
        if self.sessions[session] != token:
            self.crossed.append(f"{method}: the session of {self.sessions[session]!r} with {token!r}")
        if "id" not in message:
            return web.Response(status=202)
        return answer(message, await self._result(message, token, session))

    async def _modern(self, request: web.Request) -> web.Response:
        message = await request.json()
        token, method = token_of(request), message.get("method", "")
        self.seen[method] += 1
        if method == "initialize":
            # It speaks nothing older.
            error = {"code": -32601, "message": "unknown method"}
            return web.json_response({"jsonrpc": "2.0", "id": message.get("id"), "error": error}, status=400)
        if "id" not in message:
            return web.Response(status=202)
        if method == "server/discover":
            capabilities = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            return answer(message, {"resultType": "complete", **capabilities})
        result = await self._result(message, token, "")
        fresh = {"ttlMs": 60_000, "cacheScope": "private"} if method == "tools/list" else {}
        return answer(message, {"resultType": "complete", **fresh, **result})

    async def _result(self, message: dict[str, Any], token: str, session: str) -> dict[str, Any]:
        user = token.partition("-")[0]
        match message["method"]:
            case "tools/list":
                own = {"name": f"of_{user}", "description": f"Only for {user}", "inputSchema": SCHEMA}
                names = ("who", "wait")
                return {"tools": [own, *({"name": name, "inputSchema": SCHEMA} for name in names)]}
            case "tools/call":
                name, said = message["params"]["name"], message["params"]["arguments"]["text"]
                self.seen[f"call {token}"] += 1
                if name.startswith("of_") and name != f"of_{user}":
                    self.crossed.append(f"{token!r} called {name!r}")
                if name == "wait":
                    self.began.set()
                    await self.go.wait()
                who = {"token": token, "session": session, "text": said}
                return {"content": [{"type": "text", "text": json.dumps(who)}]}
            case _:
                return {}


def token_of(request: web.Request) -> str:
    """Return the bearer token; empty without one."""
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def answer(
    message: dict[str, Any], result: dict[str, Any], headers: dict[str, str] | None = None
) -> web.Response:
    """Answer a request."""
    body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
    return web.json_response(body, headers=headers)


async def main() -> None:
    """Run until the standard input ends."""
    async with UsersServer() as server:
        print(server.base, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
