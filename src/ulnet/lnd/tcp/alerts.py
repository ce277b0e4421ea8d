"""What errors of TLS mean, in words."""

from __future__ import annotations

import ssl
from typing import Final

__all__ = ["words_of"]

# What the other side means by an alert, by its name in OpenSSL behind "…_ALERT_".
_ALERTS: Final = {
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "UNSUPPORTED_CERTIFICATE": "it does not accept our certificate",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "CERTIFICATE_REVOKED": "our certificate is revoked there",
    "CERTIFICATE_EXPIRED": "our certificate has expired, by its clock",
    "UNKNOWN_CA": "our certificate is of an authority that it does not trust",
    "DECRYPT_ERROR": "our certificate is of an authority that it does not trust, though of the same name",
    "CERTIFICATE_REQUIRED": "it wants a certificate, and we have sent none",
    "ACCESS_DENIED": "our certificate is good, but it denies us",
    "HANDSHAKE_FAILURE": "it has no cipher in common with us",
    "INSUFFICIENT_SECURITY": "it has no cipher in common with us",
    "PROTOCOL_VERSION": "it does not speak TLS 1.3",
}


def words_of(error: ssl.SSLError) -> str:
    """What an error of TLS means."""
    reason: str = getattr(error, "reason", None) or str(error)  # ssl has None there for some
    alert = reason.partition("ALERT_")[2]
    if not alert:
        return f"TLS failed: {reason.replace('_', ' ').lower()}"
    name = alert.replace("_", " ").lower()
    meaning = _ALERTS.get(alert)
    return f"it ended TLS: {meaning} (alert {name!r})" if meaning else f"it ended TLS by the alert {name!r}"
