"""What dragoman logs, without secrets and on one harmless line each.

A filter on the logger, not on handlers: whatever the application does with a record, it never gets the
original. A traceback keeps its lines, but as text: the exception itself would carry the secret on.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

from dragoman.trust.sanitize import for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.trust.redactor import Redactor

MAX_CHARS = 20_000
"""Of one message or traceback."""


class SafeRecords(logging.Filter):
    """Masks and neutralises every record that passes."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record in place; every record passes."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError, IndexError):
            # The arguments do not fit the text; logging itself would print them raw.
            message = str(record.msg)
        record.msg = for_log(self._masked(message), MAX_CHARS)
        record.args = None
        if record.exc_info and record.exc_info[1] is not None:
            lines = traceback.format_exception(record.exc_info[1])
            record.exc_text = "".join(lines)
        record.exc_info = None
        if record.exc_text:
            record.exc_text = for_terminal(self._masked(record.exc_text), MAX_CHARS).rstrip("\n")
        if record.stack_info:
            record.stack_info = for_terminal(self._masked(record.stack_info), MAX_CHARS)
        return True

    def _masked(self, text: str) -> str:
        # What is cut off anyway need not be searched for secrets.
        return self._redactor.mask(text if len(text) <= 2 * MAX_CHARS else text[: 2 * MAX_CHARS])


def protect(redactor: Redactor, logger: str = "dragoman") -> Callable[[], None]:
    """Let nothing out of a logger unmasked; returns what ends that.

    A logger's filter sees only what is logged to that very logger: give each child its own.
    """
    found = logging.getLogger(logger)
    records = SafeRecords(redactor)
    found.addFilter(records)
    return lambda: found.removeFilter(records)
