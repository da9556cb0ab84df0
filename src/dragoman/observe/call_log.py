"""Writes the call log: every call with its arguments and its result, in a SQLite file of bounded size.

`CallLog.note` runs in the event loop: it copies a bounded part of the call and returns. A thread masks,
writes and prunes. Its errors never reach a call: what cannot be written is dropped and counted, with one
warning. Arguments and results are masked by their shape, by sensitive names and by known secrets; for the
last, pass the `mask` of a `Redactor`. `observe/call_history.py` reads the log.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from dragoman.errors import DragomanError
from dragoman.storage.files import check_own_file, private_folder, state_folder
from dragoman.trust.masking import MARGIN, MASK, MAX_DEPTH, excerpt, is_sensitive_name, mask_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from filelock import BaseFileLock

    from dragoman.trust.masking import Excerpt

MAX_TEXT_CHARS = 8192
"""Of one text among the arguments."""
MAX_ARGUMENT_CHARS = 32_768
"""Of all texts and keys of one call's arguments."""
MAX_RESULT_CHARS = 16_384
MAX_NODES = 1000
"""Values among the arguments of one call: copying them blocks the event loop for a millisecond at most."""
MAX_NAME_CHARS = 256
MAX_MISSING = 100
LONG_NUMBER = 100_000
"""A number of this size may be an account number or a key."""
CUT: Final = "…"
"""Marks something that was left out."""

_WINDOW = MAX_TEXT_CHARS + MARGIN

Why: TypeAlias = Literal["redacted", "cut"]


class CallNote(NamedTuple):
    """A call that waits to be written: a copy that shares nothing with the caller's arguments."""

    at: float
    server: str
    tool: str
    call_id: str
    duration: float
    code: str
    arguments: object
    text: str
    chars: int
    """The length of the whole text."""
    weight: int
    """About how many characters it takes in memory."""
    user: str = ""
    mask: Callable[[str], str] | None = None
    """Masks what only this user's calls can show."""


Row: TypeAlias = tuple[float, str, str, str, float, str, str, str, str, int, str, str]
"""The values of one row, in the order of `COLUMNS`."""
COLUMNS = {
    "at": "REAL",
    "server": "TEXT",
    "tool": "TEXT",
    "call_id": "TEXT",
    "duration": "REAL",
    "error_code": "TEXT",
    "arguments": "TEXT",
    "missing": "TEXT",
    "result": "TEXT",
    "result_chars": "INTEGER",
    "result_missing": "TEXT",
    "user": "TEXT",
}
"""The columns of a row and their types."""


class _Long(NamedTuple):
    """The beginning of a text that is too long."""

    text: str


class _Omitted:
    """A value that was not copied."""


_OMITTED = _Omitted()


def copy_call(
    *,
    at: float,
    server: str,
    tool: str,
    call_id: str,
    duration: float,
    code: str,
    arguments: object,
    text: str,
    user: str = "",
    mask: Callable[[str], str] | None = None,
) -> CallNote:
    """Copy the parts of a call that may be written, in bounded time."""
    copier = _Copier()
    copied = copier.copy(arguments, 0)
    kept = text[: MAX_RESULT_CHARS + MARGIN]
    return CallNote(
        at=at,
        server=server[: MAX_NAME_CHARS + MARGIN],
        tool=tool[: MAX_NAME_CHARS + MARGIN],
        call_id=call_id[:MAX_NAME_CHARS],
        duration=duration,
        code=code,
        arguments=copied,
        text=kept,
        chars=len(text),
        weight=len(kept) + copier.weight,
        user=user[:MAX_NAME_CHARS],
        mask=mask,
    )


