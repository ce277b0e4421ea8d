"""ksocklnd over TCP: HELLO v1 to v4, frames, zero-copy cookies, checksum (spec wire-socklnd.md §3, §4).

Read a HELLO in exact steps: `MAGIC_SIZE` + `VERSION_SIZE` bytes (`hello_byteorder`, `hello_version`),
`hello_rest_size(version)` bytes (`Hello.unpack`), and `Hello.ips_size` bytes (`Hello.with_ips`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from ulnet.nid.errors import NidError
from ulnet.nid.nid import ANY_NID, NID4_BY_NID, NID_BY_NID4, NID_BY_WIRE, Nid
from ulnet.wire.errors import Buffer, ByteOrder, WireError

__all__ = [
    "FRAME_HEADER_SIZE",
    "KEEPALIVE_COOKIE",
    "MAGIC",
    "MAGIC_SIZE",
    "MAX_IPS",
    "V1_MAGIC",
    "VERSION_SIZE",
    "ConnType",
    "FrameType",
    "Hello",
    "UnknownVersionError",
    "checksum",
    "hello_byteorder",
    "hello_rest_size",
    "hello_version",
    "inverted_ctype",
    "noop_acks",
    "pack_frame_header",
    "summed",
    "unpack_frame_header",
]

MAGIC: Final = 0x45726963
V1_MAGIC: Final = 0xEEBC0DED
MAGIC_SIZE: Final = 4
VERSION_SIZE: Final = 4
MAX_IPS: Final = 16
FRAME_HEADER_SIZE: Final = 24
KEEPALIVE_COOKIE: Final = 1  # a NOOP's second cookie that acknowledges nothing

_PREFIX: Final = MAGIC_SIZE + VERSION_SIZE
_HELLO_SIZE: Final = {1: 72, 2: 56, 3: 56, 4: 80}
_HELLO_TYPE: Final = 4
_V1_REST: Final = struct.Struct("<QIIIIQi28x")
_V1_VERSION: Final = 1  # u16 major 1, u16 minor 0
# After magic and version: src_nid, dst_nid, src_pid, dst_pid, both incarnations, ctype, nips.
_REST: Final = {
    ("little", 3): struct.Struct("<QQIIQQiI"),
    ("big", 3): struct.Struct(">QQIIQQiI"),
    ("little", 4): struct.Struct("<20s20sIIQQiI"),
    ("big", 4): struct.Struct(">20s20sIIQQiI"),
}
_FRAME_LITTLE: Final = struct.Struct("<IIQQ")
_FRAME_BIG: Final = struct.Struct(">IIQQ")


class ConnType(IntEnum):
    """What a connection carries, as the node that says it sees it."""

    NONE = -1  # refused: try again later
    ANY = 0
    CONTROL = 1
    BULK_IN = 2
    BULK_OUT = 3

    def inverted(self) -> ConnType:
        """The type of the same connection as the other end sees it."""
        return _INVERTED.get(self, self)


_INVERTED: Final = {ConnType.BULK_IN: ConnType.BULK_OUT, ConnType.BULK_OUT: ConnType.BULK_IN}


def inverted_ctype(ctype: int) -> ConnType:
    """Our view of the connection type that a peer stated; WireError for one that does not exist."""
    try:
        return ConnType(ctype).inverted()
    except ValueError:
        raise WireError(f"HELLO with connection type {ctype}; types are -1 to 3") from None


class FrameType(IntEnum):
    """What follows a ksock frame header."""

    NOOP = 0xC0  # nothing
    LNET = 0xC1  # LNet header and payload


class UnknownVersionError(WireError):
    """A HELLO of a version we do not speak: answer with our own, type NONE, then close."""


def hello_byteorder(magic: Buffer) -> ByteOrder:
    """The sender's byte order, from the first four bytes; WireError if they start no HELLO."""
    if len(magic) < MAGIC_SIZE:
        raise WireError(f"{len(magic)} bytes are too few for a HELLO")
    value = int.from_bytes(magic[:MAGIC_SIZE], "little")
    if value in (MAGIC, V1_MAGIC):
        return "little"
    if int.from_bytes(magic[:MAGIC_SIZE], "big") == MAGIC:
        return "big"
    raise WireError(f"magic {value:08x} is not that of a HELLO")


