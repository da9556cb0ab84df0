"""Measure the gateway over HTTP, beside a bare SDK server and other gateways, alternately in one run.

Each gateway has the same small server behind it; the bare SDK server answers by itself. A call costs CPU of
the gateway's process (user and system, as the system counts it), not of the server behind it or the clients.
Goals: at most 0.4 ms of CPU and 1.5 ms at the median more than the bare server, and at least 5 times the
calls per second of the other gateways with 32 clients. `docs/gateway-performance.md` is written from the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gateway-performance.md"
PEERS = ROOT / ".cache" / "peers"
SERVER = Path(__file__).with_name("echo_server.py")
ROUNDS = int(os.environ.get("GATEWAY_ROUNDS", "5"))
CALLS = int(os.environ.get("GATEWAY_BENCH_CALLS", "600"))
"""In each round: a third one after the other, the rest by all clients at once."""
CLIENTS = 32
IDLE = 200
"""Clients that have a session and do nothing."""
SECONDS = 60.0
"""No step takes longer: a peer that hangs fails the run."""
TICKS = os.sysconf("SC_CLK_TCK")
MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
OURS, BARE = "dragoman", "a bare SDK server"
REPLICAS = (
    "## Replicas",
    "",
    "Gateway processes side by side, with 32 clients of 2026-07-28 spread over them. Each has a server of",
    "its own behind it and a client process of its own before it; all share the cores of the machine.",
)


@dataclass
class Contender:
    """A server under measurement."""

    name: str
    command: Sequence[str]
    tool: str
    versions: Sequence[str] = (LEGACY, MODERN)
    headers: dict[str, str] = field(default_factory=dict[str, str])
    port: int = 0
    """Where it listens; 0 if it says so itself."""
    process: subprocess.Popen[str] | None = None
    walls: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Seconds of single calls, by protocol version."""
    rates: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Calls per second of all clients."""
    costs: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """CPU seconds of a call with all clients at work, one per round."""
    alone: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """CPU seconds of a call of a single client, one per round."""
    listings: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """CPU seconds of listing the tools, one per round."""
    idle: float = 0.0
    """MB of memory for idle clients."""

    def cpu(self) -> float:
        """Return the CPU seconds of its process so far."""
        assert self.process is not None
        return cpu_of(self.process.pid)


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Connection:
    """One client: a kept-alive connection that sends tool calls and reads their answers."""

    def __init__(self, contender: Contender, version: str) -> None:
        self._contender = contender
        self._version = version
        self._session = ""
        self._number = 0
        self._prepared: tuple[bytes, bytes] | None = None
        """The head and the beginning of the body of a call: clients are not to cost more than gateways."""

    async def open(self) -> None:
        """Connect, with a handshake in the older protocol."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._contender.port)
        if self._version == LEGACY:
            hello = {
                "protocolVersion": LEGACY,
                "capabilities": {},
                "clientInfo": {"name": "b", "version": "1"},
            }
            await self._ask("initialize", hello)
            await self._ask("notifications/initialized", {}, has_answer=False)

    async def call(self) -> None:
        """Call the tool once."""
        if self._prepared is None:
            params: dict[str, Any] = {"name": self._contender.tool, "arguments": {"text": "hello"}}
            if self._version == MODERN:
                params["_meta"] = META
            head = self._head("tools/call", params["name"])
            self._prepared = head, json.dumps(_message("tools/call", params)).encode()[:-1]
        head, begin = self._prepared
        self._number += 1
        body = await self._send(head, b'%b,"id":%d}' % (begin, self._number))
        if b"hello" not in body or b'"isError":true' in body:
            msg = f"{self._contender.name} answered {body[:500]!r}"
            raise RuntimeError(msg)

    async def list(self) -> None:
        """List the tools once."""
        await self._ask("tools/list", {"_meta": META} if self._version == MODERN else {})

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def _ask(self, method: str, params: dict[str, Any], *, has_answer: bool = True) -> None:
        message = _message(method, params)
        if has_answer:
            self._number += 1
            message["id"] = self._number
        await self._send(self._head(method), json.dumps(message).encode())

    def _head(self, method: str, name: str = "") -> bytes:
        headers = {
            "Host": f"127.0.0.1:{self._contender.port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self._contender.headers,
        }
        if self._version == MODERN:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Mcp-Name": name}
        elif self._session:
            headers |= {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": self._session}
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}".encode()

    async def _send(self, head: bytes, body: bytes) -> bytes:
        self._writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        found = await self._reader.readuntil(b"\r\n\r\n")
        if not self._session and (session := _header(found, b"mcp-session-id")):
            self._session = session.decode()
        if size := _header(found, b"content-length"):
            return await self._reader.readexactly(int(size))
        if _header(found, b"transfer-encoding") != b"chunked":
            return b""
        body = b""
        while size := int(await self._reader.readline(), 16):
            body += await self._reader.readexactly(size)
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return body


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def _header(head: bytes, name: bytes) -> bytes:
    """Return the value of a header; empty without one."""
    start = head.lower().find(b"\r\n%b:" % name)
    return head[start + len(name) + 3 : head.index(b"\r\n", start + 2)].strip() if start >= 0 else b""


