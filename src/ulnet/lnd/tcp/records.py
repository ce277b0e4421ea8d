"""The count of TLS records within one call of OpenSSL, which does not return while others come."""

from __future__ import annotations

import ctypes
import errno
from typing import Any, Final

__all__ = ["RecordWatch", "told"]

_RECORDS: Final = 256  # that may come in one call
_SHAKEN: Final = 32768  # bytes of a handshake: of a longer one the certificates alone would take 0.1 s
_HEADER: Final = 256  # what OpenSSL tells of each record, before all else
_TOO_MANY: Final = f"it sends more than {_RECORDS} records of TLS that are no payload, or are tiny"
_TOO_LONG: Final = (
    f"its part of the TLS handshake is longer than {_SHAKEN} bytes: too many certificates or NIDs"
)
_libc: Final = ctypes.CDLL(None, use_errno=True)
_UNSPEC: Final = bytes(16)  # an address of no family


class RecordWatch:
    """What came by one connection."""

    __slots__ = ("most", "records", "shaken", "to_shake")

    def __init__(self) -> None:
        self.most: int = _RECORDS
        self.records: int = 0  # since the last call began
        self.to_shake: int = _SHAKEN  # bytes that may still come before the handshake is through
        self.shaken: bool = False

    def check(self) -> None:
        """Raises OSError(EPROTO) where the connection was ended, whatever OpenSSL makes of that."""
        if self.records > self.most:
            raise OSError(errno.EPROTO, _TOO_MANY)
        if self.to_shake < 0:
            raise OSError(errno.EPROTO, _TOO_LONG)


def told(sock: Any, direction: str, version: int, kind: int, message: int, data: bytes) -> None:
    """OpenSSL tells of records and messages in both directions: a callback of ssl, with its arguments.

    Too many records at once end the connection, within the call that reads them.
    """
    if kind != _HEADER or direction != "read":
        return
    watch: RecordWatch | None = getattr(sock, "watch", None)  # sockets of others have none
    if watch is None:
        return
    watch.records += 1
    if not watch.shaken:
        watch.to_shake -= int.from_bytes(data[3:5], "big")
    if watch.records > watch.most or watch.to_shake < 0:
        _disconnect(sock.fileno())


def _disconnect(number: int) -> None:
    """Reset a TCP connection, and drop what came, which `shutdown` would leave to be read."""
    _libc.connect(number, _UNSPEC, len(_UNSPEC))
