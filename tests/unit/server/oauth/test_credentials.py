from __future__ import annotations

import jwt
import pytest

from dragoman.server.oauth.credentials import DpopKey


def read(proof: str) -> tuple[dict[str, object], dict[str, object]]:
    header = jwt.get_unverified_header(proof)
    claims = jwt.decode(proof, jwt.PyJWK(header["jwk"]).key, algorithms=["ES256"])
    return header, claims


def test_proof_has_what_rfc_9449_wants() -> None:
    key = DpopKey.generate()
    header, claims = read(key.proof("POST", "https://as.example/token?x=1#y", now=1000.9, unique="u1"))
    assert header["typ"] == "dpop+jwt"
    assert sorted(header["jwk"]) == ["crv", "kty", "x", "y"]  # type: ignore[call-overload]
    assert claims == {"jti": "u1", "htm": "POST", "htu": "https://as.example/token", "iat": 1000}


def test_proof_names_the_token_and_the_nonce() -> None:
    proof = DpopKey.generate().proof("GET", "https://x.example/", now=1, unique="u", token="abc", nonce="n")
    _, claims = read(proof)
    assert claims["ath"] == "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"
    assert claims["nonce"] == "n"


def test_stored_key_is_the_same_key() -> None:
    key = DpopKey.generate()
    again = DpopKey.from_pem(key.to_pem())
    headers = [read(one.proof("GET", "https://x.example/", now=1, unique="u"))[0] for one in (key, again)]
    assert headers[0]["jwk"] == headers[1]["jwk"]


@pytest.mark.parametrize("pem", ["", "junk", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"])
def test_what_is_no_key_is_refused(pem: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        DpopKey.from_pem(pem)
