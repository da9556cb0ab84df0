"""What the requests of one login carried, kept out of everything that is shown of their answers.

An authorization server that refuses says why, in words of its own, and may repeat what it was sent: a code,
a verifier, a secret, a token, as they are or encoded. Such parts are masked. If pieces of a secret are left
after that (in another case, with spaces between, encoded in parts), the whole text is withheld. A secret can
be encoded in more ways than can be known, so of foreign words only those are shown that read like words.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

from dragoman.trust.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

WITHHELD = "the answer repeats what was sent, and is not shown"
MAX_TEXT = 4096
MAX_SECRET = 16 * 1024
PIECE = 8
"""So many letters and digits of a secret in a row are taken for a part of it."""
SHORTEST = 4
LONGEST_CODE = 12
"""Longer words that do not read like words may be an encoded secret."""
LONGEST_WORD = 20

_OPEN = frozenset(
    "grant_type response_type client_id client_assertion_type redirect_uri resource scope".split()
)
"""Fields of a token request that hold no secret."""
_OTHER = re.compile(r"[^a-z0-9]+")
_BETWEEN = re.compile(r"[-_.,:;/!?=()'\"`]+")


class SentSecrets:
    """Collects secrets, and cleans texts of them."""

    def __init__(self) -> None:
        self._redactor = Redactor()
        self._pieces: set[str] = set()
        self._words: set[str] = set()
        """Secrets that are too short for pieces, or look like words."""

    def add(self, values: Iterable[str | None]) -> None:
        """Show nothing of these values from now on."""
        for value in values:
            if not value:
                continue
            self._redactor.add([value])
            plain = _OTHER.sub("", value[:MAX_SECRET].lower())
            if len(plain) >= SHORTEST and (len(plain) < PIECE or plain.isalpha()):
                self._words.add(plain)
            for form in _forms(value[:MAX_SECRET]):
                self._pieces.update(_pieces(form))

    def add_request(self, headers: Mapping[str, str], body: bytes, *, is_form: bool) -> None:
        """Take in what a request carries: credentials in headers, and the fields of a form."""
        for name, value in headers.items():
            if name.lower() in ("authorization", "dpop"):
                word = value.rpartition(" ")[2]
                self.add([word, *_login_parts(word)])
        if is_form:
            fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
            self.add(value for name, value in fields if name not in _OPEN)

    def clean(self, text: str) -> str:
        """Return a text, cut where it is too long, that shows none of the secrets."""
        shown = self._redactor.mask(text[:MAX_TEXT])
        for reading in (shown, unquote(shown)):
            plain = _OTHER.sub("", reading.lower())
            if any(word in plain for word in self._words) or not self._pieces.isdisjoint(_pieces(plain)):
                return WITHHELD
        return shown

    def clean_foreign(self, text: str) -> str:
        """Return what an authorization server says, without secrets and without words that are none."""
        shown = self.clean(unicodedata.normalize("NFKC", text[:MAX_TEXT]))
        return " ".join(word if _is_readable(word) else "•••" for word in shown.split())


def _is_readable(word: str) -> bool:
    if len(word) <= LONGEST_CODE:
        return True
    parts = [part for part in _BETWEEN.split(word) if part]
    return all(
        part.isascii()
        and part.isalpha()
        and len(part) <= LONGEST_WORD
        and (part.islower() or part.isupper() or part.istitle())
        for part in parts
    )


def _login_parts(word: str) -> list[str]:
    """Return the password of a `Basic` login, as it was before it was encoded."""
    try:
        password = base64.b64decode(word, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return []
    return [password, unquote_plus(password)]


def _forms(value: str) -> Iterator[str]:
    """Return a value in the forms in which it may be repeated, as letters and digits alone."""
    data = value.encode("utf-8", "replace")
    texts = [value, quote(value, safe=""), data.hex(), base64.b64encode(data).decode()]
    # What stands around it decides how its first and last letters are encoded.
    texts += [base64.b64encode(bytes(shift) + data).decode()[2 * shift : -4] for shift in (1, 2)]
    return (_OTHER.sub("", text.lower()) for text in texts)


def _pieces(text: str) -> Iterator[str]:
    """Return every piece of a text that is not plain letters: those may be a word of any language."""
    pieces = (text[at : at + PIECE] for at in range(len(text) - PIECE + 1))
    return (piece for piece in pieces if not piece.isalpha())
