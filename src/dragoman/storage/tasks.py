"""Records of tasks that servers still work on, and the key that signs continuations.

A task outlives its connection and our process. Its id lets anyone fetch the result, so a record is a secret:
one file per task, which only the owner can read. It also has the answers that the user has given, so that no
question is asked twice. A finished task keeps its record until it expires, hidden: a program that was killed
before it used the result can still ask for it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, cast

from dragoman.storage.files import data_folder, private_folder, user_data_folder, write_atomically
from dragoman.storage.task_journal import TaskJournal, recover
from dragoman.struct import HIDDEN, Struct, asdict, field, field_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

logger = logging.getLogger("dragoman")

VERSION = 1
MAX_BYTES = 2**20
KEEP_FINISHED = 86_400.0
"""Seconds that the record of a finished task without a time to live is kept."""
KEEP_UNKNOWN = 30 * 86_400.0
"""Seconds that the record of a task without a time to live is kept if it never finishes."""
_SUFFIX = ".task"


class TaskRecord(Struct, kw_only=True):
    """One task as it is kept."""

    id: str
    """Our own short id, which is not a secret."""
    server: str
    server_key: str
    """The fingerprint of the server's entry: another server of that name never gets the id."""
    task_id: Annotated[str, HIDDEN]
    """The server's id."""
    tool: str
    original_name: str
    status: str = "working"
    message: str = ""
    created: float = 0.0
    """Seconds since the epoch, by our clock."""
    ttl: float | None = None
    """Seconds after which the server may drop the task; `None` for unlimited."""
    poll: float = 1.0
    """Seconds between two questions for its status."""
    answers: Annotated[Mapping[str, Any], HIDDEN] = field(default_factory=dict[str, Any])
    """The answers to the server's questions, by key."""
    sent: tuple[str, ...] = ()
    """The keys of answers that the server has confirmed."""
    finished: float | None = None
    """When its result was handed out."""

    def is_expired(self, now: float) -> bool:
        """Return whether the record can be dropped."""
        if self.ttl is not None:
            return now > self.created + self.ttl + KEEP_FINISHED
        if self.finished is not None:
            return now > self.finished + KEEP_FINISHED
        return now > self.created + KEEP_UNKNOWN


def short_id(server: str, task_id: str) -> str:
    """Return our id of a task; it does not give the server's id away."""
    return hashlib.sha256(f"{server}\n{task_id}".encode()).hexdigest()[:10]


class TaskStore:
    """The records in one folder; any thread and any process of the user may use it."""

    def __init__(self, folder: Path | None = None, *, user: str = "") -> None:
        self._folder = folder
        self._user = user
        self._opening = threading.Lock()
        self._journal: TaskJournal | None = None
        self.is_open = False
        """Whether `note` works, or never will."""

    @property
    def folder(self) -> Path:
        """Where the records are."""
        if self._folder is None:
            self._folder = user_data_folder(self._user) / "tasks"
        return self._folder

    def open(self) -> None:
        """Get ready for `note`: create the journal."""
        with self._opening:
            if self.is_open:
                return
            try:
                self._journal = TaskJournal(self.folder)
            except OSError as exc:
                logger.warning("tasks are not stored: %s", exc)
            self.is_open = True

    def close(self) -> None:
        """Close the journal; `open` makes another."""
        with self._opening:
            if self._journal is not None:
                self._journal.close()
            self._journal, self.is_open = None, False

    def note(self, record: TaskRecord) -> None:
        """Write down what was just learned, at once and on the event loop; `save` follows in a thread."""
        if self._journal is not None:
            self._journal.note(record.id, {"version": VERSION, **asdict(record)})

    def save(self, record: TaskRecord) -> None:
        """Write a record to disk, before anything else is done with the task.

        Raises:
            OSError: It cannot be written.
        """
        self._write({"version": VERSION, **asdict(record)})
        if self._journal is not None:
            self._journal.stored(record.id)

    def all(self, *, finished: bool = False) -> list[TaskRecord]:
        """Return the records, the oldest first; drop expired and damaged ones.

        Args:
            finished: Whether to include tasks whose result was handed out.
        """
        recover(self.folder, self._write)
        try:
            paths = sorted(self.folder.glob(f"*{_SUFFIX}"))
        except OSError:
            return []
        now, found = time.time(), list[TaskRecord]()
        for path in paths:
            record = _read(path)
            if record is None or record.is_expired(now):
                with suppress(OSError):
                    path.unlink()
            elif finished or record.finished is None:
                found.append(record)
        return sorted(found, key=lambda one: one.created)

    def get(self, identifier: str) -> TaskRecord | None:
        """Return the record with one of our ids."""
        if not identifier.isalnum():
            return None
        recover(self.folder, self._write)
        return _read(self.folder / f"{identifier}{_SUFFIX}")

    def finish(self, record: TaskRecord, status: str) -> None:
        """Mark a task whose result is handed out now."""
        self.save(record.replace(status=status, finished=time.time(), answers={}))

    def forget(self, identifier: str) -> None:
        """Remove a record."""
        with suppress(OSError):
            (self.folder / f"{identifier}{_SUFFIX}").unlink()
        if self._journal is not None:
            self._journal.stored(identifier)

    def _write(self, record: Mapping[str, Any]) -> None:
        private_folder(self.folder)
        content = json.dumps(record, separators=(",", ":"))
        write_atomically(self.folder / f"{record['id']}{_SUFFIX}", content.encode())


def signing_key(folder: Path | None = None, *, user: str = "") -> bytes:
    """Return the key for continuations; the first call makes it.

    Args:
        folder: Where it is; the data folder by default.
        user: Whose key, in a program with many users: one user's continuations are invalid for the others.

    Raises:
        OSError: It cannot be read or written.
    """
    if user:
        return hmac.digest(signing_key(folder), user.encode("utf-8", "surrogatepass"), "sha256")
    folder = folder or data_folder()
    path = folder / "continuation.key"
    with suppress(FileNotFoundError):
        return path.read_bytes()
    private_folder(folder)
    # Two processes may make it at once: the first one wins.
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_atomically(new, secrets.token_bytes(32))
    try:
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink()
    return path.read_bytes()


def claim_continuation(identifier: str, folder: Path | None = None) -> bool:
    """Mark a continuation as used; return False if it was used before.

    Raises:
        OSError: The mark cannot be written.
    """
    folder = (folder or data_folder()) / "continuations"
    private_folder(folder)
    try:
        os.close(os.open(folder / identifier, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def release_continuation(identifier: str, folder: Path | None = None) -> None:
    """Remove the mark of a continuation that was not sent."""
    with suppress(OSError):
        ((folder or data_folder()) / "continuations" / identifier).unlink()


def _read(path: Path) -> TaskRecord | None:
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        raw: object = json.loads(path.read_bytes())
        if not isinstance(raw, dict):
            return None
        table = cast("dict[str, Any]", raw)
        if table.get("version") != VERSION:
            return None
        known = field_names(TaskRecord)
        record = TaskRecord(**{key: value for key, value in table.items() if key in known})
        return record.replace(sent=tuple(record.sent))
    except (OSError, ValueError, TypeError):
        return None
