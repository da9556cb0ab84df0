from __future__ import annotations

import pytest

from dragoman.agent.budget import Budget, Spending
from dragoman.agent.messages import Price, Usage
from dragoman.errors import BudgetExceededError

pytestmark = pytest.mark.requirement(
    "excel-4.4",
    "legal-call.invoke",
    "legal-error.tool",
    "otter-call.failed",
)

PRICE = Price(input=2.0, output=10.0, cached=0.5)


@pytest.mark.parametrize(
    ("budget", "named"),
    [
        (Budget(steps=2), "2 steps"),
        (Budget(tokens=150), "150 tokens (150 were used)"),
        (Budget(seconds=5.0), "5 seconds"),
        (Budget(money=0.001, price=PRICE), "0.001 of money"),
    ],
)
def test_the_limit_that_is_reached_is_named(budget: Budget, named: str) -> None:
    spending = Spending(budget, began=10.0, steps=2, usage=Usage(input_tokens=50, output_tokens=100))

    with pytest.raises(BudgetExceededError) as caught:
        spending.check(15.0)

    assert named in str(caught.value)


def test_within_all_limits_one_more_step_is_fine() -> None:
    budget = Budget(steps=3, tokens=151, seconds=5.1, money=1.0, price=PRICE)

    Spending(budget, began=10.0, steps=2, usage=Usage(input_tokens=50, output_tokens=100)).check(15.0)


def test_a_budget_of_money_needs_a_price() -> None:
    with pytest.raises(ValueError, match="price"):
        Budget(money=1.0)
