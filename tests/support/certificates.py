"""Certificates that the library `cryptography` does not make."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SERIAL = b"\xa0\x03\x02\x01\x02\x02\x01"  # version 3, and what is before a serial number of one byte
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")


def make_odd(authority: Path, out: Path, names: list[str], serial: int = 5) -> None:
    """The certificate of a node in a directory that has one: these names, a number of -128 to 127."""
    issuer = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    issuing: Any = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    key: Any = serialization.load_pem_private_key((out / "node.key").read_bytes(), None)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=90))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name) for name in names]), False
        )
        .sign(issuing, hashes.SHA256())
    ).tbs_certificate_bytes
    number = serial.to_bytes(1, "big", signed=True)
    signed = made.replace(_SERIAL + b"\5", _SERIAL + number, 1)
    signature = issuing.sign(signed, ec.ECDSA(hashes.SHA256()))
    whole = signed + _ECDSA_SHA256 + b"\3" + bytes([len(signature) + 1]) + b"\0" + signature
    der = b"\x30\x82" + len(whole).to_bytes(2, "big") + whole
    (out / "node.pem").write_text(ssl.DER_cert_to_PEM_cert(der))
