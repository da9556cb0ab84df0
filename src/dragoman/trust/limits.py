"""Limits on what a server may send or cause, and the setting that raises each.

Nothing is cut or refused here: callers ask, and get the error's text or an empty string. Time is an argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from dragoman.struct import Struct, field_names

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTION = "limits"
"""The table in the configuration that holds the limits."""
_KIB, _MIB = 1024, 1024 * 1024


class Limits(Struct, kw_only=True):
    """The limits of one server; 0 switches a limit off where that is allowed."""

    message_bytes: int = 16 * _MIB
    """One line, one event or one body, after decompression."""
    result_bytes: int = 16 * _MIB
    """All the parts of one result together."""
    tools: int = 10_000
    pages: int = 500
    """Of one listing."""
    listing_bytes: int = 32 * _MIB
    """All the pages of one listing together."""
    description_chars: int = 8_000
    """A tool's description as a model gets it; the longest of 943 real ones has 5,360."""
    instructions_chars: int = 16_000
    name_chars: int = 256
    schema_bytes: int = 256 * _KIB
    """One schema as JSON; the largest of 943 real tools has 12,361."""
    schema_depth: int = 100
    schema_nodes: int = 5_000
    """Objects in one schema; no real tool has more than 141. Expanded references have a limit of their own,
    see `tools.schema.cost`."""
    calls_per_second: float = 0.0
    """Calls sent to one server per second; 0: no limit."""
    burst: int = 20
    """Calls that may be sent at once before `calls_per_second` applies."""

    def excess(self, setting: str, amount: float, *, what: str) -> str:
        """Return the error text if an amount exceeds its limit, else an empty string.

        Args:
            setting: The limit's name.
            amount: How much there is.
            what: The subject of the sentence: "the listing of `files`".
        """
        limit = cast("float", getattr(self, setting))
        return "" if amount <= limit else excess_text(setting, amount, limit, what=what)


_UNITS = {"bytes": "bytes", "chars": "characters", "depth": "levels", "nodes": "subschemas"}
_WHOLE = frozenset(field_names(Limits)) - {"calls_per_second"}
_MAY_BE_ZERO = frozenset({"calls_per_second"})
_MAXIMA: Mapping[str, int] = {
    "schema_depth": 200,
    "message_bytes": 1024 * _MIB,
    "result_bytes": 1024 * _MIB,
    "listing_bytes": 1024 * _MIB,
}
"""Upper bounds: beyond these our own parsers or the machine's memory fail first."""


def excess_text(setting: str, amount: float, limit: float, *, what: str) -> str:
    """Return the error text for an amount above its limit; it names the setting."""
    unit = _UNITS.get(setting.rpartition("_")[2], setting)
    return f"{what} has {amount:,.0f} {unit}, more than the {limit:,.0f} that `{SECTION}.{setting}` allows"


def rate_text(limits: Limits, *, server: str, wait: float) -> str:
    """Return the error text for a call that comes too soon; it names the setting."""
    return (
        f"rate limit of server `{server}` reached: `{SECTION}.calls_per_second` allows "
        f"{limits.calls_per_second:g} calls per second; retry in {wait:.2g} s"
    )


def read_limits(
    data: object, base: Limits | None = None, *, only_narrow: bool = False
) -> tuple[Limits, list[str]]:
    """Read the table of limits; an invalid value leaves its limit unchanged.

    Args:
        data: The value in the file.
        base: The limits to start from.
        only_narrow: Whether limits can only be lowered, as for a project's file.

    Returns:
        The limits and the problems found.
    """
    limits = base or Limits()
    if not isinstance(data, dict):
        return limits, [f"`{SECTION}` must be a table"]
    problems: list[str] = []
    known = field_names(Limits)
    taken: dict[str, Any] = {}
    for key, value in cast("dict[str, object]", data).items():
        if key not in known:
            problems.append(f"`{SECTION}.{key}` is unknown; known keys: {', '.join(sorted(known))}")
        elif wrong := _wrong(key, value):
            problems.append(f"`{SECTION}.{key}` {wrong}")
        elif only_narrow and _is_wider(key, cast("float", value), getattr(limits, key)):
            problems.append(
                f"`{SECTION}.{key}` is above {getattr(limits, key):g}; a project can only lower limits"
            )
        else:
            taken[key] = value
    return limits.replace(**taken), problems


def _wrong(key: str, value: object) -> str:
    kind = int if key in _WHOLE else int | float
    if isinstance(value, bool) or not isinstance(value, kind):
        return "must be a whole number" if key in _WHOLE else "must be a number"
    least = 0 if key in _MAY_BE_ZERO else 1
    most = _MAXIMA.get(key, 2**40)
    return "" if least <= value <= most else f"must be between {least} and {most:,}"


def _is_wider(key: str, value: float, now: float) -> bool:
    if key in _MAY_BE_ZERO and 0 in (value, now):
        return value == 0 and now != 0
    return value > now


class TokenBucket:
    """A token bucket: calls per second with a burst.

    Time is an argument; if the clock jumps back, it counts as standing still.
    """

    __slots__ = ("_at", "_level", "burst", "rate")

    def __init__(self, rate: float, burst: int) -> None:
        """Allow `rate` calls a second, and `burst` of them at once.

        Args:
            rate: 0 means no limit.
            burst: At least 1.
        """
        self.rate = rate
        self.burst = max(1, burst)
        self._level = float(self.burst)
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take a token and return 0; if there is none, return the seconds to wait and take nothing."""
        if self.rate <= 0:
            return 0.0
        if self._at is not None:
            self._level = min(float(self.burst), self._level + max(0.0, now - self._at) * self.rate)
        self._at = now if self._at is None else max(now, self._at)
        # Many small waits may add up to slightly less than a whole token.
        if self._level >= 1.0 - 1e-9:
            self._level = max(0.0, self._level - 1.0)
            return 0.0
        return (1.0 - self._level) / self.rate
