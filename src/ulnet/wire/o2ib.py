"""o2iblnd messages, receiving side (spec wire-o2iblnd.md §1): what a reader of captures needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ulnet.nid.nid import NID_BY_NID4, Nid
from ulnet.wire.errors import Buffer, ByteOrder, WireError
from ulnet.wire.lnet import HEADER_SIZE, Header, unpack_header

__all__ = [
    "MAGIC",
    "MAX_FRAGMENTS",
    "MAX_MESSAGE",
    "ConnParams",
    "O2ibMessage",
    "O2ibType",
    "RdmaTarget",
    "Reject",
    "has_magic",
]

MAGIC: Final = 0x0BE91B91
MAX_MESSAGE: Final = 4096
MAX_FRAGMENTS: Final = 257
_VERSIONS: Final = (0x11, 0x12)
_HEAD_SIZE: Final = 48
_LNET_END: Final = _HEAD_SIZE + HEADER_SIZE


class O2ibType(IntEnum):
    """What a message is; CONNREQ and CONNACK travel as the connection manager's private data."""

    CONNREQ = 0xC0
    CONNACK = 0xC1
    NOOP = 0xD0
    IMMEDIATE = 0xD1
    PUT_REQ = 0xD2
    PUT_NAK = 0xD3
    PUT_ACK = 0xD4
    PUT_DONE = 0xD5
    GET_REQ = 0xD6
    GET_DONE = 0xD7


_MIN_SIZE: Final = {
    O2ibType.CONNREQ: 56,
    O2ibType.CONNACK: 56,
    O2ibType.NOOP: 48,
    O2ibType.IMMEDIATE: 120,
    O2ibType.PUT_REQ: 128,
    O2ibType.PUT_NAK: 60,
    O2ibType.PUT_ACK: 72,
    O2ibType.PUT_DONE: 60,
    O2ibType.GET_REQ: 136,
    O2ibType.GET_DONE: 60,
}
_WITH_LNET: Final = (O2ibType.IMMEDIATE, O2ibType.PUT_REQ, O2ibType.GET_REQ)


@dataclass(frozen=True, slots=True)
class ConnParams:
    """What one end of a connection can take."""

    queue_depth: int
    max_fragments: int
    max_message: int


@dataclass(frozen=True, slots=True)
class RdmaTarget:
    """Memory that the other end may write to: fragments are (length, address)."""

    key: int
    fragments: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        """Bytes in all fragments."""
        return sum(length for length, _ in self.fragments)


@dataclass(frozen=True, slots=True)
class O2ibMessage:
    """One message; what its type does not have is None, 0 or empty."""

    type: O2ibType
    version: int
    credits: int
    csum: int
    src_nid: Nid
    src_incarnation: int
    dst_nid: Nid
    dst_incarnation: int
    byteorder: ByteOrder
    params: ConnParams | None = None
    header: Header | None = None
    payload: bytes = b""
    cookie: int = 0  # PUT_ACK: of the PUT_REQ it answers
    sink_cookie: int = 0  # PUT_ACK: for the PUT_DONE
    status: int = 0
    target: RdmaTarget | None = None

    @classmethod
    def unpack(cls, buf: Buffer) -> O2ibMessage:
        """The message at the start of buf; WireError where the protocol is broken."""
        byteorder = _byteorder(buf)
        order = "<" if byteorder == "little" else ">"
        if len(buf) < _HEAD_SIZE:
            raise WireError(f"{len(buf)} bytes are too few for an o2iblnd message")
        fields = struct.unpack_from(order + "HBBIIQQQQ", buf, 4)
        version, kind, credits, size, csum, src, src_inc, dst, dst_inc = fields
        if version not in _VERSIONS:
            raise WireError(f"o2iblnd message of version {version:#x}; known are 0x11 and 0x12")
        try:
            message_type = O2ibType(kind)
        except ValueError:
            raise WireError(f"o2iblnd message of unknown type {kind:#x}") from None
        if not _MIN_SIZE[message_type] <= size <= min(len(buf), MAX_MESSAGE):
            raise WireError(f"{message_type.name} that claims {size} bytes, of which {len(buf)} arrived")
        body = _body(message_type, bytes(buf[:size]), order)
        return cls(
            message_type,
            version,
            credits,
            csum,
            NID_BY_NID4[src],
            src_inc,
            NID_BY_NID4[dst],
            dst_inc,
            byteorder,
            *body,
        )


