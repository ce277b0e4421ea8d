"""Events: what happened to a memory descriptor (spec md-me-eq.md §5)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus
from ulnet.nid import ANY_NID, Nid

if TYPE_CHECKING:
    from ulnet.core.md import Md
    from ulnet.wire.lnet import Header

__all__ = ["Event", "EventKind"]

_OK: Final = HealthStatus.OK


class EventKind(IntEnum):
    """What an event tells of (numbers as in spec md-me-eq.md §5).

    - `PUT`: to the target, when the bytes are in its memory.
    - `GET`: to the target, when its answer has left.
    - `SEND`: to the initiator, when a message has left, which does not say that it arrived.
    - `ACK`: to the initiator of a PUT, when the target has answered, or will not any more.
    - `REPLY`: to the initiator of a GET, when the bytes are in its memory, or will not be any more.
    - `UNLINK`: the memory was taken back while nothing was under way.
    """

    GET = 1  # target of a GET, after the REPLY left
    PUT = 2  # target of a PUT, data in memory
    REPLY = 3  # initiator of a GET, data in memory
    ACK = 4  # initiator of a PUT
    SEND = 5  # initiator, after local completion (not delivery)
    UNLINK = 6  # the MD was unlinked while idle


class Event:
    """One event of one MD; the header's fields are read through.

    `status` is 0 or -errno; `reason` says why in a sentence, `health` in LNet's code. `initiator` is the
    primary NID of the peer that began the operation, `source` the NID it came from, `sender` the last hop.
    Lengths and offsets are bytes; SEND events repeat the request (target, portal, bits, offset, header
    data). `unlinked` marks the last event of the MD.
    """

    __slots__ = (
        "hdr",
        "health",
        "initiator",
        "kind",
        "md",
        "mlength",
        "offset",
        "reason",
        "rlength",
        "sender",
        "status",
        "unlinked",
    )

    def __init__(
        self,
        kind: EventKind,
        md: Md,
        hdr: Header | None,
        initiator: Nid = ANY_NID,
        sender: Nid = ANY_NID,
        mlength: int = 0,
        rlength: int = 0,
        offset: int = 0,
    ) -> None:
        self.kind: EventKind = kind
        self.md: Md = md
        self.hdr: Header | None = hdr
        self.initiator: Nid = initiator
        self.sender: Nid = sender
        self.mlength: int = mlength
        self.rlength: int = rlength
        self.offset: int = offset
        self.status: int = 0
        self.health: HealthStatus = _OK
        self.reason: str = ""
        self.unlinked: bool = False

    def copy(self) -> Event:
        """Another event of the same; that of a success may be one for many messages that are alike."""
        # fmt: off
        return Event(self.kind, self.md, self.hdr, self.initiator, self.sender, self.mlength, self.rlength,
                     self.offset)
        # fmt: on

    def __copy__(self) -> Event:
        other = self.copy()
        other.status, other.health, other.reason = self.status, self.health, self.reason
        other.unlinked = self.unlinked
        return other

    @property
    def source(self) -> Nid:
        """The NID the message came from; ANY for events of our own sends."""
        hdr = self.hdr
        if hdr is None or self.kind in (EventKind.SEND, EventKind.UNLINK):
            return ANY_NID
        return hdr.src_nid

    @property
    def source_pid(self) -> int:
        """The pid of the sender (ours in SEND events)."""
        return self.hdr.src_pid if self.hdr is not None else 0

    @property
    def target(self) -> Nid:
        """The destination NID in the header."""
        return self.hdr.dest_nid if self.hdr is not None else ANY_NID

    @property
    def portal(self) -> int:
        """The portal index of the request."""
        return self.hdr.portal if self.hdr is not None else 0

    @property
    def match_bits(self) -> int:
        """The match bits of the request (ACKs carry them too)."""
        return self.hdr.match_bits if self.hdr is not None else 0

    @property
    def hdr_data(self) -> int:
        """64 bits of the PUT's sender; 0 otherwise."""
        return self.hdr.hdr_data if self.hdr is not None else 0

    @property
    def data(self) -> memoryview:
        """The bytes of this event in the MD's first fragment (one-fragment MDs: all of them)."""
        start = 0 if self.kind is EventKind.SEND else self.offset  # a SEND's offset is in the target's memory
        return self.md.fragments[0][start : start + self.mlength]

    def __repr__(self) -> str:
        return f"<Event {self.kind.name} status={self.status} mlength={self.mlength} offset={self.offset}>"
