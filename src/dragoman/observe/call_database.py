"""The file of the call log: SQLite, for its owner alone, used by several processes at once.

Write-ahead logging lets readers and a writer go on side by side, and survives a killed process. A file is
made under a lock; a damaged one is moved aside, under the same lock; one of a later dragoman is left alone.
Nothing here opens the file but SQLite itself: closing another descriptor of it would drop SQLite's locks.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import DragomanError
from dragoman.observe.call_rows import COLUMNS
from dragoman.private import private_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from filelock import BaseFileLock

    from dragoman.observe.call_rows import Row

logger = logging.getLogger("dragoman")

VERSION = 1
LOCK_SECONDS = 5.0
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    call_id TEXT NOT NULL,
    duration REAL NOT NULL,
    error_code TEXT NOT NULL,
    arguments TEXT NOT NULL,
    missing TEXT NOT NULL,
    result TEXT NOT NULL,
    result_chars INTEGER NOT NULL,
    result_missing TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS calls_at ON calls(at);
CREATE INDEX IF NOT EXISTS calls_call_id ON calls(call_id);
"""
_INSERT = f"INSERT INTO calls({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 -- only constants
_OLDEST_TENTH = """DELETE FROM calls WHERE number <= (
    SELECT number FROM calls ORDER BY number LIMIT 1 OFFSET (SELECT count(*) / 10 FROM calls))"""
_PRUNE_TURNS = 30


def default_path() -> Path:
    """Return where a user's calls are logged."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dragoman", appauthor=False)) / "calls.sqlite3"


def is_damage(exc: sqlite3.Error) -> bool:
    """Tell whether an error means that the file is no database, or not a whole one."""
    # An extended code holds the kind of error in its low byte.
    return (getattr(exc, "sqlite_errorcode", 0) & 0xFF) in DAMAGE


def open_for_writing(path: Path, *, busy_seconds: float = LOCK_SECONDS) -> sqlite3.Connection:
    """Open the log, and make it what it has to be; a damaged one is replaced.

    Raises:
        DragomanError: It is not ours to write.
        OSError: Its folder cannot be made.
        sqlite3.Error: It cannot be opened or made.
    """
    private_folder(path.parent)
    try:
        return _opened(path, busy_seconds, _guard(path))
    except sqlite3.DatabaseError as exc:
        if not is_damage(exc):
            raise
    return replace_damaged(path, busy_seconds=busy_seconds)


def replace_damaged(path: Path, *, busy_seconds: float = LOCK_SECONDS) -> sqlite3.Connection:
    """Move a damaged log aside, unless another process has done so meanwhile, and open a good one.

    Raises:
        DragomanError: It is not ours to write.
        OSError: It cannot be moved, or another process holds the lock for too long.
        sqlite3.Error: A new one cannot be made.
    """
    guard = _guard(path)
    with guard:
        connection = _sound(path, busy_seconds, guard)
        if connection is not None:
            return connection
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        for tail in ("-wal", "-shm"):
            # They belong to the damaged file: SQLite would play them into the new one.
            path.with_name(path.name + tail).unlink(missing_ok=True)
        logger.warning("the call log was damaged; it is kept as %s, and a new one is begun", aside)
        return _opened(path, busy_seconds, guard)


def _guard(path: Path) -> BaseFileLock:
    """Return the lock under which the file is made and replaced; whoever holds it may take it again."""
    import filelock

    # Its `Timeout` is an OSError.
    return filelock.FileLock(path.with_name(f".{path.name}.guard"), timeout=LOCK_SECONDS, mode=0o600)


def _sound(path: Path, busy_seconds: float, guard: BaseFileLock) -> sqlite3.Connection | None:
    """Open the log if it is whole."""
    try:
        connection = _opened(path, busy_seconds, guard)
    except sqlite3.DatabaseError as exc:
        if not is_damage(exc):
            raise
        return None
    try:
        is_whole = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        is_whole = False
    if is_whole:
        return connection
    connection.close()
    return None


def _opened(path: Path, busy_seconds: float, guard: BaseFileLock) -> sqlite3.Connection:
    _check_ours(path)
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    try:
        # Before anything is in it; the files beside it get the mode of this one.
        path.chmod(0o600)
        version = _version(connection)
        if version > VERSION:
            msg = f"the call log {path} was written by a later version of dragoman"
            raise DragomanError(msg, hint="update dragoman, or move the file away")
        if version < VERSION:
            with guard:
                if _version(connection) < VERSION:
                    _make(connection)
        # A crash of the machine may cost the last calls, never the file; each commit is cheap.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {4 * 2**20}")
        # Reads the schema, so that a damaged first page is met here.
        connection.execute("SELECT number FROM calls ORDER BY at DESC LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _make(connection: sqlite3.Connection) -> None:
    # This counts only while the file is empty.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def _check_ours(path: Path) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    getuid = getattr(os, "getuid", None)
    if not stat.S_ISREG(status.st_mode) or (getuid is not None and status.st_uid != getuid()):
        msg = f"{path} is not used as the call log: it is no regular file of ours"
        raise DragomanError(msg, hint="move it away")


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells one file from another that has its name; nothing if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def insert(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Write all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(_INSERT, rows)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def prune(connection: sqlite3.Connection, *, before: float, max_bytes: int) -> int:
    """Remove what is too old, then the oldest until the rest is small enough; returns how many calls."""
    removed = connection.execute("DELETE FROM calls WHERE at < ?", (before,)).rowcount
    for _ in range(_PRUNE_TURNS):
        if _used_bytes(connection) <= max_bytes:
            break
        removed += connection.execute(_OLDEST_TENTH).rowcount
    if removed:
        # Each step gives one page back.
        connection.execute("PRAGMA incremental_vacuum").fetchall()
    return removed


def _used_bytes(connection: sqlite3.Connection) -> int:
    with closing(connection.cursor()) as cursor:
        pages, free, size = (
            cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size
