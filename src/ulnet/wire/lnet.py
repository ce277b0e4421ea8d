"""The LNet message header: 72 bytes, or 96 with large NIDs (spec wire-lnet.md §4). Always little-endian.

One precompiled layout per message type packs or unpacks the whole header in a single call.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import ClassVar, Final

from ulnet.nid.errors import NidError
from ulnet.nid.nid import ANY_NID, NID4_BY_NID, NID_BY_NID4, NID_BY_WIRE, Nid
from ulnet.wire.errors import Buffer, WireError

__all__ = [
    "HEADER_SIZE",
    "LARGE_HEADER_SIZE",
    "LNET_MTU",
    "NO_WMD",
    "PING_MATCH_BITS",
    "PING_PORTAL",
    "Header",
    "MsgType",
    "pack_header",
    "unpack_header",
]

HEADER_SIZE: Final = 72
LARGE_HEADER_SIZE: Final = 96
LNET_MTU: Final = 1 << 20
NO_WMD: Final = b"\xff" * 16  # as ack_wmd: no ACK wanted
PING_PORTAL: Final = 0
PING_MATCH_BITS: Final = 1 << 63


class MsgType(IntEnum):
    """What a message is."""

    ACK = 0
    PUT = 1
    GET = 2
    REPLY = 3
    HELLO = 4


_ACK: Final = 0
_PUT: Final = 1
_GET: Final = 2
_REPLY: Final = 3

# The 40 bytes that differ by type, indexed by MsgType: ACK, PUT, GET, REPLY.
_UNIONS: Final = ("16sQI12x", "16sQQII", "16sQIII4x", "16s24x")
_SMALL: Final = tuple(struct.Struct("<QQIIII" + union) for union in _UNIONS)
_LARGE: Final = tuple(struct.Struct("<20s20sIIII" + union) for union in _UNIONS)
_SMALL_UNKNOWN: Final = struct.Struct("<QQIIII40x")
_LARGE_UNKNOWN: Final = struct.Struct("<20s20sIIII40x")
_SMALL_TYPE_AT: Final = 24
_LARGE_TYPE_AT: Final = 48


_FIELDS: Final = (
    "type",
    "dest_nid",
    "src_nid",
    "dest_pid",
    "src_pid",
    "payload_length",
    "wmd",
    "match_bits",
    "hdr_data",
    "portal",
    "offset",
    "length",
)


class Header:
    """One flat header for all message types; fields that a type does not have are 0 or NO_WMD.

    `wmd` is the PUT's ack_wmd, the GET's return_wmd, or the dst_wmd of ACK and REPLY; `length` is
    the GET's sink_length or the ACK's mlength.
    """

    __slots__ = (
        "dest_nid",
        "dest_pid",
        "hdr_data",
        "length",
        "match_bits",
        "offset",
        "payload_length",
        "portal",
        "src_nid",
        "src_pid",
        "type",
        "wmd",
    )

    def __init__(
        self,
        type: int,
        dest_nid: Nid = ANY_NID,
        src_nid: Nid = ANY_NID,
        dest_pid: int = 0,
        src_pid: int = 0,
        payload_length: int = 0,
        wmd: bytes = NO_WMD,
        match_bits: int = 0,
        hdr_data: int = 0,
        portal: int = 0,
        offset: int = 0,
        length: int = 0,
    ) -> None:
        self.type: int = type
        self.dest_nid: Nid = dest_nid
        self.src_nid: Nid = src_nid
        self.dest_pid: int = dest_pid
        self.src_pid: int = src_pid
        self.payload_length: int = payload_length
        self.wmd: bytes = wmd
        self.match_bits: int = match_bits
        self.hdr_data: int = hdr_data
        self.portal: int = portal
        self.offset: int = offset
        self.length: int = length

    def copy(self) -> Header:
        """Another header with the same fields."""
        # fmt: off
        return Header(self.type, self.dest_nid, self.src_nid, self.dest_pid, self.src_pid,
                      self.payload_length, self.wmd, self.match_bits, self.hdr_data, self.portal,
                      self.offset, self.length)
        # fmt: on

    def __copy__(self) -> Header:
        return self.copy()

    def __reduce__(self) -> tuple[type[Header], tuple[object, ...]]:
        return Header, tuple(getattr(self, name) for name in _FIELDS)  # deep copies, and pickle

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Header):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _FIELDS)
        return f"Header({fields})"


def pack_header(hdr: Header, large: bool) -> bytes:
    """The header's 72 bytes, or 96 if large; WireError if a field does not fit."""
    kind = hdr.type
    if not 0 <= kind <= _REPLY:
        raise WireError(f"a message of type {kind} cannot be sent; types are ACK 0, PUT 1, GET 2 and REPLY 3")
    size = hdr.payload_length
    try:
        if large:
            pack = _LARGE[kind].pack
            dest: bytes | int = hdr.dest_nid
            src: bytes | int = hdr.src_nid
        else:
            pack = _SMALL[kind].pack
            dest = NID4_BY_NID[hdr.dest_nid]
            src = NID4_BY_NID[hdr.src_nid]
        # fmt: off
        if kind == _PUT:
            return pack(dest, src, hdr.dest_pid, hdr.src_pid, kind, size,
                        hdr.wmd, hdr.match_bits, hdr.hdr_data, hdr.portal, hdr.offset)
        if kind == _ACK:
            return pack(dest, src, hdr.dest_pid, hdr.src_pid, kind, size,
                        hdr.wmd, hdr.match_bits, hdr.length)
        if kind == _GET:
            return pack(dest, src, hdr.dest_pid, hdr.src_pid, kind, size,
                        hdr.wmd, hdr.match_bits, hdr.portal, hdr.offset, hdr.length)
        return pack(dest, src, hdr.dest_pid, hdr.src_pid, kind, size, hdr.wmd)
        # fmt: on
    except (struct.error, NidError) as error:
        raise WireError(f"{hdr!r} does not fit on the wire: {error}") from None


