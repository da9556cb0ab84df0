from __future__ import annotations

import pytest

from dragoman.config.values import Unit, is_plain, seconds

pytestmark = pytest.mark.requirement("otter-config.mcp", "legal-config.env")


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (30, "s", 30.0),
        (30, "ms", 0.03),
        (1.5, "s", 1.5),
        ("30", "s", 30.0),
        ("15000", "ms", 15.0),
        ("30s", "ms", 30.0),
        ("500ms", "s", 0.5),
        ("2m", "s", 120.0),
        ("1h", "s", 3600.0),
        ("1m30s", "s", 90.0),
        (" 1 M 30 S ", "s", 90.0),
        ("0.5h", "s", 1800.0),
        (999, "unknown", 999.0),
        (1000, "unknown", 1.0),
        ("60000", "unknown", 60.0),
        ("2000s", "unknown", 2000.0),
    ],
)
def test_a_duration_becomes_seconds(value: object, unit: Unit, expected: float) -> None:
    assert seconds(value, unit) == pytest.approx(expected)


@pytest.mark.parametrize(
    "value", ["", "soon", "-5s", "5 parsecs", "s", "1s2", True, None, [], {"a": "secret"}]
)
def test_what_is_no_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(ValueError, match='expected a duration such as 30, "30s" or "500ms"') as caught:
        seconds(value, "s")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, "0s", "0", float("inf"), float("nan"), "nan", "inf", 10**400])
def test_a_duration_is_above_zero_and_finite(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration above zero"):
        seconds(value, "s")


@pytest.mark.parametrize(
    ("value", "plain"), [(30, True), ("30", True), (1.5, True), ("30s", False), (True, False), (None, False)]
)
def test_a_plain_number_needed_a_unit(value: object, plain: bool) -> None:
    assert is_plain(value) is plain