class _Copier:
    """Copies JSON values until the limits are reached."""

    def __init__(self) -> None:
        self._nodes = MAX_NODES
        self._room = MAX_ARGUMENT_CHARS + MARGIN
        self.weight = 0

    def copy(self, value: object, depth: int) -> object:
        """Return a deep copy of a value; what is too deep, too much or not JSON is omitted."""
        self._nodes -= 1
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth >= MAX_DEPTH or self._nodes < 0:
            return _OMITTED
        # `dict` first: checking for a `Mapping` is slow, and rarely needed.
        if isinstance(value, dict | Mapping):
            return self._fields(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            return self._items(cast("Sequence[object]", value), depth)
        return _OMITTED

    def _fields(self, value: Mapping[object, object], depth: int) -> dict[str, object]:
        copied: dict[str, object] = {}
        for key, item in value.items():
            if self._nodes <= 0:
                copied[CUT] = _OMITTED
                break
            name = self._text(str(key))
            copied[name if isinstance(name, str) else f"{name.text}{CUT}"] = self.copy(item, depth + 1)
        return copied

    def _items(self, value: Sequence[object], depth: int) -> list[object]:
        copied: list[object] = []
        for item in value:
            if self._nodes <= 0:
                copied.append(_OMITTED)
                break
            copied.append(self.copy(item, depth + 1))
        return copied

    def _text(self, text: str) -> str | _Long:
        size = len(text)
        self.weight += 50
        if size <= _WINDOW and size <= self._room:
            self._room -= size
            self.weight += size
            return text
        room = min(self._room, _WINDOW)
        self._room -= room
        self.weight += room
        return _Long(text[:room])


def to_row(note: CallNote, mask: Callable[[str], str] = mask_text) -> Row:
    """Mask and cut a call for the file."""
    redaction = _Redaction(mask)
    arguments = redaction.clean(note.arguments, "", 0)
    result = excerpt(note.text, MAX_RESULT_CHARS, mask, whole=len(note.text) == note.chars)
    why = [name for name, is_so in (("redacted", result.is_masked), ("cut", result.is_cut)) if is_so]
    return (
        note.at,
        _storable(excerpt(note.server, MAX_NAME_CHARS, mask).text),
        _storable(excerpt(note.tool, MAX_NAME_CHARS, mask).text),
        _storable(note.call_id),
        note.duration,
        note.code,
        _storable(json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))),
        _storable(json.dumps(redaction.missing, ensure_ascii=False) if redaction.missing else ""),
        _storable(result.text),
        note.chars,
        " ".join(why),
        _storable(note.user),
    )


class _Redaction:
    """Masks and cuts arguments, and remembers where."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._room = MAX_ARGUMENT_CHARS
        self.missing: dict[str, Why] = {}

    def clean(self, value: object, place: str, depth: int) -> Any:
        """Return a copied value masked and cut."""
        if isinstance(value, str):
            return self._text(value, place)
        if isinstance(value, _Long):
            return self._text(value.text, place, whole=False)
        if isinstance(value, dict):
            items = cast("dict[str, object]", value).items()
            return dict(self._field(key, item, place, depth) for key, item in items)
        if isinstance(value, list):
            return [
                self.clean(item, f"{place}/{index}", depth + 1)
                for index, item in enumerate(cast("list[object]", value))
            ]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(value, place)
        if isinstance(value, _Omitted):
            self._note(place, "cut")
            return CUT
        return value

    def _field(self, key: str, item: object, place: str, depth: int) -> tuple[str, Any]:
        name = excerpt(key, MAX_NAME_CHARS, self._mask)
        self._room -= len(name.text)
        inner = f"{place}/{name.text.replace('~', '~0').replace('/', '~1')}"
        self._note_excerpt(inner, name)
        # A boolean or a null is not a secret.
        if is_sensitive_name(key) and item is not None and not isinstance(item, bool):
            self._note(inner, "redacted")
            return name.text, MASK
        return name.text, self.clean(item, inner, depth + 1)

    def _text(self, text: str, place: str, *, whole: bool = True) -> str:
        found = excerpt(text, max(0, min(MAX_TEXT_CHARS, self._room)), self._mask, whole=whole)
        self._room -= len(found.text)
        self._note_excerpt(place, found)
        return f"{found.text}{CUT}" if found.is_cut else found.text

    def _number(self, value: float, place: str) -> Any:
        if not abs(value) >= LONG_NUMBER:
            return value
        try:
            text = repr(value)
        except ValueError:
            # Python refuses to write numbers of more than 4300 digits.
            self._note(place, "cut")
            return CUT
        if self._mask(text) == text:
            return value
        self._note(place, "redacted")
        return MASK

    def _note_excerpt(self, place: str, found: Excerpt) -> None:
        if found.is_masked or found.is_cut:
            self._note(place, "redacted" if found.is_masked else "cut")

    def _note(self, place: str, why: Why) -> None:
        if len(self.missing) < MAX_MISSING or place in self.missing:
            self.missing[place] = why
        else:
            self.missing[CUT] = "cut"


def _storable(text: str) -> str:
    """Escape what SQLite cannot store: null characters and lone surrogates."""
    return text.replace("\0", "\\u0000").encode("utf-8", "backslashreplace").decode()


logger = logging.getLogger("dragoman")

VERSION = 1
LOCK_SECONDS = 5.0
"""How long to wait for other processes."""
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_LATER = {"user": " DEFAULT ''"}
"""Columns that logs of earlier versions lack. They have a default, so that those versions can still write."""
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS calls(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    {", ".join(f"{name} {kind} NOT NULL{_LATER.get(name, '')}" for name, kind in COLUMNS.items())}
) STRICT;
CREATE INDEX IF NOT EXISTS calls_at ON calls(at);
CREATE INDEX IF NOT EXISTS calls_call_id ON calls(call_id);
"""
_INSERT = f"INSERT INTO calls({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 -- only constants
_OLDEST_TENTH = """DELETE FROM calls WHERE number <= (
    SELECT number FROM calls ORDER BY number LIMIT 1 OFFSET (SELECT count(*) / 10 FROM calls))"""
