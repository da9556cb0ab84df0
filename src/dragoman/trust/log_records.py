"""Make log records safe where they are made: secrets masked, one harmless line each.

A filter of a logger does not see the records of its children, and handlers are the application's. So records
are made by a factory of ours: every record of `dragoman` and of any logger below it is safe from the start,
in every handler, also in those of a logger that is made later. While a manager is open, so are the records of
the libraries that mention its connections. Records of other loggers are left alone.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

from dragoman.trust.masking import mask_text
from dragoman.trust.redaction import Redactor, current_redactor
from dragoman.trust.sanitizing import for_log, for_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_CHARS = 20_000
"""Longest message or traceback in a log."""
OWN = "dragoman"
LIBRARIES = ("mcp.client", "mcp.shared", "httpx2", "httpcore2")
"""Loggers that mention our connections, with those below them; the SDK's transports log URLs, headers and
messages."""
SDK_CLIENT = "client"
"""Another logger of the SDK; one below it would be the application's."""

_open: dict[Redactor, set[Redactor]] = {}
"""The redactors of the managers that are open, each with those of its users."""


def is_guarded(name: str) -> bool:
    """Return whether the records of a logger are made safe now."""
    if name.startswith(OWN) and name[len(OWN) : len(OWN) + 1] in ("", "."):
        return True
    return bool(_open) and (
        name == SDK_CLIENT or any(name == one or name.startswith(f"{one}.") for one in LIBRARIES)
    )


class SafeFactory:
    """Makes records with the factory that was there before, and makes ours safe."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, name: str, *args: Any, **more: Any) -> logging.LogRecord:
        """Make a record."""
        record = self._make(name, *args, **more)
        # `logging.makeLogRecord` gives no name.
        if name and is_guarded(name):
            make_safe(record)
        return record


def install() -> None:
    """Make records safe from now on, unless that is so already; an application may have its own factory."""
    current = logging.getLogRecordFactory()
    if not isinstance(current, SafeFactory):
        logging.setLogRecordFactory(SafeFactory(current))


def make_safe(record: logging.LogRecord) -> None:
    """Mask and neutralise a record in place."""
    record.msg = for_log(_masked(_message(record)), MAX_CHARS)
    record.args = None
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = "".join(traceback.format_exception(record.exc_info[1]))
    record.exc_info = None
    if record.exc_text:
        # No line of an error's text begins where a line of the log does, so none passes for one.
        lines = for_terminal(_masked(record.exc_text), MAX_CHARS).rstrip("\n").split("\n")
        record.exc_text = "\n".join(f"  {line}" for line in lines)
    if record.stack_info:
        record.stack_info = for_terminal(_masked(record.stack_info), MAX_CHARS)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 -- a log line must not stop the program that writes it
        # The arguments do not fit the text, or cannot be shown; logging itself would print them raw.
        return record.msg if isinstance(record.msg, str) else "(a message that cannot be shown)"


def _masked(text: str) -> str:
    # Text that is cut off anyway need not be searched for secrets.
    text = text if len(text) <= 2 * MAX_CHARS else text[: 2 * MAX_CHARS]
    if not _open:
        return mask_text(text)
    own = current_redactor.get()
    for redactor, of_users in tuple(_open.items()):
        if own is not None and own in of_users:
            text = own.mask(text)  # Written for one user: it has no secrets of the others.
            continue
        text = redactor.mask(text)
        for one in tuple(of_users):
            text = one.mask_known(text, own=True)
    return text


REPEATED_AFTER = 60.0
"""Seconds after which an equal warning is logged again."""
MAX_WARNINGS = 500
"""Warnings that are remembered."""
REPEATING = (
    *(OWN, f"{OWN}.calls", SDK_CLIENT, "httpx2", "mcp.client.auth.oauth2"),
    *(f"mcp.client.{name}" for name in ("client", "session", "stdio", "streamable_http", "sse", "caching")),
    *(f"mcp.shared.{name}" for name in ("dispatcher", "direct_dispatcher", "jsonrpc_dispatcher")),
)
"""Loggers whose repeated warnings are dropped."""


class RepeatedWarnings(logging.Filter):
    """Lets one of several equal warnings pass; the next one that passes says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}
        """By message: when it last passed, and how many were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is logged."""
        if record.levelno != logging.WARNING or record.exc_text:
            return True
        message = record.getMessage()
        passed, left_out = self._seen.pop(message, (None, 0))
        if passed is not None and record.created - passed < REPEATED_AFTER:
            self._seen[message] = passed, left_out + 1
            return False
        if len(self._seen) >= MAX_WARNINGS:
            del self._seen[next(iter(self._seen))]
        self._seen[message] = record.created, 0
        if left_out:
            record.msg, record.args = f"{message} (and {left_out} times before)", None
        return True


def protect(redactor: Redactor, of_users: set[Redactor] | None = None) -> Callable[[], None]:
    """Mask the secrets of a manager in logs, and drop repeated warnings; return a function that undoes this.

    Args:
        redactor: Knows the secrets.
        of_users: The redactors of the users that are open at any time.
    """
    install()
    filters = [(logging.getLogger(name), RepeatedWarnings()) for name in REPEATING]
    for logger, repeated in filters:
        logger.addFilter(repeated)
    _open[redactor] = set() if of_users is None else of_users

    def undo() -> None:
        _open.pop(redactor, None)
        for logger, repeated in filters:
            logger.removeFilter(repeated)

    return undo


install()
