"""o2iblnd messages, both ways (spec wire-o2iblnd.md §1).

`O2ibMessage` and `Reject` are whole messages as values. A driver that has many to send packs the common head
alone (`pack_head`), and looks at the head of what comes before anything else (`unpack_head`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from ulnet.nid.errors import NidError
from ulnet.nid.nid import NID4_BY_NID, NID_BY_NID4, Nid
from ulnet.wire.errors import Buffer, ByteOrder, WireError
from ulnet.wire.lnet import HEADER_SIZE, Header, pack_header, unpack_header

__all__ = [
    "DESCRIPTOR_END",
    "HEAD_SIZE",
    "IMMEDIATE_END",
    "MAGIC",
    "MAX_FRAGMENTS",
    "MAX_MESSAGE",
    "VERSIONS",
    "ConnParams",
    "Head",
    "O2ibMessage",
    "O2ibType",
    "RdmaTarget",
    "Reason",
    "Reject",
    "checksum",
    "has_magic",
    "pack_head",
    "unpack_body",
    "unpack_head",
]

MAGIC: Final = 0x0BE91B91
MAX_MESSAGE: Final = 4096
MAX_FRAGMENTS: Final = 257
VERSIONS: Final = (0x11, 0x12)
HEAD_SIZE: Final = 48
IMMEDIATE_END: Final = HEAD_SIZE + HEADER_SIZE  # where the payload of an IMMEDIATE begins
DESCRIPTOR_END: Final = IMMEDIATE_END + 16  # … and the fragments of a GET_REQ
_ANY_NID4: Final = (1 << 64) - 1


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
_WITH_PARAMS: Final = (O2ibType.CONNREQ, O2ibType.CONNACK)
_SIGNS: Final[dict[ByteOrder, str]] = {"little": "<", "big": ">"}
_HEADS: Final = {order: struct.Struct(order + "IHBBIIQQQQ") for order in "<>"}
_REJECTS: Final = {order: struct.Struct(order + "IHBxQHHI") for order in "<>"}
_CSUM_AT: Final = 12


class ConnParams(NamedTuple):
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

    def pack(self, order: str) -> bytes:
        """Its bytes in a byte order, `<` or `>`. Raises WireError for what no descriptor holds."""
        count = len(self.fragments)
        if not 1 <= count <= MAX_FRAGMENTS:
            raise WireError(f"RDMA descriptor of {count} fragments: it has 1 to {MAX_FRAGMENTS}")
        numbers = [number for fragment in self.fragments for number in fragment]
        try:
            return struct.pack(order + "II" + "IQ" * count, self.key, count, *numbers)
        except struct.error as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None


class Head(NamedTuple):
    """The common head of a message, and its byte order as struct has it. NIDs are 64-bit values."""

    type: int
    version: int
    credits: int
    size: int
    csum: int
    src: int
    src_incarnation: int
    dst: int
    dst_incarnation: int
    order: str


def pack_head(
    kind: int, version: int, credits: int, size: int, ends: tuple[int, int, int, int], order: str = "<"
) -> bytes:
    """The head of a message of `size` bytes; `ends` are NID and incarnation of sender and receiver."""
    return _HEADS[order].pack(MAGIC, version, kind, credits, size, 0, *ends)


def unpack_head(buf: Buffer, size: int) -> Head:
    """The head of a message that came in `size` bytes; WireError where the protocol is broken."""
    order = _SIGNS[_byteorder(buf)]
    if size < HEAD_SIZE:
        raise WireError(f"{size} bytes are too few for an o2iblnd message")
    f = _HEADS[order].unpack_from(buf)
    kind, claimed = f[2], f[4]
    if f[1] not in VERSIONS:
        raise WireError(f"o2iblnd message of version {f[1]:#x}; known are 0x11 and 0x12")
    least = _MIN_SIZE.get(kind)
    if least is None:
        raise WireError(f"o2iblnd message of unknown type {kind:#x}")
    if not least <= claimed <= min(size, MAX_MESSAGE):
        raise WireError(f"{O2ibType(kind).name} that claims {claimed} bytes, of which {size} arrived")
    if f[6] == _ANY_NID4:
        raise WireError(f"{O2ibType(kind).name} whose source is any NID")
    if f[5]:
        _verify(bytes(buf[:claimed]), f[5])
    return Head(kind, f[1], f[3], claimed, f[5], f[6], f[7], f[8], f[9], order)


def checksum(data: bytes, signed: bool = False) -> int:
    """The checksum over a message whose own field is 0; bytes are `signed` where C's char is."""
    csum = 0
    for byte in data:
        csum = ((csum << 1 | csum >> 31) + (byte - 256 if signed and byte > 127 else byte)) & 0xFFFFFFFF
    return csum or 1


