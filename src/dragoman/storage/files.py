"""The user's folders, private files and folders, and the one way to replace a file.

Everything that dragoman keeps lies in three folders: data (logins, approvals, pins), state (call log, session
log, history, child processes) and cache (listings, large results). Only the owner can read them, whatever the
umask is. Configuration is not here: `config.profiles` names its files.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Generic, Literal, TypeVar

from dragoman.errors import ConfigError, DragomanError
from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

NAME = "dragoman"
LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process that writes."""

_XDG = {
    "data": ("XDG_DATA_HOME", ".local/share"),
    "state": ("XDG_STATE_HOME", ".local/state"),
    "cache": ("XDG_CACHE_HOME", ".cache"),
    "config": ("XDG_CONFIG_HOME", ".config"),
}
_BASES = (*(variable for variable, _ in _XDG.values()), "XDG_RUNTIME_DIR")
_USUAL = (
    *(usual for _, usual in _XDG.values()),
    *("Library/Application Support", "Library/Caches", "Library/Logs"),
)
_moved: set[tuple[Path, Path]] = set()
"""Folders whose old files this process has moved already."""


def data_folder() -> Path:
    """Return the user's folder for logins, approvals and pins."""
    return _user_folder("data")


def user_data_folder(user: str) -> Path:
    """Return the data folder of one user of a program with many users; the program's own without one."""
    return _of_user(data_folder(), user)


def user_cache_folder(user: str) -> Path:
    """Return the cache folder of one user of a program with many users; the program's own without one."""
    return _of_user(cache_folder(), user)


def _of_user(folder: Path, user: str) -> Path:
    if not user:
        return folder
    # A hash: any text is a valid id, and a folder's name must neither clash nor lead elsewhere.
    name = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    return folder / "users" / name


def state_folder() -> Path:
    """Return the user's folder for the call log, the session's log and history, and child processes."""
    return _user_folder("state")


def cache_folder() -> Path:
    """Return the user's folder for what can be made again: listings and large results."""
    return _user_folder("cache")


def _user_folder(kind: Literal["data", "state", "cache"]) -> Path:
    variable, usual = _XDG[kind]
    given = Path(os.environ.get(variable, ""))
    xdg = (given if given.is_absolute() else Path.home() / usual) / NAME
    if sys.platform == "linux" and "ANDROID_DATA" not in os.environ:
        return xdg
    import platformdirs  # it takes 3 ms to import

    found = Path(getattr(platformdirs, f"user_{kind}_dir")(NAME, appauthor=False))
    if not found.is_absolute():
        found = xdg  # the XDG specification says to ignore a relative path
    # On macOS and Windows, version 0.1 keeps some files in the XDG folders. Caches are simply made again.
    if kind != "cache" and found != xdg and (xdg, found) not in _moved:
        _moved.add((xdg, found))
        move_old_files(xdg, found)
    return found


def move_old_files(old: Path, new: Path) -> None:
    """Move everything in a folder to another one, except what the other one has already.

    Several processes may do this at once. What cannot be moved stays, with a warning.
    """
    if not old.is_dir():
        return
    import filelock

    try:
        private_folder(new)
        with filelock.FileLock(new / ".move.guard", timeout=LOCK_TIMEOUT, mode=0o600):
            if old.is_dir():
                _move_entries(old, new)
    except OSError as exc:  # as is filelock's Timeout
        import logging

        reason = exc.strerror or exc
        logging.getLogger("dragoman").warning("%s could not be moved to %s: %s", old, new, reason)


def _move_entries(old: Path, new: Path) -> None:
    # Backwards, so that SQLite's `NAME-wal` and `NAME-shm` come before `NAME`: if we are stopped in between,
    # the database is still in its old place. Beside another database they would damage it, and stay.
    for entry in sorted(old.iterdir(), reverse=True):
        target = new / entry.name
        database = new / entry.name.removesuffix("-wal").removesuffix("-shm")
        if entry.is_dir() and not entry.is_symlink() and target.is_dir():
            _move_entries(entry, target)
        elif not os.path.lexists(target) and not os.path.lexists(database):
            entry.rename(target)
    with suppress(OSError):
        old.rmdir()  # fails if something is left


