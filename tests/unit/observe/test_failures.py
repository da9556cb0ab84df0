from __future__ import annotations

import asyncio
import logging

import pytest

from dragoman.observe.turns import LINES_PER_TURN, FailureLog

pytestmark = pytest.mark.requirement("excel-7.3")


async def test_failures_of_one_turn_share_a_line_after_the_first_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = FailureLog()
    for number in range(LINES_PER_TURN + 3):
        failures.note("law", "tool.unavailable", f"c-{number} of `x`", "it is gone")
    failures.note("", "tool.failed", "c-99 of `y`", None)
    assert len(caplog.messages) == LINES_PER_TURN
    await asyncio.sleep(0)
    assert caplog.messages[0] == "law: call c-0 of `x` failed: it is gone"
    last = f"call c-{LINES_PER_TURN + 2} of `x`: it is gone"
    assert caplog.messages[LINES_PER_TURN:] == [
        f"law: 3 more calls failed at the same time (tool.unavailable), the last is {last}",
        "builtin: 1 more calls failed at the same time (tool.failed), the last is call c-99 of `y`: ",
    ]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


async def test_each_turn_has_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for _ in range(LINES_PER_TURN + 3):
        failures.note("law", "tool.unavailable", "c-1 of `x`", "it is gone")
        await asyncio.sleep(0)
    assert caplog.messages == ["law: call c-1 of `x` failed: it is gone"] * (LINES_PER_TURN + 3)