_Body = tuple[ConnParams | None, Header | None, bytes, int, int, int, RdmaTarget | None]


def _body(kind: O2ibType, data: bytes, order: str) -> _Body:
    """The fields after the common head, in O2ibMessage's order."""
    header = unpack_header(data, _HEAD_SIZE) if kind in _WITH_LNET else None
    if kind in (O2ibType.CONNREQ, O2ibType.CONNACK):
        return ConnParams(*struct.unpack_from(order + "HHI", data, _HEAD_SIZE)), None, b"", 0, 0, 0, None
    if kind == O2ibType.IMMEDIATE:
        return None, header, data[_LNET_END:], 0, 0, 0, None
    if kind in (O2ibType.PUT_REQ, O2ibType.GET_REQ):
        (cookie,) = struct.unpack_from(order + "Q", data, _LNET_END)
        target = _target(data, _LNET_END + 8, order) if kind == O2ibType.GET_REQ else None
        return None, header, b"", cookie, 0, 0, target
    if kind == O2ibType.PUT_ACK:
        cookie, sink_cookie = struct.unpack_from(order + "QQ", data, _HEAD_SIZE)
        return None, None, b"", cookie, sink_cookie, 0, _target(data, _HEAD_SIZE + 16, order)
    if kind == O2ibType.NOOP:
        return None, None, b"", 0, 0, 0, None
    cookie, status = struct.unpack_from(order + "Qi", data, _HEAD_SIZE)
    return None, None, b"", cookie, 0, status, None


def _target(data: bytes, at: int, order: str) -> RdmaTarget:
    key, count = struct.unpack_from(order + "II", data, at)
    if not 1 <= count <= MAX_FRAGMENTS or at + 8 + 12 * count > len(data):
        raise WireError(f"RDMA descriptor of {count} fragments in {len(data)} bytes")
    layout = struct.Struct(order + "IQ")
    return RdmaTarget(key, tuple(layout.unpack_from(data, at + 8 + 12 * index) for index in range(count)))


@dataclass(frozen=True, slots=True)
class Reject:
    """Why a connection was refused (§1.4)."""

    version: int
    reason: int
    incarnation: int
    params: ConnParams

    @property
    def reason_text(self) -> str:
        """The reason's name."""
        return _REASONS.get(self.reason, f"reason {self.reason}")

    @classmethod
    def unpack(cls, buf: Buffer) -> Reject:
        """The refusal at the start of buf."""
        order = "<" if _byteorder(buf) == "little" else ">"
        try:
            version, reason, incarnation, *params = struct.unpack_from(order + "HBxQHHI", buf, 4)
        except struct.error:
            raise WireError(f"{len(buf)} bytes are too few for an o2iblnd refusal") from None
        return cls(version, reason, incarnation, ConnParams(*params))


_REASONS: Final = {
    1: "CONN_RACE",
    2: "NO_RESOURCES",
    3: "FATAL",
    4: "CONN_UNCOMPAT",
    5: "CONN_STALE",
    6: "RDMA_FRAGS",
    7: "MSG_QUEUE_SIZE",
    8: "INVALID_SRV_ID",
    9: "EARLY",
}


def has_magic(buf: Buffer) -> bool:
    """Whether buf begins as an o2iblnd message does, in either byte order."""
    return MAGIC in (int.from_bytes(buf[:4], "little"), int.from_bytes(buf[:4], "big"))


def _byteorder(buf: Buffer) -> ByteOrder:
    if int.from_bytes(buf[:4], "little") == MAGIC:
        return "little"
    if int.from_bytes(buf[:4], "big") == MAGIC:
        return "big"
    raise WireError("no o2iblnd message: the magic is another's")