def check_own_file(path: Path, *, use: str) -> None:
    """Check that a file, if it exists, is a regular one of this user.

    Args:
        path: The file.
        use: What it is used as, for the error.

    Raises:
        DragomanError: It is something else.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    getuid = getattr(os, "getuid", None)
    if not stat.S_ISREG(status.st_mode) or (getuid is not None and status.st_uid != getuid()):
        msg = f"{path} is not used as {use}: it is not a regular file of this user"
        raise DragomanError(msg, hint="move it away")


def private_folder(folder: Path) -> None:
    """Create a folder and its missing parents for the owner alone (mode 0700).

    An existing folder keeps its mode, except dragoman's own ones (such as `~/.local/state/dragoman`) and
    those inside of them: these get mode 0700 if the user owns them.

    Raises:
        OSError: It cannot be created.
    """
    missing: list[Path] = []
    above = folder
    while not above.exists() and above != above.parent:
        missing.append(above)
        above = above.parent
    for one in reversed(missing):
        try:
            one.mkdir(mode=0o700)
        except FileExistsError:
            if not one.is_dir():
                raise
        else:
            # The umask may have removed even the owner's rights.
            one.chmod(0o700)
    if not folder.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))
    if sys.platform != "win32":
        for one in _ours(folder):
            _close(one)


def private_opener(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file; a new one is for its owner alone (mode 0600), whatever the umask is."""
    descriptor = os.open(path, flags, 0o600)
    if sys.platform != "win32":
        with suppress(OSError):
            status = os.fstat(descriptor)
            is_new = stat.S_ISREG(status.st_mode) and status.st_size == 0 and status.st_uid == os.geteuid()
            if is_new and stat.S_IMODE(status.st_mode) != 0o600:
                os.fchmod(descriptor, 0o600)
    return descriptor


def _ours(folder: Path) -> list[Path]:
    """Return the folder and its parents up to dragoman's own one, outermost first; else nothing."""
    bases = _bases(Path.home(), tuple(os.environ.get(name, "") for name in _BASES))
    found: list[Path] = []
    for one in (folder, *folder.parents):
        found.append(one)
        if one.name == NAME and one.parent in bases:
            return found[::-1]
    return []


@lru_cache(maxsize=8)
def _bases(home: Path, given: tuple[str, ...]) -> frozenset[Path]:
    return frozenset({*(Path(base) for base in given if base), *(home / name for name in _USUAL)})


def _close(folder: Path) -> None:
    """Give a folder mode 0700 if the user owns it; never follows a link."""
    with suppress(OSError):
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o777 != 0o700:
            folder.chmod(0o700)


