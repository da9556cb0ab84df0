"""Which known names a person or a model may have meant, in bounded time.

`difflib` alone takes seconds for thousands of long names, and names come from servers and files. So the names
are narrowed down first: by length, by shared words, by their ends, by shared pairs of letters. Only the best
few are compared letter by letter.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_NAMES = 10_000
"""Names beyond these are not looked at."""
MAX_CHARS = 48
"""Of a longer name, its beginning and its end are compared."""
_PAIRED = 100
"""So many names are compared by their pairs of letters."""
_WORDS = 3
"""So many words of the text are looked for."""
_NO_WORD = "\0"
"""Stands for a word that the text does not have: it is in no name."""
_COMPARED = 12
"""So many names are compared letter by letter."""
_SHORTEST_PART = 3
"""Shorter texts are part of too many names to be what was meant."""


def suggest(
    name: str, known: Iterable[str], *, count: int = 3, cutoff: float = 0.6, by_part: bool = False
) -> list[str]:
    """Return the known names that are most like another, the nearest first.

    Args:
        name: What was asked for.
        known: What there is.
        count: How many names to return at most.
        cutoff: How alike a name has to be, from 0 to 1, as in `difflib.get_close_matches`.
        by_part: Whether a name that has the other as a part is like it, too: `search` for `search_statutes`.
    """
    from difflib import SequenceMatcher  # late: most commands guess nothing

    least, most = len(name) * cutoff / (2 - cutoff), len(name) * (2 - cutoff) / cutoff
    every = list(islice(known, MAX_NAMES))
    names = [one for one in every if least <= len(one) <= most]
    wanted = _short(name)
    if len(names) > _PAIRED:
        names = _sharing(wanted, names)
    pairs = _pairs(wanted)
    shared = [(len(pairs & _pairs(_short(one))), one) for one in dict.fromkeys(names)]
    shared.sort(key=lambda pair: -pair[0])
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    scores: list[tuple[float, str]] = []
    for _, one in shared[:_COMPARED]:
        matcher.set_seq1(_short(one))
        if matcher.quick_ratio() >= cutoff and (ratio := matcher.ratio()) >= cutoff:
            scores.append((ratio, one))
    scores.sort(reverse=True)
    found = [one for _, one in scores[:count]]
    if by_part and len(found) < count and len(name) >= _SHORTEST_PART:
        part = name.casefold()
        having = (one for one in every if part in one.casefold() and one not in found)
        found += islice(having, count - len(found))
    return found


def _sharing(wanted: str, names: list[str]) -> list[str]:
    """Return the names that share most of the longest words of a text, and some that have its ends."""
    words = sorted(dict.fromkeys(re.findall(r"[^\W_]{3,}", wanted)), key=len, reverse=True)[:_WORDS]
    first, second, third = (*words, *([_NO_WORD] * (_WORDS - len(words))))
    by_words = _by_words(first, second, third, names)
    # A short name, or one misspelled in every word, shares no word.
    start, end = wanted[:2], wanted[-2:]
    ends = (one for one in names if one.endswith(end) and one.startswith(start))
    return [*islice(by_words, _PAIRED), *islice(ends, _PAIRED), *names[:_PAIRED]]


def _by_words(first: str, second: str, third: str, names: list[str]) -> Iterator[str]:
    """Return the names that share all three words, then those that share two, then one; few are asked for."""
    having = [one for one in names if first in one]
    yield from (one for one in having if second in one and third in one)
    yield from (one for one in having if (second in one) != (third in one))
    others = [one for one in names if second in one and first not in one]
    yield from (one for one in others if third in one)
    yield from (one for one in having if second not in one and third not in one)
    yield from (one for one in others if third not in one)
    yield from (one for one in names if third in one and first not in one and second not in one)


def _short(name: str) -> str:
    half = MAX_CHARS // 2
    return name if len(name) <= MAX_CHARS else name[:half] + name[-half:]


def _pairs(text: str) -> set[str]:
    return {first + second for first, second in pairwise(text)}
