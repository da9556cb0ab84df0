"""The journal of a bulk run: which rows were sent, and the outcome of each; a text file, one entry a line.

An entry is in the file before the call that it announces is sent, and an outcome before its caller sees it.
So a killed process loses nothing that was recorded: a row without an entry was not sent, and a row that was
sent without an outcome may have run. The file is written through a memory map, whose pages the operating
system keeps when the process is killed: a write costs no system call. For a machine that loses power, `sync`
writes the file to the disk from time to time.

The entries: `{"sent":N,"mark":M}` before each call, `{"unsent":N}` if it certainly did not go out,
`{"row":N,"status":…}` for an outcome, `{"again":N}` before an unknown row is repeated. `mark` is a checksum
of the arguments: a row that was sent must not change.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import threading
from array import array
from contextlib import suppress
from json.encoder import encode_basestring
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dragoman.bulk.outcomes import RowOutcome
from dragoman.errors import BulkError
from dragoman.model import SourceRef
from dragoman.storage.files import private_opener

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragoman.bulk.outcomes import Status

OPEN, SENT, OK, FAILED, UNKNOWN = range(5)
"""The states of a row."""
_STATES: dict[str, int] = {"ok": OK, "failed": FAILED, "unknown": UNKNOWN}
_ENTRY = re.compile(rb'\{"(sent|unsent|again|row)":(\d{1,12})(?:,"(?:mark":(\d{1,10})\}|status":"(\w+)"))?')
FORMAT = "dragoman map 1"
MAX_HEADER = 1 << 20
MORE_ROWS = 4096
MAX_GAP = 1_000_000
"""How far ahead of the number of entries a row can be: rows are sent in order, a limited number at once."""
WINDOW = 1 << 20
"""How much of the file is mapped, and how much it grows at once."""
INTERRUPTED = "the run ended before an answer came; the tool may have run"


class Journal:
    """An open journal; only one process can have it."""

    def __init__(self, path: Path, job: dict[str, Any]) -> None:
        """Open or create a journal; this reads the whole file, so do it in a thread.

        Args:
            path: The file.
            job: What the calls are: tool and arguments. An existing journal must have the same.

        Raises:
            BulkError: The journal belongs to another job or process, or cannot be used.
        """
        self.path = path
        self._job = job
        self._states = bytearray(1)
        self._marks = array("I", [0])
        self._last = 0
        self._open()

    def reload(self) -> None:
        """Open the journal again and read what another process has recorded since it was closed.

        Raises:
            BulkError: As for the constructor.
        """
        self._states, self._marks = bytearray(1), array("I", [0])
        self._last = 0
        self._open()

    def _open(self) -> None:
        self._map: Any = None
        """The part of the file that is written now; a `mmap.mmap` after the first entry."""
        self._map_begin = self._map_end = self._end = 0
        """Where the map begins and ends in the file, and where the entries end."""
        self._synced = 0
        self._lock = threading.Lock()
        self._guard = _guard(self.path)
        try:
            # Private, since it holds the results.
            self._file = private_opener(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as exc:
            self._guard.release()
            msg = f"the journal {self.path} cannot be opened: {exc.strerror}"
            raise BulkError(msg, hint="choose another output") from exc
        try:
            self._load(self._job)
        except BaseException:
            self.close()
            raise

    def state(self, row: int) -> int:
        """Return the state of a row."""
        return self._states[row] if row < len(self._states) else OPEN

    def mark(self, row: int) -> int:
        """Return the checksum that a row was sent with; 0 if it was not."""
        return self._marks[row] if row < len(self._marks) else 0

    @property
    def last(self) -> int:
        """The highest row that has an entry."""
        return self._last

    @property
    def counts(self) -> list[int]:
        """How many rows are in each state; open rows are not counted."""
        return [0, *map(self._states.count, (SENT, OK, FAILED, UNKNOWN))]

    def rows_in(self, state: int) -> list[int]:
        """Return the rows in a state, in order."""
        wanted, found, at = bytes([state]), list[int](), 0
        while (at := self._states.find(wanted, at + 1)) > 0:
            found.append(at)
        return found

    def _set(self, row: int, state: int) -> None:
        if row > self._last:
            self._reach(row)
        self._states[row] = state

    def _reach(self, row: int) -> None:
        """Make room for the states up to a row."""
        self._last = row
        if row >= len(self._states):
            more = row + MORE_ROWS - len(self._states)
            self._states.extend(bytes(more))
            self._marks.frombytes(bytes(more * self._marks.itemsize))

    def begin(self, row: int, mark: int) -> None:
        """Record that a row is about to be sent."""
        if row > self._last:
            self._reach(row)
        self._states[row] = SENT
        self._marks[row] = mark
        self._append(b'{"sent":%d,"mark":%d}\n' % (row, mark))

    def end_ok(self, row: int, at: float, seconds: float, text: str) -> None:
        """Record a result that is a text and nothing else, as most are; the same as `end`, and faster."""
        # The state first: if the entry cannot be written, the run stops, and the file has `sent`.
        self._states[row] = OK
        self._append(
            (
                # Whole numbers with an exponent are JSON, too, and twice as fast to write.
                f'{{"row":{row},"status":"ok","at":{int(at * 1e3)}e-3,"seconds":{int(seconds * 1e6)}e-6,'
                f'"text":{encode_basestring(text)}}}\n'
            ).encode("utf-8", "backslashreplace")
        )

    def end(self, row: int, status: Status, line: str) -> None:
        """Record an outcome.

        Args:
            row: The row.
            status: Its status.
            line: The entry, as `outcome_line` makes it.
        """
        # A lone surrogate becomes `\udXXX`, which is how JSON writes it.
        self._append(line.encode("utf-8", "backslashreplace"))
        self._set(row, _STATES[status])

    def release(self, row: int) -> None:
        """Record that the call of a row was certainly not sent."""
        self._append(b'{"unsent":%d}\n' % row)
        self._set(row, OPEN)

    def again(self, row: int) -> None:
        """Record that a row with an unknown outcome is to be repeated."""
        self._append(b'{"again":%d}\n' % row)
        self._set(row, OPEN)

    def _append(self, data: bytes) -> None:
        end = self._end + len(data)
        if end > self._map_end:
            self._grow(end)
        begin = self._map_begin
        self._map[self._end - begin : end - begin] = data
        self._end = end

    def _grow(self, end: int) -> None:
        """Map the next part of the file, at least up to `end`."""
        if self._file < 0:
            msg = f"the journal {self.path} is closed"
            raise BulkError(msg)
        begin = self._end // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        size = max(WINDOW, (end - begin + WINDOW - 1) // WINDOW * WINDOW)
        try:
            # Writing zeros takes the room on the disk: a full disk is an error here, and a crash in a map.
            place, missing = self._map_end or self._end, begin + size - (self._map_end or self._end)
            while missing > 0:
                written = os.pwrite(self._file, bytes(min(missing, WINDOW)), place)
                place, missing = place + written, missing - written
            made = mmap.mmap(self._file, size, offset=begin)
        except OSError as exc:
            msg = f"the journal {self.path} cannot be written: {exc.strerror}"
            raise BulkError(msg, hint="no further call was sent; make room, and run it again") from exc
        if self._map is not None:
            self._map.close()
        self._map, self._map_begin, self._map_end = made, begin, begin + size

    def sync(self) -> None:
        """Write the file to the disk; it blocks, so call it in a thread."""
        with self._lock:
            if self._synced != self._end and self._file >= 0:
                self._synced = self._end
                os.fsync(self._file)

    def close(self) -> None:
        """Write everything and let another process have the journal; calling it twice is fine."""
        if self._file < 0:
            return
        try:
            if self._map is not None:
                self._map.close()
                os.ftruncate(self._file, self._end)
            self.sync()
        finally:
            with self._lock:
                os.close(self._file)
                self._file, self._map, self._map_end = -1, None, 0
            # Removed while it is held: a process that has opened it meanwhile sees that, and tries again.
            with suppress(OSError):
                Path(self._guard.lock_file).unlink()
            self._guard.release()

    def outcomes(self) -> Iterator[RowOutcome | None]:
        """Return the outcome of every row in order, `None` for an open one; each is read from the file."""
        places = array("q", [0]) * (self._last + 1)
        with self.path.open("rb") as file:
            at = 0
            for line in file:
                if line.startswith(b'{"row":'):
                    found = _ENTRY.match(line)
                    places[int(found[2]) if found else 0] = at
                at += len(line)
            for row in range(1, len(places)):
                if self._states[row] not in (OK, FAILED, UNKNOWN):
                    yield None
                    continue
                file.seek(places[row])
                yield outcome_of(json.loads(file.readline()))

    def _load(self, job: dict[str, Any]) -> None:
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            first = file.readline(MAX_HEADER)
            if not first.strip(b"\0"):
                header = json.dumps({"journal": FORMAT, **job}, ensure_ascii=False) + "\n"
                self._append(header.encode("utf-8", "backslashreplace"))
                return
            self._check(first, job)
            self._end = len(first)
            for number, line in enumerate(file, 2):
                # A kill leaves zeros behind the last entry, and in an entry that it interrupted.
                if not line.endswith(b"\n") or b"\0" in line:
                    break
                self._take(line, number)
                self._end += len(line)
        os.ftruncate(self._file, self._end)

    def _check(self, first: bytes, job: dict[str, Any]) -> None:
        try:
            read: object = json.loads(first)
        except ValueError:
            raise _foreign(self.path) from None
        header = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        if header.pop("journal", None) != FORMAT:
            raise _foreign(self.path)
        for name, value in job.items():
            if header.get(name) != (wanted := json.loads(json.dumps(value))):
                was = header.get(name)
                msg = f"{self.path} is the journal of another job: its `{name}` is {was!r}, not {wanted!r}"
                raise BulkError(msg, hint="use another output, or remove the journal to begin again")

    def _take(self, line: bytes, number: int) -> None:
        found = _ENTRY.match(line)
        if found is None or not _is_valid(found) or int(found[2]) > number + MAX_GAP:
            msg = f"{self.path}, line {number}: this is not an entry of a journal"
            raise BulkError(msg, hint="it was changed or damaged; restore it, or begin again without it")
        row = int(found[2])
        match found[1]:
            case b"sent":
                self._set(row, SENT)
                self._marks[row] = int(found[3])
            case b"row":
                self._set(row, _STATES[found[4].decode()])
            case _:
                self._set(row, OPEN)


def _is_valid(entry: re.Match[bytes]) -> bool:
    match entry[1]:
        case b"sent":
            return entry[3] is not None and int(entry[3]) < 1 << 32
        case b"row":
            return (entry[4] or b"").decode() in _STATES
        case _:
            return True


def discard(path: Path) -> None:
    """Remove a journal, if it exists and no process works on it.

    Raises:
        BulkError: A process does.
    """
    if path.exists():
        guard = _guard(path)
        path.unlink(missing_ok=True)
        with suppress(OSError):
            Path(guard.lock_file).unlink()
        guard.release()


def _foreign(path: Path) -> BulkError:
    msg = f"{path} exists and is not a journal of this version"
    return BulkError(msg, hint="use another output")


def _guard(path: Path) -> Any:
    """Take the lock of a journal.

    Raises:
        BulkError: Another process has it, or its folder cannot be written.
    """
    import filelock

    guard = filelock.FileLock(path.with_name(f".{path.name}.guard"), timeout=0, mode=0o600)
    try:
        guard.acquire()
    except filelock.Timeout as exc:
        msg = f"another process is working on {path}"
        raise BulkError(msg, hint="wait until it ends, or use another output") from exc
    except OSError as exc:
        msg = f"the journal {path} cannot be created: {exc.strerror}"
        raise BulkError(msg, hint="choose another output") from exc
    return guard


def outcome_line(
    row: int,
    status: Status,
    at: float,
    seconds: float,
    text: str,
    *,
    error: str = "",
    code: str = "",
    structured: object = None,
    sources: object = (),
) -> str:
    """Return the entry for an outcome."""
    # Most results are a text: building this line by hand takes a quarter of the time of `json.dumps`.
    line = (
        f'{{"row":{row},"status":"{status}","at":{at:.3f},"seconds":{seconds:.6f},'
        f'"text":{encode_basestring(text)}'
    )
    if error or code:
        line += f',"error":{encode_basestring(error)},"code":{encode_basestring(code)}'
    if structured is not None:
        line += f',"structured":{json.dumps(structured, ensure_ascii=False, default=str)}'
    if sources:
        told = [
            {"title": one.title, "locator": one.locator, "url": one.url, "updated": one.updated}
            for one in cast("tuple[SourceRef, ...]", sources)
        ]
        line += f',"sources":{json.dumps(told, ensure_ascii=False)}'
    return line + "}\n"


def outcome_of(entry: dict[str, Any]) -> RowOutcome:
    """Return the outcome in an entry."""
    return RowOutcome(
        row=entry["row"],
        status=entry["status"],
        text=entry.get("text", ""),
        error=entry.get("error", ""),
        code=entry.get("code", ""),
        structured=entry.get("structured"),
        sources=[SourceRef(**one) for one in entry.get("sources", ())],
        seconds=entry.get("seconds", 0.0),
        at=entry.get("at", 0.0),
    )
