"""A visitor of the console: the real application over a real manager, reached without a network."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from dragoman.console.app import KEY_HEADER, ConsoleApp
from dragoman.gateway.app import Guard
from dragoman.gateway.serve import bind, serve_http
from dragoman.manager.manager import McpManager
from dragoman.testing import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ORIGIN = "http://127.0.0.1:8123"


def notes(name: str = "notes") -> ScriptedServer:
    server = ScriptedServer(name)

    @server.tool
    def add(text: str, number: int = 0) -> str:
        """Add a note."""
        return f"added {text} {number}"

    @server.tool
    def fail() -> str:
        """Fail."""
        msg = "no paper left"
        raise ValueError(msg)

    return server


class Visitor:
    """A page that has logged in."""

    def __init__(self, app: ConsoleApp, client: httpx2.AsyncClient, key: str = "") -> None:
        self.app = app
        self.client = client
        self.key = key

    async def enter(self, token: str = "") -> httpx2.Response:
        token = token or self.app.sessions.new_link()
        response = await self.client.post("api/session", json={"token": token})
        if response.status_code == 200:
            self.key = response.json()["key"]
        return response

    async def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = {KEY_HEADER: self.key, **more.pop("headers", {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        return await self.client.request(method, path, headers=headers, **more)

    async def get(self, path: str, **more: Any) -> Any:
        response = await self.ask("GET", path, **more)
        assert response.status_code == 200, response.text
        return response.json()

    async def post(self, path: str, body: Any = None, **more: Any) -> httpx2.Response:
        return await self.ask("POST", path, json={} if body is None else body, **more)

    async def call(self, tool: str, arguments: str) -> list[dict[str, Any]]:
        """Call a tool with arguments as they are typed; return the lines of the answer."""
        text = f'{{"tool": {json.dumps(tool)}, "arguments": {arguments}}}'
        headers = {"Content-Type": "application/json"}
        response = await self.ask("POST", "api/calls", content=text.encode(), headers=headers)
        assert response.status_code == 200, response.text
        return [json.loads(line) for line in response.text.splitlines()]


@asynccontextmanager
async def serving(app: Any) -> AsyncGenerator[str]:
    """Serve an application as the program does; give its origin."""
    listener = bind("127.0.0.1", 0)
    ready = asyncio.Event()
    task = asyncio.create_task(serve_http(app, listener, on_ready=ready.set))
    try:
        await ready.wait()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        # What the program ends with; `serve_http` waits for it.
        signal.raise_signal(signal.SIGTERM)
        await task
        listener.close()


@asynccontextmanager
async def visiting(
    *servers: ScriptedServer, read_only: bool = False, **options: Any
) -> AsyncGenerator[Visitor]:
    """Run a console; give a visitor who came by a link."""
    options.setdefault("cache", False)
    async with McpManager([server.spec() for server in servers or (notes(),)], **options) as mcp:
        await mcp.wait_ready()
        app = ConsoleApp(mcp, Guard(None, hosts=(), origins=()), read_only=read_only)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{ORIGIN}/") as client:
            visitor = Visitor(app, client)
            await visitor.enter()
            try:
                yield visitor
            finally:
                await app.close()
