from __future__ import annotations

import pytest

from dragoman.tools.filters import is_exposed


@pytest.mark.parametrize(
    ("allowed", "denied", "expected"),
    [
        (None, (), True),
        ((), (), False),
        (["read_file"], (), True),
        (["read_*"], (), True),
        (["READ_*"], (), False),
        (["write_*"], (), False),
        (None, ["read_file"], False),
        (["read_file"], ["read_*"], False),
        (["read_file"], ["write_*"], True),
    ],
)
def test_rules_decide_about_read_file(allowed: list[str] | None, denied: list[str], expected: bool) -> None:
    assert is_exposed("read_file", allowed=allowed, denied=denied) is expected


def test_name_that_looks_like_a_glob_matches_itself() -> None:
    assert is_exposed("a[b]", allowed=["a[b]"])
    assert not is_exposed("a[b]", allowed=["a[c]"])
