from __future__ import annotations

import pytest

from dragoman.cli.dashboard.lists import added


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ([], ["a"], ["a"]),
        (["a"], ["a"], []),
        (["a"], ["a", "b"], ["b"]),
        (["a", "b", "c"], ["b", "c", "d"], ["d"]),
        (["a", "a"], ["a", "a", "a"], ["a"]),
        (["a"], ["z"], None),
        (["a"], [], None),
    ],
)
def test_only_what_came_at_the_end_is_new(before: list[str], now: list[str], new: list[str] | None) -> None:
    assert added(before, now) == new
