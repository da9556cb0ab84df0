"""Every call with its arguments and its result, on disk, bounded in size and age.

`note` is for the event loop: it copies what may be kept, which is bounded, and returns. A thread masks,
writes and prunes. Nothing that goes wrong there reaches a call: what cannot be written is dropped and
counted, and a warning says so once. What the file holds is masked by shape, by telling names, and by the
values that are known to be secret, so `mask` should be the `mask` of a `Redactor` that knows them.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError
from dragoman.observe.call_database import (
    default_path,
    identity,
    insert,
    is_damage,
    open_for_writing,
    prune,
    replace_damaged,
)
from dragoman.observe.call_rows import take_down, to_row
from dragoman.trust.redact import mask_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dragoman.observe.call_rows import Note, Row

logger = logging.getLogger("dragoman")

MAX_AGE = 30 * 86_400.0
MAX_BYTES = 64 * 2**20
MAX_WAITING = 2000
"""How many calls may wait to be written; more are dropped."""
MAX_WAITING_CHARS = 32 * 2**20
"""How much text they may hold in memory."""
BATCH = 200
"""How many calls are written at once: between two batches other processes have their turn."""
PRUNE_EVERY = 500
"""After how many calls the bounds are checked; one call is small against them."""
CLOSE_SECONDS = 5.0


class CallLog:
    """Writes calls down; it has to be closed."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        mask: Callable[[str], str] = mask_text,
        max_age: float = MAX_AGE,
        max_bytes: int = MAX_BYTES,
        busy_seconds: float = CLOSE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Log into a file, which is made when there is something to log.

        Args:
            path: The file; the user's own unless given.
            mask: Masks a text; it is called from another thread.
            max_age: Seconds after which a call is removed.
            max_bytes: The size that the file keeps to, about.
            busy_seconds: How long to wait for other processes that write.
            clock: Gives the seconds since the epoch.
        """
        self.path = path or default_path()
        self._mask = mask
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[Note] = deque()
        self._weight = 0
        self._taken = 0
        """How many calls were ever put into the queue."""
        self._settled = 0
        """How many of those were written or dropped."""
        self._dropped = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        # Only the thread uses these.
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._until_prune = 0
        self._complained = False

    @property
    def dropped(self) -> int:
        """How many calls could not be logged."""
        return self._dropped

    def note(
        self,
        *,
        server: str,
        tool: str,
        call_id: str,
        arguments: object,
        duration: float,
        text: str = "",
        code: str = "",
    ) -> None:
        """Log a call that has just ended; never waits for the disk, and never fails.

        Args:
            server: Whose tool it was; empty for a built-in one.
            tool: The exposed name.
            call_id: The call's id.
            arguments: As they were sent, or as the caller gave them if nothing was sent.
            duration: Seconds.
            text: What the caller is told, the error if it failed.
            code: The stable code of the error; empty if it went well.
        """
        try:
            note = take_down(
                at=self._clock() - duration,
                server=server,
                tool=tool,
                call_id=call_id,
                duration=duration,
                code=code,
                arguments=arguments,
                text=text,
            )
        except Exception:  # noqa: BLE001 -- a caller's own mapping may raise anything
            with self._changed:
                self._dropped += 1
            return
        with self._changed:
            full = len(self._waiting) >= MAX_WAITING or self._weight + note.weight > MAX_WAITING_CHARS
            if full or self._closing:
                self._dropped += 1
                return
            self._waiting.append(note)
            self._weight += note.weight
            self._taken += 1
            if self._thread is None:
                # Not waited for at the end of the program: a call log must not keep a program from ending.
                self._thread = threading.Thread(target=self._run, name="dragoman call log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until everything noted so far is on disk or dropped; tell whether that is so."""
        with self._changed:
            wanted = self._taken
            return self._changed.wait_for(lambda: self._settled >= wanted, timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Write what waits and end; waits, so it is for a thread. Twice does no harm."""
        with self._changed:
            first, self._closing = not self._closing, True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive() and first:
                logger.warning("the call log did not finish within %g s", timeout)
        if self._dropped and first:
            logger.warning("%d calls are missing from the call log %s", self._dropped, self.path)

    # The thread

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                written = self._write(batch)
                with self._changed:
                    self._settled += len(batch)
                    self._dropped += len(batch) - written
                    self._changed.notify_all()
        finally:
            self._disconnect()

    def _next_batch(self) -> list[Note]:
        """Wait for calls; nothing means the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._weight -= sum(note.weight for note in batch)
            return batch

    def _write(self, batch: list[Note]) -> int:
        """Write calls; returns how many are on disk."""
        rows = [row for note in batch if (row := self._row(note)) is not None]
        try:
            try:
                self._insert(rows)
            except sqlite3.DatabaseError as exc:
                if not is_damage(exc):
                    raise
                self._disconnect()
                self._keep(replace_damaged(self.path, busy_seconds=self._busy_seconds))
                self._insert(rows)
        except (DragomanError, OSError, sqlite3.Error) as exc:
            self._disconnect()
            if not self._complained:
                logger.warning("calls are not logged in %s: %s", self.path, exc)
            self._complained = True
            return 0
        self._complained = False
        return len(rows)

    def _row(self, note: Note) -> Row | None:
        try:
            return to_row(note, self._mask)
        except Exception:  # noqa: BLE001 -- the application's own `mask` may raise anything
            # Without a traceback: it could show what was to be masked.
            logger.debug("call %s is not logged: it cannot be masked or written", note.call_id)
            return None

    def _insert(self, rows: list[Row]) -> None:
        connection = self._connection
        if connection is None or self._file != identity(self.path):
            # Somebody removed the file, or another process moved a damaged one aside.
            self._disconnect()
            connection = self._keep(open_for_writing(self.path, busy_seconds=self._busy_seconds))
        insert(connection, rows)
        self._until_prune -= len(rows)
        if self._until_prune <= 0:
            self._until_prune = PRUNE_EVERY
            try:
                prune(connection, before=self._clock() - self._max_age, max_bytes=self._max_bytes)
            except sqlite3.OperationalError as exc:
                # The calls are written; another process is in the way, and will prune as well as we do.
                logger.debug("the call log was not pruned: %s", exc)

    def _keep(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        self._connection, self._file = connection, identity(self.path)
        return connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error as exc:
                logger.debug("the call log was not closed well: %s", exc)
