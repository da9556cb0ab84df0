"""Budget: the limits of one question, and what it has used so far."""

from __future__ import annotations

from typing import NoReturn

from dragoman.agent.messages import Price, Usage
from dragoman.errors import BudgetExceededError
from dragoman.struct import MutableStruct, Struct, field


class Budget(Struct, kw_only=True):
    """The limits of one question; `None` means unlimited."""

    steps: int | None = 50
    """Answers of the model."""
    tokens: int | None = None
    """Input and output together, over all steps."""
    seconds: float | None = None
    money: float | None = None
    """In the currency of `price`, which is required for it."""
    price: Price | None = None

    def __post_init__(self) -> None:
        if self.money is not None and self.price is None:
            msg = "a budget of money needs the model's price"
            raise ValueError(msg)


class Spending(MutableStruct):
    """What one question has used so far."""

    budget: Budget
    began: float
    steps: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def money(self) -> float | None:
        """The cost so far, if there is a price."""
        return None if self.budget.price is None else self.budget.price.cost(self.usage)

    def left(self, now: float) -> float | None:
        """Return the seconds that are left; `None` if unlimited."""
        seconds = self.budget.seconds
        return None if seconds is None else max(0.0, self.began + seconds - now)

    def check(self, now: float) -> None:
        """Raise if a limit is reached.

        Raises:
            BudgetExceededError: A limit is reached; the message names it.
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
        """Return the error for a reached limit."""
        return BudgetExceededError(
            f"the agent stopped at its budget of {limit}",
            hint="ask again to continue from here, or raise the budget",
        )
