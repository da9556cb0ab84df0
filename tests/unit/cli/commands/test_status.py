"""The words of `dragoman status`; real runs are in `behaviour/test_cli_listing.py`."""

from __future__ import annotations

import pytest

from dragoman.cli.commands.status import _duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0.0004, "<1 ms"),
        (0.024, "24 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (8.004, "8.0 s"),
    ],
)
def test_a_time_is_written_in_the_unit_that_fits(seconds: float | None, shown: str) -> None:
    assert _duration(seconds) == shown
