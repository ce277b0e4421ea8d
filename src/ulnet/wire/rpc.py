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
    "KNOWS_BATCH",
    "KNOWS_XXH3",
    "MAGIC",
    "MAX_BATCH",
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
    "batch",
    "call_overhead",
    "frames_in",
    "is_batch",
    "kind_of",
    "session_of",
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
KNOWS_BATCH: Final = 2
MAX_BATCH: Final = 16  # frames: with more the other side would begin later than it could

_HEAD: Final = struct.Struct("<HBBHHIIQQ")
_CONNECT: Final = struct.Struct("<HHIQ")
_CONNECTED: Final = struct.Struct("<HHIQQ")
_CALL: Final = struct.Struct("<IIIBxxx")
_HEAD_CALL: Final = struct.Struct("<HBBHHIIQQIIIBxxx")
_SINK: Final = struct.Struct("<QQ")
_SOURCE: Final = struct.Struct("<QQIxxxx")
_REPLY: Final = struct.Struct("<IIIIQ")
_HEAD_REPLY: Final = struct.Struct("<HBBHHIIQQIIIIQ")
_NUMBER: Final = struct.Struct("<I")
_NUMBER_MAX: Final = 0xFFFFFFFF
_LONGEST_NAME: Final = 255
_MOST_NAMES: Final = 1024
_NAMES: Final[dict[str, bytes]] = {}  # of methods that were called
_METHODS: Final[dict[bytes, str]] = {}  # the same of requests that came
_SHORT: Final = 4096  # bytes of a message that are copied at once: parts of bytes are had sooner than views


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
    BATCH = 32  # in both directions


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
    """A client wants a session; `token` tells its answer from others. `knows` are bits of what it knows.

    `nids` are its own, where it has several: a server that does not discover takes each for a peer.
    """

    slots: int = 0
    largest: int = 0
    token: int = 0
    knows: int = 0
    nids: tuple[Nid, ...] = ()

    def pack(self) -> bytes:
        """The frame as bytes."""
        fixed = _CONNECT.pack(self.slots, self.knows, self.largest, self.token)
        return b"".join((self._head(Kind.CONNECT), fixed, *self.nids[:MAX_NIDS]))


@dataclass(slots=True)
class Connected(Frame):
    """The session that a server has made; `knows` are bits of what both know."""

    slots: int = 0
    largest: int = 0
    incarnation: int = 0
    token: int = 0
    knows: int = 0

    def pack(self) -> bytes:
        """The frame as bytes."""
        return self._head(Kind.CONNECTED) + _CONNECTED.pack(
            self.slots, self.knows, self.largest, self.incarnation, self.token
        )


@dataclass(frozen=True, slots=True)
class Bulk:
    """Memory of a client: the match bits of its first region, its length, and (of a source) its checksum."""

    bits: int
    length: int
    checksum: int = 0


# Frames of which there are many have constructors of their own: those that dataclasses make are not compiled.


@dataclass(slots=True, init=False)
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

    def __init__(
        self,
        session: int = 0,
        slot: int = 0,
        number: int = 0,
        attempt: int = 0,
        answer_to: int = 0,
        method: str = "",
        data: Buffer = b"",
        left: int = NO_DEADLINE,
        patience: int = 0,
        credit: int = 0,
        flags: int = 0,
        sink: Bulk | None = None,
        source: Bulk | None = None,
    ) -> None:
        self.session = session
        self.slot = slot
        self.number = number
        self.attempt = attempt
        self.answer_to = answer_to
        self.method = method
        self.data = data
        self.left = left
        self.patience = patience
        self.credit = credit
        self.flags = flags
        self.sink = sink
        self.source = source

    @property
    def lends(self) -> bool:
        """Whether its client lends memory to the handler; that of BODY is for its data alone."""
        return self.sink is not None or (self.source is not None and not self.flags & BODY)

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
        # fmt: off
        head = _HEAD_CALL.pack(MAGIC, VERSION, _KIND_CALL, self.slot, self.attempt, self.number, flags,
                               self.session, self.answer_to, self.left, self.patience, self.credit, len(name))
        # fmt: on
        return b"".join((head, middle, name, self.data))


