"""Measure gateway processes side by side: calls per second with one, two and three, and what limits them.

Each replica has a server of its own behind it and a client process of its own before it, as a load balancer
would spread them. A call costs CPU of three processes; all of them share the cores of this machine. `make
bench ARGS=gateway` measures the replicas too, and writes them to `docs/gateway-performance.md`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import gateway

COUNTS = (1, 2, 3)
ROUNDS = 3
CLIENTS = 32
"""Connections, over all replicas."""
CALLS = int(os.environ.get("REPLICA_CALLS", "6000"))
"""In each round, over all replicas."""
CLIENT = """
import asyncio, json, sys
from bench.gateway import MODERN, Connection, Contender

async def main(port, tool, headers, clients, calls):
    contender = Contender("replica", (), tool, headers=headers, port=port)
    connections = [Connection(contender, MODERN) for _ in range(clients)]
    for connection in connections:
        await connection.open()
        await connection.call()
    print("ready", flush=True)
    while sys.stdin.readline():
        numbers = iter(range(calls))

        async def work(connection):
            for _ in numbers:
                await connection.call()

        await asyncio.gather(*map(work, connections))
        print("done", flush=True)

asyncio.run(main(**json.loads(sys.argv[1])))
"""


@dataclass(frozen=True)
class Outcome:
    """The best round with a number of replicas."""

    replicas: int
    rate: float
    """Calls per second."""
    gateways: float
    """CPU seconds of a call in the gateways; the others likewise."""
    servers: float
    clients: float

    @property
    def cores(self) -> float:
        """How many cores were at work."""
        return self.rate * (self.gateways + self.servers + self.clients)


def main() -> None:
    """Measure and print."""
    print("\n".join(lines()))


def lines() -> list[str]:
    """Measure, and return the section of the page."""
    outcomes = [asyncio.run(_measure(count)) for count in COUNTS]
    rows = [
        "| replicas | calls/s | CPU of a call: gateway | its server | its client | cores at work |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows += [
        f"| {one.replicas} | {one.rate:,.0f} | {one.gateways * 1e3:.2f} ms | {one.servers * 1e3:.2f} ms | "
        f"{one.clients * 1e3:.2f} ms | {one.cores:.1f} of {os.cpu_count()} |"
        for one in outcomes
    ]
    gateway_cpu = min(one.gateways for one in outcomes)
    limit = f"A core that does nothing else serves 1 / {gateway_cpu * 1e3:.2f} ms = {1 / gateway_cpu:,.0f}"
    return [*rows, "", f"{limit} calls per second; replicas add up until the cores are used up."]


async def _measure(count: int) -> Outcome:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        replicas: list[gateway.Contender] = []
        clients: list[asyncio.subprocess.Process] = []
        for number in range(count):
            home = folder / str(number)
            home.mkdir()
            replica = next(one for one in gateway.all_contenders(home) if one.name == gateway.OURS)
            gateway.start(replica, home)
            stack.callback(gateway.end, replica)
            await asyncio.wait_for(gateway.until_ready(replica), gateway.SECONDS)
            replicas.append(replica)
            client = await _client(replica, count)
            stack.push_async_callback(_finish, client)
            clients.append(client)
        servers = [_child(replica) for replica in replicas]
        found: list[Outcome] = []
        for _ in range(ROUNDS):
            groups = ([_pid(replica) for replica in replicas], servers, [client.pid for client in clients])
            before = [sum(map(gateway.cpu_of, group)) for group in groups]
            began = time.perf_counter()
            await asyncio.gather(*map(_round, clients))
            taken = time.perf_counter() - began
            calls = CALLS // count * count
            spent = [
                (sum(map(gateway.cpu_of, group)) - start) / calls
                for group, start in zip(groups, before, strict=True)
            ]
            found.append(Outcome(count, calls / taken, *spent))
    return max(found, key=lambda one: one.rate)


async def _client(replica: gateway.Contender, count: int) -> asyncio.subprocess.Process:
    told = {
        "port": replica.port,
        "tool": replica.tool,
        "headers": replica.headers,
        "clients": max(1, CLIENTS // count),
        "calls": CALLS // count,
    }
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, json.dumps(told)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=gateway.ROOT,
    )
    await _line(client)
    return client


async def _round(client: asyncio.subprocess.Process) -> None:
    assert client.stdin is not None
    client.stdin.write(b"\n")
    await _line(client)


async def _line(client: asyncio.subprocess.Process) -> None:
    assert client.stdout is not None
    if not await asyncio.wait_for(client.stdout.readline(), gateway.SECONDS):
        msg = "a client of the benchmark ended"
        raise RuntimeError(msg)


async def _finish(client: asyncio.subprocess.Process) -> None:
    assert client.stdin is not None
    client.stdin.close()
    await client.wait()


def _pid(replica: gateway.Contender) -> int:
    assert replica.process is not None
    return replica.process.pid


def _child(replica: gateway.Contender) -> int:
    """Return the process of the server behind a replica: the watchdog is between them."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    for pid in parents:
        above = parents.get(pid)
        if above is not None and (above == _pid(replica) or parents.get(above) == _pid(replica)):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if gateway.SERVER.name.encode() in command:
                return pid
    msg = "the server behind a replica is not found"
    raise RuntimeError(msg)


def _parent(path: Path) -> int | None:
    try:
        return int((path / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
    except OSError:
        return None
