"""What a program has just learned about its tasks: one line for each fact, written before anything else.

A record of a task is stored by a thread, with a sync, which takes milliseconds. A program that is killed
meanwhile would lose the id of a task that its server works on, or an answer that the user has given. So a
record is first appended here, in the same step of the event loop that has learned it; that takes
microseconds. A line survives the end of the program. It need not survive a crash of the machine: the sync of
the record is for that.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from dragoman.storage.files import private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

_SUFFIX = ".journal"
MAX_BYTES = 64 * 2**20


class TaskJournal:
    """The journal of one program in the folder of its records; any thread may use it."""

    def __init__(self, folder: Path) -> None:
        """Create the file.

        Raises:
            OSError: It cannot be created.
        """
        private_folder(folder)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        while True:
            path = folder / f"{secrets.token_hex(8)}{_SUFFIX}"
            self._number = os.open(path, flags, 0o600)
            # Another program that recovers journals may have taken and removed the new file before the lock.
            if _lock(self._number) and os.fstat(self._number).st_nlink > 0:
                break
            os.close(self._number)
        self._guard = threading.Lock()
        self._unstored: set[str] = set()
        self._end = weakref.finalize(self, _close, self._number, path)

    def note(self, identifier: str, record: Mapping[str, Any]) -> None:
        """Append a record, which `stored` must follow; a full disk is not an error."""
        with self._guard:
            self._unstored.add(identifier)
            self._append({"id": identifier, "record": record})

    def stored(self, identifier: str) -> None:
        """Mark a record as stored elsewhere, or not needed any more."""
        with self._guard:
            if identifier not in self._unstored:
                return
            self._unstored.remove(identifier)
            if self._unstored:
                self._append({"id": identifier})
            elif self._end.alive:
                with suppress(OSError):
                    os.ftruncate(self._number, 0)

    def close(self) -> None:
        """Close the file; remove it unless it has records that are not stored."""
        with self._guard:
            self._end()

    def _append(self, line: Mapping[str, Any]) -> None:
        if not self._end.alive:  # The number may be another file's by now.
            return
        # The line break comes first: a line that was cut off by a full disk must not spoil this one.
        data = b"\n" + json.dumps(line, separators=(",", ":")).encode()
        with suppress(OSError):
            os.write(self._number, data)


def recover(folder: Path, save: Callable[[dict[str, Any]], None]) -> None:
    """Save the records that programs have noted, and not stored when they ended; remove their journals.

    Args:
        folder: The folder of the records.
        save: Stores a record; with an `OSError`, the journal is kept.
    """
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
            try:
                if not stat.S_ISREG(os.fstat(number).st_mode) or not _lock(number):
                    continue
                with os.fdopen(number, "rb", closefd=False) as file:
                    lines = file.read(MAX_BYTES).splitlines()
                for record in _unstored(lines):
                    save(record)
            finally:
                os.close(number)
            path.unlink()


def _unstored(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            fact = cast("dict[str, Any]", json.loads(line))
            if "record" in fact:
                found[fact["id"]] = dict(fact["record"])
            else:
                found.pop(fact["id"], None)
    return list(found.values())


def _lock(number: int) -> bool:
    """Lock a journal until it is closed; return False if its program runs."""
    try:
        import fcntl
    except ImportError:  # Windows: an open file cannot be removed, so a journal in use stays.
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _close(number: int, path: Path) -> None:
    is_empty = os.fstat(number).st_size == 0
    os.close(number)
    if is_empty:
        with suppress(OSError):
            path.unlink()
