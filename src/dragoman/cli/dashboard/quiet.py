"""Log lines stay off the screen while the dashboard has it; the last ones are kept, for whoever asks."""

from __future__ import annotations

import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

KEPT = 500


class Keeper(logging.Handler):
    """Keeps the last lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        try:
            self.lines.append(self.format(record))
        except Exception:  # noqa: BLE001 -- a log call with wrong arguments is no reason to stop anything
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Say nothing: standard error is the screen."""


@contextmanager
def kept_logs() -> Generator[Keeper]:
    """Have every log line kept instead of written, whoever set up logging and however."""
    keeper = Keeper()
    loggers = [logging.getLogger(), *_with_handlers()]
    before = [(logger, logger.handlers[:]) for logger in loggers]
    for logger in loggers:
        logger.handlers = []
    logging.getLogger().addHandler(keeper)
    try:
        yield keeper
    finally:
        for logger, handlers in before:
            logger.handlers = handlers


def _with_handlers() -> list[logging.Logger]:
    """Return the loggers below the root that write somewhere themselves."""
    known = logging.getLogger().manager.loggerDict.values()
    return [one for one in known if isinstance(one, logging.Logger) and one.handlers]
