"""Log records: masked, harmless, on one line, whatever the application's loggers and handlers do with them."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dragoman.trust.log_records import install, protect
from dragoman.trust.masking import MASK
from dragoman.trust.redaction import Redactor
from dragoman.visible import is_harmful

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "planted-canary-value"
TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123"
NASTY = "x\n2026-01-01 ERROR forged\r\x1b[2J\u202e\u2066\u200b\u3164\u2028\x9b\u2800"


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """Yield a logger that was not there before, and what its handler writes."""
    logger = logging.getLogger(f"dragoman.made.later.{request.node.name}")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    end = protect(Redactor([SECRET]))
    yield logger, stream
    end()
    logger.removeHandler(handler)


def test_a_secret_in_the_text_or_the_arguments_is_masked(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.warning("text %s and %r", SECRET, {"key": SECRET})
    logger.warning(f"whole {SECRET}")  # noqa: G004 -- a program may
    logger.warning("%(a)s", {"a": f"{SECRET} {TOKEN}"})
    expected = f"text {MASK} and {{'key': '{MASK}'}}\nwhole {MASK}\n{MASK} {MASK}\n"
    assert stream.getvalue() == expected


def test_a_message_is_one_harmless_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.warning("server said %s", "x\n2026-01-01 ERROR forged\x1b[2J\u202e")
    logger.warning(NASTY)
    logger.warning("%s", ValueError(NASTY))
    said = stream.getvalue()
    assert said.startswith("server said x\\n2026-01-01 ERROR forged\\x1b[2J\\u202e\n")
    assert len(said.splitlines()) == 3
    assert not is_harmful(said)


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


def test_no_line_of_an_errors_text_passes_for_a_line_of_the_log(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, stream = log
    error = ValueError(NASTY)
    error.add_note(NASTY)
    try:
        raise ExceptionGroup(NASTY, [error, OSError(2, NASTY)]) from KeyError(NASTY)
    except ExceptionGroup:
        logger.exception("it failed")
    first, *others = stream.getvalue().split("\n")
    assert first == "it failed"
    assert len([line for line in others if "forged" in line]) > 3
    assert [line for line in others if line and not line.startswith("  ")] == []
    assert not is_harmful(stream.getvalue())


def test_arguments_that_do_not_fit_are_left_out(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.warning("one %d", SECRET)
    assert stream.getvalue() == "one %d\n"


def test_an_argument_that_cannot_be_shown_stops_no_program(log: tuple[logging.Logger, io.StringIO]) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError(SECRET)

    logger, stream = log
    logger.warning("one %s", Odd())
    logger.warning(Odd())
    assert stream.getvalue() == "one %s\n(a message that cannot be shown)\n"


def test_it_ends(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    end = protect(Redactor(["another-value"]))
    logger.warning("another-value")
    end()
    logger.warning("another-value, said later")
    assert stream.getvalue() == f"{MASK}\nanother-value, said later\n"


def test_records_are_harmless_when_no_manager_is_open() -> None:
    program = (
        "import logging, sys\n"
        "import dragoman.manager.manager\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "logging.getLogger('dragoman.brand.new').error('%s %s', sys.argv[1], sys.argv[2])\n"
        "logging.getLogger('dragomanish').error('%s', 'a\\tb')\n"
    )
    command = [sys.executable, "-c", program, NASTY.replace("\x9b", ""), TOKEN]
    said = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8").stdout
    first, second = said.splitlines()
    assert first.startswith("x\\n2026-01-01 ERROR forged\\r\\x1b[2J")
    assert first.endswith(f" {MASK}")
    assert not is_harmful(said)
    assert second == "a\tb"


def test_a_factory_of_the_application_keeps_its_place(log: tuple[logging.Logger, io.StringIO]) -> None:
    before = logging.getLogRecordFactory()

    def own(*args: object, **more: object) -> logging.LogRecord:
        record = logging.LogRecord(*args, **more)  # type: ignore[arg-type]
        record.mark = "own"
        return record

    logger, stream = log
    records: list[logging.LogRecord] = []
    logger.addFilter(lambda record: records.append(record) is None)
    logging.setLogRecordFactory(own)
    try:
        install()
        logger.warning("%s", f"{SECRET}\n")
        install()
    finally:
        logging.setLogRecordFactory(before)
    assert stream.getvalue() == f"{MASK}\\n\n"
    assert records[0].__dict__["mark"] == "own"
