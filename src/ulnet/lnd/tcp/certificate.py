"""Certificates, which name the NIDs that their node may use.

Those are URIs of its subject's other names, such as `lnet:10.0.0.1@tcp` or `lnet:10.0.0.[1-8]@tcp*`.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import ssl
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ulnet.nid import Nid, NidError, NidList

__all__ = ["MOST_NAMES", "REVOKED", "Certificate", "RevokedList", "certificate_in", "certificate_of"]

REVOKED: Final = "revoked.pem"  # file of an authority, and of nodes: a certificate revocation list
MOST_NAMES: Final = 1024  # NIDs or patterns of a certificate that are looked at
_PREFIX: Final = "lnet:"
_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----(.+?)-----END X509 CRL-----", re.DOTALL)
_NUMBER: Final = re.compile(rb"\x02(?=[\x01-\x15])")  # of ASN.1: before a number of 1 to 21 bytes
_TIMES: Final = (b"\x17", b"\x18")  # of ASN.1: when a certificate was revoked stands behind its number


class Certificate(NamedTuple):
    """What a certificate says of its node."""

    name: str
    nids: tuple[NidList, ...]
    expires: float  # seconds since 1970
    serial: int = 0

    def covers(self, nid: Nid) -> bool:
        """Whether the node may use that NID."""
        return any(one.match(nid) for one in self.nids)


class RevokedList:
    """Certificate revocation lists in PEM form, which OpenSSL has found good."""

    __slots__ = ("_numbers", "pem")

    def __init__(self, pem: bytes) -> None:
        self.pem: bytes = pem
        self._numbers: set[bytes] = set()
        for found in _PEM.findall(pem):
            self._numbers.update(_numbers_in(base64.b64decode(found)))

    def has(self, certificate: Certificate) -> bool:
        """Whether a certificate with that serial number, of whatever authority, is in any of them."""
        serial = certificate.serial
        number = serial.to_bytes(serial.bit_length() // 8 + 1, "big")  # ASN.1 has a sign bit
        return number in self._numbers


def _numbers_in(der: bytes) -> Iterator[bytes]:
    """What stands before the times of a list."""
    for found in _NUMBER.finditer(der):
        begins = found.end() + 1
        ends = begins + der[found.end()]
        if der[ends : ends + 1] in _TIMES:
            yield der[begins:ends]


def certificate_of(fields: dict[str, Any]) -> Certificate:
    """A certificate as Python's ssl shows it; names that are no NIDs, or too many, stand for none."""
    nids: list[NidList] = []
    for kind, text in fields.get("subjectAltName", ()):
        if kind == "URI" and text.startswith(_PREFIX) and len(nids) < MOST_NAMES:
            try:
                nids.append(NidList.parse(text[len(_PREFIX) :]))
            except NidError:
                continue
    names = [value for part in fields.get("subject", ()) for key, value in part if key == "commonName"]
    expires = ssl.cert_time_to_seconds(fields["notAfter"])
    serial = int(fields.get("serialNumber", "0"), 16)
    return Certificate(names[0] if names else "", tuple(nids), float(expires), serial)


def certificate_in(path: str | os.PathLike[str]) -> Certificate:
    """The certificate in a file. Raises OSError, whose words name the file."""
    with open(path, "rb"):  # what ssl raises names neither the file nor what is wrong with it
        pass
    try:
        # ssl itself shows the fields of none but a peer's.
        fields = ssl._ssl._test_decode_cert(os.fspath(path))  # type: ignore[attr-defined]
    except ssl.SSLError:
        raise OSError(errno.EINVAL, "it has no certificate in PEM form", os.fspath(path)) from None
    return certificate_of(fields)
