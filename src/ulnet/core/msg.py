"""Messages: what goes out (`Msg`), and what comes in and is not whole yet (`Incoming`)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from ulnet.wire.lnet import NO_WMD, MsgType, pack_header

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.core.lnd import Master, Payload
    from ulnet.core.md import Md
    from ulnet.core.ni import NI
    from ulnet.core.path import Path
    from ulnet.core.path_load import InFlight
    from ulnet.core.peer import PeerNi
    from ulnet.nid import Nid
    from ulnet.wire.lnet import Header

__all__ = ["ANSWERS", "NO_PAYLOAD", "Attempts", "Incoming", "Msg", "Transit"]

ANSWERS: Final = (int(MsgType.ACK), int(MsgType.REPLY))
NO_PAYLOAD: Final[list[memoryview]] = []
_FIRST_PAUSE: Final = 0.1  # seconds before a pair is tried again
_LONGEST_PAUSE: Final = 5.0


class Attempts:
    """What a message that failed remembers: its attempts, the pairs that it took, when it gives up."""

    __slots__ = ("count", "deadline", "forsaken", "last", "pause", "tried")

    def __init__(self, deadline: float) -> None:
        self.count = 0
        self.deadline = deadline
        self.pause = 0.0  # before the last attempt
        self.last: tuple[NI, PeerNi] | None = None  # where it failed, until another path is chosen
        self.tried: list[tuple[NI, PeerNi]] = []
        self.forsaken = False  # the peer that may have it has begun a new life

    def pause_after(self, ni: NI, pni: PeerNi) -> float:
        """Seconds to wait after a failure on that pair."""
        if (ni, pni) not in self.tried:
            return 0.0
        return min(max(self.pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)


class Msg:
    """One PUT, GET, ACK or REPLY that goes out.

    `template` is its header without NIDs; `hdr` is that with the NIDs of its path, and is shared by all
    messages of that template on that path: nobody changes it. `wmd` is the message's own handle, in place of
    that in the header. `payload` holds its bytes as memoryviews of the owner's memory.
    """

    __slots__ = (
        "attempts",
        "committed",
        "copied",
        "copy_of",
        "cpt",
        "event",
        "exact",
        "hdr",
        "in_flight",
        "master",
        "md",
        "next_nid",
        "next_pid",
        "ni",
        "path",
        "payload",
        "peer_ni",
        "queued_at",
        "source",
        "target",
        "template",
        "transit",
        "unconnected",
        "unsent",
        "via",
        "wmd",
    )

    def __init__(self, template: Header) -> None:
        self.template = template
        self.hdr = template
        self.wmd = NO_WMD
        self.payload: list[memoryview] = NO_PAYLOAD
        self.md: Md | None = None
        self.path: Path | None = None
        self.ni: NI | None = None  # of its path
        self.peer_ni: PeerNi | None = None  # its next hop
        self.next_nid: Nid | None = None
        self.next_pid = 0
        self.source: Nid | None = None  # the NI that it is bound to, as asked for
        self.target: Nid | None = None  # the destination as asked for
        self.cpt = 0
        self.exact = False  # goes to that NID of its peer and no other
        self.via: Nid | None = None  # the gateway that it goes over, where that is given
        self.committed = False  # holds credits of its path, or waits for them
        self.queued_at = 0.0
        self.unconnected = False  # its driver has no connection for it: it holds no credit of its NI
        self.unsent = False  # set by a driver that fails it: no byte has left, so any other path may be tried
        self.in_flight: InFlight | None = None  # its load on the path
        self.attempts: Attempts | None = None  # once it has failed and may set out again
        self.transit: Transit | None = None  # passes through this router
        self.master: Master | None = None  # that passed it on, and chose its path
        self.event: Event | None = None  # of a REPLY: what the owner of its memory hears
        self.copied = False  # a copy was sent over another path: what becomes of this one is no matter
        self.copy_of: Msg | None = None  # of a PUT whose SEND event is its original's

    @property
    def awaits_answer(self) -> bool:
        """Whether an ACK or a REPLY will tell of its delivery."""
        kind = self.hdr.type
        return kind == MsgType.GET or (kind == MsgType.PUT and self.wmd is not NO_WMD)

    def pack(self, large: bool) -> bytes:
        """Its header on the wire. Raises WireError."""
        hdr = self.hdr
        if self.wmd is hdr.wmd or self.wmd == hdr.wmd:
            return pack_header(hdr, large)
        hdr = hdr.copy()
        hdr.wmd = self.wmd
        return pack_header(hdr, large)


class Incoming:
    """One message that comes in: under way into memory, waiting for memory, or on its way through a router.

    `rx` is what its driver gave with its header.
    """

    __slots__ = (
        "ended",
        "hdr",
        "hop",
        "identity",
        "md",
        "mlength",
        "next_nid",
        "ni",
        "offset",
        "peer_ni",
        "rx",
        "transit",
    )

    def __init__(self, hdr: Header, ni: NI, peer_ni: PeerNi, next_nid: Nid) -> None:
        self.hdr = hdr
        self.ni = ni
        self.peer_ni = peer_ni  # who sent it
        self.next_nid = next_nid  # the next hop that it came by
        self.hop = peer_ni  # the peer NI of that
        self.md: Md | None = None
        self.mlength = 0
        self.offset = 0
        self.rx: Payload | None = None
        self.transit: Transit | None = None
        self.identity = b""  # of a PUT that is never taken twice
        self.ended = False


class Transit:
    """A message that passes through this router: where it came from, and what it holds."""

    __slots__ = (
        "buffer",
        "cpt",
        "deadline",
        "from_nid",
        "from_router",
        "has_credit",
        "hdr",
        "held_for",
        "left",
        "ni",
        "rx",
        "sender",
        "why",
    )

    def __init__(
        self, ni: NI, sender: PeerNi, hdr: Header, from_nid: Nid, rx: Payload | None, cpt: int
    ) -> None:
        self.ni = ni
        self.sender = sender
        self.hdr = hdr
        self.from_nid = from_nid
        self.rx = rx
        self.cpt = cpt
        self.from_router = False  # whether its sender is a router, too
        self.has_credit = False  # of its sender; and it has a buffer, or waits for one
        self.buffer: bytearray | None = None
        self.held_for = hdr.dest_nid  # under which its pool counts that buffer
        self.left = False  # gave everything back
        self.deadline = inf  # nobody waits for it after that
        self.why = ""  # it could not be sent on