def hello_version(prefix: Buffer) -> int:
    """The version (1 to 4), from the first eight bytes; UnknownVersionError if it is another."""
    byteorder = hello_byteorder(prefix)
    if len(prefix) < _PREFIX:
        raise WireError(f"{len(prefix)} bytes are too few for the version of a HELLO")
    version = int.from_bytes(prefix[MAGIC_SIZE:_PREFIX], byteorder)
    first = int.from_bytes(prefix[:MAGIC_SIZE], "little") == V1_MAGIC
    if version != _V1_VERSION if first else version not in (2, 3, 4):
        kind = "first-generation HELLO" if first else "HELLO"
        raise UnknownVersionError(f"{kind} of version {version:#x}; known are 1.0, 2, 3 and 4")
    return version


def hello_rest_size(version: int) -> int:
    """How many bytes follow magic and version, not counting IP addresses."""
    return _HELLO_SIZE[version] - _PREFIX


@dataclass(frozen=True, slots=True)
class Hello:
    """The HELLO: sender, receiver, and type of connection.

    Frame headers that follow use the same byte order. A v1 HELLO does not name its dst_nid: ANY_NID.
    """

    version: int
    src_nid: Nid
    dst_nid: Nid
    src_pid: int
    dst_pid: int
    src_incarnation: int
    dst_incarnation: int
    ctype: int  # one of ConnType, unless the peer broke the rule: see inverted_ctype
    nips: int = 0
    byteorder: ByteOrder = "little"
    ips: tuple[int, ...] = ()

    @property
    def ips_size(self) -> int:
        """How many bytes of obsolete IP addresses follow (v4 announces but never sends them)."""
        return 0 if self.version == 4 else 4 * self.nips

    def pack(self) -> bytes:
        """The HELLO's bytes, IP addresses included."""
        if self.version not in _HELLO_SIZE:
            raise WireError(f"HELLO of version {self.version}; versions are 1 to 4")
        if len(self.ips) * 4 != self.ips_size:
            raise WireError(f"HELLO that announces {self.nips} IP addresses and has {len(self.ips)}")
        try:
            return self._pack_fixed() + struct.pack(self._ips_layout(), *self.ips)
        except (struct.error, NidError) as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None

    def _pack_fixed(self) -> bytes:
        if self.version == 1:
            return struct.pack("<II", V1_MAGIC, _V1_VERSION) + _V1_REST.pack(
                NID4_BY_NID[self.src_nid],
                self.dst_pid,
                self.src_pid,
                _HELLO_TYPE,
                4 * self.nips,
                self.src_incarnation,
                self.ctype,
            )
        large = self.version == 4
        return (
            MAGIC.to_bytes(4, self.byteorder)
            + self.version.to_bytes(4, self.byteorder)
            + _REST[self.byteorder, 4 if large else 3].pack(
                self.src_nid if large else NID4_BY_NID[self.src_nid],
                self.dst_nid if large else NID4_BY_NID[self.dst_nid],
                self.src_pid,
                self.dst_pid,
                self.src_incarnation,
                self.dst_incarnation,
                self.ctype,
                self.nips,
            )
        )

    def _ips_layout(self) -> str:
        return f"{'<' if self.byteorder == 'little' else '>'}{len(self.ips)}I"

    @classmethod
    def unpack(cls, buf: Buffer) -> Hello:
        """The HELLO whose fixed part starts buf; WireError where the protocol is broken.

        The IP addresses that may follow are not looked at: read `ips_size` more bytes for `with_ips`.
        """
        byteorder = hello_byteorder(buf)
        version = hello_version(buf)
        if len(buf) < _HELLO_SIZE[version]:
            raise WireError(f"{len(buf)} bytes are too few for a HELLO of version {version}")
        try:
            hello = cls._unpack_v1(buf) if version == 1 else cls._unpack_rest(buf, version, byteorder)
        except NidError as error:
            raise WireError(f"HELLO with a bad NID: {error}") from None
        if hello.src_nid.is_any:
            raise WireError("HELLO whose source NID is the wildcard")
        if hello.version != 4 and hello.nips > MAX_IPS:
            raise WireError(f"HELLO that announces {hello.nips} IP addresses; at most {MAX_IPS} may follow")
        return hello

    @classmethod
    def _unpack_v1(cls, buf: Buffer) -> Hello:
        nid4, dst_pid, src_pid, kind, ips_size, incarnation, ctype = _V1_REST.unpack_from(buf, _PREFIX)
        if kind != _HELLO_TYPE or ips_size % 4:
            raise WireError(f"first-generation HELLO of message type {kind} with {ips_size} bytes behind it")
        nips = ips_size // 4
        return cls(1, NID_BY_NID4[nid4], ANY_NID, src_pid, dst_pid, incarnation, 0, ctype, nips)

    @classmethod
    def _unpack_rest(cls, buf: Buffer, version: int, byteorder: ByteOrder) -> Hello:
        large = version == 4
        layout = _REST[byteorder, 4 if large else 3]
        src, dst, src_pid, dst_pid, src_inc, dst_inc, ctype, nips = layout.unpack_from(buf, _PREFIX)
        nids: dict[bytes, Nid] | dict[int, Nid] = NID_BY_WIRE if large else NID_BY_NID4
        return cls(version, nids[src], nids[dst], src_pid, dst_pid, src_inc, dst_inc, ctype, nips, byteorder)

    def with_ips(self, data: Buffer) -> Hello:
        """This HELLO with the IP addresses that followed it; WireError if one is zero."""
        if len(data) < self.ips_size:
            raise WireError(f"{len(data)} bytes are too few for {self.nips} IP addresses of a HELLO")
        order = "<" if self.byteorder == "little" else ">"
        ips = struct.unpack_from(f"{order}{self.ips_size // 4}I", data)
        if 0 in ips:
            raise WireError("HELLO with an IP address of zero")
        return replace(self, ips=ips)


