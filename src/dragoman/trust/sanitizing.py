r"""Make text from servers and files harmless for people, logs and models; programs get the original.

`dragoman.visible` decides what is harmful. The cost: without direction marks, mixed lines of Hebrew or Arabic
may align differently; a letter with a legal joiner can still hide one bit. `for_terminal` replaces each
harmful character by `�`; `for_log` writes it as an escape (`\x1b`) on one line, `for_json` as JSON does;
`for_model` removes it together with whole escape sequences, because a model could decode an escape. Each is
linear and idempotent, and a result is never longer than its limit.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

from dragoman.visible import HARMFUL, LEGAL, STACKED, escape, is_harmful, is_plain_ascii, shown, spelled_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LOG_CHARS = 2_000
"""Characters of one text in a log line."""

# No class in a sequence matches the start of another sequence, so that each character is read once.
SEQUENCE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9b-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-Z\\^-~]"
)
"""Matches an escape sequence of a terminal."""
_FOR_LOGS = rf"(?P<legal>{LEGAL})|[\t\n]|{HARMFUL}"
_FOR_MODELS = rf"(?P<legal>{LEGAL})|{SEQUENCE}|\r\n|{HARMFUL}"
# Compiled on first use, as in `dragoman.visible`.
_compiled = cache(re.compile)
_FOLDERS = r"""(?<![\w:/\\.~])(?:~?/|[A-Za-z]:[/\\])(?:[^\s`'"<>()|,;/\\]*[/\\])+|(?<![\w:/\\.~])/(?=\w)"""
_BREAKS = frozenset("\r \r\n \x0b \x0c \x85 \u2028 \u2029".split(" "))


def for_terminal(text: str, limit: int | None = None) -> str:
    """Return a text for a terminal: lines and tabs stay, harmful characters become `�`."""
    return _bounded(text, limit, shown)


def for_log(text: str, limit: int | None = LOG_CHARS) -> str:
    """Return a text as one line for a log or an error: harmful characters become escapes."""
    return _bounded(text, limit, _on_one_line)


def for_json(text: str) -> str:
    """Return a JSON text with escapes for harmful characters; a parser reads the same values."""
    return text if is_plain_ascii(text) else _with_escapes(text, _json_escape)


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


def for_remote(text: str) -> str:
    """Return a text of ours for a model at another machine: also without the folders of this one."""
    return _compiled(_FOLDERS).sub("…/", for_model(text))


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


def _on_one_line(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _with_escapes(text, escape)


def _with_escapes(text: str, escaped: Callable[[str], str]) -> str:
    text = _compiled(_FOR_LOGS).sub(lambda match: match[0] if match["legal"] else escaped(match[0]), text)
    if text.isascii():
        return text
    return _compiled(STACKED).sub(lambda match: match[1] + "".join(map(escaped, match[2])), text)


def _json_escape(letter: str) -> str:
    if letter in "\t\n":  # between values; JSON has none inside of texts
        return letter
    number = ord(letter)
    if number < 0x10000:
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _stripped(text: str) -> str:
    if is_plain_ascii(text):
        return text
    if _compiled(HARMFUL).search(text):

        def stripped(match: re.Match[str]) -> str:
            return match[0] if match["legal"] else "\n" if match[0] in _BREAKS else ""

        text = _compiled(_FOR_MODELS).sub(stripped, text)
    return text if text.isascii() else _compiled(STACKED).sub(r"\1", text)


def unfolded(text: str) -> str:
    """Return a text on one line, in full, for a question to a person: nothing in it can be hidden."""
    # Wide blanks could push text out of sight; joiners are spelled out even if legal.
    return re.sub(r" {4,}", lambda match: f"[{len(match[0])} spaces]", spelled_out(text))


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
