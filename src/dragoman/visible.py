r"""Decide which characters of a text are harmful: the one rule for names, texts, errors, JSON and logs.

Harmful characters are those that control a terminal (control characters, a lone carriage return), change the
direction of text (bidi controls and marks), are invisible (everything that Unicode calls default ignorable:
zero-width and tag characters, fillers, joiners, variation selectors; and signs that are drawn as a blank) or
are not text (surrogates, noncharacters). In a text, everything that people write is harmless, in any script:

- one joiner after a letter of a script that uses them (Arabic, the Indic scripts, Mongolian …);
- joiners and selectors inside an emoji, and the three flags that are made of tag characters;
- a variation selector after an ideograph, an emoji or a mathematical sign that can have one;
- blanks of Braille beside Braille, and fillers after a sign of their own script.

A name has no such exceptions: two names that look the same would pass different rules. Nor has it a mark of
another script on an ASCII character, which many fonts do not draw. `is_harmful` and
`shown` are for texts, `is_visible` and `spelled_out` for names and for what a person must see exactly.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

MARK = "�"
MAX_STACKED = 8
"""Accents allowed on one letter; more would overlap the lines above."""

_EMOJI = (
    r"[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    r"\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
_TONED = rf"{_EMOJI}[\ufe0e\ufe0f]?(?:[\U0001f3fb-\U0001f3ff][\ufe0e\ufe0f]?)?"
_FLAGS = "|".join(
    "".join(chr(0xE0000 + ord(letter)) for letter in f"gb{end}") for end in ("eng", "sct", "wls")
)
_JOINING = (
    r"[\u0620-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\u1a00-\u1aaf\u1b00-\u1bff"
    r"\ua840-\uabff\U00010a00-\U00011fff]"
)
LEGAL = "|".join(
    (
        rf"\U0001f3f4(?:{_FLAGS})\U000e007f",
        rf"{_TONED}(?:\u200d{_TONED})*",
        r"[0-9#*]\ufe0f\u20e3?",
        # Ideographs have about thirty variants; the other selectors only serve to hide bytes.
        r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][\ufe00-\ufe02\U000e0100-\U000e011f]",
        rf"(?<={_JOINING})[\u200c\u200d]",
        r"(?<=[\u1820-\u18aa])[\u180b-\u180e]",
        r"(?<=[\u2200-\u22ff\u2a00-\u2aff])\ufe00",
        # A bound, so that a long run of blanks before nothing costs its length.
        r"(?<=[\u2801-\u28ff])\u2800++|\u2800{1,40}+(?=[\u2801-\u28ff])",
        r"(?<=[\U00013000-\U0001342f\U00013440\U00013446-\U000143ff])[\U00013430-\U0001343f\U00013441\U00013442]",
        r"(?<=[\U00018b00-\U00018cff])\U00016fe4",
    )
)
"""Matches harmful characters where they are part of ordinary writing, with what is around them."""
HARMFUL = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc"
    r"\ufffe\uffff\U00013430-\U0001343f\U00013441\U00013442\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(1, 17))
    + "]"
)
"""Matches a harmful character, whatever is around it."""
_ACCENT = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20e2\u20e4-\u20ff\ufe20-\ufe2f]"
STACKED = rf"({_ACCENT}{{{MAX_STACKED}}})({_ACCENT}+)"
"""Matches the accents of a letter that has too many: those that stay, and the others."""
_MARKED = r"(?<=[ -~])[^\x00-\u02ff]"
_FOR_PEOPLE = rf"(?P<legal>{LEGAL})|\r\n|{HARMFUL}"
# Compiled on first use: most texts need none of these, and compiling takes longer than many commands.
_compiled = cache(re.compile)
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def is_plain_ascii(text: str) -> bool:
    """Return whether a text needs no further look: ASCII without control characters but lines and tabs."""
    return text.isascii() and (text.isprintable() or text.replace("\n", " ").replace("\t", " ").isprintable())


def is_harmful(text: str) -> bool:
    """Return whether a text has something harmful: the one question behind every way to show a text."""
    return shown(text) != text


def shown(text: str) -> str:
    """Return a text with a `�` in place of each harmful character; lines and tabs stay."""
    if is_plain_ascii(text):
        return text
    if _compiled(HARMFUL).search(text):

        def one(match: re.Match[str]) -> str:
            return match[0] if match["legal"] else "\n" if match[0] == "\r\n" else MARK

        text = _compiled(_FOR_PEOPLE).sub(one, text)
    return text if text.isascii() else _compiled(STACKED).sub(rf"\1{MARK}", text)


def hidden_in(text: str) -> list[str]:
    """Return the invisible harmful characters of a text in order, without ordinary control characters."""
    if text.isascii():
        return []
    found = (match[0] for match in _compiled(_FOR_PEOPLE).finditer(text) if not match["legal"])
    return [letter for letter in found if letter >= "\xa0"]


def is_visible(name: str) -> bool:
    """Return whether every character of a name is seen: it is printable, and nothing in it is harmful."""
    if not name.isprintable():
        return False
    if name.isascii():
        return True
    has_harm = _compiled(HARMFUL).search(name) or _compiled(STACKED).search(name)
    return not has_harm and not any(map(_is_foreign_mark, _compiled(_MARKED).findall(name)))


def _is_foreign_mark(letter: str) -> bool:
    """Return whether a character is a mark of a script that is not written with ASCII characters."""
    return unicodedata.category(letter) in ("Mn", "Me") and not _compiled(_ACCENT).match(letter)


def visible_part(text: str) -> str:
    """Return what a person sees of a text: without harmful characters, whatever is around them."""
    return text if text.isascii() and text.isprintable() else _compiled(HARMFUL).sub("", text)


def spelled_out(text: str) -> str:
    r"""Return a text as one line in which a person sees every character; others become escapes (`\x1b`)."""
    if is_visible(text):
        return text
    text = "".join(letter if letter.isprintable() else escape(letter) for letter in text)
    text = _compiled(HARMFUL).sub(lambda match: escape(match[0]), text)
    text = _compiled(_MARKED).sub(
        lambda match: escape(match[0]) if _is_foreign_mark(match[0]) else match[0], text
    )
    return _compiled(STACKED).sub(lambda match: match[1] + "".join(map(escape, match[2])), text)


def escape(letter: str) -> str:
    r"""Return a character as an escape of Python: `\n`, `\x1b`, `\u200b`."""
    number = ord(letter)
    if letter in _NAMED:
        return _NAMED[letter]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
