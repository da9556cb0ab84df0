"""An authority of its own and a certificate of it, for servers under test that speak TLS."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

SINCE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
UNTIL = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)


def server_context(folder: Path, *names: str) -> tuple[ssl.SSLContext, str]:
    """Return what a server of these names listens with, and the path of the authority that vouches for it."""
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    own, authority = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    for file, subject, key, is_ca in (("ca", issuer, authority, True), ("pair", x509.Name([]), own, False)):
        made = (
            x509.CertificateBuilder(
                issuer, subject, key.public_key(), x509.random_serial_number(), SINCE, UNTIL
            )
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=True)
            .sign(authority, hashes.SHA256())
        )
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        text = made.public_bytes(Encoding.PEM) + (b"" if is_ca else secret)
        (folder / f"{file}.pem").write_bytes(text)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "pair.pem")
    return context, str(folder / "ca.pem")
