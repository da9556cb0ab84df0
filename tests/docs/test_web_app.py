"""The page about web applications: its application runs in a process of its own, and two people use it.

Only the addresses are others: those of the server, of the application, and of the page that a login ends at.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientError, ClientSession, encode_basic_auth
from tests.docs.pages import ROOT, blocks
from tests.servers.authorization import Authorization
from tests.warm import interpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

PAGE = (ROOT / "docs/how-to/web-app.md").read_text("utf-8")
APP, SHARED = blocks("python", (ROOT / "docs/how-to/web-app.md").read_text("utf-8"))
(START,) = blocks("sh", (ROOT / "docs/how-to/web-app.md").read_text("utf-8"))
(PRINTED,) = blocks("text", (ROOT / "docs/how-to/web-app.md").read_text("utf-8"))


@asynccontextmanager
async def running(folder: Path, server: Authorization) -> AsyncIterator[str]:
    """Run the application of the page; give its address."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    code = APP.replace("https://law.example/mcp", server.url).replace("https://app.example", base)
    await asyncio.to_thread((folder / "app.py").write_text, code, "utf-8")
    program, *rest = START.split()
    assert (program, rest[-2:]) == ("uvicorn", ["--port", "8000"])
    words = [interpreter(), "-m", program, *rest[:-1], str(port), "--log-level", "warning"]
    process = await asyncio.create_subprocess_exec(*words, cwd=folder, env=dict(os.environ))
    try:
        async with ClientSession() as client:
            while process.returncode is None:
                try:
                    async with client.get(f"{base}/docs"):
                        break
                except ClientError:
                    await asyncio.sleep(0.05)  # Another process: there is no event to wait for.
        yield base
    finally:
        process.terminate()
        await process.wait()


class Browser:
    """A person at the application, and at the authorization server."""

    def __init__(self, name: str, password: str, client: ClientSession, base: str) -> None:
        self.name = name
        self._headers = {"Authorization": encode_basic_auth(name, password)}
        self._client = client
        self._base = base

    async def get(self, place: str) -> object:
        """Open a page of the application; return what it answers, or its status."""
        address = place if place.startswith("http") else f"{self._base}{place}"
        async with self._client.get(address, headers=self._headers, allow_redirects=False) as page:
            if page.status == 307:
                return page.headers["Location"]
            return await page.json() if page.ok else page.status

    async def call(self, tool: str) -> dict[str, str]:
        """Call a tool through the application."""
        async with self._client.post(f"{self._base}/call/{tool}", json={}, headers=self._headers) as page:
            return await page.json()


async def test_two_users_of_the_application_log_in_and_call_with_their_own_accounts(tmp_path: Path) -> None:
    async with Authorization() as server, running(tmp_path, server) as base, ClientSession() as client:
        alice = Browser("alice", "wonderland", client, base)
        bob = Browser("bob", "builder", client, base)
        assert await Browser("alice", "wrong", client, base).get("/tools") == 401
        nothing = {"tools": [], "logins": ["/login/law"]}
        assert await alice.get("/tools") == nothing
        assert await bob.get("/tools") == nothing
        ended = {}
        for one in (alice, bob):
            address = await one.get("/login/law")
            assert isinstance(address, str)
            ended[one.name] = await server.where(f"{address}&person={one.name}")
        # Bob is sent Alice's address: it is not his login.
        assert await bob.get(ended["alice"]) == 400
        assert await alice.get(ended["alice"]) == {"logged in to": "law"}
        tools = {"tools": ["mcp_law_read", "mcp_law_write"], "logins": []}
        assert await alice.get("/tools") == tools
        assert await bob.get("/tools") == nothing
        assert (await alice.call("mcp_law_read"))["text"] == "done for alice"
        assert "requires login" in str((await bob.call("mcp_law_read"))["error"])
        assert await bob.get(ended["bob"]) == {"logged in to": "law"}
        answers = await asyncio.gather(*(one.call("mcp_law_read") for _ in range(20) for one in (alice, bob)))
        assert [one["text"] for one in answers] == ["done for alice", "done for bob"] * 20


def test_users_share_a_process_that_is_marked_so(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text(SHARED, "utf-8")
    words = [interpreter(), "shared.py"]
    done = subprocess.run(
        words, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr
