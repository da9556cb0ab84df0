"""Cut a text to the budget of a model: head and tail, with a marker for the missing part.

A text within its budget is unchanged. A longer text keeps its beginning (two thirds of the budget) and its
end; the marker says how much is left out, and where the full text is, if it is stored. The result, including
the marker, never exceeds the budget. Cuts are made at the end of a line if one is near, and never inside a
visible character.

Tokens are estimated, since every model counts them differently: four characters of ASCII, two of another
alphabet, one of Chinese, Japanese, Korean or an emoji count as a token. For prose and code this is close to
the real number, or above it.
"""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Literal

from dragoman.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_INLINE_CHARS = 500_000
"""Upper bound, even if a server asks for more."""
INLINE_KEY = "anthropic/maxResultSizeChars"
"""The key in `_meta` with which a tool asks for a larger budget."""

_ALPHABETS = re.compile(r"[\u0080-\u2e7f]")
# Negated, since a class of a million characters takes 3 ms to compile.
_WIDE = re.compile(r"[^\x00-\u2e7f]")
_HEAD = 2 / 3
_NEAR = 0.2
"""Share of the room that a cut may give up to end at a line break."""
_LONGEST_CLUSTER = 40
_LONGEST_ROW = 2_000
"""Two letters make a flag, so the letters of a row must be counted from its beginning."""
_JOINER = "\u200d"


class TextBudget(Struct, kw_only=True):
    """How long a text may be."""

    limit: int
    unit: Literal["characters", "tokens"] = "characters"

    def holds(self, text: str) -> bool:
        """Return whether a text is within the budget."""
        if self.unit == "characters" or len(text) <= self.limit:
            return len(text) <= self.limit
        return len(text) <= 4 * self.limit and estimate_tokens(text) <= self.limit


def estimate_tokens(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    if text.isascii():
        return -(-len(text) // 4)
    wide, other = len(_WIDE.findall(text)), len(_ALPHABETS.findall(text))
    return -(-(len(text) - wide - other + 2 * other + 4 * wide) // 4)


def _kind(byte: int) -> str:
    """Return the kind of a byte of UTF-8: space, mark, digit, letter, or a part of another character."""
    if byte >= 0x80:
        return "." if byte < 0xC0 else "e" if byte < 0xE3 else "w" if byte < 0xF0 else "x"
    letter = chr(byte)
    if letter.isspace() and letter != "\n":
        return " "
    return "l" if letter.islower() else "U" if letter.isupper() else "d" if letter.isdigit() else "m"


_KINDS = "".join(map(_kind, range(256))).encode()
_WORD_STARTS = (b" l", b"ml", b"dl", b".l", b"Ul")


def tokens_at_most(text: str) -> int:
    """Return a number of tokens that no tokenizer exceeds by more than a few percent.

    What has to fit a window must not be estimated too low: older tokenizers split JSON into many pieces, and
    each Chinese character into several. It counts words, marks and digits, in a few passes over the bytes.
    """
    kinds = (" " + text).encode("utf-8", "surrogatepass").translate(_KINDS)
    words = sum(map(kinds.count, _WORD_STARTS)) * 1.25 + kinds.count(b"lllllll")
    # What is no word is split into short pieces, and rows of spaces into some.
    words += 6 * kinds.count(b"l" * 21) + kinds.count(b"    ") / 2
    capitals = (kinds.count(b"U") - kinds.count(b"Ul")) * 0.45
    marks = kinds.count(b"d") + 0.8 * kinds.count(b"m")
    others = 1.5 * kinds.count(b"e") + 2.2 * kinds.count(b"w") + 4 * kinds.count(b"x")
    return math.ceil(words + capitals + marks + others)


def raised(budget: TextBudget, *metas: Mapping[str, Any]) -> TextBudget:
    """Return the budget, or a larger one if a tool's or a result's `_meta` asks for it within bounds."""
    asked = [meta.get(INLINE_KEY) for meta in metas]
    sizes = [size for size in asked if isinstance(size, int) and not isinstance(size, bool)]
    most = min(max(sizes, default=0), MAX_INLINE_CHARS)
    if budget.unit == "tokens":
        return budget if most // 4 <= budget.limit else TextBudget(limit=most // 4, unit="tokens")
    return budget if most <= budget.limit else TextBudget(limit=most)


def fit(text: str, budget: TextBudget, *, end: str = "", whole: str = "") -> str:
    """Return a text within its budget, cut in its middle if need be.

    Args:
        text: The text that may be cut.
        budget: The budget for everything.
        end: Text to append, kept whole if it takes at most half of the budget.
        whole: Where the full text is, as text for the model; may be empty.
    """
    if budget.holds(text + end):
        return text + end
    if end and not TextBudget(limit=budget.limit // 2, unit=budget.unit).holds(end):
        text, end = text + end, ""
    if budget.unit == "tokens":
        return _searched(text, budget, lambda size: _cut(text, size, whole) + end)
    return _cut(text, max(0, budget.limit - len(end)), whole) + end


def _searched(text: str, budget: TextBudget, make: Callable[[int], str]) -> str:
    """Find the longest cut within the budget by bisection."""
    least, most = 0, min(len(text), 4 * budget.limit)
    while least < most:
        middle = (least + most + 1) // 2
        if budget.holds(make(middle)):
            least = middle
        else:
            most = middle - 1
    found = make(least)
    return found if budget.holds(found) else ""


def _cut(text: str, size: int, whole: str) -> str:
    """Cut a text to a number of characters, mark included."""
    if len(text) <= size:
        return text
    # The mark's length depends on the numbers in it, so room is kept for the longest it can be.
    longest = len(_mark(len(text), len(text), text.count("\n"), whole))
    room = size - longest
    if room <= 0:
        short = f"[… {len(text)} characters left out]"
        return short if len(short) <= size else "[…]"[:size]
    head = _end_of_head(text, int(room * _HEAD))
    tail = _start_of_tail(text, len(text) - (room - int(room * _HEAD)))
    missing = text[head:tail]
    return text[:head] + _mark(len(missing), len(text), missing.count("\n"), whole) + text[tail:]


def _mark(missing: int, total: int, lines: int, whole: str) -> str:
    where = f"full text: {whole}" if whole else "the full text is not stored: ask for less, or for a part"
    return f"\n[… {missing} of {total} characters ({lines} lines) left out here; {where} …]\n"


def _end_of_head(text: str, at: int) -> int:
    line = text.rfind("\n", at - int(at * _NEAR), at)
    if line >= 0:
        return line + 1
    back = at
    while back > 0 and at - back < _LONGEST_CLUSTER and _splits(text, back):
        back -= 1
    return back if not _splits(text, back) else at


def _start_of_tail(text: str, at: int) -> int:
    line = text.find("\n", at, at + int((len(text) - at) * _NEAR))
    if line >= 0:
        return line + 1
    on = at
    while on < len(text) and on - at < _LONGEST_CLUSTER and _splits(text, on):
        on += 1
    return on if not _splits(text, on) else at


def _splits(text: str, at: int) -> bool:
    """Return whether a cut before this place would split a visible character."""
    if at <= 0 or at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isascii() and after.isascii():
        return before == "\r" and after == "\n"
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in ("Mn", "Me", "Mc")
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tones
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or (_is_flag_letter(after) and _flag_letters_before(text, at) % 2 == 1)
    )


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_letters_before(text: str, at: int) -> int:
    start = at
    while start > 0 and at - start < _LONGEST_ROW and _is_flag_letter(text[start - 1]):
        start -= 1
    return at - start