def _verify(data: bytes, csum: int) -> None:
    """The sender's char may be signed or not, and nobody tells."""
    bare = data[:_CSUM_AT] + bytes(4) + data[_CSUM_AT + 4 :]
    if csum not in (checksum(bare), checksum(bare, signed=True)):
        raise WireError(f"o2iblnd message with checksum {csum:#x}, which is that of other bytes")


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
        head = unpack_head(buf, len(buf))
        try:
            src, dst = NID_BY_NID4[head.src], NID_BY_NID4[head.dst]
        except NidError as error:
            raise WireError(f"o2iblnd message with a bad NID: {error}") from None
        byteorder: ByteOrder = "little" if head.order == "<" else "big"
        # fmt: off
        return cls(O2ibType(head.type), head.version, head.credits, head.csum, src, head.src_incarnation,
                   dst, head.dst_incarnation, byteorder, *unpack_body(head, buf))
        # fmt: on

    def pack(self) -> bytes:
        """Its bytes; a `csum` other than 0 is put in as it is. Raises WireError."""
        order = _SIGNS[self.byteorder]
        body = self._pack_body(order)
        size = HEAD_SIZE + len(body)
        if size > MAX_MESSAGE:
            raise WireError(f"{self.type.name} of {size} bytes: a message has {MAX_MESSAGE} at most")
        try:
            src, dst = NID4_BY_NID[self.src_nid], NID4_BY_NID[self.dst_nid]
            ends = (src, self.src_incarnation, dst, self.dst_incarnation)
            head = pack_head(self.type, self.version, self.credits, size, ends, order)
            csum = struct.pack(order + "I", self.csum)
        except (struct.error, NidError) as error:
            raise WireError(f"{self.type.name} does not fit on the wire: {error}") from None
        return head[:_CSUM_AT] + csum + head[_CSUM_AT + 4 :] + body

    def _pack_body(self, order: str) -> bytes:
        kind, target = self.type, self.target
        if kind in _WITH_PARAMS and self.params is not None:
            return _packed(order + "HHI", *self.params)
        if kind in _WITH_LNET and self.header is not None:
            lnet = pack_header(self.header, large=False)
            if kind == O2ibType.IMMEDIATE:
                return lnet + self.payload
            lnet += _packed(order + "Q", self.cookie)
            if kind == O2ibType.PUT_REQ:
                return lnet
            if target is not None:
                return lnet + target.pack(order)
        elif kind == O2ibType.PUT_ACK and target is not None:
            return _packed(order + "QQ", self.cookie, self.sink_cookie) + target.pack(order)
        elif kind == O2ibType.NOOP:
            return b""
        elif kind in (O2ibType.PUT_NAK, O2ibType.PUT_DONE, O2ibType.GET_DONE):
            return _packed(order + "Qi", self.cookie, self.status)
        raise WireError(f"{kind.name} without all that one has: {self!r}")


def _packed(layout: str, *numbers: int) -> bytes:
    try:
        return struct.pack(layout, *numbers)
    except struct.error as error:
        raise WireError(f"{numbers} do not fit on the wire: {error}") from None


