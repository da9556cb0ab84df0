"""The sample configurations of the seeds' documents, word for word, run against real servers.

`npx` on PATH is a small script that starts the package which `.cache` has; a package that does not exist on npm
fails as it does there. Addresses of the samples lead to a real server on this machine: through a proxy, and over
TLS with a certificate for the sample's host.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.real import servers
from tests.servers.certificates import server_context
from tests.servers.forward_proxy import ForwardProxy

from dragoman import Stdio
from dragoman.config.load import load

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SAMPLES = Path(__file__).resolve().parents[1] / "fixtures/seeds"
PATIENCE = 50.0
PROJECTS = ("/home/user/projects", "/Users/me/projects")
"""The folders of the samples, which are the test's own here."""


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an `npx` on PATH that starts installed packages; return the folder of the samples' projects."""
    folder = tmp_path / "projects"
    folder.mkdir()
    (folder / "notes.md").write_text("您好, sample\n", "utf-8")
    packages = {
        "@modelcontextprotocol/server-filesystem": servers.command("filesystem"),
        "@mcp/server-filesystem": servers.command("filesystem"),
        "@modelcontextprotocol/server-github": servers.command("github"),
    }
    cases = "\n".join(f'  {name}) exec {shlex.join(words)} "$@";;' for name, words in packages.items())
    script = f"""#!/bin/sh
[ "$1" = -y ] && shift
package=$1; shift
for word in "$@"; do
  shift
  case $word in {"|".join(PROJECTS)}) word={shlex.quote(str(folder))};; esac
  set -- "$@" "$word"
done
case $package in
{cases}
esac
echo "npm error 404 Not Found - $package" >&2
exit 1
"""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "npx").write_text(script, "utf-8")
    (programs / "npx").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return folder


