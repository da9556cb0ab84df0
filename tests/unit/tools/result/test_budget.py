from __future__ import annotations

import pytest

from dragoman.tools.result.budget import (
    INLINE_KEY,
    MAX_INLINE_CHARS,
    TextBudget,
    estimate_tokens,
    fit,
    raised,
)

TOKENS = "tokens"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("abcd", 1), ("abcde", 2), ("привет", 3), ("法律条文", 4), ("🙂", 1), ("a法", 2)],
)
def test_tokens_are_estimated_by_the_script(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_text_within_its_budget_is_not_touched() -> None:
    assert fit("x" * 100, TextBudget(limit=100)) == "x" * 100
    assert fit("x" * 90, TextBudget(limit=100), end="y" * 10) == "x" * 90 + "y" * 10
    assert fit("x" * 400, TextBudget(limit=100, unit=TOKENS)) == "x" * 400
    assert TextBudget(limit=100, unit=TOKENS).holds("法" * 100)
    assert not TextBudget(limit=100, unit=TOKENS).holds("法" * 101)
    assert not TextBudget(limit=100, unit=TOKENS).holds("x" * 401)


def test_head_and_tail_are_kept_and_the_mark_says_what_is_missing() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    cut = fit(text, TextBudget(limit=1000), whole="the file `/r/1.txt`")
    head, mark, tail = cut.partition("\n[… ")[0], cut.partition("\n[… ")[2], cut.rpartition("…]\n")[2]
    assert len(cut) <= 1000
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) > len(tail) > 100
    missing = len(text) - len(head) - len(tail)
    lines = 1000 - head.count("\n") - tail.count("\n")
    assert mark.startswith(f"{missing} of {len(text)} characters ({lines} lines) left out here")
    assert "full text: the file `/r/1.txt` …]" in mark
    assert all(line.startswith("line ") for line in tail.splitlines())


def test_without_a_place_the_mark_says_that_the_rest_is_gone() -> None:
    assert "the full text is not stored" in fit("x" * 1000, TextBudget(limit=300))


def test_what_is_missing_is_counted_exactly() -> None:
    text = "a" * 1000
    cut = fit(text, TextBudget(limit=400))
    kept = cut.count("a", 0, cut.index("[")) + cut.count("a", cut.index("]"))
    assert f"[… {1000 - kept} of 1000 characters (0 lines)" in cut


def test_end_is_kept_unless_it_would_take_more_than_half() -> None:
    sources = "\nSources:\n- Act"
    cut = fit("x" * 5000, TextBudget(limit=400), end=sources)
    assert cut.endswith(sources)
    assert len(cut) <= 400
    long = fit("x" * 5000, TextBudget(limit=400), end="y" * 300)
    assert len(long) <= 400
    assert long.endswith("y")


@pytest.mark.parametrize("limit", [0, 1, 5, 30, 60, 110, 150])
def test_tiny_budget_is_kept_too(limit: int) -> None:
    assert len(fit("x" * 1000, TextBudget(limit=limit))) <= limit
    assert estimate_tokens(fit("法" * 1000, TextBudget(limit=limit, unit=TOKENS))) <= limit


def test_budget_in_tokens_is_used_well() -> None:
    for text in ("word " * 10_000, "法律" * 10_000, "слово " * 10_000):
        tokens = estimate_tokens(fit(text, TextBudget(limit=500, unit=TOKENS)))
        assert 400 < tokens <= 500


@pytest.mark.parametrize(
    "unit",
    ["e\u0301", "👩\u200d👩\u200d👧", "👍\U0001f3fd", "🇩🇪", "\ud83d\ude00", "नि", "\r\n", "✈\ufe0f"],
)
def test_no_cut_parts_what_a_reader_sees_as_one_character(unit: str) -> None:
    text = unit * 500
    for limit in range(300, 320):
        cut = fit(text, TextBudget(limit=limit))
        head, _, rest = cut.partition("\n[…")
        tail = rest.partition("…]\n")[2]
        assert head.replace(unit, "") == ""
        assert tail.replace(unit, "") == ""
        assert len(cut) <= limit


def test_cluster_without_end_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 5000
    assert 200 < len(fit(text, TextBudget(limit=400))) <= 400


def test_meta_raises_the_limit_up_to_a_maximum_and_never_lowers_it() -> None:
    budget = TextBudget(limit=1000)
    assert raised(budget, {}, {INLINE_KEY: 5000}) == TextBudget(limit=5000)
    assert raised(budget, {INLINE_KEY: 10}) is budget
    assert raised(budget, {INLINE_KEY: 10**9}).limit == MAX_INLINE_CHARS
    for odd in ("9999", True, None, -1, 2.5):
        assert raised(budget, {INLINE_KEY: odd}) is budget
    tokens = TextBudget(limit=1000, unit=TOKENS)
    assert raised(tokens, {INLINE_KEY: 8000}) == TextBudget(limit=2000, unit=TOKENS)
    assert raised(tokens, {INLINE_KEY: 4000}) is tokens
