"""What the o2iblnd engine needs of RDMA devices: a port with a hand for each of them.

`ulnet.lnd.o2ib.rdma` has it on rdma-core, `ulnet.sim.verbs` on a virtual network. Everything told to an owner
is told from the event loop, never from inside a call of the port. After `close` nothing is told any more, and
nothing touches memory that was registered for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.wire.errors import Buffer

__all__ = [
    "CmEvent",
    "Device",
    "DeviceEvent",
    "DeviceOwner",
    "PairOwner",
    "Piece",
    "QueuePair",
    "Region",
    "Request",
    "Send",
    "Shape",
    "Slot",
    "Verbs",
    "Work",
    "Write",
]


class CmEvent(Enum):
    """What the connection manager tells of a connection."""

    ADDR_ERROR = "no device leads to that address"
    ROUTE_ERROR = "no route leads there"
    UNREACHABLE = "it does not answer"
    CONNECT_ERROR = "the connection could not be set up"
    REJECTED = "it refuses"
    ESTABLISHED = "the connection is up"
    DISCONNECTED = "it disconnected"


class DeviceEvent(Enum):
    """What becomes of a device or its port."""

    DEVICE_FATAL = "the device failed"
    PORT_ERR = "the port is down"
    PORT_ACTIVE = "the port is up"
    DEVICE_REMOVAL = "the device was removed"
    ADDR_CHANGE = "its address moved to another device"


class Shape(NamedTuple):
    """A queue pair: how many work requests of each kind it holds, and how often hardware tries again."""

    sends: int  # messages that are posted and not completed, at most
    writes: int  # RDMA writes that go before each of them, at most
    receives: int  # posted from the beginning
    retries: int
    rnr_retries: int  # 7: for ever
    tos: int  # -1: unset


class Region(Protocol):
    """Registered memory."""

    key: int  # by which the peer may write to it, where it may
    address: int  # of its first byte

    def release(self) -> None:
        """Its owner may do with the memory as he likes."""


class Piece(NamedTuple):
    """Bytes of registered memory."""

    region: Region
    offset: int
    length: int


class Write(NamedTuple):
    """An RDMA write of pieces, which are one after the other there, at most `Device.pieces` of them."""

    pieces: Sequence[Piece]
    key: int
    address: int


class Send(NamedTuple):
    """A message; parts are copied before `post` returns. `token` comes back in `PairOwner.sent`."""

    parts: Sequence[Buffer]
    token: object


Work = Write | Send


class Slot:
    """A received message: `buf[start : start + size]`. It is its owner's until given back by `recycle`."""

    __slots__ = ("buf", "number", "size", "start", "view")

    def __init__(self, buf: bytearray, start: int = 0, number: int = 0) -> None:
        self.buf: bytearray = buf
        self.view: memoryview = memoryview(buf)
        self.start: int = start
        self.size: int = 0
        self.number: int = number  # the port's own


class PairOwner(Protocol):
    """Who has a queue pair."""

    def managed(self, event: CmEvent, status: int, private: bytes) -> None:
        """The connection manager tells of it; `status` is its reason for REJECTED, else an errno or 0."""

    def received(self, slot: Slot) -> None:
        """A message came."""

    def sent(self, tokens: list[object]) -> None:
        """Messages with these tokens are with the other side's device, and all writes before them."""

    def broken(self, status: str, here: bool = False) -> None:
        """A work request failed, and all that follow it will: close the pair.

        `here`: by the device, not by what the peer or the network did.
        """


class QueuePair(Protocol):
    """A connected queue pair, or one that is being connected, in a protection domain of its own."""

    def register(self, view: memoryview, remote: bool) -> Region:
        """Register memory for its own reading, or, if `remote`, for writes of the other side: no other queue
        pair may use the key. It may be released after `close`. Raises LNetError(ENOMEM).
        """

    def post(self, works: Sequence[Work]) -> None:
        """Do these in order, as one call of the device where possible. `sent` or `broken` tells later."""

    def recycle(self, slot: Slot) -> None:
        """Post that receive buffer again."""

    def close(self) -> None:
        """End it at once: the other side is told where it can be."""


class Request(Protocol):
    """A peer wants to connect."""

    private: bytes
    source: str  # the address that calls

    def accept(self, owner: PairOwner, private: bytes, shape: Shape) -> QueuePair:
        """Let it. ESTABLISHED follows; messages may come before that. Raises LNetError."""

    def reject(self, private: bytes) -> None:
        """Do not."""


class DeviceOwner(Protocol):
    """Who has a device."""

    def requested(self, request: Request) -> None:
        """A peer wants to connect: accept or reject it before this returns."""

    def device_event(self, event: DeviceEvent, words: str) -> None:
        """What becomes of the device; after DEVICE_FATAL and DEVICE_REMOVAL it is of no use: close it."""


class Device(Protocol):
    """An RDMA device as one NI uses it."""

    name: str
    pieces: int  # of local memory that one work request takes

    def connect(self, address: str, owner: PairOwner, private: bytes, shape: Shape) -> QueuePair:
        """Call the address at the NI's service. `managed` tells how that went. Raises LNetError."""

    def close(self) -> None:
        """Listen no more; all queue pairs were closed, and all memory was released before."""


class Verbs(Protocol):
    """The RDMA devices of a host."""

    def open(self, ni: NI, service: int, owner: DeviceOwner) -> Device:
        """Listen at the address of an NI, on the device that has it. Raises LNetError."""

    def close(self) -> None:
        """Nothing is open any more: forget what is still on its way."""

    def forked(self) -> None:
        """In a child of the process, which shares the parent's devices: touch none of them."""
