"""Real servers for tests of the public API: plain ones as children, the official SDK's over every transport."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.warm import server_command

from dragoman import Http, ServerSpec, Sse, Stdio
from dragoman.server.process import spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

SERVERS = Path(__file__).resolve().parents[1] / "servers"


@pytest.fixture
def server() -> Callable[..., ServerSpec]:
    """Make the spec of one of tests/servers: `server("name", "plain.py", "argument")`."""

    def make(
        name: str, script: str, *args: str, env: dict[str, str | None] | None = None, **more: Any
    ) -> ServerSpec:
        command, *words = server_command(SERVERS / script, *args)
        stdio = Stdio(command, words, env=env or {})
        return ServerSpec(name, stdio, **more)

    return make


@pytest.fixture
def offering(server: Callable[..., ServerSpec]) -> Callable[..., ServerSpec]:
    """Make a server that offers what it is told to: `offering("name", tools=["t"])`."""

    def make(name: str, *, naming: str | None = None, **offer: Any) -> ServerSpec:
        return server(name, "offering.py", json.dumps({"label": name, **offer}), naming=naming)

    return make


@pytest.fixture(params=["posix", "streams"])
def pipes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Speak to children over POSIX pipes, and then over the streams of the event loop, as on Windows."""
    monkeypatch.setattr(spawn, "HAS_POSIX_PIPES", request.param == "posix")


@asynccontextmanager
async def listening(transport: str, token: str = "") -> AsyncIterator[str]:
    """Run the official server over HTTP or SSE in a child; give its URL."""
    child = await asyncio.create_subprocess_exec(
        *server_command(SERVERS / "official.py", transport),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **({"EXPECTED_TOKEN": token} if token else {})},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield (await child.stdout.readline()).decode().strip()
    finally:
        child.stdin.close()
        await child.wait()
        child._transport.close()  # type: ignore[attr-defined]


@pytest.fixture(params=["stdio", "http", "sse"])
async def official(request: pytest.FixtureRequest) -> AsyncIterator[ServerSpec]:
    """The official SDK's server, over each transport in turn."""
    transport: str = request.param
    if transport == "stdio":
        command, *words = server_command(SERVERS / "official.py", "stdio")
        yield ServerSpec("official", Stdio(command, words))
        return
    async with listening(transport) as url:
        yield ServerSpec("official", Http(url) if transport == "http" else Sse(url))


@pytest.fixture
def faults() -> Iterator[str]:
    """A server over HTTP with a path for every fault; its address."""
    with subprocess.Popen(
        [sys.executable, str(SERVERS / "http_faults.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip().rstrip("/")
        process.stdin.close()