def main() -> int:
    """Measure, print the figures, and write the page."""
    base = getattr(sys, "_base_executable", sys.executable)
    script = ROOT / "scripts" / "install_peers.py"
    if subprocess.run([base, str(script), "fastmcp", "mcp-proxy"], check=False).returncode:
        return 1
    with tempfile.TemporaryDirectory() as folder:
        contenders = asyncio.run(_measure(Path(folder)))
    # Imported here: it uses the connections of this module.
    from bench import replicas

    lines = [*_lines(contenders), "", *REPLICAS, "", *replicas.lines()]
    print("\n".join(lines))
    PAGE.write_text(_page(lines), "utf-8")
    return 0


def all_contenders(folder: Path) -> list[Contender]:
    """Return what is measured; the configuration of the gateways is written to the folder."""
    config = folder / "servers.json"
    upstream = [sys.executable, str(SERVER)]
    entry = {"command": upstream[0], "args": upstream[1:]}
    config.write_text(json.dumps({"mcpServers": {"s": entry}}), "utf-8")
    serve = [sys.executable, "-m", "dragoman", "serve", "--config", str(config), "--http", "0"]
    token = "a-token-for-the-benchmark"
    proxy = str(PEERS / "mcp-proxy" / "bin" / "mcp-proxy")
    driver = Path(__file__).parent / "peers" / "drivers" / "fastmcp_proxy.py"
    fastmcp = [str(PEERS / "fastmcp" / "bin" / "python"), str(driver)]
    return [
        Contender(BARE, [sys.executable, str(Path(__file__).with_name("bare_server.py"))], "echo"),
        Contender(
            OURS,
            [*serve, "--token", token, "--no-access-log"],
            "mcp_s_echo",
            headers={"Authorization": f"Bearer {token}"},
        ),
        Contender("fastmcp `create_proxy`", [*fastmcp, *upstream], "echo", versions=(LEGACY,)),
        Contender(
            "mcp-proxy",
            [proxy, "--port", "{port}", "--log-level", "ERROR", "--", *upstream],
            "echo",
            versions=(LEGACY,),
        ),
    ]


async def _measure(folder: Path) -> list[Contender]:
    contenders = all_contenders(folder)
    async with AsyncExitStack() as stack:
        for contender in contenders:
            start(contender, folder)
            stack.callback(end, contender)
            await asyncio.wait_for(until_ready(contender), SECONDS)
        for round_ in range(1 + ROUNDS):
            for version in (LEGACY, MODERN):
                for contender in contenders:
                    if version in contender.versions:
                        # The first round warms up.
                        await asyncio.wait_for(_round(contender, version, counts=round_ > 0), SECONDS)
        ours = next(one for one in contenders if one.name == OURS)
        ours.idle = await asyncio.wait_for(_idle(ours), SECONDS)
    return contenders


async def _idle(contender: Contender) -> float:
    """Return how many MB of memory idle clients with sessions take."""
    before = _memory(contender)
    clients = [Connection(contender, LEGACY) for _ in range(IDLE)]
    for client in clients:
        await client.open()
    taken = _memory(contender) - before
    for client in clients:
        client.close()
    return taken


def _memory(contender: Contender) -> float:
    assert contender.process is not None
    text = Path(f"/proc/{contender.process.pid}/status").read_text("utf-8")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def start(contender: Contender, folder: Path) -> None:
    """Start the process of a server, and read where it listens."""
    command = list(contender.command)
    if "{port}" in command:
        import socket

        with socket.create_server(("127.0.0.1", 0)) as free:
            contender.port = free.getsockname()[1]
        command[command.index("{port}")] = str(contender.port)
    env = {**os.environ, "HOME": str(folder)}
    log = (folder / f"{contender.command[0].replace('/', '_')}.log").open("w")
    contender.process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if not contender.port else log,
        text=True,
        env=env,
    )
    while not contender.port:
        assert contender.process.stdout is not None
        line = contender.process.stdout.readline()
        if not line:
            msg = f"{contender.name} ended"
            raise RuntimeError(msg)
        if "serving at http" in line:
            contender.port = int(line.rpartition(":")[2].partition("/")[0])


def end(contender: Contender) -> None:
    """Stop the process of a server."""
    assert contender.process is not None
    contender.process.terminate()
    try:
        contender.process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        contender.process.kill()
        contender.process.communicate()


async def until_ready(contender: Contender) -> None:
    """Wait until a server answers a call."""
    while True:
        connection = Connection(contender, contender.versions[0])
        try:
            await connection.open()
            await connection.call()
            connection.close()
        except (OSError, RuntimeError):
            await asyncio.sleep(0.1)
        else:
            return