_PRUNE_TURNS = 30


def default_path() -> Path:
    """Return the user's call log."""
    return state_folder() / "calls.sqlite3"


def is_damage(exc: sqlite3.Error) -> bool:
    """Return whether an error means that the file is not a database, or a damaged one."""
    # An extended code holds the kind of error in its low byte.
    return (getattr(exc, "sqlite_errorcode", 0) & 0xFF) in DAMAGE


def open_for_writing(path: Path, *, busy_seconds: float = LOCK_SECONDS) -> sqlite3.Connection:
    """Open the log, and create it if needed; replace a damaged one.

    Raises:
        DragomanError: The file belongs to another user or to a later version.
        OSError: Its folder cannot be created.
        sqlite3.Error: It cannot be opened or created.
    """
    private_folder(path.parent)
    try:
        return _opened(path, busy_seconds, _file_lock(path))
    except sqlite3.DatabaseError as exc:
        if not is_damage(exc):
            raise
    return replace_damaged(path, busy_seconds=busy_seconds)


def replace_damaged(path: Path, *, busy_seconds: float = LOCK_SECONDS) -> sqlite3.Connection:
    """Move a damaged log aside, unless another process has done so, and open a good one.

    Raises:
        DragomanError: The file belongs to another user or to a later version.
        OSError: It cannot be moved, or another process holds the lock for too long.
        sqlite3.Error: A new one cannot be created.
    """
    lock = _file_lock(path)
    with lock:
        connection = _sound(path, busy_seconds, lock)
        if connection is not None:
            return connection
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        for tail in ("-wal", "-shm"):
            # They belong to the damaged file; SQLite would apply them to the new one.
            path.with_name(path.name + tail).unlink(missing_ok=True)
        logger.warning("the call log was damaged: it was moved to %s, and a new one was started", aside)
        return _opened(path, busy_seconds, lock)


def _file_lock(path: Path) -> BaseFileLock:
    """Return the lock for creating and replacing the file; its holder may take it again."""
    import filelock

    # filelock's `Timeout` is an `OSError`.
    return filelock.FileLock(path.with_name(f".{path.name}.guard"), timeout=LOCK_SECONDS, mode=0o600)


def _sound(path: Path, busy_seconds: float, lock: BaseFileLock) -> sqlite3.Connection | None:
    """Open the log if it is not damaged."""
    try:
        connection = _opened(path, busy_seconds, lock)
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


