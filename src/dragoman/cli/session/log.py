"""Logging during a session: all records go to a file, warnings of dragoman also to the screen.

Records of other libraries and Python's warnings go to the file too, so that nothing disturbs the screen. The
file is private, limited in size, and secrets are masked.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING, Any

from dragoman.storage.files import private_folder, private_opener
from dragoman.trust.masking import mask_text
from dragoman.trust.sanitizing import for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

NAME = "session.log"
MAX_BYTES = 1024 * 1024
OLDER_FILES = 2
SAME = 30.0
"""The same warning is shown once within this many seconds."""
_FAILED = re.compile(r"(\S+): ")
"""Begins the message of a server that failed: its name, then its error."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SHOWN_ELSEWHERE = frozenset({"dragoman.calls"})
"""Loggers whose warnings the session shows in another way: failed calls."""


class Warnings:
    """Holds back warnings while a session starts: the table of servers shows most of them."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._held: list[str] | None = []

    def __call__(self, text: str) -> None:
        """Show a warning, or keep it until `release`."""
        if self._held is None:
            self._show(text)
        else:
            self._held.append(text)

    def release(self, known: Iterable[str]) -> None:
        """Show the held-back warnings, except those that were already shown."""
        read = [" ".join(text.split()) for text in known if text]
        held, self._held = self._held or [], None
        for text in held:
            if not any(one in text for one in read):
                self._show(text)


@contextmanager
def logbook(path: Path, show: Callable[[str], None], *, debug: bool = False) -> Generator[None]:
    """Send all log records to a file until the block ends, and show warnings of dragoman."""
    ours, root = logging.getLogger("dragoman"), logging.getLogger()
    before = (ours.level, ours.propagate, ours.disabled, ours.handlers[:], root.handlers[:])
    to_file = _file_handler(path)
    on_screen = _ScreenHandler(show)
    ours.disabled, ours.propagate = False, False
    ours.setLevel(logging.DEBUG if debug else logging.INFO)
    ours.handlers = [to_file, on_screen]
    root.handlers = [to_file]
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        ours.level, ours.propagate, ours.disabled, ours.handlers, root.handlers = before
        ours.setLevel(before[0])
        to_file.close()


def _file_handler(path: Path) -> logging.Handler:
    try:
        private_folder(path.parent)
        handler: logging.Handler = _PrivateFile(path)
    except OSError:
        return logging.NullHandler()  # The log is optional.
    handler.setFormatter(_Masked("%(asctime)s %(levelname)s %(name)s %(message)s"))
    return handler


class _PrivateFile(RotatingFileHandler):
    """A rotating file that only its owner can read, created with the first record."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=True)

    def _open(self) -> Any:
        descriptor = private_opener(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Ignore the error: stderr is the screen."""


class _Masked(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(mask_text(super().format(record)))


class _ScreenHandler(logging.Handler):
    """Shows warnings and errors, each on one line, without repeating the same one.

    A server that keeps failing is reported once, and again only with another error.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._recent: dict[str, float] = {}
        self._faults: dict[str, str] = {}
        """The last error of each server, without its numbers: durations and process ids differ each time."""
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        # Only one thread may write to the screen; records of others are in the file.
        if record.name in _SHOWN_ELSEWHERE or threading.get_ident() != self._thread:
            return
        text = for_log(mask_text(" ".join(record.getMessage().split())))
        if server := _FAILED.match(text):
            fault = _NUMBER.sub("0", text)
            if self._faults.get(server[1]) == fault:
                return
            self._faults[server[1]] = fault
        now = time.monotonic()
        self._recent = {known: at for known, at in self._recent.items() if now - at < SAME}
        if text not in self._recent:
            self._recent[text] = now
            self._show(text)
