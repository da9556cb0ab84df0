r"""Read a text in the encodings in which a secret may be written in it, and find the way back.

A server may write each character of a text as an escape (`%68`, `\x68`, `\u0068`, `&#104;`, `=68`), more than
once, put invisible characters or colors between them, and break base64 or hexadecimal into lines or groups of
any width. A reading is the text without these: what is found there is mapped to its place in the original.
Each reading takes linear time.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dragoman.trust.sanitizing import SEQUENCE
from dragoman.visible import HARMFUL, MARK, is_plain_ascii

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Rewrite: TypeAlias = "tuple[re.Pattern[str], Callable[[re.Match[str]], str]]"

Kind: TypeAlias = Literal["text", "packed", "digits"]
"""What to look for in a reading: text; base64 without anything between its characters; letters and digits
alone, in lower case, as hexadecimal and base32 are searched for."""
MAX_LAYERS = 3
"""How often escapes are decoded: JSON inside JSON, `%2541`."""

_HEX = "[0-9A-Fa-f]"
_ESCAPE = re.compile(
    rf"%({_HEX}{{2}})|\\x\{{?({_HEX}{{2}})\}}?|(?:\\u|%u)({_HEX}{{4}})"
    rf"|\\[ux]\{{0{{0,9}}({_HEX}{{1,6}})\}}|\\U({_HEX}{{8}})|(?:\\N\{{)?U\+({_HEX}{{4,6}})\}}?|\\0000({_HEX}{{2}})"
    rf"|&#[xX]0{{0,99}}({_HEX}{{1,6}});?|&#0{{0,99}}([0-9]{{1,7}});?|\\(?:o\{{|0(?=[0-7]{{3}}))?([0-7]{{2,3}})\}}?"
    r"|\\([nrtbfv0]|[^\sA-Za-z0-9])|&([A-Za-z]{2,8});"
)
_DECIMAL, _OCTAL, _SIGN, _ENTITY = 9, 10, 11, 12
"""The numbers of the groups that are not hexadecimal."""
_SIGNS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_QUOTED_PRINTABLE = re.compile(rf"=(?:({_HEX}{{2}})|[ \t]{{0,9}}\r?\n)")
# The mask is a border: what is on both sides of it does not belong together.
_OTHER = "[^A-Za-z0-9+/_•-]"
_BETWEEN = re.compile(rf"{_OTHER}+(?:[+/_-]{{1,3}}{_OTHER}+)*")
_BETWEEN_DIGITS = re.compile(r"0[xX]|[^A-Za-z0-9•]+")


def _unescaped(match: re.Match[str]) -> str:
    group = match.lastindex or 0
    if group == 1:  # the most usual one
        return chr(int(match[1], 16))
    written = match[group]
    if group == _SIGN:
        return _SIGNS.get(written, written)
    if group == _ENTITY:
        from html import unescape  # late: a table of 2,000 names

        return unescape(match[0])
    number = int(written, 10 if group == _DECIMAL else 8 if group == _OCTAL else 16)
    return chr(number) if number <= 0x10FFFF else match[0]


def _unquoted(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else ""


def _dropped(_: re.Match[str]) -> str:
    return ""


class Reading(NamedTuple):
    """A text, and how it was made from the original."""

    text: str
    steps: tuple[tuple[str, Rewrite], ...] = ()
    """Each text on the way, and what was replaced in it."""

    def rewritten(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> Reading:
        """Return the reading with something replaced; itself if nothing is."""
        text = pattern.sub("" if replace is _dropped else replace, self.text)
        return self if text == self.text else Reading(text, (*self.steps, (self.text, (pattern, replace))))

    def origins(self, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the places in the original of places in this text."""
        for source, (pattern, replace) in reversed(self.steps):
            starts, ends = _borders(source, pattern, replace)
            spans = [(starts[start], ends[stop - 1]) for start, stop in spans]
        return spans


def _borders(
    source: str, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]
) -> tuple[list[int], list[int]]:
    """Return where each character of a rewritten text begins and ends in its source."""
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    for match in pattern.finditer(source):
        starts.extend(range(at, match.start()))
        ends.extend(range(at + 1, match.start() + 1))
        if replace is not _dropped:
            count = len(replace(match))
            starts.extend([match.start()] * count)
            ends.extend([match.end()] * count)
        at = match.end()
    starts.extend(range(at, len(source)))
    ends.extend(range(at + 1, len(source) + 1))
    return starts, ends


def packed_text(text: str) -> str:
    """Return a text as a `packed` reading has it."""
    return _BETWEEN.sub("", text)


def digits_text(text: str) -> str:
    """Return a text as a `digits` reading has it."""
    return _BETWEEN_DIGITS.sub("" if text.isascii() else _plain_letters, text).lower()


def _plain_letters(match: re.Match[str]) -> str:
    """Return the letters and digits that other characters are variants of: `ｋ` and `𝐤` are a `k`."""
    if match[0].isascii():
        return ""
    return "".join(
        filter(str.isalnum, unicodedata.normalize("NFKD", match[0]).encode("ascii", "ignore").decode())
    )


@cache
def _unseen() -> re.Pattern[str]:
    # Compiled on first use, as in `dragoman.visible`. Single bytes and halves of a character are text here:
    # escapes are written of them.
    # Our errors have a mark in place of each harmful character.
    shown = rf"{MARK}(?:\[[0-?]*[ -/]*[@-~]|\][^{MARK}\n]{{0,200}}{MARK})?"
    return re.compile(rf"{SEQUENCE}|(?![\x80-\x9f\ud800-\udfff]){HARMFUL}|{shown}")


def readings(text: str) -> Iterator[tuple[Kind, Reading]]:
    """Yield what a text may say, with what to look for there; the text as it is is not among them."""
    reading = Reading(text)
    for layer in range(MAX_LAYERS + 1):
        if layer:
            yield "text", reading
        if not is_plain_ascii(reading.text):
            # What a person or a model is shown has none of these.
            seen = reading.rewritten(_unseen(), _dropped)
            if seen is not reading:
                yield "text", seen
                reading = seen
        yield "packed", reading.rewritten(_BETWEEN, _dropped)
        digits = reading.rewritten(_BETWEEN_DIGITS, _dropped if reading.text.isascii() else _plain_letters)
        # ASCII and the mask: as long in lower case.
        yield "digits", digits._replace(text=digits.text.lower())
        has_escapes = any(mark in reading.text for mark in ("%", "\\", "&", "U+"))
        deeper = reading.rewritten(_ESCAPE, _unescaped) if has_escapes else reading
        if deeper is reading:
            break
        reading = deeper
    if "=" in text:
        unquoted = Reading(text).rewritten(_QUOTED_PRINTABLE, _unquoted)
        if unquoted.text != text:
            yield "text", unquoted
