"""A call log in an empty folder, and short ways to write and read it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from dragoman.observe.call_history import CallHistory
from dragoman.observe.call_log import CallLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dragoman.observe.call_history import CallRecord

CANARY = "canary-7f3a9b2c51"


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "calls.sqlite3"


@pytest.fixture
def log(path: Path) -> Iterator[CallLog]:
    with closing(CallLog(path)) as log:
        yield log


def note(log: CallLog, number: int = 1, **more: Any) -> None:
    values: dict[str, Any] = {
        "server": "fs",
        "tool": "mcp_fs_read",
        "call_id": f"c-{number}",
        "arguments": {"path": f"/tmp/{number}"},
        "duration": 0.25,
        "text": f"contents {number}",
    }
    log.note(**values | more)


def records(log: CallLog, **filters: Any) -> list[CallRecord]:
    assert log.flush(20)
    return CallHistory(log.path).list(**filters)


def ids(found: list[CallRecord]) -> list[str]:
    return [record.call_id for record in found]
