"""Large results as files: an agent reads them page by page; binary content is kept here too.

A file is named by a hash of its content: the same result is kept once, and a name cannot be guessed. Only the
owner can read the files. Old ones are removed by age, number and size. Errors of the disk are never raised:
a result that cannot be kept is reported as such. Only files of this folder can be read.
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

from dragoman.storage.files import private_folder, user_cache_folder, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("dragoman")

MAX_BYTES = 256 * 2**20
MAX_FILES = 500
MAX_AGE = 7 * 86_400.0
PAGE_CHARS = 20_000
"""The most characters that one `read` returns."""

_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")
_HALF_WRITTEN = ".new"
_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}")


def default_folder(user: str = "") -> Path:
    """Return the folder for large results: of the program, or of one of its users."""
    return user_cache_folder(user) / "results"


class ResultStore:
    """Keeps results in one folder; any thread may use it."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        max_files: int = MAX_FILES,
        max_age: float = MAX_AGE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use a folder that nothing else uses.

        Args:
            folder: Created with the first file.
            max_bytes: The size of all files together; a single larger one is not kept.
            max_files: The number of files.
            max_age: Seconds after which a file is removed.
            clock: Returns the seconds since the epoch.
        """
        self.folder = folder
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._max_age = max_age
        self._clock = clock
        self._lock = threading.Lock()
        self._warned = False

    def keep_text(self, text: str) -> Path | None:
        """Keep a text; return its file, or `None` if that fails."""
        return self.keep(text.encode("utf-8", "backslashreplace"), mime_type="text/plain")

    def keep(self, data: bytes, *, mime_type: str = "") -> Path | None:
        """Keep bytes in a file with the suffix of their type; return it, or `None` if that fails."""
        if len(data) > self._max_bytes:
            return None
        path = self.folder / f"{hashlib.sha256(data).hexdigest()[:32]}{_suffix(mime_type)}"
        try:
            with self._lock:
                self._prepare()
                if not path.is_file() or path.stat().st_size != len(data):
                    self._make_room(len(data))
                    write_atomically(path, data, sync=False)
                now = self._clock()
                os.utime(path, (now, now))  # the files that were used least recently are removed first
        except OSError as exc:
            if not self._warned:
                self._warned = True
                logger.warning("results cannot be kept in `%s`: %s", self.folder, exc.strerror or exc)
            return None
        return path

    def read(self, name: str, *, offset: int = 0, limit: int = PAGE_CHARS) -> str:
        """Return a part of a kept text, and the offset of the next one.

        Args:
            name: The file's path or name; only files of this folder can be read.
            offset: The first character.
            limit: How many characters, up to `PAGE_CHARS`.

        Raises:
            FileNotFoundError: It is not a kept result, or was removed.
        """
        plain = Path(name.strip()).name
        if not _NAME.fullmatch(plain):
            msg = f"`{name}` is not a kept result"
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
        """Remove all kept results."""
        with self._lock, contextlib.suppress(OSError):
            for _, _, path in self._files():
                path.unlink(missing_ok=True)

    def _prepare(self) -> None:
        private_folder(self.folder)
        status = self.folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            msg = "it is not a folder"
            raise OSError(msg)
        if hasattr(os, "getuid"):
            if status.st_uid != os.getuid():
                msg = "it belongs to another user"
                raise OSError(msg)
            if status.st_mode & 0o077:
                self.folder.chmod(0o700)

    def _make_room(self, size: int) -> None:
        """Remove old files, temporary files that a crash left, and the oldest ones until there is room."""
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
        """Return the files: when each was last used, its size, its path."""
        found: list[tuple[float, int, Path]] = []
        if self.folder.is_dir():
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name) or entry.name.endswith(_HALF_WRITTEN):
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime, status.st_size, Path(entry.path)))
        return found


def _suffix(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    guessed = (mimetypes.guess_extension(kind) if kind else None) or ".bin"
    return guessed if _SUFFIX.fullmatch(guessed) else ".bin"