@dataclass(slots=True, init=False)
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

    def __init__(
        self,
        session: int = 0,
        slot: int = 0,
        number: int = 0,
        attempt: int = 0,
        answer_to: int = 0,
        status: int = 0,
        chunks: int = 0,
        service_us: int = 0,
        checksum: int = 0,
        pushed: int = 0,
        data: Buffer = b"",
    ) -> None:
        self.session = session
        self.slot = slot
        self.number = number
        self.attempt = attempt
        self.answer_to = answer_to
        self.status = status
        self.chunks = chunks
        self.service_us = service_us
        self.checksum = checksum
        self.pushed = pushed
        self.data = data

    def pack(self) -> bytes:
        """The frame as bytes."""
        # fmt: off
        head = _HEAD_REPLY.pack(MAGIC, VERSION, _KIND_REPLY, self.slot, self.attempt, self.number, 0,
                                self.session, self.answer_to, self.status, self.chunks,
                                min(self.service_us, _NUMBER_MAX), self.checksum, self.pushed)
        # fmt: on
        return b"".join((head, self.data))


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
_KIND_CALL: Final = int(Kind.CALL)
_KIND_REPLY: Final = int(Kind.REPLY)
_KIND_BATCH: Final = int(Kind.BATCH)
_MAGIC_LOW: Final = MAGIC & 0xFF
_MAGIC_HIGH: Final = MAGIC >> 8
_START_OF_BATCH: Final = struct.pack("<HBB", MAGIC, VERSION, _KIND_BATCH)
_Head = tuple[int, int, int, int, int]  # session, slot, number, attempt, answer_to


def call_overhead(method: str, *, sink: bool = False, source: bool = False) -> int:
    """The bytes of a CALL beside its data."""
    bulk = (_SINK.size if sink else 0) + (_SOURCE.size if source else 0)
    return HEAD_SIZE + _CALL.size + bulk + len(_name(method))


def batch(session: int, frames: list[bytes]) -> bytes:
    """Frames of one session (MAX_BATCH at most) as one that holds them."""
    count = len(frames)
    head = _HEAD.pack(MAGIC, VERSION, _KIND_BATCH, count, 0, 0, 0, session, 0)
    return b"".join((head, struct.pack(f"<{count}I", *map(len, frames)), *frames))


def is_batch(message: Buffer) -> bool:
    """Whether it begins as a batch does."""
    return bytes(message[:4]) == _START_OF_BATCH


def session_of(frame: Buffer) -> int:
    """The session of a frame, of which at least the head is there."""
    return int.from_bytes(frame[16:24], "little")


def frames_in(message: Buffer) -> list[Buffer]:
    """The frames that a message is: those of a batch, or itself. Raises WireError."""
    if not is_batch(message):
        return [bytes(message) if len(message) <= _SHORT else message]
    if len(message) < HEAD_SIZE:
        raise WireError(f"batch of {len(message)} bytes: its head has {HEAD_SIZE}")
    raw = bytes(message)
    count = int.from_bytes(raw[4:6], "little")
    at = HEAD_SIZE + 4 * count
    whole = len(raw)
    if not 0 < count <= MAX_BATCH:
        raise WireError(f"batch of {count} frames: it has 1 to {MAX_BATCH}")
    if whole < at:
        raise WireError(f"batch of {count} frames, whose lengths are cut off")
    found: list[Buffer] = []
    for size in struct.unpack_from(f"<{count}I", raw, HEAD_SIZE):
        end = at + size
        # The kind is compared first: nearly no frame is a batch.
        if end > whole or (size > 3 and raw[at + 3] == _KIND_BATCH and raw.startswith(_START_OF_BATCH, at)):
            raise WireError(f"batch with a frame of {size} bytes, which is cut off, or a batch itself")
        found.append(raw[at:end])
        at = end
    return found


def unpack(frame: Buffer) -> Frame:
    """Read a frame; its data are a part or a view of it. Raises WireError."""
    size = len(frame)
    if size < HEAD_SIZE:
        raise WireError(f"frame of {size} bytes: a head has {HEAD_SIZE}")
    kind = frame[3]
    if frame[0] != _MAGIC_LOW or frame[1] != _MAGIC_HIGH or frame[2] != VERSION:
        return _unknown(frame)
    try:
        if kind == _KIND_CALL:
            return _call(frame, size)
        if kind == _KIND_REPLY:
            # fmt: off
            (_, _, _, slot, attempt, number, _, session, answer_to, status, chunks, service_us, checksum,
             pushed) = _HEAD_REPLY.unpack_from(frame)
            return Reply(session, slot, number, attempt, answer_to, status, chunks, service_us, checksum,
                         pushed, frame[_HEAD_REPLY.size :])
            # fmt: on
        read = _READERS.get(kind)
        if read is None:
            raise WireError(f"frame of kind {kind}: nobody knows what that is, or it is a batch")
        _, _, _, slot, attempt, number, _, session, answer_to = _HEAD.unpack_from(frame)
        return read((session, slot, number, attempt, answer_to), memoryview(frame)[HEAD_SIZE:], kind)
    except struct.error:
        raise WireError(f"frame of kind {kind} with {size} bytes: it is cut off") from None


