"""What a word looks like: a key that a machine made up, a login in base64, a version, a commit.

Heuristics, for masking what announces itself by nothing else. Each is linear and looks at the beginning of a
long word only.
"""

from __future__ import annotations

import re

MAX_CHARS = 2_000
"""How much of a word is looked at."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_RUN = re.compile(r"[A-Za-z0-9]+")
_NUMBERS = re.compile(r"[0-9]+")
_KINDS = str.maketrans(
    {chr(code): "a" for code in range(ord("a"), ord("z") + 1)}
    | {chr(code): "A" for code in range(ord("A"), ord("Z") + 1)}
    | dict.fromkeys("0123456789", "0")
)
_CHANGE = re.compile(r"(?=aA|Aa|a0|0a|A0|0A)")
_MARKS = str.maketrans("", "", "+/-_~.%")
_VERSION = re.compile(r"v?\d{1,8}(?:[.-]\d{1,8}){0,4}(?:[-.]?[a-z]{1,10}\d{0,6})?")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_BRANCH = re.compile(r"[\w./=&-]{1,100}")


def looks_random(word: str, *, least: int = 20) -> bool:
    """Return whether a word, or a part of it between marks, looks made up by a machine.

    Words, packages and versions change seldom between letters and digits, or between capitals and small
    letters; keys do so all the time.

    Args:
        word: A word without blanks.
        least: How many letters and digits in a row it takes.
    """
    word = word[:MAX_CHARS]
    for run in _RUN.findall(word):
        if len(run) < least:
            continue
        if _HEX.fullmatch(run) and not run.isdigit():
            return True
        is_one_case = run.isalpha() and (run.islower() or run.isupper())
        if is_one_case and len(run) >= 28 and len(set(run)) >= 8:
            return True
        changes = len(_CHANGE.findall(run.translate(_KINDS)))
        # A word may have a number in it; a key has several.
        if changes >= len(run) / 2.6 or (changes >= len(run) / 5 and len(_NUMBERS.findall(run)) > 1):
            return True
    # The marks of an alphabet of 64 letters cut a key into short parts.
    bare = word.rstrip("=").translate(_MARKS)
    kinds = bare.translate(_KINDS)
    is_mixed = all(kind in kinds for kind in "aA0") and len(_CHANGE.findall(kinds)) >= len(bare) / 3
    return bare != word and len(bare) >= least + 4 and is_mixed


def has_uuid(word: str) -> bool:
    """Return whether a word is, or holds, a UUID."""
    return bool(_UUID.search(word[:MAX_CHARS]))


def is_uuid(word: str) -> bool:
    """Return whether a word is a UUID and nothing else."""
    return bool(_UUID.fullmatch(word))


def is_login(word: str) -> bool:
    """Return whether a word is `name:password` in base64, as a basic login has it."""
    if not 12 <= len(word) <= 500 or not word.isascii():
        return False
    marks = b"-_" if "-" in word or "_" in word else None
    try:
        import base64  # late: few words look like that

        text = base64.b64decode(word + "=" * (-len(word) % 4), altchars=marks, validate=True)
    except ValueError:
        return False
    name, colon, password = text.partition(b":")
    return bool(name and colon and password) and all(0x21 <= letter < 0x7F for letter in text)


def is_version(word: str) -> bool:
    """Return whether a word is a version or a date: `v1`, `2025-06-18`, `1.2.3-rc1`."""
    return bool(_VERSION.fullmatch(word))


def is_revision(word: str) -> bool:
    """Return whether a word is a commit, or may be a branch or a tag."""
    return bool(_COMMIT.fullmatch(word) or (_BRANCH.fullmatch(word) and not looks_random(word)))