def _opened(path: Path, busy_seconds: float, lock: BaseFileLock) -> sqlite3.Connection:
    check_own_file(path, use="the call log")
    connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    try:
        # Before anything is written; SQLite gives its journals the same mode.
        path.chmod(0o600)
        if version_of(connection, path) < VERSION:
            with lock:
                if version_of(connection, path) < VERSION:
                    _create_schema(connection)
        if missing_columns(connection):
            with lock:
                for name in missing_columns(connection):
                    connection.execute(f"ALTER TABLE calls ADD COLUMN {name} TEXT NOT NULL DEFAULT ''")
        # A crash of the machine may lose the last calls but cannot damage the file, and commits are cheap.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {4 * 2**20}")
        # Read the schema, so that a damaged first page is found here.
        connection.execute("SELECT number FROM calls ORDER BY at DESC LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema; 0 if the file is empty.

    Raises:
        DragomanError: It is later than ours.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        msg = f"the call log {path} was written by a later version of dragoman"
        raise DragomanError(msg, hint="update dragoman, or move the file away")
    return version


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Return the columns that a log of an earlier version lacks."""
    found = {row[1] for row in connection.execute("PRAGMA table_info(calls)")}
    return [name for name in _LATER if name not in found]


def _create_schema(connection: sqlite3.Connection) -> None:
    # This has an effect only while the file is empty.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, to notice when another one takes its place; else `None`."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def insert(connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Insert all rows in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(_INSERT, rows)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def prune(connection: sqlite3.Connection, *, before: float, max_bytes: int) -> int:
    """Remove old calls, then the oldest ones until the file is small enough; return how many."""
    removed = connection.execute("DELETE FROM calls WHERE at < ?", (before,)).rowcount
    for _ in range(_PRUNE_TURNS):
        if _used_bytes(connection) <= max_bytes:
            break
        removed += connection.execute(_OLDEST_TENTH).rowcount
    if removed:
        # SQLite frees one page for each row that is fetched.
        connection.execute("PRAGMA incremental_vacuum").fetchall()
    return removed


def _used_bytes(connection: sqlite3.Connection) -> int:
    with closing(connection.cursor()) as cursor:
        pages, free, size = (
            cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


MAX_AGE = 7 * 86_400.0
MAX_BYTES = 12 * 2**20
"""With the kept logs of servers that is 20 MiB."""
MAX_WAITING = 2000
"""How many calls may wait to be written; more are dropped."""
MAX_WAITING_CHARS = 32 * 2**20
"""How much text they may hold in memory."""
BATCH = 200
"""How many calls are written at once; other processes can write between two batches."""
PRUNE_EVERY = 500
"""After how many calls size and age are checked."""
CLOSE_SECONDS = 5.0


class CallLog:
    """Writes calls to the log; it has to be closed."""

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
        """Log into a file, which is created with the first call.

        Args:
            path: The file; the user's call log unless given.
            mask: Masks a text; it is called from another thread.
            max_age: Seconds after which a call is removed.
            max_bytes: The approximate size limit of the file.
            busy_seconds: How long to wait for other processes that write.
            clock: Returns the seconds since the epoch.
        """
        self.path = path or default_path()
        self._mask = mask
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._busy_seconds = busy_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[CallNote] = deque()
        self._weight = 0
        self._taken = 0
        """How many calls were ever put into the queue."""
        self._settled = 0
        """How many of those were written or dropped."""
        self._dropped = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        # Only the writing thread uses these.
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
        user: str = "",
        mask: Callable[[str], str] | None = None,
    ) -> None:
        """Log a call that has just ended; never waits for the disk, and never fails.

        Args:
            server: The tool's server; empty for a built-in tool.
            tool: The exposed name.
            call_id: The call's id.
            arguments: As they were sent, or as the caller gave them if nothing was sent.
            duration: Seconds.
            text: The text that the caller gets; the error if the call failed.
            code: The stable code of the error; empty if the call succeeded.
            user: Who made it, in a program with many users.
            mask: Masks a text, in place of the log's own function.
        """
        try:
            note = copy_call(
                at=self._clock() - duration,
                server=server,
                tool=tool,
                call_id=call_id,
                duration=duration,
                code=code,
                arguments=arguments,
                text=text,
                user=user,
                mask=mask,
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
                # A daemon: the call log must not keep the program from ending.
                self._thread = threading.Thread(target=self._run, name="dragoman call log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait until every call noted so far is written or dropped; return whether that happened in time."""
        with self._changed:
            wanted = self._taken
            return self._changed.wait_for(lambda: self._settled >= wanted, timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Write the waiting calls and end. It blocks, so call it in a thread; calling it twice is fine."""
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

    # The writing thread

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

    def _next_batch(self) -> list[CallNote]:
        """Wait for calls; an empty batch means that the log was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._weight -= sum(note.weight for note in batch)
            return batch

    def _write(self, batch: list[CallNote]) -> int:
        """Write calls; return how many were written."""
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

    def _row(self, note: CallNote) -> Row | None:
        try:
            return to_row(note, note.mask or self._mask)
        except Exception:  # noqa: BLE001 -- the application's own `mask` may raise anything
            # No traceback: it could show the secret that was to be masked.
            logger.debug("call %s is not logged: it cannot be masked or written", note.call_id)
            return None

    def _insert(self, rows: list[Row]) -> None:
        connection = self._connection
        if connection is None or self._file != identity(self.path):
            # The file was removed, or another process moved a damaged one aside.
            self._disconnect()
            connection = self._keep(open_for_writing(self.path, busy_seconds=self._busy_seconds))
        insert(connection, rows)
        self._until_prune -= len(rows)
        if self._until_prune <= 0:
            self._until_prune = PRUNE_EVERY
            try:
                prune(connection, before=self._clock() - self._max_age, max_bytes=self._max_bytes)
            except sqlite3.OperationalError as exc:
                # The calls are written. The process that holds the lock prunes too.
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
                logger.debug("the call log was not closed cleanly: %s", exc)
