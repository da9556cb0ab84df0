"""Reading what a refusal says about logging in (`WWW-Authenticate`), and what the refused request had."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dragoman.server.http_client import HttpAnswer

MAX_HEADERS = 32
MAX_CHARS = 16 * 1024
"""How much of all challenges together is looked at."""
MAX_VALUE = 4096

# Each of these begins where the last one ended and gives nothing back, so that a text is read once.
_GAP = re.compile(r"[\s,=]*+")
_WORD = re.compile(r'[^\s,="]++')
_SIGN = re.compile(r"\s*+=\s*+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_BARE = re.compile(r'([^\s,"]++)')


def challenge_fields(answer: HttpAnswer) -> dict[str, str]:
    """Read the parameters of a challenge (RFC 9110 §11.6.1); the first of a name counts."""
    values = [value for name, value in answer.headers.items() if name.lower() == "www-authenticate"]
    text = ", ".join(value[:MAX_CHARS] for value in values[:MAX_HEADERS])[:MAX_CHARS]
    found: dict[str, str] = {}
    place = 0
    while (place := _end(_GAP, text, place)) < len(text):
        word = _WORD.match(text, place)
        if word is None:
            # A text in quotes without a name; where it does not end, nothing behind it can be told apart.
            place = _end(_QUOTED, text, place, default=len(text))
            continue
        place = word.end()
        if (sign := _SIGN.match(text, place)) is None:
            continue
        place = sign.end()
        if (value := _QUOTED.match(text, place) or _BARE.match(text, place)) is not None:
            place = value.end()
            if "\\" not in value[1] and len(value[1]) <= MAX_VALUE:
                found.setdefault(word[0].lower(), value[1])
    return found


def _end(pattern: re.Pattern[str], text: str, place: int, *, default: int = 0) -> int:
    match = pattern.match(text, place)
    return default if match is None else match.end()


def header(headers: Mapping[str, str], wanted: str) -> str:
    """Return a header by its name in small letters; nothing if it is not there."""
    return next((value for name, value in headers.items() if name.lower() == wanted), "")


def token_in(headers: Mapping[str, str]) -> str:
    """Return the token that a request was sent with."""
    return header(headers, "authorization").partition(" ")[2]


def version_in(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the header with the protocol's version, if a request was sent with one."""
    version = header(headers, "mcp-protocol-version")
    return {"mcp-protocol-version": version} if version else {}
