"""The gateway on standard input and output, for one client.

Both are read and written by threads, which works for pipes, files and terminals on every system. The threads
use the descriptors themselves: a thread that waits in one of Python's buffered files would keep the program
from ending. Anything that prints goes to standard error from here on, where it cannot break the protocol.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.gateway.outbox import ClientOutbox
from dragoman.server.protocol.envelope import MCPError, decode, error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.gateway.gateway import Gateway

CHUNK = 65_536
LONGEST_LINE = 64 * 1024 * 1024
MAX_LINES = 1_000
"""How many lines may wait before the client is not read."""
FINISH_SECONDS = 5.0
"""How long requests may take after the client has sent its last one, and the client to read what is left."""

logger = logging.getLogger("dragoman")


async def serve_stdio(gateway: Gateway) -> None:
    """Serve the client at standard input and output until it closes its end."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = threading.Semaphore(MAX_LINES)
    source, sink = _taken()

    def deliver(line: bytes | None) -> None:
        # Waits in the reading thread while too many lines wait: the client is then not read either.
        room.acquire()
        loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=_read, args=(source, deliver), name="dragoman stdin", daemon=True).start()
    outbox = ClientOutbox(_Writer(sink, loop).write)

    async def take() -> None:
        while (line := await lines.get()) is not None:
            room.release()
            if not line.strip():
                continue
            try:
                message = decode(line)
            except MCPError as exc:
                outbox.send({"id": None, "error": error_of(exc)})
                continue
            connection.take(message)

    async with gateway:
        connection = gateway.connect(outbox)
        taking = asyncio.create_task(take())
        # The client reads nothing more: it has closed its end, or too much waits for it.
        unread = asyncio.create_task(outbox.closed.wait())
        try:
            await asyncio.wait({taking, unread}, return_when=asyncio.FIRST_COMPLETED)
            if not unread.done():
                gateway.announcer.close()
                await connection.finish(FINISH_SECONDS)
        finally:
            taking.cancel()
            unread.cancel()
            await asyncio.gather(taking, unread, return_exceptions=True)
            await connection.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(FINISH_SECONDS):
                    await outbox.flush()
            await outbox.close(flush=False)


def _taken() -> tuple[int, int]:
    """Return descriptors of standard input and output that nothing else in this process uses."""
    source, sink = os.dup(0), os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return source, sink


def _read(source: int, deliver: Callable[[bytes | None], None]) -> None:
    """Deliver each line, and `None` at the end."""
    rest = b""
    try:
        while chunk := os.read(source, CHUNK):
            *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
            for line in lines:
                deliver(line)
            if len(rest) > LONGEST_LINE:
                logger.error("a message of the client has more than %d bytes: the gateway ends", LONGEST_LINE)
                break
        if rest.strip() and len(rest) <= LONGEST_LINE:
            deliver(rest)
        deliver(None)
    except (OSError, RuntimeError):
        pass  # The loop has ended, and with it the client's connection.


class _Writer:
    """Writes to a descriptor in a thread."""

    def __init__(self, sink: int, loop: asyncio.AbstractEventLoop) -> None:
        self._sink = sink
        self._loop = loop
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="dragoman stdout", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            OSError: The client has closed its end.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, done))
        await done

    def _run(self) -> None:
        while True:
            data, done = self._jobs.get()
            error: OSError | None = None
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._sink, view) :]
            except OSError as exc:
                error = exc
            try:
                self._loop.call_soon_threadsafe(_settle, done, error)
            except RuntimeError:
                return  # The loop has ended.


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
