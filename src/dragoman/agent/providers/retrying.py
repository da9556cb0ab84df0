"""When a model's API is asked again, and after how long: the one policy, for every provider.

Asked again is what was refused for now, before any of the answer had come: 408, 429, 500, 502, 503, 504, 529,
and a connection that could not be made or was lost. The API's own word counts more than that table
(`x-should-retry`), and its wish for a pause (`Retry-After`) more than ours; but when it asks for longer than
`longest_asked`, the error is raised at once, with the wish in it: the caller knows better what to do with an
hour. A quota that is used up does not come back by asking. After `attempts` the last error is raised.
"""

from __future__ import annotations

from dataclasses import dataclass

RETRYABLE = frozenset({408, 429, 500, 502, 503, 504, 529})
SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})
"""Codes that come with 429 and mean that money is missing, not patience."""
TRANSIENT = frozenset(
    {
        "api_error",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "timeout_error",
    }
)
"""What an error is called that comes inside a stream, where the status has already said 200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and how long between."""

    attempts: int = 4
    """In all; 1 means that nothing is asked again."""
    first: float = 0.5
    factor: float = 2.0
    longest: float = 8.0
    longest_asked: float = 60.0
    """The longest `Retry-After` that is waited for."""

    def pause(self, failures: int, *, asked: float | None, chance: float) -> float | None:
        """Return how long to wait, or `None` to give up.

        Args:
            failures: How many attempts have failed.
            asked: What the API asked for, in seconds.
            chance: A number from 0 to 1, which decides the jitter.
        """
        if failures >= self.attempts:
            return None
        if asked is not None:
            return asked if asked <= self.longest_asked else None
        wait = min(self.longest, self.first * self.factor ** min(failures - 1, 16))
        # Only ever shorter: many clients that were refused together come back apart.
        return wait * (1 - 0.25 * chance)


def is_transient(status: int | None, *, kind: str, told: str = "") -> bool:
    """Tell whether the same request may go well later.

    Args:
        status: Of the response; `None` for a failure of the network or inside a stream.
        kind: The API's own code or type of the error.
        told: The header `x-should-retry`.
    """
    if told in {"true", "false"}:
        return told == "true"
    if kind in SPENT:
        return False
    return status in RETRYABLE if status is not None else kind in TRANSIENT
