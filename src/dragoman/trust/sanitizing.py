r"""Make text from servers and files harmless for people, logs and models; programs get the original.

Harmful characters are those that control a terminal (control characters, ANSI and OSC sequences, a lone
carriage return), change the direction of text (bidi controls and marks), are invisible (zero-width and tag
characters, fillers, stray joiners and variation selectors) or are not text (surrogates, noncharacters).
Everything that people write is harmless, in any script:

- one joiner after a letter of a script that uses them (Arabic, the Indic scripts, Mongolian …);
- joiners and selectors inside an emoji, and the three flags that are made of tag characters;
- a variation selector after an ideograph, an emoji or a mathematical sign that can have one.

The cost: without direction marks, mixed lines of Hebrew or Arabic may align differently; a letter with a
legal joiner can still hide one bit. `for_terminal` replaces each harmful character by `�`; `for_log` writes
it as an escape (`\x1b`) on one line; `for_model` removes it together with whole escape sequences, because a
model could decode an escape. Each is linear and idempotent, and a result is never longer than its limit.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MARK = "�"
LOG_CHARS = 2_000
"""Characters of one text in a log line."""
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
_LEGAL = "|".join(
    (
        rf"\U0001f3f4(?:{_FLAGS})\U000e007f",
        rf"{_TONED}(?:\u200d{_TONED})*",
        r"[0-9#*]\ufe0f\u20e3?",
        # Ideographs have about thirty variants; the other selectors only serve to hide bytes.
        r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][\ufe00-\ufe02\U000e0100-\U000e011f]",
        rf"(?<={_JOINING})[\u200c\u200d]",
        r"(?<=[\u1820-\u18aa])[\u180b-\u180e]",
        r"(?<=[\u2200-\u22ff\u2a00-\u2aff])\ufe00",
    )
)
_HARMFUL = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# No class in a sequence matches the start of another sequence, so that each character is read once.
_SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9b-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
_ACCENT = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20e2\u20e4-\u20ff\ufe20-\ufe2f]"

_FOR_PEOPLE = rf"(?P<legal>{_LEGAL})|\r\n|{_HARMFUL}"
_FOR_LOGS = rf"(?P<legal>{_LEGAL})|[\t\n]|{_HARMFUL}"
_FOR_MODELS = rf"(?P<legal>{_LEGAL})|{_SEQUENCE}|\r\n|{_HARMFUL}"
_STACKED = rf"({_ACCENT}{{{MAX_STACKED}}}){_ACCENT}+"
# Compiled on first use: most texts need none of these, and compiling takes longer than many commands.
_compiled = cache(re.compile)
_BREAKS = frozenset("\r \r\n \x0b \x0c \x85 \u2028 \u2029".split(" "))
_NAMED = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def is_harmful(text: str) -> bool:
    """Return whether a text has a character that any of the functions here would change."""
    return for_terminal(text) != text


def hidden_in(text: str) -> list[str]:
    """Return the invisible harmful characters of a text in order, without ordinary control characters."""
    if text.isascii():
        return []
    found = (match[0] for match in _compiled(_FOR_PEOPLE).finditer(text) if not match["legal"])
    return [letter for letter in found if letter >= "\xa0"]


def for_terminal(text: str, limit: int | None = None) -> str:
    """Return a text for a terminal: lines and tabs stay, harmful characters become `�`."""
    return _bounded(text, limit, _shown)


def for_log(text: str, limit: int | None = LOG_CHARS) -> str:
    """Return a text as one line for a log or an error: harmful characters become escapes."""
    return _bounded(text, limit, _escaped)


def for_model(text: str, limit: int | None = None) -> str:
    """Return a text for a model: without harmful characters and escape sequences, all line ends alike."""
    return _bounded(text, limit, _stripped)


def quoted(text: str, limit: int | None = None) -> str:
    """Return a text for a model with `> ` before each line, so that no line of it passes for one of ours."""
    return "\n".join(f"> {line}".rstrip() for line in for_model(text, limit).strip().splitlines())


def merged_instructions(said: Mapping[str, str], limit: int | None = None) -> str:
    """Return the instructions of several servers as one text for a model.

    Only the lines that name a server are ours: those of a server are quoted, whatever they look like.

    Args:
        said: The instructions, by server; empty ones are left out.
        limit: Most characters of one server.
    """
    return "\n\n".join(
        f"About the tools of `{for_log(name, 100)}`, in the words of this server:\n{text}"
        for name in sorted(said)
        if (text := quoted(said[name], limit))
    )


def _bounded(text: str, limit: int | None, clean: Callable[[str], str]) -> str:
    if limit is None:
        return clean(text)
    # Drop text far beyond the limit before the expensive part.
    head = text[: 8 * limit + 64]
    cleaned = clean(head)
    if len(head) == len(text) and len(cleaned) <= limit:
        return cleaned
    # A cut may split an emoji, so clean the rest again.
    return f"{clean(cleaned[: limit - 1])[: limit - 1]}…" if limit > 0 else ""


def _is_plain(text: str) -> bool:
    """Return whether a text needs no cleaning; a cheap check that covers most texts."""
    return text.isascii() and (text.isprintable() or text.replace("\n", " ").replace("\t", " ").isprintable())


def _shown(text: str) -> str:
    if _is_plain(text):
        return text
    if _compiled(_HARMFUL).search(text):

        def shown(match: re.Match[str]) -> str:
            return match[0] if match["legal"] else "\n" if match[0] == "\r\n" else MARK

        text = _compiled(_FOR_PEOPLE).sub(shown, text)
    return text if text.isascii() else _compiled(_STACKED).sub(rf"\1{MARK}", text)


def _escaped(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text

    def escaped(match: re.Match[str]) -> str:
        return match[0] if match["legal"] else "".join(map(_escape, match[0]))

    text = _compiled(_FOR_LOGS).sub(escaped, text)
    return text if text.isascii() else _compiled(_STACKED).sub(rf"\1{MARK}", text)


def _escape(letter: str) -> str:
    number = ord(letter)
    if letter in _NAMED:
        return _NAMED[letter]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _stripped(text: str) -> str:
    if _is_plain(text):
        return text
    if _compiled(_HARMFUL).search(text):

        def stripped(match: re.Match[str]) -> str:
            return match[0] if match["legal"] else "\n" if match[0] in _BREAKS else ""

        text = _compiled(_FOR_MODELS).sub(stripped, text)
    return text if text.isascii() else _compiled(_STACKED).sub(r"\1", text)


_UNSEEN = rf"{_HARMFUL}|[^\S ]|[\u070f\u2800\U00013430-\U0001345f\U0001d159]"


def unfolded(text: str) -> str:
    """Return a text on one line, in full, for a question to a person: nothing in it can be hidden."""
    text = for_log(text, None)
    if not text.isascii():
        # Wide blanks could push text out of sight; joiners are spelled out even if legal.
        text = _compiled(_UNSEEN).sub(lambda match: _escape(match[0]), text)
    return re.sub(r" {4,}", lambda match: f"[{len(match[0])} spaces]", text)


_LOOK_ALIKE = str.maketrans(
    # Cyrillic, Greek, Armenian, then Latin letters and digits that look alike in many fonts
    "аԁеһіјӏкоԛрѕԝхуѵгАВЕНІЈКМОРЅТХУ" + "αγικνορυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "հոսօց" + "ıɑɡɩʟІI1|0‐‑‒–—−․",
    "adehijlkoqpswxyvrABEHlJKMOPSTXY" + "aylkvopuxABEZHlKMNOPTYX" + "hnuog" + "iagilllllO------.",
)


def skeleton(name: str) -> str:
    """Return the skeleton of a name: names with the same skeleton look alike."""
    plain = unicodedata.normalize("NFKC", for_model(name))
    return plain.translate(_LOOK_ALIKE).replace("rn", "m")


def look_alikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the groups of different names that look the same, each in order of appearance."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(skeleton(name), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def odd_letters(name: str) -> str:
    """Return what is suspicious about the letters of a name; empty for a name in one script."""
    if name.isascii():
        return "it has control characters" if not name.isprintable() else ""
    if is_harmful(name):
        return "it has invisible characters"
    scripts = {_script(letter) for letter in name if letter.isalpha()} & _SCRIPTS
    if len(scripts) > 1:
        return f"it mixes {' and '.join(sorted(script.capitalize() for script in scripts))} letters"
    if name != unicodedata.normalize("NFKC", name):
        return "it has letters that only look like ordinary ones"
    return ""


_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"})
"""Scripts whose letters look alike; mixing Chinese and Latin is common and fine."""


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
