"""The inbox on disk: what waits for a person's answer, in one SQLite file per user.

Every change is one transaction that names the state it starts from, so of two answers the first counts, and
an approved call is taken once: `pending` becomes `approved` or `denied`, and only the process that asked
turns `approved` into `sent`. That process holds a lock on a file beside the database for as long as it has
entries. The lock ends with the process: what it left is `abandoned`, and never runs.

The arguments are stored with their secrets masked, and are removed by the transaction that decides.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from filelock import FileLock, Timeout

from dragoman.errors import ApprovalError, DragomanError
from dragoman.model import PendingApproval
from dragoman.storage.files import check_own_file, data_folder, private_folder, user_data_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from dragoman.model import Always, ApprovalState

VERSION = 1
BUSY_SECONDS = 5.0
MAX_PENDING = 5_000
"""How many entries may wait in one inbox."""
MAX_OF_CALLER = 2_000
"""How many of them one client of a gateway may have."""
MAX_BYTES = 256 * 1024
"""The largest arguments that a person can be shown; larger ones do not wait."""
MAX_CODE = 100
KEEP_SECONDS = 7 * 86_400.0
"""How long decided entries are kept."""
MAX_DECIDED = 10_000
PRUNE_SECONDS = 3_600.0
"""How often old entries are removed, and how old a lock file is before it is looked at."""
_PAUSED = ""
"""The owner of an entry whose caller has paused: it may come back in another process."""
_COLUMNS = """id kind server tool original_name arguments rule source reason caller asked_at expires_at state
answered_at answered_by always remembered""".split()
_JSON = ("arguments", "caller", "always")
_SCHEMA = """
CREATE TABLE entries(
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    subject TEXT NOT NULL,
    kind TEXT NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    original_name TEXT NOT NULL,
    arguments TEXT NOT NULL,
    rule TEXT NOT NULL,
    source TEXT NOT NULL,
    reason TEXT NOT NULL,
    caller TEXT NOT NULL,
    asked_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    state TEXT NOT NULL,
    answered_at REAL,
    answered_by TEXT NOT NULL,
    always TEXT NOT NULL,
    remembered TEXT,
    code TEXT
) STRICT;
CREATE INDEX entries_state ON entries(state, expires_at);
CREATE INDEX entries_owner ON entries(state, owner);
CREATE INDEX entries_subject ON entries(subject);
CREATE INDEX entries_answered ON entries(answered_at);
"""
_DECIDE = "UPDATE entries SET state = ?, answered_at = ?, answered_by = ?, arguments = '{}', always = '[]'"


class InboxStore:
    """The inbox of one user; any thread and any process of the user may use it."""

    def __init__(self, folder: Path | None = None, *, user: str = "") -> None:
        """Open nothing yet.

        Args:
            folder: Where it is; the user's data folder by default.
            user: Whose inbox, in a program with many users.
        """
        self.folder = user_data_folder(user) if folder is None else folder
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._owner = ""
        self._held: FileLock | None = None
        self._resumed: set[str] = set()
        """The entries that were taken over from a paused caller."""
        self._pruned = 0.0
        self.waited = 0.0
        """Of the seconds that a transaction waits for others, how many have passed already."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The database."""
        return self.folder / "inbox.sqlite3"

    # Answers

    def pending(self, *, decided: bool = False) -> list[PendingApproval]:
        """Return what waits, the oldest first.

        Args:
            decided: Whether to include what was decided in the last days.
        """
        if not self.path.exists():
            return []
        with self._changing() as db:
            self._sweep(db)
            where = "" if decided else " WHERE state = 'pending'"
            return self._read(db, f"{where} ORDER BY number")

    def get(self, identifier: str) -> PendingApproval:
        """Return an entry.

        Raises:
            ApprovalError: It is unknown.
        """
        if identifier.isascii() and self.path.exists():
            with self._changing() as db:
                self._sweep(db)
                if found := self._read(db, " WHERE id = ?", identifier):
                    return found[0]
        raise _unknown(identifier)

    def answer(
        self,
        identifier: str,
        *,
        allow: bool,
        by: str,
        always: Always | None = None,
        code: str | None = None,
        write: Callable[[PendingApproval], bool] = lambda _: True,
    ) -> PendingApproval:
        """Answer an entry that waits.

        Args:
            identifier: Its id.
            allow: Whether the call may be made.
            by: Who answers.
            always: Which of its rules the caller shall follow from now on; the caller writes none.
            code: The code that the user's webhook was given, where the answer needs one.
            write: Writes the rule, if this answer is the first; if it returns False, the caller follows none.

        Returns:
            The entry as it was shown, with the answer; only here it still has its arguments.

        Raises:
            ApprovalError: It is unknown, or was decided already: the error names by whom.
        """
        if not (identifier.isascii() and self.path.exists()):
            raise _unknown(identifier)
        with self._changing() as db:
            self._sweep(db)
            found = self._read(db, " WHERE id = ?", identifier)
            if not found:
                raise _unknown(identifier)
            (entry,) = found
            if code is not None and not self._is_code(db, entry, code):
                raise _unknown(identifier)
            if entry.state != "pending":
                raise _decided(entry)
            if always is not None and allow is not True:
                msg = f"`{identifier}`: only a yes can be remembered"
                raise ApprovalError(msg, hint="leave the rule out")
            if always is not None and always not in {one.covers for one in entry.always}:
                msg = f"`{identifier}` has no rule that covers `{always}`"
                known = ", ".join(f"`{one.covers}`" for one in entry.always)
                raise ApprovalError(msg, hint=f"it has {known}" if known else "answer it without a rule")
            if always is not None and not write(entry):
                always = None
            state: ApprovalState = "approved" if allow is True else "denied"
            given = (state, time.time(), _storable(by), always, identifier)
            db.execute(f"{_DECIDE}, remembered = ? WHERE id = ? AND state = 'pending'", given)
            return entry.replace(state=state, answered_at=given[1], answered_by=by, remembered=always)

    # What the process that asks does

    def ask(self, entry: PendingApproval, subject: str, *, code: str = "") -> PendingApproval:
        """Put an entry in, or go on with the one that the same caller has paused.

        Args:
            entry: What to ask; its `id` is made here.
            subject: Equal for the same call by the same caller, and for no other.
            code: A secret of `make_code` that answers it once; only its hash is stored.

        Raises:
            ApprovalError: There is no room, or its arguments are too large to be shown.
        """
        shown = _encoded(entry.arguments)
        if len(shown) > MAX_BYTES:
            msg = f"the arguments of `{entry.tool}` are too large to be shown: {len(shown):,} bytes"
            raise ApprovalError(msg, hint="send less, or have a rule allow it")
        with self._changing() as db:
            self._own()
            self._sweep(db)
            where = " WHERE subject = ? AND owner = '' AND state IN ('pending', 'approved', 'denied')"
            # An answer is for the call that paused, not for one that happens to be the same days later.
            where += " AND expires_at > ?"
            if paused := self._read(db, f"{where} ORDER BY number LIMIT 1", subject, time.time()):
                db.execute("UPDATE entries SET owner = ? WHERE id = ?", (self._owner, paused[0].id))
                self._resumed.add(paused[0].id)
                return paused[0]
            self._check_room(db, entry)
            made = entry.replace(id=secrets.token_hex(5))
            row = {**_row(made), "arguments": shown, "owner": self._owner, "subject": subject}
            row["code"] = _hashed(code) if code else None
            columns = ", ".join(row)
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO entries({columns}) VALUES ({marks})", tuple(row.values()))  # noqa: S608 -- our own names
            return made

    def settle(self, identifier: str, *, allow: bool, by: str) -> PendingApproval:
        """Answer an entry of this process, and return what counts: an earlier answer, if there is one."""
        with suppress(ApprovalError):
            return self.answer(identifier, allow=allow, by=by)
        return self.get(identifier)

    def claim(self, identifier: str) -> bool:
        """Take an approved entry of this process, once; after `False` its call is never sent."""
        # After a crash of the machine, another process could take what a paused caller left: it must not be
        # approved again then.
        with self._changing(is_durable=identifier in self._resumed) as db:
            changed = db.execute(
                "UPDATE entries SET state = 'sent' WHERE id = ? AND state = 'approved' AND owner = ?",
                (identifier, self._owner),
            )
            return bool(self._owner) and changed.rowcount == 1

    def end(self, identifier: str, state: ApprovalState, *, by: str = "") -> PendingApproval:
        """End an entry of this process that was not sent, and return what counts.

        A `pending` one is ended; with `denied` and `abandoned` an approved one too, since it is not sent.
        """
        also = "" if state == "expired" else " OR state = 'approved'"
        with self._changing() as db:
            db.execute(
                f"{_DECIDE} WHERE id = ? AND owner = ? AND (state = 'pending'{also})",
                (state, time.time(), by, identifier, self._owner),
            )
        return self.get(identifier)

    def pause(self, identifier: str) -> None:
        """Keep an entry for its caller, who comes back with the same call, perhaps in another process."""
        with self._changing() as db:
            db.execute("UPDATE entries SET owner = '' WHERE id = ? AND owner = ?", (identifier, self._owner))

    def version(self) -> int:
        """Return a number that changes when another process has changed the inbox; for frequent use."""
        with self._lock:
            found: int = self._open().execute("PRAGMA data_version").fetchone()[0]
        return found

    def decided(self, identifiers: Sequence[str]) -> list[PendingApproval]:
        """Return those of these entries that do not wait any more."""
        where = " WHERE id IN (SELECT value FROM json_each(?)) AND state != 'pending'"
        with self._lock:
            return self._read(self._open(), where, json.dumps(identifiers))

    def close(self) -> None:
        """Close the file, and let go what this process has not sent; calling it twice is fine."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                if self._owner:
                    with suppress(sqlite3.Error):
                        connection.execute(
                            f"{_DECIDE} WHERE owner = ? AND state IN ('pending', 'approved')",
                            ("abandoned", time.time(), "", self._owner),
                        )
                connection.close()
            if self._held is not None:
                # Removed while it is held: whoever finds it missing knows that the process has ended.
                with suppress(OSError):
                    os.unlink(self._held.lock_file)  # noqa: PTH108 -- a text
                self._held.release()
            self._owner, self._held = "", None

    # Inside

    @contextmanager
    def _changing(self, *, is_durable: bool = False) -> Generator[sqlite3.Connection]:
        """Do everything in one transaction that no other process writes beside.

        Args:
            is_durable: Whether it has to survive a crash of the machine, which takes much longer.
        """
        with self._lock:
            try:
                db = self._open()
                db.execute(f"PRAGMA busy_timeout = {int(self._patience * 1000)}")
                db.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                except ApprovalError:
                    # What is refused changes nothing, and what has run out of time meanwhile stays ended.
                    db.execute("COMMIT")
                    raise
                except BaseException:
                    db.execute("ROLLBACK")
                    raise
                db.execute("COMMIT")
            except (sqlite3.Error, OSError) as exc:
                if self._connection is not None and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                msg = f"the inbox {self.path} cannot be used: {exc}"
                raise DragomanError(msg, hint="check its permissions; move it away if it is damaged") from exc

    @property
    def _patience(self) -> float:
        return max(0.0, BUSY_SECONDS - self.waited)

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        private_folder(self.folder)
        check_own_file(self.path, use="the inbox")
        # Before anything is written; SQLite gives its journals the mode of the file.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            self.path, timeout=self._patience, isolation_level=None, check_same_thread=False
        )
        try:
            self.path.chmod(0o600)
            if _version(connection, self.path) < VERSION:
                # Many processes may be the first: SQLite does not wait to change the kind of the journal.
                with FileLock(self.folder / ".inbox.sqlite3.guard", timeout=self._patience, mode=0o600):
                    if _version(connection, self.path) < VERSION:
                        _create_schema(connection, self._patience)
            connection.execute(f"PRAGMA journal_size_limit = {4 * 2**20}")
            # What is removed is overwritten.
            connection.execute("PRAGMA secure_delete = ON")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _own(self) -> None:
        """Lock the file that shows that this process lives."""
        if self._held is None:
            owner = secrets.token_hex(8)
            lock = FileLock(self.folder / f"inbox-{owner}.owner", timeout=0, mode=0o600, thread_local=False)
            lock.acquire()
            self._owner, self._held = owner, lock
            for path in self.folder.glob("inbox-*.owner"):
                with suppress(OSError):
                    # A new one may not be locked yet.
                    if time.time() - path.stat().st_mtime > PRUNE_SECONDS:
                        self._lives(path.name.removeprefix("inbox-").removesuffix(".owner"))

    def _sweep(self, db: sqlite3.Connection) -> None:
        """End what has run out of time or whose process has ended, and remove what is old."""
        now = time.time()
        late = "expires_at <= ? AND (state = 'pending' OR (state = 'approved' AND owner = ''))"
        db.execute(f"{_DECIDE} WHERE {late}", ("expired", now, "", now))
        owners = "SELECT DISTINCT owner FROM entries WHERE state IN ('pending', 'approved')"
        for (owner,) in db.execute(owners).fetchall():
            if owner != _PAUSED and not self._lives(owner):
                db.execute(
                    f"{_DECIDE} WHERE owner = ? AND state IN ('pending', 'approved')",
                    ("abandoned", now, "", owner),
                )
        if now - self._pruned < PRUNE_SECONDS:
            return
        self._pruned = now
        db.execute(
            "DELETE FROM entries WHERE state NOT IN ('pending', 'approved') AND (answered_at < ? "
            "OR number <= (SELECT number FROM entries ORDER BY number DESC LIMIT 1 OFFSET ?))",
            (now - KEEP_SECONDS, MAX_DECIDED),
        )

    def _lives(self, owner: str) -> bool:
        """Return whether a process still holds its lock; remove the file of one that does not."""
        path = self.folder / f"inbox-{owner}.owner"
        if owner == self._owner or not path.exists():
            return owner == self._owner
        lock = FileLock(path, timeout=0, mode=0o600)
        try:
            with lock:
                with suppress(OSError):
                    path.unlink()
                return False
        except (Timeout, OSError):
            return True

    def _is_code(self, db: sqlite3.Connection, entry: PendingApproval, code: str) -> bool:
        (kept,) = db.execute("SELECT code FROM entries WHERE id = ?", (entry.id,)).fetchone()
        return kept is not None and hmac.compare_digest(kept, _hashed(code))

    def make_code(self) -> str:
        """Return a new code; it says whose inbox it is for."""
        whose = self.folder.name if self.folder.parent.name == "users" else "-"
        return f"{whose}.{secrets.token_urlsafe(32)}"

    def _check_room(self, db: sqlite3.Connection, entry: PendingApproval) -> None:
        caller = _encoded(entry.caller)
        row = "SELECT count(*), sum(caller = ?) FROM entries WHERE state = 'pending'"
        everyone, own = db.execute(row, (caller,)).fetchone()
        if everyone >= MAX_PENDING or (own or 0) >= MAX_OF_CALLER:
            count = everyone if everyone >= MAX_PENDING else own
            msg = f"{count:,} calls wait for an answer already, which is the limit"
            raise ApprovalError(msg, hint="answer some: `dragoman approvals`")

    def _read(self, db: sqlite3.Connection, where: str, *values: object) -> list[PendingApproval]:
        rows = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM entries{where}", values).fetchall()  # noqa: S608 -- our own texts
        try:
            return [_entry(dict(zip(_COLUMNS, row, strict=True))) for row in rows]
        except (ValueError, RecursionError) as exc:  # msgspec's errors are of `ValueError` too
            msg = f"the inbox {self.path} cannot be used: an entry cannot be read"
            raise DragomanError(msg, hint="it is damaged: move it away") from exc


def inbox_of_code(code: str) -> InboxStore:
    """Return the inbox that a code is for.

    Raises:
        ApprovalError: It is no code.
    """
    folder, mark, secret = code.partition(".")
    if not mark or len(secret) > MAX_CODE or not re.fullmatch(r"-|[0-9a-f]{40}", folder):
        raise _unknown(code[:10])
    return InboxStore(data_folder() if folder == "-" else data_folder() / "users" / folder)


def _hashed(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def _row(entry: PendingApproval) -> dict[str, Any]:
    fields = {name: _storable(getattr(entry, name)) for name in _COLUMNS}
    return {**fields, **{name: _encoded(getattr(entry, name)) for name in _JSON}}


def _entry(row: Mapping[str, Any]) -> PendingApproval:
    fields = {**row, **{name: json.loads(row[name]) for name in _JSON}}
    return msgspec.convert(fields, PendingApproval)


def _storable(value: Any) -> Any:
    """Return a value with lone surrogates escaped, which SQLite cannot store."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _encoded(value: object) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=True, default=repr)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        msg = f"the inbox {path} was written by a later version of dragoman"
        raise DragomanError(msg, hint="update dragoman, or move the file away")
    return found


def _create_schema(connection: sqlite3.Connection, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:  # another process reads the version
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
    connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def _unknown(identifier: str) -> ApprovalError:
    return ApprovalError(f"no call with the id `{identifier}` waits", hint="`dragoman approvals` lists them")


def _decided(entry: PendingApproval) -> ApprovalError:
    by = f" by {entry.answered_by}" if entry.answered_by else ""
    what = {"sent": "approved", "expired": "denied: nobody answered in time"}.get(entry.state, entry.state)
    what = "given up: its caller has ended" if entry.state == "abandoned" else what
    msg = f"`{entry.id}` was already {what}{by}"
    return ApprovalError(msg, state=entry.state, by=entry.answered_by, hint="nothing was changed")
