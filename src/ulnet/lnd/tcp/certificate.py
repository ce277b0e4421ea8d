"""Certificates, which name the NIDs that their node may use.

Those are URIs of its subject's other names, such as `lnet:10.0.0.1@tcp` or `lnet:10.0.0.[1-8]@tcp*`.
"""

from __future__ import annotations

import errno
import os
import ssl
from typing import Any, Final, NamedTuple

from ulnet.nid import Nid, NidError, NidList

__all__ = ["MOST_NAMES", "Certificate", "certificate_in", "certificate_of"]

MOST_NAMES: Final = 1024  # NIDs or patterns of a certificate that are looked at
_PREFIX: Final = "lnet:"


class Certificate(NamedTuple):
    """What a certificate says of its node."""

    name: str
    nids: tuple[NidList, ...]
    expires: float  # seconds since 1970

    def covers(self, nid: Nid) -> bool:
        """Whether the node may use that NID."""
        return any(one.match(nid) for one in self.nids)


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
    return Certificate(names[0] if names else "", tuple(nids), float(expires))


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
