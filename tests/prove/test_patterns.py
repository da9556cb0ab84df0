"""Every pattern of the package is measured, and the list of those that were is written again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.test_pattern_cost import MEASURED, all_patterns, pattern_trouble

if TYPE_CHECKING:
    from tests.test_pattern_cost import Found

PATTERNS = all_patterns()


@pytest.mark.parametrize(
    ("found", "method"),
    PATTERNS.values(),
    ids=[f"{found.where} {method}" for found, method in PATTERNS.values()],
)
def test_a_pattern_is_linear_in_every_text(found: Found, method: str) -> None:
    assert pattern_trouble(found.pattern, method, found.most) == ""


@pytest.mark.parametrize("pattern", [r"\{\{\s*([^{}]+?)\s*\}\}", r'"(?:[^"\\]|\\.)*"', r"(\w+\s*=)*;"])
def test_the_gate_finds_a_pattern_that_is_not_linear(pattern: str) -> None:
    assert pattern_trouble(re.compile(pattern), "search")


def test_the_patterns_that_were_measured_are_listed(request: pytest.FixtureRequest) -> None:
    assert not request.session.testsfailed
    MEASURED.write_text("".join(f"{key}\n" for key in sorted(PATTERNS)), "utf-8")
