"""The connection request, first bytes on a TCP connection (spec wire-socklnd.md §2).

Read it in three exact steps, so that nothing of the HELLO behind it is taken: `MAGIC_SIZE` bytes
(`request_byteorder`), `VERSION_SIZE` bytes (`request_version`), `request_rest_size(version)` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ulnet.nid.errors import NidError
from ulnet.nid.nid import NID4_BY_NID, NID_BY_NID4, NID_BY_WIRE, NID_SIZE, Nid
from ulnet.wire.errors import Buffer, ByteOrder, WireError

__all__ = [
    "MAGIC",
    "MAGIC_SIZE",
    "TLS_BEGINS",
    "TLS_WAY_OUT",
    "VERSION_SIZE",
    "AcceptorError",
    "ConnRequest",
    "refusal",
    "request_byteorder",
    "request_rest_size",
    "request_version",
]

MAGIC: Final = 0xACCE7100
MAGIC_SIZE: Final = 4
VERSION_SIZE: Final = 4
TLS_WAY_OUT: Final = "set its security to offer or require, or that of the caller's net to off"
TLS_BEGINS: Final = b"\x16\x03"  # a record of TLS that has a handshake, of any version since SSL 3
_UNIFIED_MAGIC: Final = 0x45726963  # a HELLO's: its sender learns what we speak


class AcceptorError(WireError):
    """A connection request to refuse: send `reply` (it may be empty), then close."""

    def __init__(self, text: str, reply: bytes = b"") -> None:
        super().__init__(text)
        self.reply = reply


def refusal(byteorder: ByteOrder = "little") -> bytes:
    """The 16 bytes that tell a peer which version we speak: version 1, NID 0."""
    return MAGIC.to_bytes(4, byteorder) + (1).to_bytes(4, byteorder) + bytes(8)


def request_byteorder(magic: Buffer) -> ByteOrder:
    """The sender's byte order, from the first four bytes; AcceptorError if they start no request."""
    if len(magic) < MAGIC_SIZE:
        raise AcceptorError(f"{len(magic)} bytes are too few for a connection request")
    value = int.from_bytes(magic[:MAGIC_SIZE], "little")
    if value == MAGIC:
        return "little"
    swapped = int.from_bytes(magic[:MAGIC_SIZE], "big")
    if swapped == MAGIC:
        return "big"
    if _UNIFIED_MAGIC in (value, swapped):
        raise AcceptorError("a HELLO came where a connection request belongs", refusal())
    if magic[:2] == TLS_BEGINS:
        raise AcceptorError(f"a TLS connection came to a net without security: {TLS_WAY_OUT}")
    raise AcceptorError(f"magic {value:08x} is not that of a connection request")


def request_version(data: Buffer, byteorder: ByteOrder) -> int:
    """The request's version, from its second four bytes; AcceptorError if we do not know it."""
    if len(data) < VERSION_SIZE:
        raise AcceptorError(f"{len(data)} bytes are too few for the version of a connection request")
    version = int.from_bytes(data[:VERSION_SIZE], byteorder)
    if version not in (1, 2):
        raise AcceptorError(f"connection request of version {version}; known are 1 and 2", refusal())
    return version


def request_rest_size(version: int) -> int:
    """How many bytes follow magic and version."""
    return NID_SIZE if version == 2 else 8


@dataclass(frozen=True, slots=True)
class ConnRequest:
    """Which NID the caller wants: version 1 names it in 64 bits, version 2 in its large form."""

    version: int
    nid: Nid
    byteorder: ByteOrder = "little"

    @classmethod
    def to(cls, nid: Nid) -> ConnRequest:
        """The request that LNet sends to reach nid."""
        return cls(2 if nid.is_large else 1, nid)

    def pack(self) -> bytes:
        """The request's 16 or 28 bytes."""
        head = MAGIC.to_bytes(4, self.byteorder) + self.version.to_bytes(4, self.byteorder)
        if self.version == 2:
            return head + self.nid
        if self.version != 1:
            raise WireError(f"connection requests have version 1 or 2, not {self.version}")
        try:
            return head + NID4_BY_NID[self.nid].to_bytes(8, self.byteorder)
        except NidError as error:
            raise WireError(f"connection request of version 1: {error}") from None

    @classmethod
    def from_rest(cls, version: int, rest: Buffer, byteorder: ByteOrder) -> ConnRequest:
        """The request whose last step read `rest`."""
        if len(rest) < request_rest_size(version):
            raise AcceptorError(f"{len(rest)} bytes are too few for the NID of a connection request")
        try:
            if version == 2:
                return cls(version, NID_BY_WIRE[bytes(rest[:NID_SIZE])], byteorder)
            return cls(version, NID_BY_NID4[int.from_bytes(rest[:8], byteorder)], byteorder)
        except NidError as error:
            raise AcceptorError(f"connection request with a bad NID: {error}") from None

    @classmethod
    def unpack(cls, buf: Buffer) -> ConnRequest:
        """The request at the start of buf."""
        byteorder = request_byteorder(buf)
        version = request_version(buf[MAGIC_SIZE:], byteorder)
        return cls.from_rest(version, buf[MAGIC_SIZE + VERSION_SIZE :], byteorder)
