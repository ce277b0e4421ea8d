"""Frames of requests and replies above LNet (docs/wire-rpc.md). Each is the payload of one PUT."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ulnet.nid.errors import NidError
from ulnet.nid.nid import NID_SIZE, Nid
from ulnet.wire.errors import Buffer, WireError

__all__ = [
    "BODY",
    "BULK_PORTAL",
    "CHECK",
    "HEAD_SIZE",
    "IDEMPOTENT",
    "KNOWS_XXH3",
    "MAGIC",
    "MAX_BULK",
    "MAX_NIDS",
    "NO_DEADLINE",
    "REGION",
    "REPLY_PORTAL",
    "REQUEST_PORTAL",
    "SINK",
    "SOURCE",
    "STREAM",
    "TRACEBACK",
    "VERSION",
    "XXH3",
    "Bulk",
    "CallFrame",
    "Chunk",
    "Connect",
    "Connected",
    "Frame",
    "Kind",
    "Note",
    "OtherVersion",
    "Refused",
    "Reply",
    "call_overhead",
    "kind_of",
    "unpack",
]

REQUEST_PORTAL: Final = 40  # of servers
REPLY_PORTAL: Final = 41  # of clients
BULK_PORTAL: Final = 42  # of clients
MAGIC: Final = 0x7255
VERSION: Final = 1
HEAD_SIZE: Final = 32
NO_DEADLINE: Final = 0xFFFFFFFF  # in milliseconds
REGION: Final = 1 << 30  # bytes of bulk with match bits of their own
MAX_BULK: Final = REGION << 16
MAX_NIDS: Final = 16  # in CONNECT

SINK: Final = 1
SOURCE: Final = 2
BODY: Final = 4
IDEMPOTENT: Final = 8
CHECK: Final = 16
STREAM: Final = 32
XXH3: Final = 64  # its checksums are XXH3, not CRC-32
TRACEBACK: Final = 128  # where its handler raises, the reply tells where

KNOWS_XXH3: Final = 1  # in CONNECT and CONNECTED

_HEAD: Final = struct.Struct("<HBBHHIIQQ")
_CONNECT: Final = struct.Struct("<HHIQ")
_CONNECTED: Final = struct.Struct("<HHIQQ")
_CALL: Final = struct.Struct("<IIIBxxx")
_SINK: Final = struct.Struct("<QQ")
_SOURCE: Final = struct.Struct("<QQIxxxx")
_REPLY: Final = struct.Struct("<IIIIQ")
_NUMBER: Final = struct.Struct("<I")
_NUMBER_MAX: Final = 0xFFFFFFFF


class Kind(IntEnum):
    """What a frame is."""

    CONNECT = 1
    CALL = 2
    CANCEL = 3
    CREDIT = 4
    CLOSE = 5
    CONNECTED = 16
    REPLY = 17
    WORKING = 18
    BUSY = 19
    REFUSED = 20
    CHUNK = 21


@dataclass(slots=True)
class Frame:
    """What all frames have: which request of which session they are about.

    `answer_to` are the match bits of the client's inbox, in frames to a server.
    """

    session: int = 0
    slot: int = 0
    number: int = 0
    attempt: int = 0
    answer_to: int = 0

    def _head(self, kind: Kind, flags: int = 0) -> bytes:
        # fmt: off
        return _HEAD.pack(MAGIC, VERSION, kind, self.slot, self.attempt, self.number, flags, self.session,
                          self.answer_to)
        # fmt: on


@dataclass(slots=True)
class Connect(Frame):
    """A client wants a session; `token` tells its answer from others. `checksums` are those it knows.

    `nids` are its own, where it has several: a server that does not discover takes each for a peer.
    """

    slots: int = 0
    largest: int = 0
    token: int = 0
    checksums: int = 0
    nids: tuple[Nid, ...] = ()

    def pack(self) -> bytes:
        """The frame as bytes."""
        fixed = _CONNECT.pack(self.slots, self.checksums, self.largest, self.token)
        return b"".join((self._head(Kind.CONNECT), fixed, *self.nids[:MAX_NIDS]))


@dataclass(slots=True)
class Connected(Frame):
    """The session that a server has made; `checksums` are those that both know."""

    slots: int = 0
    largest: int = 0
    incarnation: int = 0
    token: int = 0
    checksums: int = 0

    def pack(self) -> bytes:
        """The frame as bytes."""
        return self._head(Kind.CONNECTED) + _CONNECTED.pack(
            self.slots, self.checksums, self.largest, self.incarnation, self.token
        )


@dataclass(frozen=True, slots=True)
class Bulk:
    """Memory of a client: the match bits of its first region, its length, and (of a source) its checksum."""

    bits: int
    length: int
    checksum: int = 0


@dataclass(slots=True)
class CallFrame(Frame):
    """A request. `left` and `patience` are in milliseconds."""

    method: str = ""
    data: Buffer = b""
    left: int = NO_DEADLINE
    patience: int = 0
    credit: int = 0
    flags: int = 0
    sink: Bulk | None = None
    source: Bulk | None = None

    def pack(self) -> bytes:
        """The frame as bytes. Raises WireError for a name that cannot be sent."""
        name = _name(self.method)
        flags = self.flags & ~(SINK | SOURCE)
        middle = b""
        if self.sink is not None:
            flags |= SINK
            middle = _SINK.pack(self.sink.bits, self.sink.length)
        if self.source is not None:
            flags |= SOURCE
            middle += _SOURCE.pack(self.source.bits, self.source.length, self.source.checksum)
        head = self._head(Kind.CALL, flags)
        fixed = _CALL.pack(self.left, self.patience, self.credit, len(name))
        return b"".join((head, fixed, middle, name, self.data))


@dataclass(slots=True)
class Reply(Frame):
    """A request has ended: `data`, or (where `status` is an errno) the error in words.

    Behind a 0 the words may have the traceback.
    """

    status: int = 0
    chunks: int = 0
    service_us: int = 0
    checksum: int = 0
    pushed: int = 0
    data: Buffer = b""

    def pack(self) -> bytes:
        """The frame as bytes."""
        fixed = _REPLY.pack(
            self.status, self.chunks, min(self.service_us, _NUMBER_MAX), self.checksum, self.pushed
        )
        return b"".join((self._head(Kind.REPLY), fixed, self.data))


@dataclass(slots=True)
class Chunk(Frame):
    """A piece of a stream."""

    index: int = 0
    data: Buffer = b""

    def pack(self) -> bytes:
        """The frame as bytes."""
        return b"".join((self._head(Kind.CHUNK), _NUMBER.pack(self.index), self.data))


@dataclass(slots=True)
class Refused(Frame):
    """A request was not taken, and why."""

    errno: int = 0
    text: str = ""

    def pack(self) -> bytes:
        """The frame as bytes."""
        words = self.text.encode("utf-8", "replace")
        return b"".join((self._head(Kind.REFUSED), _NUMBER.pack(self.errno), words))


@dataclass(slots=True)
class Note(Frame):
    """CANCEL, CLOSE; WORKING and BUSY with milliseconds; CREDIT with the number of a chunk."""

    kind: Kind = Kind.CANCEL
    value: int = 0

    def pack(self) -> bytes:
        """The frame as bytes."""
        head = self._head(self.kind)
        return head if self.kind in _BARE else head + _NUMBER.pack(min(self.value, _NUMBER_MAX))


@dataclass(slots=True)
class OtherVersion(Frame):
    """A frame of which only the head is known."""

    version: int = 0


_BARE: Final = (Kind.CANCEL, Kind.CLOSE)
_Head = tuple[int, int, int, int, int]  # session, slot, number, attempt, answer_to


def call_overhead(method: str, *, sink: bool = False, source: bool = False) -> int:
    """The bytes of a CALL beside its data."""
    bulk = (_SINK.size if sink else 0) + (_SOURCE.size if source else 0)
    return HEAD_SIZE + _CALL.size + bulk + len(_name(method))


def unpack(frame: Buffer) -> Frame:
    """Read a frame; its data are a view of it. Raises WireError."""
    view = memoryview(frame)
    if view.nbytes < HEAD_SIZE:
        raise WireError(f"frame of {view.nbytes} bytes: a head has {HEAD_SIZE}")
    magic, version, kind, slot, attempt, number, flags, session, answer_to = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise WireError(f"frame with magic {magic:#06x}: it is {MAGIC:#06x}")
    head = (session, slot, number, attempt, answer_to)
    if version != VERSION:
        return OtherVersion(*head, version)
    read = _READERS.get(kind)
    if read is None:
        raise WireError(f"frame of kind {kind}: nobody knows what that is")
    try:
        return read(head, view[HEAD_SIZE:], kind, flags)
    except struct.error:
        raise WireError(f"frame of kind {kind} with {view.nbytes} bytes: it is cut off") from None


def kind_of(frame: Buffer) -> Kind:
    """The kind of a frame that `unpack` reads."""
    return Kind(frame[3])


def _connect(head: _Head, rest: memoryview, kind: int, flags: int) -> Frame:
    slots, checksums, largest, token = _CONNECT.unpack_from(rest)
    return Connect(*head, slots, largest, token, checksums, _nids(rest[_CONNECT.size :]))


def _nids(rest: memoryview) -> tuple[Nid, ...]:
    count = min(rest.nbytes // NID_SIZE, MAX_NIDS)
    try:
        return tuple(Nid(bytes(rest[at * NID_SIZE : (at + 1) * NID_SIZE])) for at in range(count))
    except NidError as bad:
        raise WireError(f"client with a NID that is none: {bad}") from None


def _connected(head: _Head, rest: memoryview, kind: int, flags: int) -> Frame:
    slots, checksums, largest, incarnation, token = _CONNECTED.unpack_from(rest)
    return Connected(*head, slots, largest, incarnation, token, checksums)


def _call(head: _Head, rest: memoryview, kind: int, flags: int) -> Frame:
    left, patience, credit, size = _CALL.unpack_from(rest)
    at = _CALL.size
    sink = source = None
    if flags & SINK:
        sink = _bulk(*_SINK.unpack_from(rest, at))
        at += _SINK.size
    if flags & SOURCE:
        source = _bulk(*_SOURCE.unpack_from(rest, at))
        at += _SOURCE.size
    if flags & BODY and source is None:
        raise WireError("request whose data are bulk, and which has none")
    if not size or rest.nbytes < at + size:
        raise WireError("request without a method's whole name")
    try:
        method = str(rest[at : at + size], "utf-8")
    except UnicodeDecodeError:
        raise WireError("request for a method whose name is not UTF-8") from None
    return CallFrame(*head, method, rest[at + size :], left, patience, credit, flags, sink, source)


def _bulk(bits: int, length: int, checksum: int = 0) -> Bulk:
    if length > MAX_BULK or bits & 0xFFFF:
        raise WireError(f"bulk of {length} bytes at {bits:#x}: too long, or no room for its regions")
    return Bulk(bits, length, checksum)


def _reply(head: _Head, rest: memoryview, kind: int, flags: int) -> Frame:
    status, chunks, service_us, checksum, pushed = _REPLY.unpack_from(rest)
    return Reply(*head, status, chunks, service_us, checksum, pushed, rest[_REPLY.size :])


def _chunk(head: _Head, rest: memoryview, kind: int, flags: int) -> Frame:
    (index,) = _NUMBER.unpack_from(rest)
    return Chunk(*head, index, rest[_NUMBER.size :])


def _refused(head: _Head, rest: memoryview, kind: int, flags: int) -> Frame:
    (errno,) = _NUMBER.unpack_from(rest)
    return Refused(*head, errno, str(rest[_NUMBER.size :], "utf-8", "replace"))


def _note(head: _Head, rest: memoryview, kind: int, flags: int) -> Frame:
    known = Kind(kind)
    return Note(*head, known, 0 if known in _BARE else _NUMBER.unpack_from(rest)[0])


_READERS: Final[dict[int, Callable[[_Head, memoryview, int, int], Frame]]] = {
    Kind.CONNECT: _connect,
    Kind.CONNECTED: _connected,
    Kind.CALL: _call,
    Kind.REPLY: _reply,
    Kind.CHUNK: _chunk,
    Kind.REFUSED: _refused,
    Kind.CANCEL: _note,
    Kind.CREDIT: _note,
    Kind.CLOSE: _note,
    Kind.WORKING: _note,
    Kind.BUSY: _note,
}


def _name(method: str) -> bytes:
    try:
        name = method.encode()
    except UnicodeEncodeError:
        name = b""
    if not 1 <= len(name) <= 255:
        raise WireError(f"method {method[:40]!r}: its name has 1 to 255 bytes of UTF-8")
    return name
