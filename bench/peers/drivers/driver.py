"""The common part of all peers' scripts: one command per line on stdin, one response per line on stdout.

It uses only the standard library. A peer starts servers, calls the tool `echo` of one, and stops; the harness
decides what is measured. Commands run one after the other in one task, since many clients must be entered and
left in the same task.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    class Ready(Protocol):
        def __call__(self, name: str, tools: int, *, runs: bool = True) -> None: ...

    Server = dict[str, Any]


class Peer(Protocol):
    """The interface of a script."""

    async def start(self, servers: list[Server], ready: Ready) -> dict[str, str]:
        """Connect to all servers, and return failures.

        `ready` is called with the number of tools of each server that can be called. A peer that knows them
        earlier also calls it before, with `runs=False`.
        """
        ...

    async def call(self, server: str, text: str, timeout: float | None = None) -> str:
        """Call the tool, with the peer's own time-out if one is given."""
        ...

    async def stop(self) -> None:
        """Disconnect from all."""
        ...


def run(make: Callable[[], Peer]) -> None:
    """Run commands until the input ends."""
    # A peer may print, and servers inherit descriptors: move ours to other numbers.
    commands, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    asyncio.run(_run(make, commands, answers))


async def _run(make: Callable[[], Peer], commands: int, answers: int) -> None:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(commands, "rb", 0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    bench = _Bench(make)
    while line := await reader.readline():
        order = json.loads(line)
        answer = await getattr(bench, order.pop("do"))(**order)
        os.write(answers, json.dumps(answer).encode() + b"\n")


class _Bench:
    def __init__(self, make: Callable[[], Peer]) -> None:
        self._make = make
        self._peer = make()

    async def start(self, servers: list[Server], deadline: float) -> dict[str, Any]:
        self._peer = self._make()
        gc.collect()
        known: dict[str, float] = {}
        came: dict[str, tuple[float, int]] = {}
        began, cpu = time.perf_counter(), time.process_time()

        def ready(name: str, tools: int, *, runs: bool = True) -> None:
            now = time.perf_counter() - began
            known.setdefault(name, now)
            if runs:
                came[name] = (now, tools)

        outcome = await _within(deadline, lambda: self._peer.start(servers, ready))
        return {**outcome, "cpu": time.process_time() - cpu, "ready": came, "known": known}

    async def stop(self, deadline: float) -> dict[str, Any]:
        cpu = time.process_time()
        outcome = await _within(deadline, self._peer.stop)
        return {**outcome, "cpu": time.process_time() - cpu}

    async def call(self, server: str, text: str, deadline: float, timeout: float | None) -> dict[str, Any]:
        return await _within(deadline, lambda: self._peer.call(server, text, timeout))

    async def calls(self, server: str, count: int, at_once: int) -> dict[str, Any]:
        """Make many calls; measure latencies if they are sequential."""
        call, clock = self._peer.call, time.perf_counter
        taken: list[float] = []
        gc.collect()
        began, cpu = clock(), time.process_time()
        if at_once == 1:
            for _ in range(count):
                start = clock()
                text = await call(server, "hello")
                taken.append(clock() - start)
                assert text == "hello", text
        else:
            for _ in range(count // at_once):
                texts = await asyncio.gather(*(call(server, "hello") for _ in range(at_once)))
                assert set(texts) == {"hello"}, texts
        made = count if at_once == 1 else count // at_once * at_once
        seconds, cpu = clock() - began, time.process_time() - cpu
        middle = statistics.median(taken) if taken else None
        return {"seconds": seconds / made, "cpu": cpu / made, "median": middle}

    async def state(self) -> dict[str, Any]:
        return _state()


def _state() -> dict[str, Any]:
    """Return RSS and PSS in bytes, and the number of open descriptors."""
    gc.collect()
    fields: dict[str, int] = {}
    for file in ("/proc/self/status", "/proc/self/smaps_rollup"):
        try:
            lines = Path(file).read_text("utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                fields.setdefault(name, int(value.split()[0]) * 1024)
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None  # noqa: PTH208 -- names only
    return {"rss": fields.get("VmRSS"), "pss": fields.get("Pss"), "descriptors": descriptors}


async def _within(deadline: float, do: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """Await something with a deadline, and return the outcome."""
    began = time.perf_counter()
    scope = asyncio.timeout(deadline)
    outcome, value, error = "done", None, ""
    try:
        async with scope:
            value = await do()
    except Exception as exc:  # noqa: BLE001 -- whatever a peer raises is an observation
        outcome = "hangs" if scope.expired() else "fails"
        error = f"{type(exc).__name__}: {exc}"[:300]
    return {"outcome": outcome, "seconds": time.perf_counter() - began, "value": value, "error": error}


class Held:
    """Contexts that are entered and left in their own tasks, concurrently."""

    def __init__(self) -> None:
        self._leave = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def enter(self, context: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a context in a task that will also leave it."""
        entered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def stay() -> None:
            try:
                async with context as value:
                    entered.set_result(value)
                    await self._leave.wait()
            except BaseException as exc:
                if entered.done():
                    raise
                entered.set_exception(exc if isinstance(exc, Exception) else RuntimeError(repr(exc)))

        self._tasks.append(asyncio.create_task(stay()))
        return await entered

    async def leave(self) -> None:
        """Leave all contexts."""
        self._leave.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def each(
    servers: list[Server], connect: Callable[[Server], Awaitable[int]], ready: Ready
) -> dict[str, str]:
    """Connect to all servers concurrently, and return the errors."""
    failures: dict[str, str] = {}

    async def one(server: Server) -> None:
        try:
            ready(server["name"], await connect(server))
        except Exception as exc:  # noqa: BLE001 -- whatever a peer raises is an observation
            failures[server["name"]] = f"{type(exc).__name__}: {exc}"[:300]

    await asyncio.gather(*map(one, servers))
    return failures


def main(make: Callable[[], Peer]) -> None:
    """Run without logging, so that the speed of the terminal does not matter."""
    import logging

    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    run(make)