def write_atomically(
    path: Path,
    data: bytes,
    *,
    mode: int | None = 0o600,
    like: os.stat_result | None = None,
    sync: bool = True,
) -> None:
    """Replace a file as a whole: other programs see the old content or the new one, never a part.

    Args:
        path: The file; its folder must exist.
        data: The new content.
        mode: The mode of the file; `None` for what the umask allows.
        like: The status of the file that is replaced: its mode and its owner are kept.
        sync: Whether the content has to survive a crash of the machine.

    Raises:
        OSError: It cannot be written; the old file is untouched.
    """
    if like is not None:
        mode = stat.S_IMODE(like.st_mode)
    new = path.with_name(f".{os.urandom(8).hex()}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    number = os.open(new, flags, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(number)
        if mode is not None:
            new.chmod(mode)
        if like is not None:
            with suppress(OSError, AttributeError):  # only root may give files away; Windows has no chown
                os.chown(new, like.st_uid, like.st_gid)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


MAX_BYTES = 64 * 2**20
MAX_PROJECT_BYTES = 4 * 2**20
"""For a project's lock file: it is read before the user has approved anything in that project."""

T = TypeVar("T")


def project_root(root: str | os.PathLike[str]) -> str:
    """Return the real path of a project's directory, under which approvals and pins are kept."""
    return os.path.realpath(root)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it.

    Raises:
        OSError: It cannot be read, or is a pipe or a device, which could block.
    """
    # Non-blocking: opening a named pipe must not wait for its other end.
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(number, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the beginning of a file; see `open_regular`."""
    with open_regular(path) as file:
        return file.read(most)


class StoredFile(Struct, Generic[T]):
    """A file that is read whole, and changed under a lock by replacing it."""

    path: Path
    load: Callable[[str], T]
    dump: Callable[[T], str]
    empty: Callable[[], T]
    private: bool = True
    """Whether only its owner may read and write it; else it is a project's file."""

    @property
    def most(self) -> int:
        """The most bytes that it may have."""
        return MAX_BYTES if self.private else MAX_PROJECT_BYTES

    def content(self) -> T | None:
        """Return the content; that of a missing file is empty, that of an unusable one `None`."""
        try:
            text = self.text()
            return self.empty() if text is None else self.load(text)
        except OSError as exc:
            _warn(self.path, exc.strerror)
        except ValueError as exc:
            _warn(self.path, exc)
        return None

    def change(self, change: Callable[[T], T]) -> T:
        """Read, change and write under a lock.

        Raises:
            ConfigError: It cannot be written.
        """
        try:
            with self._lock():
                found = self.content()
                if found is None:
                    # Keep the damaged file: the user may want to look at it.
                    self.path.replace(self.path.with_name(f"{self.path.name}.damaged"))
                old = self.empty() if found is None else found
                new = change(old)
                if new != found:
                    self._write(self.dump(new))
                return new
        except OSError as exc:
            msg = f"it cannot be written: {exc.strerror or exc}"
            raise ConfigError(msg, source=str(self.path), hint="check its permissions") from exc

    def text(self) -> str | None:
        """Return the text; `None` if the file is missing.

        Raises:
            OSError: It cannot be read.
            ValueError: It must not be used: it is too large, or others may write to it.
        """
        # Non-blocking: opening a named pipe must not wait for its other end.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            number = os.open(self.path, flags)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            status = os.fstat(number)
            if wrong := self._fault(status):
                raise ValueError(wrong)
            return os.read(number, status.st_size).decode()
        finally:
            os.close(number)

    def _fault(self, status: os.stat_result) -> str:
        if not stat.S_ISREG(status.st_mode):
            return "it is not a regular file"
        if status.st_size > self.most:
            return "it is too large"
        if not self.private or sys.platform == "win32":
            return ""
        if status.st_uid != os.geteuid():
            return "it belongs to another user"
        return "other users may write to it" if status.st_mode & 0o022 else ""

    def _write(self, text: str) -> None:
        if len(text) > self.most:
            msg = f"it would be larger than {self.most // 2**20} MiB"
            raise ConfigError(msg, source=str(self.path))
        write_atomically(self.path, text.encode(), mode=0o600 if self.private else 0o644)

    @contextmanager
    def _lock(self) -> Generator[None]:
        import filelock

        if not self.private:
            private_folder(self.path.parent)
        # The lock of a project's file lies in the user's folder: the project gets only the file asked for.
        folder = self.path.parent if self.private else data_folder()
        private_folder(folder)
        try:
            with filelock.FileLock(folder / f".{self.path.name}.guard", timeout=LOCK_TIMEOUT, mode=0o600):
                yield
        except filelock.Timeout:
            msg = f"another process has been writing to it for {LOCK_TIMEOUT:g} s"
            raise ConfigError(msg, source=str(self.path), hint="try again") from None


def _warn(path: Path, why: object) -> None:
    import logging  # it is rarely needed here, and takes a while to import

    logging.getLogger("dragoman").warning("%s is not used: %s", path, why)
