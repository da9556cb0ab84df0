"""Log lines during a session: in a private file, warnings once and in one line, nothing on the screen."""

from __future__ import annotations

import logging
import threading
import warnings
from typing import TYPE_CHECKING

from dragoman.cli.session.log import Warnings, logbook

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

logger = logging.getLogger("dragoman")


def test_everything_is_in_the_file_and_warnings_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    path = tmp_path / "deep" / "session.log"
    with logbook(path, told.append):
        logger.info("legal: connected with %d tools", 5)
        logger.warning("legal: it is\n  odd")
        logger.warning("legal: it is\n  odd")
        logger.error("key %s", "sk-abcdefghijklmnopqrstuvwx")
        logging.getLogger("other.library").error("from elsewhere")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("python warns", stacklevel=1)
        thread = threading.Thread(target=lambda: logger.warning("from a thread"))
        thread.start()
        thread.join()
    assert told == ["legal: it is\\n odd", "key •••"]
    kept = path.read_text("utf-8")
    for text in ("connected with 5 tools", "from elsewhere", "python warns", "from a thread", "key •••"):
        assert text in kept
    assert "sk-abc" not in kept
    assert path.stat().st_mode & 0o777 == 0o600
    said = capsys.readouterr()
    assert said.out + said.err == ""


def test_a_server_that_keeps_failing_is_told_once_until_its_error_changes(tmp_path: Path) -> None:
    told: list[str] = []
    with logbook(tmp_path / "log", told.append):
        for seconds in (1, 2, 40):
            logger.error("%s: %s", "legal", f"it exited with code 1 after {seconds} s")
            logger.error("%s: %s", "files", "no such program")
        logger.error("%s: %s", "legal", "the token was rejected")
    assert told == [
        "legal: it exited with code 1 after 1 s",
        "files: no such program",
        "legal: the token was rejected",
    ]


def test_logging_is_as_before_afterwards(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = (logger.handlers[:], logger.level, logger.propagate, logging.getLogger().handlers[:])
    with logbook(tmp_path / "log", lambda _: None, debug=True):
        logger.debug("seen")
    assert (logger.handlers, logger.level, logger.propagate, logging.getLogger().handlers) == before
    assert "seen" in (tmp_path / "log").read_text("utf-8")
    logger.warning("after")
    assert "after" in caplog.text


def test_a_session_without_a_place_for_its_log_still_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    told: list[str] = []
    with logbook(tmp_path / "file" / "session.log", told.append):
        logger.warning("still told")
    assert told == ["still told"]


def test_the_log_is_bounded(tmp_path: Path) -> None:
    with logbook(tmp_path / "log", lambda _: None):
        for _ in range(200):
            logger.info("x" * 100_000)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["log", "log.1", "log.2"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_warnings_of_the_start_are_told_unless_the_table_has_them() -> None:
    told: list[str] = []
    held = Warnings(told.append)
    held("gone: no such program")
    held("a file has a problem")
    assert told == []
    held.release(known=["no such\n program", ""])
    held("later")
    assert told == ["a file has a problem", "later"]
