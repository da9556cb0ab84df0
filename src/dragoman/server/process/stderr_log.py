"""Kept logs: what servers wrote to their standard error in the last days, masked and bounded.

A log is written by a thread of its own, so that a slow disk does not delay a server or a call. What cannot be
written is dropped: a full disk or a read-only home breaks nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import threading
import time
from collections import deque
from contextvars import copy_context
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.server.late_import import anyio_shield
from dragoman.server.process.environment import RotatingLog, env_file_values
from dragoman.storage.files import state_folder
from dragoman.trust.gate import secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dragoman.model import ServerSpec, Stdio
    from dragoman.server.process.environment import StderrSink

logger = logging.getLogger("dragoman")

KEPT_DAYS = 7
KEPT_BYTES = 8 * 2**20
"""Of all kept logs together; with the call log that is 20 MiB."""
MAX_WAITING = 2**20
"""Bytes that may wait to be written; more are dropped."""
FINISH_SECONDS = 1.0
"""How long the end of a server waits for its log."""


def kept_folder() -> Path:
    """Return the folder of the kept logs."""
    return state_folder() / "stderr"


def kept_path(spec: ServerSpec) -> Path:
    """Return the path of a server's kept log, to which the day is added.

    Servers of the same name in different files have different logs.
    """
    plain = re.sub(r"[^\w.-]", "_", spec.name, flags=re.ASCII)[:60]
    key = hashlib.sha256(f"{spec.origin.source}\0{spec.name}".encode()).hexdigest()[:8]
    return kept_folder() / f"{plain}-{key}.log"


def kept_files(spec: ServerSpec) -> list[Path]:
    """Return the files of a server's kept log, the oldest day first; rotated parts are not listed."""
    path = kept_path(spec)
    return sorted(path.parent.glob(f"{path.stem}.????-??-??.log"))


class BackgroundLog:
    """Writes a log in a thread, which runs only while there is something to write."""

    def __init__(self, open_log: Callable[[], StderrSink]) -> None:
        """Remember how to open the log; that happens in the thread, with the first data."""
        self._open_log = open_log
        self._log: StderrSink | None = None
        self._context = copy_context()
        self._lock = threading.Lock()
        self._waiting: deque[bytes | None] = deque()
        self._size = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def write(self, data: bytes) -> None:
        """Queue data; never waits for the disk, and never fails."""
        with self._lock:
            if self._size + len(data) > MAX_WAITING:
                self._dropped += len(data)
                return
            self._size += len(data)
            self._put(data)

    def close(self) -> None:
        """Close the log when everything is written."""
        with self._lock:
            # A thread that is opening the log has taken its data, and has no log yet.
            if self._log is not None or self._thread is not None:
                self._put(None)

    async def finish(self) -> None:
        """Wait a moment until everything is written."""
        thread = self._thread
        if thread is not None:
            # A log that is cut off would lack the lines that matter: those before the end.
            with anyio_shield():
                await asyncio.to_thread(thread.join, FINISH_SECONDS)

    def _put(self, item: bytes | None) -> None:
        self._waiting.append(item)
        if self._thread is None:
            # A daemon: a disk that hangs must not keep the program from ending.
            self._thread = threading.Thread(
                target=self._context.run, args=(self._run,), name="dragoman stderr log", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                item = self._waiting.popleft()
                self._size -= len(item or b"")
                dropped, self._dropped = self._dropped, 0
            try:
                if self._log is None:
                    if item is None:
                        continue
                    self._log = self._open_log()
                if dropped:
                    self._log.write(f"\n({dropped} bytes were not kept: the disk is too slow)\n".encode())
                if item is None:
                    self._log.close()
                    self._log = None
                else:
                    self._log.write(item)
            except Exception:
                logger.debug("a log of standard error could not be written", exc_info=True)


class KeptLog:
    """One file a day; use it in one thread only."""

    def __init__(
        self, path: Path, *, server: str, secrets: set[str], now: Callable[[], float] = time.time
    ) -> None:
        """Prepare a log; its file is created with the first data.

        Args:
            path: The path, without the day.
            server: The server's name, for messages.
            secrets: Values to mask, besides those that the connection's redactor knows.
            now: Returns the seconds since the epoch.
        """
        self._path = path
        self._server = server
        self._secrets = secrets
        self._now = now
        self._day = ""
        self._log: RotatingLog | None = None

    def write(self, data: bytes) -> None:
        """Add data to the log of today."""
        now = datetime.fromtimestamp(self._now()).astimezone()
        day = now.date().isoformat()
        if self._log is None or day != self._day:
            self.close()
            prune(self._path.parent, now=now)
            path = self._path.with_name(f"{self._path.stem}.{day}.log")
            self._log = RotatingLog(
                str(path), server=self._server, secrets=self._secrets, masks_shapes=True, is_quiet=True
            )
            self._log.write(f"--- started {now:%Y-%m-%d %H:%M:%S} ---\n".encode())
            self._day = day
        self._log.write(data)

    def close(self) -> None:
        """Close the file."""
        if self._log is not None:
            self._log.close()
            self._log = None


def prune(folder: Path, *, now: datetime, max_bytes: int = KEPT_BYTES) -> None:
    """Delete kept logs that are too old, then the oldest ones until all of them are small enough."""
    oldest = (now.date() - timedelta(days=KEPT_DAYS)).isoformat()
    total = 0
    for path in sorted(_days(folder), key=_day_of, reverse=True):
        try:
            total += path.stat().st_size
            if _day_of(path) < oldest or total > max_bytes:
                path.unlink()
        except OSError as exc:
            logger.debug("the log %s was not deleted: %s", path, exc)


def _days(folder: Path) -> Iterator[Path]:
    try:
        yield from (path for path in folder.iterdir() if _day_of(path))
    except OSError:
        return


def _day_of(path: Path) -> str:
    found = re.search(r"\.(\d{4}-\d{2}-\d{2})\.log(?:\.\d)?$", path.name, re.ASCII)
    return found[1] if found else ""


def stderr_log(stdio: Stdio, name: str, given: Mapping[str, str]) -> BackgroundLog | None:
    """Return the log of a child's standard error, if it has one: its `log_file`, or a kept log.

    Args:
        stdio: The child's transport; `log_file` is the path.
        name: The server's name, for warnings.
        given: The environment of the child, to know its secrets.
    """
    if stdio.log_file is None:
        return None
    path = Path(stdio.log_file)

    def open_log() -> StderrSink:
        secrets = set(secrets_of(stdio, given, env_file_values(stdio)))
        if path.parent == kept_folder():
            return KeptLog(path, server=name, secrets=secrets)
        return RotatingLog(str(path), server=name, secrets=secrets)

    return BackgroundLog(open_log)
