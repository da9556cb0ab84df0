"""A file for what a child writes to its standard error: bounded, with known secrets masked, safe to print.

The file is `path`; when it is full it becomes `path.1`, and that `path.2`. Whole lines are written, so that
no secret is torn apart; the last one at the end. What would steer a terminal is written as `�`, so that `cat`
and `tail` are safe. A file that cannot be written is given up with one warning: a log is no reason to stop a
server. It is never a terminal, a pipe or a device.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.private import private_folder, private_opener
from dragoman.trust.redactor import Redactor, in_use
from dragoman.trust.sanitize import for_terminal

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

logger = logging.getLogger("dragoman")

MAX_BYTES = 1024 * 1024
OLDER_FILES = 2
LONGEST_LINE = 64 * 1024
"""A line is cut here, so that one without an end takes no memory."""


class RotatingLog:
    """An open log; it belongs to one thread."""

    def __init__(self, path: str, *, server: str, secrets: Iterable[str] = ()) -> None:
        """Open a log, and its folder if need be.

        Args:
            path: The newest file.
            server: Whose it is, for warnings.
            secrets: What is masked, beside what the connection's own redactor knows.
        """
        self._path = Path(path)
        self._server = server
        self._redactor = Redactor(secrets)
        self._known = in_use.get() or self._redactor
        self._begun = b""
        self._file: int | None = None
        with self._giving_up():
            private_folder(self._path.parent)
            self._open()

    def write(self, data: bytes) -> None:
        """Take in what came; lines that it completes are written."""
        if self._file is None:
            return
        lines, newline, rest = (self._begun + data).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            lines, newline, rest = lines + newline + rest, b"\n", b""
        self._begun = rest
        if newline:
            self._write(lines + newline)

    def close(self) -> None:
        """Write the line that has no end, and close the file."""
        if self._file is not None and self._begun:
            self._write(self._begun + b"\n")
        self._close()

    def _write(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "surrogateescape")
        if len(self._redactor) or len(self._known):
            text = self._redactor.mask_known(text)
            text = text if self._known is self._redactor else self._known.mask_known(text)
        lines = for_terminal(text).encode("utf-8", "replace")
        with self._giving_up():
            for start in range(0, len(lines), MAX_BYTES):
                self._put(lines[start : start + MAX_BYTES])

    def _put(self, lines: bytes) -> None:
        if self._file is not None and not self._is_ours(self._file):
            # Another connection to the same server has moved it on.
            self._close()
            self._open()
        if self._file is not None and os.fstat(self._file).st_size + len(lines) > MAX_BYTES:
            self._close()
            self._rotate()
            self._open()
        if self._file is not None:
            os.write(self._file, lines)

    def _is_ours(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path))  # noqa: PTH116 -- of a descriptor too
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        # A pipe that nobody reads must not hold us up, nor a terminal become ours.
        flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
        # Others have no business with what a server says.
        file = private_opener(self._path, flags)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            msg = "it is no regular file"
            raise OSError(msg)
        self._file = file

    def _rotate(self) -> None:
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, OLDER_FILES + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with suppress(FileNotFoundError):
                newer.replace(older)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    @contextmanager
    def _giving_up(self) -> Generator[None]:
        """Turn trouble with the file into the end of the log."""
        try:
            yield
        except OSError as exc:
            with suppress(OSError):
                self._close()
            reason = exc.strerror or str(exc)
            logger.warning("%s: `log_file` (%s) cannot be written: %s", self._server, self._path, reason)