@asynccontextmanager
async def reachable(
    host: str, path: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[list[str]]:
    """Let `https://HOST/PATH` lead to the real `everything` server over SSE; give the heads of all requests."""
    heads: list[str] = []
    context, authority = server_context(folder, host)
    tasks: set[asyncio.Task[None]] = set()
    async with servers.everything_on("sse", "/sse") as url:
        port = int(url.rpartition(":")[2].partition("/")[0])

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            back = asyncio.create_task(pump(far_reader, writer))
            try:
                with suppress(asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
                    while True:
                        head = await reader.readuntil(b"\r\n\r\n")
                        heads.append(head.decode())
                        far_writer.write(head.replace(f" {path} ".encode(), b" /sse ", 1))
                        length = re.search(rb"(?i)content-length: *(\d+)", head)
                        far_writer.write(await reader.readexactly(int(length[1]) if length else 0))
            finally:
                far_writer.close()
                back.cancel()
                writer.close()
                tasks.discard(task)

        terminal = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
        places = {f"{host}:443": terminal.sockets[0].getsockname()[1]}
        try:
            async with ForwardProxy(places) as proxy:
                monkeypatch.setenv("https_proxy", proxy.url())
                monkeypatch.setenv("SSL_CERT_FILE", authority)
                yield heads
        finally:
            terminal.close()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def run(profile: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Run an application with the sample in the working folder; return what happened."""
    program = str(Path(__file__).with_name("sample_program.py"))
    child = await asyncio.create_subprocess_exec(
        sys.executable, program, profile, json.dumps(calls), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        printed, _ = await child.communicate()
    child._transport.close()  # type: ignore[attr-defined]
    return json.loads(printed)


def put(sample: str, place: Path) -> None:
    place.write_bytes((SAMPLES / sample).read_bytes())


@pytest.mark.requirement(
    "otter-p0.config", "otter-p0.npx", "otter-p0.failure", "otter-p1.sse", "otter-p1.env", "otter-config.mcp"
)
@pytest.mark.parametrize("sample", ["otter-example.toml", "otter-settings.toml"])
async def test_otters_samples_run(
    sample: str, projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(sample, tmp_path / "otter.toml")
    monkeypatch.setenv("GITHUB_TOKEN", "a-token-of-the-test")
    read = ("read_text_file", {"path": str(projects / "notes.md")})
    async with reachable("api.github.com", "/mcp/sse", tmp_path, monkeypatch) as heads:
        found = await run("otter", read, ("echo", {"message": "hi"}))
    assert found["problems"] == []
    # The package of `browser` was never published: it is tried again and again.
    assert found["status"].pop("browser")[0] in ("backoff", "connecting")
    assert found["status"] == {"filesystem": ["ready", "stdio"], "github": ["ready", "sse"]}
    assert "404 Not Found - @anthropic-ai/mcp-server-browser" in found["errors"]["browser"]
    assert found["texts"] == ["您好, sample\n", "Echo: hi"]
    assert heads[0].split()[:2] == ["GET", "/mcp/sse"]
    assert all("Authorization: Bearer a-token-of-the-test" in head for head in heads)
    if sample == "otter-settings.toml":
        assert (found["auto_reload"], found["health_check_interval"]) == (True, 30.0)
        assert found["call_timeouts"]["github"] == 30
        assert "NODE_ENV=production" in found["environ"]["filesystem"]


@pytest.mark.requirement("rrclaw-config.table", "rrclaw-transport.http", "rrclaw-name.prefix")
@pytest.mark.requirement("rrclaw-result.text", "rrclaw-manager.shutdown")
async def test_rrclaws_sample_runs(projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put("rrclaw-example.toml", tmp_path / "config.toml")
    read = ("mcp_filesystem_read_text_file", {"path": str(projects / "notes.md")})
    async with reachable("mcp.example.com", "/sse", tmp_path, monkeypatch) as heads:
        found = await run(
            "rrclaw", read, ("mcp_remote_echo", {"message": "hi"}), ("mcp_remote_get-tiny-image", {})
        )
    assert found["problems"] == []
    assert found["status"] == {
        "filesystem": ["ready", "stdio"],
        "github": ["ready", "stdio"],
        "remote": ["ready", "sse"],
    }
    assert "mcp_github_search_repositories" in found["tools"]
    assert found["texts"][:2] == ["您好, sample\n", "Echo: hi"]
    assert "[图片内容]" in found["texts"][2].splitlines()
    assert "GITHUB_PERSONAL_ACCESS_TOKEN=ghp_xxx" in found["environ"]["github"]
    assert all("Authorization: Bearer token" in head for head in heads)
    closed = sorted(line for line in found["log"] if line.endswith("已关闭"))
    assert closed == [f"INFO MCP Server '{name}' 已关闭" for name in ("filesystem", "github", "remote")]


@pytest.mark.requirement("rrclaw-config.table", "rrclaw-config.allowed", "rrclaw-config.none")
@pytest.mark.usefixtures("projects")
async def test_the_files_of_rrclaws_own_tests_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    put("rrclaw-mcp-stdio-config-parses.toml", file)
    found = await run("rrclaw", ("mcp_fs_list_allowed_directories", {}))
    assert found["status"] == {"fs": ["ready", "stdio"]}
    assert found["texts"][0].endswith("/tmp")
    put("rrclaw-mcp-sse-config-parses.toml", file)
    async with reachable("mcp.example.com", "/sse", tmp_path, monkeypatch) as heads:
        found = await run("rrclaw")
    assert found["status"] == {"remote": ["ready", "sse"]}
    assert all("Authorization: Bearer token" in head for head in heads)
    put("rrclaw-mcp-allowed-tools-filter.toml", file)
    (spec,) = load("rrclaw").servers
    assert (spec.transport, spec.allowed_tools) == (Stdio("npx"), ("read_file", "list_dir"))
    put("rrclaw-no-mcp-config-is-none.toml", file)
    settings = load("rrclaw")
    assert (settings.servers, settings.problems, settings.warnings) == ([], [], [])


@pytest.mark.requirement("legal-config.env", "legal-client.sse", "legal-client.stdio")
@pytest.mark.parametrize("transport", ["sse", "stdio"])
async def test_the_legal_assistants_three_variables_run(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEGAL_MCP_TRANSPORT", transport)
    monkeypatch.setenv("LEGAL_MCP_TIMEOUT", "20000")
    async with servers.everything_on("sse", "/sse") as url:
        command = shlex.join(servers.command("everything", "stdio"))
        monkeypatch.setenv("LEGAL_MCP_SERVER_URL", url if transport == "sse" else command)
        found = await run("legal", ("mcp_legal_echo", {"message": "hi"}))
    assert found["status"] == {"legal": ["ready", transport]}
    assert found["call_timeouts"] == {"legal": 20}
    assert found["texts"] == ["Echo: hi\n\nSources:\n- legal (date unknown)"]