async def _round(contender: Contender, version: str, *, counts: bool) -> None:
    first = Connection(contender, version)
    await first.open()
    walls: list[float] = []
    single, many = CALLS // 3, CALLS - CALLS // 3
    before = contender.cpu()
    for _ in range(single):
        began = time.perf_counter()
        await first.call()
        walls.append(time.perf_counter() - began)
    alone = (contender.cpu() - before) / single
    before = contender.cpu()
    for _ in range(single):
        await first.list()
    listing = (contender.cpu() - before) / single
    first.close()
    # Opened only now: a server closes connections that are idle for some seconds.
    connections = [Connection(contender, version) for _ in range(CLIENTS)]
    await asyncio.gather(*(connection.open() for connection in connections))
    middle = contender.cpu()
    numbers = iter(range(many))

    async def work(connection: Connection) -> None:
        for _ in numbers:
            await connection.call()

    began = time.perf_counter()
    await asyncio.gather(*(work(connection) for connection in connections))
    taken = time.perf_counter() - began
    cost = contender.cpu() - middle
    for connection in connections:
        connection.close()
    if counts:
        contender.walls.setdefault(version, []).extend(walls)
        contender.rates.setdefault(version, []).append(many / taken)
        contender.costs.setdefault(version, []).append(cost / many)
        contender.alone.setdefault(version, []).append(alone)
        contender.listings.setdefault(version, []).append(listing)


def _lines(contenders: list[Contender]) -> list[str]:
    bare = next(one for one in contenders if one.name == BARE)
    ours = next(one for one in contenders if one.name == OURS)
    rows = [
        "| | protocol | calls/s, 32 clients | CPU of a call | calls/s, 1 client | CPU of a call | listing |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in contenders:
        rows += [
            f"| {one.name} | {version} | {_best(one, version):,.0f} | {_cost(one, version):.2f} ms | "
            f"{1000 / _median(one, version):,.0f} | {min(one.alone[version]) * 1000:.2f} ms | "
            f"{min(one.listings[version]) * 1000:.2f} ms |"
            for version in one.versions
        ]
    rows += ["", "| goal | bound | measured | |", "| --- | ---: | ---: | --- |"]
    for version in (LEGACY, MODERN):
        more = _cost(ours, version) - _cost(bare, version)
        rows.append(
            _goal(f"CPU over the bare server, {version}", "0.4 ms", f"{more:.2f} ms", met=more <= 0.4)
        )
        wall = _median(ours, version) - _median(bare, version)
        rows.append(
            _goal(f"median over the bare server, {version}", "1.5 ms", f"{wall:.2f} ms", met=wall <= 1.5)
        )
        ratio = min(bare.listings[version]) / max(min(ours.listings[version]), 1e-6)
        name = f"CPU of the bare server for a listing, {version}"
        rows.append(_goal(name, "3 × ours", f"{ratio:.1f} ×", met=ratio >= 3))
    rows.append(_goal(f"{IDLE} idle clients", "20 MB", f"{ours.idle:.1f} MB", met=ours.idle <= 20))
    for other in contenders:
        if other.name in (BARE, OURS):
            continue
        for version in other.versions:
            ratio = _best(ours, version) / _best(other, version)
            goal = f"calls/s against {other.name}, {version}"
            rows.append(_goal(goal, "5 ×", f"{ratio:.1f} ×", met=ratio >= 5))
    return rows


def _goal(name: str, bound: str, measured: str, *, met: bool) -> str:
    return f"| {name} | {bound} | {measured} | {'met' if met else '**missed**'} |"


def _best(one: Contender, version: str) -> float:
    return max(one.rates[version])


def _cost(one: Contender, version: str) -> float:
    return min(one.costs[version]) * 1000


def _median(one: Contender, version: str) -> float:
    return statistics.median(one.walls[version]) * 1000


def _page(lines: list[str]) -> str:
    day = datetime.now(UTC).date().isoformat()
    load = os.getloadavg()[0]
    machine = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores"
    facts = f"{machine}, Python {platform.python_version()}, load average {load:.1f} at the end of the run"
    return "\n".join(
        [
            "---",
            "summary: What the gateway costs over HTTP, beside a bare SDK server and other gateways.",
            "read_when: You want to know what a call through `dragoman serve --http` costs.",
            "---",
            "# Performance of the gateway",
            "",
            "<!-- Written by `make bench ARGS=gateway` from its own run; do not edit. -->",
            "",
            "Every gateway has the same small stdio server behind it and gets the same calls over HTTP,",
            "alternately in one run. The bare server is the SDK's own, and answers by itself. CPU is user",
            "and system time of the gateway's process alone, without the server behind it and the clients;",
            "the best of the rounds counts. Machines differ, so compare the ratios.",
            "",
            *lines,
            "",
            f"{day}, {facts}.",
            "",
        ]
    )
