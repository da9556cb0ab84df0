from __future__ import annotations

import pytest

from dragoman.config.values import size_in_bytes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (16_777_216, 16_777_216),
        ("512", 512),
        ("64MiB", 64 * 1024 * 1024),
        (" 2 kb ", 2000),
        ("1.5 KiB", 1536),
        ("1g", 10**9),
        ("3GiB", 3 * 1024**3),
        ("7B", 7),
    ],
)
def test_a_size_becomes_bytes(value: object, expected: int) -> None:
    assert size_in_bytes(value) == expected


@pytest.mark.parametrize(
    "value", [0, -1, "", "0", "0.1B", "64TiB", "iB", "1 i", "MiB", "1e3", "-5MB", True, 1.5, None, []]
)
def test_what_is_no_size_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match='expected a size in bytes above zero, such as 16777216 or "64MiB"'):
        size_in_bytes(value)
