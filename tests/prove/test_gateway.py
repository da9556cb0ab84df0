"""The gateway with foreign clients, under the official suite for servers, and as replicas in a row."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.behaviour.test_gateway import SERVERS, TOKEN, UPSTREAM, configuration, served, token_client
from tests.real.test_conformance import SUITE, node
from tests.real.test_gateway_conformance import both
from tests.unit.gateway.test_app import post

if TYPE_CHECKING:
    import httpx2
    from tests.prove.conftest import Proof

NPM = Path(__file__).resolve().parents[2] / ".cache" / "npm-servers"
CLIENT = Path(__file__).with_name("foreign_client.mjs")
KEY = "k" * 32
CALLS = int(os.environ.get("GATEWAY_CALLS", "10000"))
SCENARIOS = [
    *((name, "2025-11-25") for name in ("server-initialize", "server-session-lifecycle", "ping")),
    *((name, "2025-11-25") for name in ("logging-set-level", "tools-list", "dns-rebinding-protection")),
    *((name, "2026-07-28") for name in ("tools-list", "resources-list", "http-header-validation")),
    *((name, "2026-07-28") for name in ("dns-rebinding-protection", "caching")),
]
"""Those that need nothing of the servers behind the gateway."""


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_typescript_client_uses_the_gateway(transport: str, tmp_path: Path) -> None:
    command = ["-m", "dragoman", "serve", "--config", str(configuration(tmp_path))]
    if transport == "stdio":
        report = await foreign("stdio", sys.executable, *command)
    else:
        async with served([*command, "--http", "0", "--token", TOKEN]) as url:
            report = await foreign(url, TOKEN)
    assert len(report["tools"]) == 2 * 16
    assert report["tools"] == sorted(report["tools"])
    assert report["echo"]["structuredContent"] == {"said": "hallo"}
    # This client drops reports that come in one piece with the result.
    assert report["steps"][:1] == [1]
    assert report["form"] == report["formOfNew"] == "accept {'seats': 5}"
    assert "dragoman://old/memo://one" in report["resources"]
    assert report["memo"] == "memo memo://one"
    assert report["prompt"] == "Greet Rom"


async def foreign(*arguments: str) -> dict[str, Any]:
    done = await asyncio.to_thread(
        subprocess.run,
        [node(), str(CLIENT), *arguments],
        env={**os.environ, "SDK_FROM": str(NPM / "package.json")},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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
