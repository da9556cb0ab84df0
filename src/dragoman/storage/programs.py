"""Programs that wait for a person, so that they go on after a crash of the host.

A saved program holds its variables and the arguments of its call, so only the owner can read the file. It is
signed: an interpreter that loads a changed state gives no guarantees. The lock of a file is held by the
process in which the program waits; it ends with that process.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from filelock import FileLock, Timeout

from dragoman.storage.files import private_folder, user_data_folder, write_atomically
from dragoman.storage.tasks import signing_key
from dragoman.struct import HIDDEN, Struct, asdict, field_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

VERSION = 1
MAX_BYTES = 256 * 2**20
KEEP = 30 * 86_400.0
"""Seconds that a saved program is kept."""
_SUFFIX = ".program"


class SavedProgram(Struct, kw_only=True):
    """A program at one of its calls."""

    id: str
    state: Literal["asking", "question", "sent"]
    """A person is asked whether to make the call; the server asks a person; or the call was sent."""
    tool: str
    """The exposed name."""
    server: str
    arguments: Annotated[Mapping[str, Any], HIDDEN]
    code: Annotated[str, HIDDEN]
    created: float = 0.0
    printed: Annotated[str, HIDDEN] = ""
    calls: int = 0
    names: Sequence[str] = ()
    """What the program and those before it have defined."""
    imports: Sequence[str] = ()
    continuation: Annotated[str, HIDDEN] = ""
    """The server's questions, as `Continuation.to_json` writes them."""
    snapshot: Annotated[bytes, HIDDEN] = b""


class ProgramStore:
    """The saved programs in one folder; any process of the user may use it."""

    def __init__(self, folder: Path | None = None, *, user: str = "") -> None:
        self._folder = folder
        self._user = user
        self._locks: dict[str, FileLock] = {}

    @property
    def folder(self) -> Path:
        """Where they are."""
        if self._folder is None:
            self._folder = user_data_folder(self._user) / "programs"
        return self._folder

    def save(self, program: SavedProgram) -> None:
        """Write a program, and hold it.

        Raises:
            OSError: It cannot be written, or another process holds it.
        """
        private_folder(self.folder)
        self._hold(program.id)
        about = {key: value for key, value in asdict(program).items() if key != "snapshot"}
        head = json.dumps({"version": VERSION, **about}, separators=(",", ":"), default=str).encode()
        content = head + b"\n" + program.snapshot
        signed = self._signature(content) + b"\n" + content
        write_atomically(self.folder / f"{program.id}{_SUFFIX}", signed)

    def all(self) -> list[SavedProgram]:
        """Return the programs that wait in no living process, the oldest first; drop expired ones."""
        found: list[SavedProgram] = []
        with suppress(OSError):
            for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
                program = self._read(path)
                if program is None:
                    continue
                if time.time() > program.created + KEEP:
                    self.forget(program.id)
                elif program.id not in self._locks and self._is_free(program.id):
                    found.append(program)
        return sorted(found, key=lambda one: one.created)

    def take(self, identifier: str) -> SavedProgram | None:
        """Return a program and hold it; `None` if it is unknown, changed, or waits in a living process."""
        if not identifier.isalnum():
            return None
        try:
            self._hold(identifier)
        except OSError:
            return None
        program = self._read(self.folder / f"{identifier}{_SUFFIX}")
        if program is None:
            self.release(identifier)
        return program

    def forget(self, identifier: str) -> None:
        """Remove a program."""
        with suppress(OSError):
            (self.folder / f"{identifier}{_SUFFIX}").unlink()
        self.release(identifier)
        with suppress(OSError):
            self._lock_path(identifier).unlink()

    def release(self, identifier: str) -> None:
        """Let other processes continue a program."""
        if lock := self._locks.pop(identifier, None):
            lock.release()

    def _hold(self, identifier: str) -> None:
        if identifier in self._locks:
            return
        private_folder(self.folder)
        lock = FileLock(self._lock_path(identifier), timeout=0, mode=0o600, thread_local=False)
        try:
            lock.acquire()
        except Timeout as exc:
            msg = f"the program `{identifier}` waits in another process"
            raise OSError(msg) from exc
        self._locks[identifier] = lock

    def _is_free(self, identifier: str) -> bool:
        try:
            self._hold(identifier)
        except OSError:
            return False
        self.release(identifier)
        return True

    def _lock_path(self, identifier: str) -> Path:
        return self.folder / f"{identifier}.lock"

    def _signature(self, content: bytes) -> bytes:
        return hmac.new(signing_key(user=self._user), content, "sha256").hexdigest().encode()

    def _read(self, path: Path) -> SavedProgram | None:
        try:
            if path.stat().st_size > MAX_BYTES:
                return None
            signature, _, content = path.read_bytes().partition(b"\n")
            if not hmac.compare_digest(self._signature(content), signature):
                return None
            head, _, snapshot = content.partition(b"\n")
            raw = cast("dict[str, Any]", json.loads(head))
            if raw.pop("version", None) != VERSION:
                return None
            known = field_names(SavedProgram)
            kept = {key: value for key, value in raw.items() if key in known}
            return SavedProgram(**kept, snapshot=snapshot)
        except (OSError, ValueError, TypeError):
            return None


def new_id() -> str:
    """Return an id for a program."""
    return secrets.token_hex(5)
