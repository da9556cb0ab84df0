"""How much an agent may spend on one question, and what it has spent.

Pure but for its own counting: time comes in as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from dragoman.agent.messages import Price, Usage
from dragoman.errors import BudgetExceededError


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one question; `None` is no limit."""

    steps: int | None = 50
    """Answers of the model."""
    tokens: int | None = None
    """Input and output together, over all steps."""
    seconds: float | None = None
    money: float | None = None
    """In the currency of `price`, without which it cannot be counted."""
    price: Price | None = None

    def __post_init__(self) -> None:
        if self.money is not None and self.price is None:
            msg = "a budget of money needs the model's price"
            raise ValueError(msg)


@dataclass(slots=True)
class Spending:
    """What one question has taken so far."""

    budget: Budget
    began: float
    steps: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def money(self) -> float | None:
        """What was spent, where prices are given."""
        return None if self.budget.price is None else self.budget.price.cost(self.usage)

    def left(self, now: float) -> float | None:
        """Return the seconds that are left, `None` for no limit."""
        seconds = self.budget.seconds
        return None if seconds is None else max(0.0, self.began + seconds - now)

    def check(self, now: float) -> None:
        """Refuse one more step if any limit is reached.

        Raises:
            BudgetExceededError: It says which limit.
        """
        budget, tokens = self.budget, self.usage.input_tokens + self.usage.output_tokens
        if budget.steps is not None and self.steps >= budget.steps:
            self._stop(f"{budget.steps} steps")
        if budget.tokens is not None and tokens >= budget.tokens:
            self._stop(f"{budget.tokens} tokens ({tokens} were used)")
        if budget.money is not None and self.money is not None and self.money >= budget.money:
            self._stop(f"{budget.money:g} of money ({self.money:.4g} was spent)")
        if (left := self.left(now)) is not None and left <= 0:
            self._stop(f"{budget.seconds:g} seconds")

    def _stop(self, limit: str) -> NoReturn:
        raise self.exceeded(limit)

    def exceeded(self, limit: str) -> BudgetExceededError:
        """Return the error for a limit that was reached."""
        return BudgetExceededError(
            f"the agent stopped at its budget of {limit}",
            hint="ask again to go on from here, or raise the budget",
        )
