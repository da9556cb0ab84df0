"""Where log lines go during a session: all of them into a file, warnings also to the screen, one line each.

Nothing that logs can write into the middle of the screen: other programs' loggers and Python's warnings end
in the file too. The file is the user's own, bounded, and holds nothing that looks like a secret.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.private import private_folder, private_opener
from dragoman.trust.redact import mask_text
from dragoman.trust.sanitize import for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

NAME = "session.log"
MAX_BYTES = 1024 * 1024
OLDER_FILES = 2
SAME = 30.0
"""Seconds in which the same warning is shown once."""
_SHOWN_ELSEWHERE = frozenset({"failures"})
"""Modules whose records tell what the session shows anyway: calls that failed."""


def state_folder() -> Path:
    """Return where a session keeps its log and its history."""
    import platformdirs

    return Path(platformdirs.user_state_dir("dragoman", appauthor=False))


class Warnings:
    """Holds warnings back while a session starts: its table of servers tells most of them."""

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
        """Show what was held back, but for what the person has read already."""
        read = [" ".join(text.split()) for text in known if text]
        held, self._held = self._held or [], None
        for text in held:
            if not any(one in text for one in read):
                self._show(text)


@contextmanager
def logbook(path: Path, show: Callable[[str], None], *, debug: bool = False) -> Generator[None]:
    """Lead every log record into a file until the block is left, and tell warnings of ours in one line."""
    ours, root = logging.getLogger("dragoman"), logging.getLogger()
    before = (ours.level, ours.propagate, ours.disabled, ours.handlers[:], root.handlers[:])
    keeper = _file_handler(path)
    teller = _Teller(show)
    ours.disabled, ours.propagate = False, False
    ours.setLevel(logging.DEBUG if debug else logging.INFO)
    ours.handlers = [keeper, teller]
    root.handlers = [keeper]
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        ours.level, ours.propagate, ours.disabled, ours.handlers, root.handlers = before
        ours.setLevel(before[0])
        keeper.close()


def _file_handler(path: Path) -> logging.Handler:
    try:
        private_folder(path.parent)
        handler: logging.Handler = _PrivateFile(path)
    except OSError:
        return logging.NullHandler()  # A session without a log is better than none.
    handler.setFormatter(_Masked("%(asctime)s %(levelname)s %(name)s %(message)s"))
    return handler


class _PrivateFile(RotatingFileHandler):
    """A rotating file that only its owner can read, made when there is something to write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=True)

    def _open(self) -> Any:
        descriptor = private_opener(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Say nothing: standard error is the screen."""


class _Masked(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(mask_text(super().format(record)))


class _Teller(logging.Handler):
    """Tells warnings and errors, each in one line, and the same one not again and again."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show
        self._told: dict[str, float] = {}
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        # The screen belongs to one thread; what others have to say is in the file.
        if record.module in _SHOWN_ELSEWHERE or threading.get_ident() != self._thread:
            return
        text = for_log(mask_text(" ".join(record.getMessage().split())))
        now = time.monotonic()
        self._told = {known: at for known, at in self._told.items() if now - at < SAME}
        if text not in self._told:
            self._told[text] = now
            self._show(text)
