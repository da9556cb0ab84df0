"""Log records: masked, harmless, on one line, whatever the application's handlers do with them."""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

import pytest

from dragoman.trust.gate import protect
from dragoman.trust.masking import MASK
from dragoman.trust.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "planted-canary-value"


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    logger = logging.getLogger("dragoman.test_log_filter")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    end = protect(Redactor([SECRET]), logger.name)
    yield logger, stream
    end()
    logger.removeHandler(handler)


def test_a_secret_in_the_text_or_the_arguments_is_masked(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.warning("text %s and %r", SECRET, {"key": SECRET})
    logger.warning(f"whole {SECRET}")  # noqa: G004 -- a program may
    assert stream.getvalue() == f"text {MASK} and {{'key': '{MASK}'}}\nwhole {MASK}\n"


def test_a_message_is_one_harmless_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.warning("server said %s", "x\n2026-01-01 ERROR forged\x1b[2J\u202e")
    assert stream.getvalue() == "server said x\\n2026-01-01 ERROR forged\\x1b[2J\\u202e\n"


def test_a_traceback_is_text_without_secrets(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        raise ValueError(f"bad {SECRET}\x1b[2J")
    except ValueError:
        logger.exception("it failed", stack_info=True)
    logger.removeHandler(handler)
    shown = stream.getvalue()
    assert SECRET not in shown
    assert "\x1b" not in shown
    assert f"ValueError: bad {MASK}" in shown
    assert "Traceback" in shown
    assert records[0].exc_info is None


def test_arguments_that_do_not_fit_are_left_out(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.warning("one %d", SECRET)
    assert stream.getvalue() == "one %d\n"


def test_it_ends(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    end = protect(Redactor(["another-value"]), logger.name)
    logger.warning("another-value")
    end()
    logger.warning("another-value, said later")
    assert stream.getvalue() == f"{MASK}\nanother-value, said later\n"