_Body = tuple[ConnParams | None, Header | None, bytes, int, int, int, RdmaTarget | None]


def unpack_body(head: Head, buf: Buffer) -> _Body:
    """The fields behind the head of the message in buf, in O2ibMessage's order. Raises WireError."""
    kind, order = head.type, head.order
    data = bytes(buf[: head.size])
    header = unpack_header(data, HEAD_SIZE) if kind in _WITH_LNET else None
    if kind in _WITH_PARAMS:
        return ConnParams(*struct.unpack_from(order + "HHI", data, HEAD_SIZE)), None, b"", 0, 0, 0, None
    if kind == O2ibType.IMMEDIATE:
        return None, header, data[IMMEDIATE_END:], 0, 0, 0, None
    if kind in (O2ibType.PUT_REQ, O2ibType.GET_REQ):
        (cookie,) = struct.unpack_from(order + "Q", data, IMMEDIATE_END)
        target = _target(data, IMMEDIATE_END + 8, order) if kind == O2ibType.GET_REQ else None
        return None, header, b"", cookie, 0, 0, target
    if kind == O2ibType.PUT_ACK:
        cookie, sink_cookie = struct.unpack_from(order + "QQ", data, HEAD_SIZE)
        return None, None, b"", cookie, sink_cookie, 0, _target(data, HEAD_SIZE + 16, order)
    if kind == O2ibType.NOOP:
        return None, None, b"", 0, 0, 0, None
    cookie, status = struct.unpack_from(order + "Qi", data, HEAD_SIZE)
    return None, None, b"", cookie, 0, status, None


def _target(data: bytes, at: int, order: str) -> RdmaTarget:
    key, count = struct.unpack_from(order + "II", data, at)
    if not 1 <= count <= MAX_FRAGMENTS or at + 8 + 12 * count > len(data):
        raise WireError(f"RDMA descriptor of {count} fragments in {len(data)} bytes")
    layout = struct.Struct(order + "IQ")
    return RdmaTarget(key, tuple(layout.unpack_from(data, at + 8 + 12 * index) for index in range(count)))


class Reason(IntEnum):
    """Why a connection is refused."""

    CONN_RACE = 1
    NO_RESOURCES = 2
    FATAL = 3
    CONN_UNCOMPAT = 4
    CONN_STALE = 5
    RDMA_FRAGS = 6
    MSG_QUEUE_SIZE = 7
    INVALID_SRV_ID = 8
    EARLY = 9


_REASON_NAMES: Final = {int(reason): reason.name for reason in Reason}


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
        return _REASON_NAMES.get(self.reason, f"reason {self.reason}")

    @classmethod
    def unpack(cls, buf: Buffer) -> Reject:
        """The refusal at the start of buf."""
        layout = _REJECTS[_SIGNS[_byteorder(buf)]]
        try:
            _, version, reason, incarnation, *params = layout.unpack_from(buf)
        except struct.error:
            raise WireError(f"{len(buf)} bytes are too few for an o2iblnd refusal") from None
        return cls(version, reason, incarnation, ConnParams(*params))

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """Its 24 bytes. Raises WireError."""
        try:
            layout = _REJECTS[_SIGNS[byteorder]]
            return layout.pack(MAGIC, self.version, self.reason, self.incarnation, *self.params)
        except struct.error as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None


def has_magic(buf: Buffer) -> bool:
    """Whether buf begins as an o2iblnd message does, in either byte order."""
    return MAGIC in (int.from_bytes(buf[:4], "little"), int.from_bytes(buf[:4], "big"))


def _byteorder(buf: Buffer) -> ByteOrder:
    if int.from_bytes(buf[:4], "little") == MAGIC:
        return "little"
    if int.from_bytes(buf[:4], "big") == MAGIC:
        return "big"
    raise WireError("no o2iblnd message: the magic is another's")
