"""Proofs that a token is used by whom it was given to (DPoP, RFC 9449): one key, a fresh proof per request.

The private key never leaves this module except as PEM for the token store. Time and randomness are arguments
of a proof, so that one can be checked to the letter.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM = "ES256"
"""The one algorithm of ours; every authorization server that knows DPoP has it."""


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
        """Read a key that was stored.

        Raises:
            ValueError: It is no key of this kind.
        """
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(pem.encode(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            msg = "this is no P-256 key"
            raise ValueError(msg)  # noqa: TRY004 -- what was read is wrong, not what was passed
        return cls(key)

    def to_pem(self) -> str:
        """Return the private key, for the token store alone."""
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
            url: The address; its query and fragment are no part of a proof.
            now: Seconds since the epoch.
            unique: A fresh random text; a server refuses one that it has seen.
            token: The access token that goes with the request, if one does.
            nonce: What the server wants to see, if it has said so.
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
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))