def pack_frame_header(
    type: int, csum: int = 0, cookie0: int = 0, cookie1: int = 0, byteorder: ByteOrder = "little"
) -> bytes:
    """The 24 bytes before every message."""
    layout = _FRAME_LITTLE if byteorder == "little" else _FRAME_BIG
    try:
        return layout.pack(type, csum, cookie0, cookie1)
    except struct.error as error:
        raise WireError(f"frame header {type}, {csum}, {cookie0}, {cookie1}: {error}") from None


def unpack_frame_header(
    buf: Buffer, offset: int = 0, byteorder: ByteOrder = "little"
) -> tuple[int, int, int, int]:
    """(type, csum, cookie0, cookie1) at offset; WireError for a type that does not exist."""
    layout = _FRAME_LITTLE if byteorder == "little" else _FRAME_BIG
    try:
        fields = layout.unpack_from(buf, offset)
    except struct.error:
        raise WireError(f"{len(buf) - offset} bytes are too few for a frame header") from None
    if fields[0] != 0xC1 and fields[0] != 0xC0:
        raise WireError(f"frame of type {fields[0]:#x}; types are NOOP 0xc0 and LNET 0xc1")
    return fields


def noop_acks(cookie0: int, cookie1: int, version: int = 3) -> Sequence[int]:
    """The zero-copy cookies that a NOOP acknowledges; none for a keepalive.

    A hostile pair spans up to 2**64 cookies: walk it only as far as each cookie is outstanding, and
    do not take its len().
    """
    if cookie0 == 0 or version < 3:
        return () if cookie1 == KEEPALIVE_COOKIE and version >= 3 else (cookie1,)
    if cookie0 > cookie1:
        return (cookie0, cookie1)
    return range(cookie0, cookie1 + 1)


def checksum(*parts: Buffer) -> int:
    """CRC-32 of all parts in order, without the usual final inversion."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc ^ 0xFFFFFFFF


def summed(version: int, headers: Buffer) -> bytes:
    """The headers that a checksum covers: all of them, without itself, in protocol 2; none later."""
    if version != 2:
        return b""
    raw = bytearray(headers)
    raw[4:8] = bytes(4)
    return bytes(raw)
