"""Durations as people write them (`30`, `"30s"`, `"500ms"`, `"2m"`) become seconds."""

from __future__ import annotations

import math
import re
from typing import Literal, TypeAlias

from dragoman.config.reading import shown

Unit: TypeAlias = Literal["s", "ms", "unknown"]
"""What a plain number means; `unknown` where hosts disagree about the same key."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PIECE = re.compile(r"(?<!\d)(\d++(?:\.\d++)?)\s*+(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PIECE.pattern}\s*)+")

UNKNOWN_UNIT_LIMIT = 1000
"""Of a number in an unknown unit: from here on it is milliseconds, below it is seconds."""


def seconds(value: object, unit: Unit) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: It is no positive, finite duration; the message says what was expected.
    """
    number = _number(value)
    if number is None:
        text = str(value).strip().lower()
        if not isinstance(value, str) or not _WHOLE.fullmatch(text):
            msg = f'expected a duration such as 30, "30s" or "500ms", not {shown(value)}'
            raise ValueError(msg)
        result = sum(float(amount) * _SECONDS[suffix] for amount, suffix in _PIECE.findall(text))
    elif unit == "unknown":
        result = number / 1000 if number >= UNKNOWN_UNIT_LIMIT else number
    else:
        result = number * _SECONDS[unit]
    if not math.isfinite(result) or result <= 0:
        msg = f"expected a duration above zero, not {shown(value)}"
        raise ValueError(msg)
    return result


def is_plain(value: object) -> bool:
    """Tell whether a duration is a bare number, so that its unit had to be assumed."""
    return _number(value) is not None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return None
    return None
