"""Start the two demo servers: one over stdio, one over HTTP on loopback.

The HTTP server is a child of this process. It ends when its standard input is closed, so it cannot outlive
this process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING

from dragoman.errors import ConnectError
from dragoman.model import Http, ServerSpec, Stdio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

START_TIMEOUT = 30.0
STOP_TIMEOUT = 3.0


@asynccontextmanager
async def demo_servers() -> AsyncGenerator[list[ServerSpec]]:
    """Start the HTTP server, and yield the specs of both servers."""
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "dragoman.demo.studio", "--port", "0", "--until-eof"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            # Ctrl-C at the terminal is for the client only; this child ends with its standard input.
            start_new_session=True,
        )
        try:
            url = await _announced_url(process, log)
            yield [
                ServerSpec("legal", Stdio(sys.executable, ["-m", "dragoman.demo.legal"])),
                ServerSpec("studio", Http(url)),
            ]
        finally:
            await _stop(process)


async def _announced_url(process: asyncio.subprocess.Process, log: IO[bytes]) -> str:
    assert process.stdout is not None  # noqa: S101 -- a pipe was requested
    line = b""
    try:
        async with asyncio.timeout(START_TIMEOUT):
            line = await process.stdout.readline()
        url: str = json.loads(line)["url"]
    except (TimeoutError, ValueError, KeyError, TypeError):
        log.seek(0)
        tail = log.read()[-2000:].decode("utf-8", "replace")
        msg = "the demo's HTTP server did not start"
        raise ConnectError(msg, server="studio", stage="spawn", stderr_tail=tail, hint=tail.strip()) from None
    return url


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
