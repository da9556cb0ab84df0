"""The daemon at full size: storms of starts, `kill -9` under load, many clients of many servers."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.behaviour.test_daemon import echo, kill, start, status, stop
from tests.unit.cli.program import configure, dragoman_command, entry

from dragoman.gateway import client
from dragoman.gateway.client import Client, DaemonError, OutcomeUnknownError

if TYPE_CHECKING:
    from tests.prove.conftest import Proof

STARTS = 50
STALE_STARTS = 100
CLIENTS, SERVERS = 20, 10
CALLS, THREADS, KILLS = 10_000, 16, 5

pytestmark = [
    pytest.mark.skipif(not client.is_supported(), reason="needs Unix sockets"),
    pytest.mark.timeout(1800),
]


def servers_left() -> int:
    """Return how many processes of test servers have this test's home."""
    mark, count = f"HOME={os.environ['HOME']}\0".encode(), 0
    for name in os.listdir("/proc"):  # noqa: PTH208 -- thousands of entries
        if name.isdigit() and int(name) != os.getpid():
            try:
                environment = Path("/proc", name, "environ").read_bytes()
                words = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            count += mark in environment and (b"echo_server.py" in words or b"noting.py" in words)
    return count


def memory(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def test_simultaneous_first_starts_give_one_daemon(proof: Proof) -> None:
    configure(echo=echo())
    words = [*dragoman_command(), "call", "echo", "echo", "text=!pid"]
    env = os.environ | {"DRAGOMAN_DAEMON": "1"}
    began = time.monotonic()
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) for _ in range(STARTS)]
    pids = Counter(one.communicate()[0].strip() for one in running)
    took = time.monotonic() - began
    try:
        assert [one.returncode for one in running] == [0] * STARTS
        assert len(pids) == 1
        assert Path(client.paths().log).read_text("utf-8").count("started, process") == 1
    finally:
        stop()
    proof.record(starts=STARTS, daemons=1, server_processes=len(pids), seconds=took)


def test_a_daemon_starts_after_every_kill_whatever_is_left(proof: Proof) -> None:
    draw = random.Random(proof.seed)
    where = client.paths()
    for _ in range(STALE_STARTS):
        found = client.start()
        assert found["started"]
        kill(found["pid"])
        match draw.randrange(4):
            case 0:
                Path(where.lock).write_text(str(os.getpid()), "utf-8")
            case 1:
                Path(where.socket).unlink()
            case 2:
                Path(where.socket).unlink()
                Path(where.socket).write_text("not a socket", "utf-8")
            case _:
                pass
    proof.record(kills=STALE_STARTS, starts_that_failed=0)


def test_many_clients_of_many_servers_have_one_process_each(proof: Proof) -> None:
    configure(**{f"s{number}": echo("--mark", f"s{number}") for number in range(SERVERS)})
    pid = start()
    clients = [Client(env=os.environ | {"UNUSED_VARIABLE": str(number)}) for number in range(CLIENTS)]
    try:
        first = memory_after(clients[:1], pid)
        found: list[list[str]] = [[] for _ in clients]

        def work(at: int) -> None:
            for number in range(SERVERS):
                found[at].append(clients[at].call(f"mcp_s{number}_echo", {"text": "!pid"}, timeout=120).text)

        threads = [threading.Thread(target=work, args=(at,)) for at in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(len(pids) == SERVERS and pids == found[0] for pids in found)
        assert servers_left() == SERVERS == len(status()["processes"])
        every = memory(pid)
    finally:
        for one in clients:
            one.close()
        stop()
    assert servers_left() == 0
    proof.record(
        clients=CLIENTS, servers=SERVERS, processes=SERVERS, daemon_mb_one=first, daemon_mb_all=every
    )


def memory_after(clients: list[Client], pid: int) -> float:
    for one in clients:
        for number in range(SERVERS):
            one.call(f"mcp_s{number}_echo", {"text": "hello"}, timeout=120)
    return memory(pid)


def test_kill_9_under_load_loses_no_call_silently(proof: Proof, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    configure(noting=entry("noting.py", str(notes)))
    began = time.monotonic()
    start()
    with Client() as shared:
        shared.call("mcp_noting_note", {"text": "first"}, timeout=120)
        cold = time.monotonic() - began
        outcomes: dict[str, str] = {}
        numbers = iter(range(CALLS))
        taking = threading.Lock()

        def work() -> None:
            while True:
                with taking:
                    number = next(numbers, None)
                if number is None:
                    return
                text = f"call {number}"
                try:
                    result = shared.call("mcp_noting_note", {"text": text}, timeout=120)
                    outcomes[text] = "answered" if result.text == text else f"wrong: {result.text}"
                except OutcomeUnknownError:
                    outcomes[text] = "unknown"
                except DaemonError as error:
                    outcomes[text] = f"refused: {error}"

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        back: list[tuple[float, float]] = []
        for round_ in range(KILLS):
            while len(outcomes) < (round_ + 1) * CALLS // (KILLS + 1):
                threading.Event().wait(0.01)
            pid = client.start()["pid"]
            kill(pid)
            back.append(_back())
        for thread in threads:
            thread.join(600)
        assert not any(thread.is_alive() for thread in threads)
    stop()
    assert servers_left() == 0
    kinds = Counter(outcomes.values())
    carried_out = Counter(line.partition(" ")[2] for line in notes.read_text("utf-8").splitlines())
    assert len(outcomes) == CALLS
    assert kinds.keys() <= {"answered", "unknown"}
    assert max(carried_out.values()) == 1
    assert all(carried_out[text] == 1 for text, outcome in outcomes.items() if outcome == "answered")
    assert kinds["unknown"] <= KILLS * THREADS
    proof.record(
        calls=CALLS,
        kills=KILLS,
        answered=kinds["answered"],
        unknown=kinds["unknown"],
        repeated=0,
        hung=0,
        orphans=0,
        cold_start_seconds=cold,
        accepts_after_seconds=max(accepts for accepts, _ in back),
        answers_after_seconds=max(answers for _, answers in back),
    )


def _back() -> tuple[float, float]:
    """Return after how many seconds the next daemon accepts, and answers a call."""
    began = time.monotonic()
    while True:
        try:
            client.dial(client.paths().socket, client.hello("/", {})).close()
        except DaemonError:
            threading.Event().wait(0.005)
        else:
            break
    accepts = time.monotonic() - began
    with Client() as one:
        one.call("mcp_noting_note", {"text": f"back {time.monotonic_ns()}"}, timeout=120, is_safe=True)
    return accepts, time.monotonic() - began
