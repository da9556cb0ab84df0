from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dragoman.cli.commands.top import KEPT, kept_logs

if TYPE_CHECKING:
    import pytest


def test_no_log_line_reaches_the_screen_and_the_handlers_come_back(capfd: pytest.CaptureFixture[str]) -> None:
    own, root = logging.getLogger("quiet.test"), logging.getLogger()
    loud = logging.StreamHandler()
    own.addHandler(loud)
    before = root.handlers[:]
    try:
        with kept_logs() as keeper:
            own.warning("the %s is on fire", "house")
            own.error("%d", "not a number")
            logging.getLogger("dragoman").error("lost")
        assert list(keeper.lines) == ["WARNING quiet.test: the house is on fire", "ERROR dragoman: lost"]
        assert capfd.readouterr() == ("", "")
        assert own.handlers == [loud]
        assert root.handlers == before
    finally:
        own.removeHandler(loud)


def test_only_the_last_lines_are_kept() -> None:
    with kept_logs() as keeper:
        for number in range(KEPT + 1):
            logging.getLogger("dragoman").warning("%d", number)
    assert len(keeper.lines) == KEPT
    assert keeper.lines[0] == "WARNING dragoman: 1"
