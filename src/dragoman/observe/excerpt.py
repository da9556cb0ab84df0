"""The beginning of a text without its secrets: masked before it is cut, so that no half of one is left over.

A mask finds a secret by its whole shape. So it gets more of the text than is kept, and of a text that was cut
for it the end is given up: what lies there may be the first half of something. The work is bounded by the
limit, however long the text is, since a regular expression stops every other thread while it runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from dragoman.trust.redact import MASK, is_telling, mask_text

if TYPE_CHECKING:
    from collections.abc import Callable

MARGIN = 16_384
"""How much more than is kept is looked at; no value that a `Redactor` knows is longer."""

_OPENING = re.compile(r"""(\\?["'])([\w.-]{1,200})\1\s{0,20}:\s{0,20}(\\?["'])""")


class Excerpt(NamedTuple):
    """What is left of a text."""

    text: str
    is_masked: bool = False
    is_cut: bool = False


def excerpt(text: str, limit: int, mask: Callable[[str], str] = mask_text, *, whole: bool = True) -> Excerpt:
    """Return at most so many characters of a text, masked.

    Args:
        text: Anything; of a long one only the beginning is looked at.
        limit: How many characters are kept.
        mask: What masks; it is linear in its text.
        whole: Whether this is the whole text, and not the beginning of a longer one.
    """
    window = text[: limit + MARGIN]
    whole = whole and len(window) == len(text)
    masked = mask(window)
    if not whole:
        masked = _without_open_value(masked)
        kept = masked[: max(0, min(limit, len(masked) - MARGIN))]
    else:
        kept = masked[:limit]
    return Excerpt(kept, masked != window, not whole or len(kept) < len(masked))


def _without_open_value(text: str) -> str:
    """Mask what follows a telling name at the end, where no closing quote makes a value of it."""
    last: re.Match[str] | None = None
    for found in _OPENING.finditer(text):
        last = found
    if last is None or not is_telling(last[2]):
        return text
    is_closed = re.search(rf"(?<!\\){re.escape(last[3])}", text[last.end() :])
    return text if is_closed else text[: last.end()] + MASK
