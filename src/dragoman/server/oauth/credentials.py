"""Secrets of a login: keeping them out of error messages, and DPoP proofs.

The error text of an authorization server may repeat what it was sent: a code, a verifier, a secret or a
token, plain or encoded. Such parts are masked. If pieces of a secret are left (in another case, with spaces,
partly encoded), the whole text is withheld. Secrets can be encoded in unknown ways, so only text that looks
like words is shown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import unicodedata
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

from dragoman.trust.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

WITHHELD = "the response repeats a secret that was sent, so it is not shown"
MAX_TEXT = 4096
MAX_SECRET = 16 * 1024
PIECE = 8
"""This many consecutive letters and digits of a secret count as a part of it."""
SHORTEST = 4
LONGEST_CODE = 12
"""Longer strings that do not look like words may be an encoded secret."""
LONGEST_WORD = 20

_OPEN = frozenset(
    "grant_type response_type client_id client_assertion_type redirect_uri resource scope".split()
)
"""Fields of a token request that are not secret."""
_OTHER = re.compile(r"[^a-z0-9]+")
_BETWEEN = re.compile(r"[-_.,:;/!?=()'\"`]+")


class SentSecrets:
    """Collects the secrets that were sent, and removes them from texts."""

    def __init__(self) -> None:
        self._redactor = Redactor()
        self._pieces: set[str] = set()
        self._words: set[str] = set()
        """Secrets that are too short for pieces, or consist of letters only."""

    def add(self, values: Iterable[str | None]) -> None:
        """Add secrets."""
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
        """Add the secrets of a request: credentials in headers, and the fields of a form."""
        for name, value in headers.items():
            if name.lower() in ("authorization", "dpop"):
                word = value.rpartition(" ")[2]
                self.add([word, *_login_parts(word)])
        if is_form:
            fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
            self.add(value for name, value in fields if name not in _OPEN)

    def clean(self, text: str) -> str:
        """Return a text, shortened if necessary, without the secrets."""
        shown = self._redactor.mask(text[:MAX_TEXT])
        for reading in (shown, unquote(shown)):
            plain = _OTHER.sub("", reading.lower())
            if any(word in plain for word in self._words) or not self._pieces.isdisjoint(_pieces(plain)):
                return WITHHELD
        return shown

    def clean_foreign(self, text: str) -> str:
        """Return a text of an authorization server without secrets and without unreadable strings."""
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
    """Return the decoded password of a `Basic` header."""
    try:
        password = base64.b64decode(word, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return []
    return [password, unquote_plus(password)]


def _forms(value: str) -> Iterator[str]:
    """Yield the encodings in which a value may be repeated, as letters and digits only."""
    data = value.encode("utf-8", "replace")
    texts = [value, quote(value, safe=""), data.hex(), base64.b64encode(data).decode()]
    # In base64, the text around a value changes its first and last characters.
    texts += [base64.b64encode(bytes(shift) + data).decode()[2 * shift : -4] for shift in (1, 2)]
    return (_OTHER.sub("", text.lower()) for text in texts)


def _pieces(text: str) -> Iterator[str]:
    """Yield every piece of a text, except those of letters only, which may be words."""
    pieces = (text[at : at + PIECE] for at in range(len(text) - PIECE + 1))
    return (piece for piece in pieces if not piece.isalpha())


ALGORITHM = "ES256"
"""The only algorithm that we use; all authorization servers with DPoP support it."""


class DpopKey:
    """A key that tokens are bound to."""

    def __init__(self, key: EllipticCurvePrivateKey) -> None:
        self._key = key
        point = key.public_key().public_numbers()
        self._jwk = {"kty": "EC", "crv": "P-256", "x": _number(point.x), "y": _number(point.y)}

    @classmethod
    def generate(cls) -> Self:
        """Make a new key."""
        from cryptography.hazmat.primitives.asymmetric import ec

        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_pem(cls, pem: str) -> Self:
        """Read a stored key.

        Raises:
            ValueError: It is not a P-256 key.
        """
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(pem.encode(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            msg = "not a P-256 key"
            raise ValueError(msg)  # noqa: TRY004 -- the data is wrong, not the argument's type
        return cls(key)

    def to_pem(self) -> str:
        """Return the private key, only for the token store."""
        from cryptography.hazmat.primitives import serialization

        return self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def proof(
        self, method: str, url: str, *, now: float, unique: str, token: str = "", nonce: str = ""
    ) -> str:
        """Return the proof for one request.

        Args:
            method: The HTTP method.
            url: The address; its query and fragment are not part of a proof.
            now: Seconds since the epoch.
            unique: A new random string; a server refuses one that it has seen.
            token: The access token of the request, if it has one.
            nonce: The server's nonce, if it sent one.
        """
        import jwt

        claims: dict[str, Any] = {"jti": unique, "htm": method, "htu": _bare(url), "iat": int(now)}
        if token:
            claims["ath"] = _digest(token)
        if nonce:
            claims["nonce"] = nonce
        return jwt.encode(
            claims, self._key, algorithm=ALGORITHM, headers={"typ": "dpop+jwt", "jwk": self._jwk}
        )


def _number(value: int) -> str:
    return _text(value.to_bytes(32, "big"))


def _digest(text: str) -> str:
    return _text(hashlib.sha256(text.encode()).digest())


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bare(url: str) -> str:
    return url.partition("#")[0].partition("?")[0]
