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
from typing import Any, Final

from ulnet.nid import Nid, NidError, NidList
from ulnet.nid.errors import shown
from ulnet.nid.index import NidIndex

__all__ = [
    "MOST_KNOWN",
    "MOST_NAMES",
    "REVOKED",
    "Certificate",
    "KnownCertificates",
    "RevokedList",
    "certificate_in",
    "certificate_of",
]

REVOKED: Final = "revoked.pem"  # file of an authority, and of nodes: a certificate revocation list
MOST_NAMES: Final = 1024  # NIDs or patterns of a certificate that are looked at
MOST_KNOWN: Final = 256  # certificates of others that are kept as they were read
_MOST_ODD: Final = 4  # names that are no NIDs of those that are told
_PREFIX: Final = "lnet:"
_PEM: Final = re.compile(rb"-----BEGIN X509 CRL-----(.+?)-----END X509 CRL-----", re.DOTALL)
_NUMBER: Final = re.compile(rb"\x02(?=[\x01-\x15])")  # of ASN.1: before a number of 1 to 21 bytes
_TIMES: Final = (b"\x17", b"\x18")  # of ASN.1: when a certificate was revoked stands behind its number


class Certificate:
    """What a certificate says of its node. Those that are for the same NIDs are equal."""

    __slots__ = ("_index", "_names", "expires", "name", "nids", "odd", "serial")

    def __init__(
        self, name: str, nids: tuple[NidList, ...], expires: float, serial: int = 0, odd: tuple[str, ...] = ()
    ) -> None:
        self.name: str = name
        self.nids: tuple[NidList, ...] = nids
        self.expires: float = expires  # seconds since 1970
        self.serial: int = serial
        self.odd: tuple[str, ...] = odd  # names that were to be NIDs, and are none
        # Each message with another source asks: what a list of 1,024 takes is a thousand times as long.
        self._index: NidIndex = NidIndex([(one.nets, one.addresses) for some in nids for one in some.ranges])
        self._names = " ".join(map(str, nids))

    @property
    def hint(self) -> str:
        """What to say behind the NIDs, or where one is missing: the names that may have been meant."""
        return f"; names in it that are no NIDs: {', '.join(map(shown, self.odd))}" if self.odd else ""

    def covers(self, nid: Nid) -> bool:
        """Whether the node may use that NID."""
        return not nid.is_any and self._index.match(nid) != 0

    def __call__(self, nid: Nid) -> bool:
        """See `covers`: the core knows a certificate by that alone."""
        return self.covers(nid)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and self._names == other._names

    def __hash__(self) -> int:
        return hash(self._names)


class KnownCertificates:
    """The certificates of others that were seen last, each read once.

    A certificate may have many names, and who shows it may hang up and come again.
    """

    __slots__ = ("_by_content",)

    def __init__(self) -> None:
        self._by_content: dict[bytes, Certificate] = {}

    def of(self, tls: ssl.SSLObject) -> Certificate:
        """The other end's, after the handshake. Raises ValueError: it has names that are no text."""
        content = tls.getpeercert(True) or b""
        found = self._by_content.pop(content, None)
        if found is None:
            found = certificate_of(tls.getpeercert() or {})
        self._by_content[content] = found
        if len(self._by_content) > MOST_KNOWN:
            del self._by_content[next(iter(self._by_content))]
        return found


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
        bits = (serial if serial >= 0 else ~serial).bit_length()  # authorities may take numbers below 0
        number = serial.to_bytes(bits // 8 + 1, "big", signed=True)  # ASN.1 has a sign bit
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
    odd: list[str] = []
    for kind, text in fields.get("subjectAltName", ()):
        if kind != "URI" or text[: len(_PREFIX)].lower() != _PREFIX or len(nids) == MOST_NAMES:
            continue
        found = _nids_in(text)
        if found is not None:
            nids.append(found)
        elif len(odd) < _MOST_ODD:
            odd.append(text)
    names = [value for part in fields.get("subject", ()) for key, value in part if key == "commonName"]
    expires = ssl.cert_time_to_seconds(fields["notAfter"])
    serial = int(fields.get("serialNumber", "0"), 16)
    return Certificate(names[0] if names else "", tuple(nids), float(expires), serial, tuple(odd))


def _nids_in(text: str) -> NidList | None:
    """The NIDs that a URI names; None: that is no way to name one."""
    try:
        return NidList.parse(text[len(_PREFIX) :]) if text.startswith(_PREFIX) else None
    except NidError:
        return None


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