def _unknown(frame: Buffer) -> Frame:
    """What is no frame of this version."""
    magic, version, _, slot, attempt, number, _, session, answer_to = _HEAD.unpack_from(frame)
    if magic != MAGIC:
        raise WireError(f"frame with magic {magic:#06x}: it is {MAGIC:#06x}")
    return OtherVersion(session, slot, number, attempt, answer_to, version)


def kind_of(frame: Buffer) -> Kind:
    """The kind of a frame that `unpack` reads."""
    return Kind(frame[3])


def _connect(head: _Head, rest: memoryview, kind: int) -> Frame:
    slots, knows, largest, token = _CONNECT.unpack_from(rest)
    return Connect(*head, slots, largest, token, knows, _nids(rest[_CONNECT.size :]))


def _nids(rest: memoryview) -> tuple[Nid, ...]:
    count = min(rest.nbytes // NID_SIZE, MAX_NIDS)
    try:
        return tuple(Nid(bytes(rest[at * NID_SIZE : (at + 1) * NID_SIZE])) for at in range(count))
    except NidError as bad:
        raise WireError(f"client with a NID that is none: {bad}") from None


def _connected(head: _Head, rest: memoryview, kind: int) -> Frame:
    slots, knows, largest, incarnation, token = _CONNECTED.unpack_from(rest)
    return Connected(*head, slots, largest, incarnation, token, knows)


def _call(frame: Buffer, size: int) -> CallFrame:
    # fmt: off
    (_, _, _, slot, attempt, number, flags, session, answer_to, left, patience, credit,
     length) = _HEAD_CALL.unpack_from(frame)
    # fmt: on
    at = _HEAD_CALL.size
    sink = source = None
    if flags & SINK:
        sink = _bulk(*_SINK.unpack_from(frame, at))
        at += _SINK.size
    if flags & SOURCE:
        source = _bulk(*_SOURCE.unpack_from(frame, at))
        at += _SOURCE.size
    if flags & BODY and source is None:
        raise WireError("request whose data are bulk, and which has none")
    end = at + length
    if not length or size < end:
        raise WireError("request without a method's whole name")
    raw = frame[at:end]
    name = raw if isinstance(raw, bytes) else bytes(raw)
    method = _METHODS.get(name)
    if method is None:
        method = _method(name)
    # fmt: off
    return CallFrame(session, slot, number, attempt, answer_to, method, frame[end:], left, patience, credit,
                     flags, sink, source)
    # fmt: on


def _method(name: bytes) -> str:
    try:
        method = name.decode()
    except UnicodeDecodeError:
        raise WireError("request for a method whose name is not UTF-8") from None
    if len(_METHODS) < _MOST_NAMES:
        _METHODS[name] = method
    return method


def _bulk(bits: int, length: int, checksum: int = 0) -> Bulk:
    if length > MAX_BULK or bits & 0xFFFF:
        raise WireError(f"bulk of {length} bytes at {bits:#x}: too long, or no room for its regions")
    return Bulk(bits, length, checksum)


def _chunk(head: _Head, rest: memoryview, kind: int) -> Frame:
    (index,) = _NUMBER.unpack_from(rest)
    return Chunk(*head, index, rest[_NUMBER.size :])


def _refused(head: _Head, rest: memoryview, kind: int) -> Frame:
    (errno,) = _NUMBER.unpack_from(rest)
    return Refused(*head, errno, str(rest[_NUMBER.size :], "utf-8", "replace"))


def _note(head: _Head, rest: memoryview, kind: int) -> Frame:
    known = Kind(kind)
    return Note(*head, known, 0 if known in _BARE else _NUMBER.unpack_from(rest)[0])


_READERS: Final[dict[int, Callable[[_Head, memoryview, int], Frame]]] = {
    Kind.CONNECT: _connect,
    Kind.CONNECTED: _connected,
    Kind.CHUNK: _chunk,
    Kind.REFUSED: _refused,
    Kind.CANCEL: _note,
    Kind.CREDIT: _note,
    Kind.CLOSE: _note,
    Kind.WORKING: _note,
    Kind.BUSY: _note,
}


def _name(method: str) -> bytes:
    known = _NAMES.get(method)
    if known is not None:
        return known
    try:
        name = method.encode()
    except UnicodeEncodeError:
        name = b""
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise WireError(f"method {method[:40]!r}: its name has 1 to {_LONGEST_NAME} bytes of UTF-8")
    if len(_NAMES) >= _MOST_NAMES:
        _NAMES.clear()
    _NAMES[method] = name
    return name
