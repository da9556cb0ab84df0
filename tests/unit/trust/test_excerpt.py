from __future__ import annotations

import json

import pytest

from dragoman.trust.masking import MARGIN, MASK, excerpt
from dragoman.trust.redaction import Redactor

TOKEN = "ghp_" + "a1B2" * 9


def test_short_text_is_kept_as_it_is() -> None:
    assert excerpt("hello", 10) == ("hello", False, False)
    assert excerpt("", 10) == ("", False, False)


def test_long_text_is_cut_at_the_limit() -> None:
    assert excerpt("x" * 100_000, 10) == ("x" * 10, False, True)
    assert excerpt("x" * 11, 10) == ("x" * 10, False, True)


@pytest.mark.parametrize("start", range(0, 130, 7))
def test_no_part_of_a_token_that_crosses_the_limit_is_left(start: int) -> None:
    found = excerpt("." * start + TOKEN + "." * 100_000, 100)
    assert "ghp_" not in found.text
    assert "a1B2" not in found.text


def test_no_part_of_a_token_that_crosses_what_is_looked_at_is_left() -> None:
    # A mask early in the text makes it shorter, so that what stood far behind comes within the limit.
    limit, secret = 100, "s3cr3t-" * 2000
    mask = Redactor([secret]).mask
    for shift in range(0, 60, 3):
        at = limit + MARGIN - len(secret) - shift
        found = excerpt(secret + "." * at + TOKEN + "tail" * 10_000, limit, mask)
        assert "ghp_" not in found.text
        assert "s3cr3t" not in found.text


@pytest.mark.parametrize("quote", ['"', "'", '\\"'])
def test_value_of_a_telling_name_is_masked_though_its_end_was_cut_off(quote: str) -> None:
    text = f"{{{quote}api_key{quote}: {quote}{'canary ' * 20_000}{quote}}}"
    found = excerpt(text, 4000)
    assert "canary" not in found.text
    assert found.is_masked
    assert found.is_cut


def test_open_value_of_a_plain_name_is_kept() -> None:
    found = excerpt(json.dumps({"text": "word " * 20_000}), 100)
    assert found == ('{"text": "' + "word " * 18, False, True)
    closed = json.dumps({"token": "canary", "text": "word " * 20_000})
    assert excerpt(closed, 60).text.startswith(f'{{"token": "{MASK}", "text": "word')


def test_text_that_is_only_a_beginning_gives_its_end_up() -> None:
    assert excerpt("x" * 50, 100, whole=False) == ("", False, True)
    assert excerpt("x" * (MARGIN + 50), 100, whole=False) == ("x" * 50, False, True)
