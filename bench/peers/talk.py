"""Control a peer's script: a process that receives commands, and is killed when it hangs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from bench.peers.field import Peer

GRACE = 5.0
"""Seconds that a script gets beyond the deadline of a command."""


class PeerGoneError(Exception):
    """The script ended or did not respond in time; the message is its last output."""


class Driver:
    """One running script."""

    def __init__(self, peer: Peer, *, folder: str) -> None:
        self.peer = peer
        self._folder = folder
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 -- closed with the driver
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(self.peer.python, self.peer.driver),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            env=environment(self._folder),
            cwd=self._folder,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._running().pid

    async def ask(self, do: str, *, within: float = 60.0, **fields: Any) -> dict[str, Any]:
        """Send a command and return its response.

        Raises:
            PeerGoneError: There is none, since the script ended or hangs; it is ended.
        """
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        limit = max(within, fields.get("deadline", 0.0) + GRACE)
        try:
            process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
            async with asyncio.timeout(limit):
                line = await process.stdout.readline()
        except TimeoutError:
            self.kill()
            msg = f"`{do}` gave no answer for {limit:g} s"
            raise PeerGoneError(msg) from None
        except ConnectionError:
            line = b""
        if not line:
            await process.wait()
            msg = f"`{do}` ended the process with {process.returncode}: {self.last_words()}"
            raise PeerGoneError(msg)
        return json.loads(line)

    def kill(self) -> None:
        """Kill the script."""
        with suppress(ProcessLookupError):
            self._running().send_signal(signal.SIGKILL)

    async def close(self) -> None:
        """Let the script end, and wait for it; kill it if it does not end in time."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(GRACE):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
            # Its last output may still be in the pipe.
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 -- asyncio has no public way
        self._errors.close()

    def last_words(self) -> str:
        """Return the last lines of the script's stderr."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 600))
        return self._errors.read(600).decode("utf-8", "replace").strip()

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "the driver is not started"
        return self._process


def environment(folder: str) -> dict[str, str]:
    """Return the environment of a script: its own home folder, and bytecode as in an installed program."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {
        **kept,
        "HOME": folder,
        "TMPDIR": folder,
        "MCP_USE_ANONYMIZED_TELEMETRY": "false",
    }
