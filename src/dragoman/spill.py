"""Results too large for a model, kept as files that an agent can read on, and pieces that are no text.

A file is named by its content, so the same answer is kept once and nobody can guess a name without knowing
what is in it. The folder and its files are for their owner only, files appear whole or not at all, and old
ones make room: by age, by number, by size. Nothing here raises for what the disk does: what cannot be kept
is not kept, and the reader is told so. Never reads anything but its own files.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import mimetypes
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.private import private_folder, private_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger("dragoman")

MAX_BYTES = 256 * 2**20
MAX_FILES = 500
MAX_AGE = 7 * 86_400.0
PAGE_CHARS = 20_000
"""How much one reading gives, unless the reader asks for less."""

_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")
_HALF_WRITTEN = ".new"
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


def default_folder(env: Mapping[str, str] | None = None) -> Path:
    """Return where results are kept unless somebody says otherwise."""
    base = (os.environ if env is None else env).get("XDG_CACHE_HOME", "")
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return folder / "dragoman" / "results"


class Spill:
    """The kept results in one folder; any thread may use it."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
        max_age: float = MAX_AGE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use `folder`, which nothing else may use.

        Args:
            folder: Made when there is something to keep.
            max_bytes: Of all files together; a single larger one is not kept.
            max_files: How many there may be.
            max_age: Seconds after which a file goes.
            clock: Gives the time, in seconds since the epoch.
        """
        self.folder = folder
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._max_age = max_age
        self._clock = clock
        self._lock = threading.Lock()
        self._warned = False

    def keep_text(self, text: str) -> Path | None:
        """Keep a text; return its file, or nothing if that fails."""
        return self.keep(text.encode("utf-8", "backslashreplace"), mime_type="text/plain")

    def keep(self, data: bytes, *, mime_type: str = "") -> Path | None:
        """Keep bytes under the ending of their type; return their file, or nothing if that fails."""
        if len(data) > self._max_bytes:
            return None
        path = self.folder / f"{hashlib.sha256(data).hexdigest()[:32]}{_suffix(mime_type)}"
        try:
            with self._lock:
                self._prepare()
                if path.is_file() and path.stat().st_size == len(data):
                    now = self._clock()
                    os.utime(path, (now, now))  # It is in use again: others make room first.
                else:
                    self._make_room(len(data))
                    self._write(path, data)
        except OSError as exc:
            if not self._warned:
                self._warned = True
                logger.warning("results cannot be kept in `%s`: %s", self.folder, exc.strerror or exc)
            return None
        return path

    def read(self, name: str, *, offset: int = 0, limit: int = PAGE_CHARS) -> str:
        """Return a piece of a kept text, and say where it goes on.

        Args:
            name: The file's path or its name; only files of this folder can be read.
            offset: The first character.
            limit: How many characters, up to `PAGE_CHARS`.

        Raises:
            FileNotFoundError: There is no such file here, or it is gone.
        """
        plain = Path(name.strip()).name
        if not _NAME.fullmatch(plain):
            msg = f"`{name}` is no kept result"
            raise FileNotFoundError(msg)
        try:
            text = (self.folder / plain).read_text("utf-8", "replace")
        except OSError as exc:
            msg = f"the kept result `{plain}` is gone"
            raise FileNotFoundError(msg) from exc
        start = max(0, min(offset, len(text)))
        end = min(len(text), start + max(1, min(limit, PAGE_CHARS)))
        more = f"; go on with offset {end}" if end < len(text) else ""
        return f"{text[start:end]}\n[characters {start} to {end} of {len(text)}{more}]"

    def clear(self) -> None:
        """Remove everything that is kept."""
        with self._lock, contextlib.suppress(OSError):
            for _, _, path in self._files():
                path.unlink(missing_ok=True)

    def _prepare(self) -> None:
        private_folder(self.folder)
        status = self.folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            msg = "it is no folder"
            raise OSError(msg)
        if hasattr(os, "getuid"):
            if status.st_uid != os.getuid():
                msg = "it belongs to somebody else"
                raise OSError(msg)
            if status.st_mode & 0o077:
                self.folder.chmod(0o700)

    def _write(self, path: Path, data: bytes) -> None:
        number, name = private_temporary(self.folder, _HALF_WRITTEN)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(data)
            now = self._clock()
            os.utime(name, (now, now))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _make_room(self, size: int) -> None:
        """Remove what is too old, what a crash left half written, and the oldest until there is room."""
        now = self._clock()
        kept: list[tuple[float, int, Path]] = []
        for changed, length, path in self._files():
            if now - changed > (3600 if path.name.endswith(_HALF_WRITTEN) else self._max_age):
                path.unlink(missing_ok=True)
            elif not path.name.endswith(_HALF_WRITTEN):
                kept.append((changed, length, path))
        kept.sort(reverse=True)
        total = size + sum(length for _, length, _ in kept)
        while kept and (total > self._max_bytes or len(kept) >= self._max_files):
            _, length, path = kept.pop()
            path.unlink(missing_ok=True)
            total -= length

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return our files: when each was used last, its size, its path."""
        found: list[tuple[float, int, Path]] = []
        if self.folder.is_dir():
            for entry in os.scandir(self.folder):
                if _NAME.fullmatch(entry.name) or entry.name.endswith(_HALF_WRITTEN):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, Path(entry.path)))
        return found


def _suffix(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    guessed = (mimetypes.guess_extension(kind) if kind else None) or ".bin"
    return guessed if _SUFFIX.fullmatch(guessed) else ".bin"