def unpack_header(buf: Buffer, offset: int = 0, large: bool = False) -> Header:
    """The header at offset; one of a type that does not exist has that type and nothing of its own."""
    try:
        # The low byte picks the layout, the whole word then confirms it.
        if large:
            kind = buf[offset + _LARGE_TYPE_AT]
            f = (_LARGE[kind] if kind <= _REPLY else _LARGE_UNKNOWN).unpack_from(buf, offset)
            if f[4] != kind:
                f = _LARGE_UNKNOWN.unpack_from(buf, offset)
            dest, src = NID_BY_WIRE[f[0]], NID_BY_WIRE[f[1]]
        else:
            kind = buf[offset + _SMALL_TYPE_AT]
            f = (_SMALL[kind] if kind <= _REPLY else _SMALL_UNKNOWN).unpack_from(buf, offset)
            if f[4] != kind:
                f = _SMALL_UNKNOWN.unpack_from(buf, offset)
            dest, src = NID_BY_NID4[f[0]], NID_BY_NID4[f[1]]
    except (struct.error, IndexError):
        raise WireError(f"{len(buf) - offset} bytes are too few for an LNet header") from None
    except NidError as error:
        raise WireError(f"LNet header with a bad NID: {error}") from None
    fields = len(f)
    if fields == 6 or kind == _REPLY:
        return Header(f[4], dest, src, f[2], f[3], f[5], f[6] if fields == 7 else NO_WMD)
    if kind == _PUT:
        return Header(kind, dest, src, f[2], f[3], f[5], f[6], f[7], f[8], f[9], f[10])
    if kind == _GET:
        return Header(kind, dest, src, f[2], f[3], f[5], f[6], f[7], 0, f[8], f[9], f[10])
    return Header(kind, dest, src, f[2], f[3], f[5], f[6], f[7], 0, 0, 0, f[8])
