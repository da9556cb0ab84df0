"""Sizes as people write them (`16777216`, `"64MiB"`, `"2 GB"`) become bytes."""

from __future__ import annotations

import re

from dragoman.config.reading import shown

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1024, "mi": 1024**2, "gi": 1024**3}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmg]?i?)b?", re.IGNORECASE)


def size_in_bytes(value: object) -> int:
    """Return a size in bytes; `MB` is a million of them, `MiB` is 1024 KiB.

    Raises:
        ValueError: It is no size above zero; the message says what was expected.
    """
    found: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        unit = _UNITS.get(match[2].lower())
        found = None if unit is None else int(float(match[1]) * unit)
    if found is None or found <= 0:
        msg = f'expected a size in bytes above zero, such as 16777216 or "64MiB", not {shown(value)}'
        raise ValueError(msg)
    return found
